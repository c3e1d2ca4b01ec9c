"""The section `prometheus.layout` of the settings: which series are read, and by which labels."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from autoscaler.adapters.prometheus.layout import (
    ANY,
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
_KUBELET = Names("namespace", "pod", "container")

Metric = Annotated[str, AfterValidator(checked_metric)]
Label = Annotated[str, AfterValidator(checked_label)]


def _matchers(value: str) -> str:
    if not matchers_of(value):
        raise ValueError("is empty; leave it out")
    return value


Matchers = Annotated[str, AfterValidator(_matchers)]


class MetricNames(BaseModel):
    """What the three series are called."""

    model_config = _MODEL

    cpu: Metric = Field(ANY.cpu, description="Counter, core-seconds.")
    memory: Metric = Field(ANY.memory, description="Gauge, working set in bytes.")
    in_use: Metric = Field(ANY.in_use, description="Gauge, memory with page cache in bytes.")


class LabelNames(BaseModel):
    """Which labels say whose a series is."""

    model_config = _MODEL

    namespace: Label = Field(_KUBELET.namespace, description="Name of the namespace.")
    pod: Label = Field(_KUBELET.pod, description="Name of the pod.")
    container: Label = Field(_KUBELET.container, description="Name of the container.")

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
            cpu=self.metrics.cpu,
            memory=self.metrics.memory,
            in_use=self.metrics.in_use,
            variants=base.variants if self.labels is None else (Variant(Names(**self.labels.model_dump())),),
            matchers=(*(base.matchers if self.matchers is None else matchers_of(self.matchers)), *cluster),
            # who says which cluster need not be asked which, unless they name the label to tell by as well
            cluster_labels=() if cluster and self.cluster_label is None else labels,
            params=base.params,
        )
