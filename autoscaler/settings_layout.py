"""The section `prometheus.layout` of the settings: which series are read, and by which labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_snake

from autoscaler.adapters.prometheus.layout import (
    ANY,
    KUBELET,
    PRESETS,
    Layout,
    Names,
    Variant,
    checked_label,
    checked_metric,
    matchers_of,
)
from autoscaler.recommenders.parameters import STRICT

_MODEL = ConfigDict(**{**STRICT, "validate_by_name": False})

Metric = Annotated[str, AfterValidator(checked_metric)]
Label = Annotated[str, AfterValidator(checked_label)]


def _matchers(value: str) -> str:
    if not matchers_of(value):
        raise ValueError("is empty; leave it out")
    return value


Matchers = Annotated[str, AfterValidator(_matchers)]


class MetricNames(BaseModel):
    """What the series are called."""

    model_config = _MODEL

    cpu: Metric = Field(ANY.cpu, description="Counter, core-seconds.")
    memory: Metric = Field(ANY.memory, description="Gauge, working set in bytes.")
    in_use: Metric = Field(ANY.in_use, description="Gauge, memory with page cache in bytes.")
    throttled_periods: Metric = Field(ANY.throttled_periods, description="Counter, throttled CFS periods.")
    periods: Metric = Field(ANY.periods, description="Counter, CFS periods.")
    cpu_pressure: Metric = Field(ANY.cpu_pressure, description="Counter, seconds of waiting for a CPU.")
    memory_pressure: Metric = Field(ANY.memory_pressure, description="Counter, seconds of waiting for memory.")
    memory_peak: Metric = Field(ANY.memory_peak, description="Gauge, peak since the start in bytes.")
    memory_limit: Metric = Field(ANY.memory_limit, description="Gauge, bytes; 0 is no limit.")
    gpu_memory: Metric = Field(ANY.gpu_memory, description="Gauge, used memory of a GPU in MiB.")
    gpu_memory_free: Metric = Field(ANY.gpu_memory_free, description="Gauge, free memory of a GPU in MiB.")
    gpu_engine: Metric = Field(ANY.gpu_engine, description="Gauge, share of time in which a GPU works.")
    gpu_utilisation: Metric = Field(ANY.gpu_utilisation, description="Gauge, the same in percent.")


class LabelNames(BaseModel):
    """Which labels say whose a series is."""

    model_config = _MODEL

    namespace: Label = Field(KUBELET.namespace, description="Name of the namespace.")
    pod: Label = Field(KUBELET.pod, description="Name of the pod.")
    container: Label = Field(KUBELET.container, description="Name of the container.")

    @model_validator(mode="after")
    def _differ(self) -> LabelNames:
        if len({self.namespace, self.pod, self.container}) < 3:
            raise ValueError(f"{self.namespace}, {self.pod} and {self.container} are to be three labels")
        return self


class LayoutSection(BaseModel):
    """Which series are read, and by which labels."""

    model_config = _MODEL

    preset: Literal[tuple(PRESETS)] | None = Field(None, description="What the shop runs.")  # type: ignore[valid-type]
    metrics: MetricNames = Field(MetricNames(), description="Names of metrics.")
    labels: LabelNames | None = Field(None, description="Names of labels. Default: found out.")
    matchers: Matchers | None = Field(None, description="Further matchers of every query.")
    cluster_label: Label | None = Field(None, description="The label that tells clusters apart. Default: the usual.")
    cluster_matcher: Matchers | None = Field(None, description="Matchers that select this cluster.")

    def layout(self) -> Layout:
        """The layout that is meant."""
        base = ANY if self.preset is None else PRESETS[self.preset]
        cluster = () if self.cluster_matcher is None else matchers_of(self.cluster_matcher)
        labels = base.cluster_labels if self.cluster_label is None else (self.cluster_label,)
        return Layout(
            **self.metrics.model_dump(),
            variants=base.variants if self.labels is None else (Variant(Names(**self.labels.model_dump())),),
            matchers=base.matchers if self.matchers is None else matchers_of(self.matchers),
            cluster=cluster,
            # who says which cluster need not be asked which, unless they name the label to tell by as well
            cluster_labels=() if cluster and self.cluster_label is None else labels,
            params=base.params,
        )


def _keys() -> Iterator[tuple[str, ...]]:
    sections: Mapping[str, type[BaseModel]] = {"metrics": MetricNames, "labels": LabelNames}
    for name, field in LayoutSection.model_fields.items():
        if name in sections:
            yield from ((name, str(inner.alias)) for inner in sections[name].model_fields.values())
        else:
            yield (str(field.alias),)


VARIABLES: Mapping[tuple[str, ...], str] = MappingProxyType(
    {path: "_".join(("LAYOUT", *(to_snake(key).upper() for key in path))) for path in _keys()}
)
"""The variable of each key, by its path below `prometheus.layout` and without the prefix of `prometheus`."""
