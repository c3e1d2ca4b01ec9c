"""The keys of the policy document, their types, defaults and units, as pydantic models that make core values.

What the document means as a whole is policyfile.py's business. docs/policies.md describes each key; a test compares
the two.
"""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, PlainValidator, WithJsonSchema

from autoscaler.adapters.prometheus.signals import PLACEHOLDERS
from autoscaler.adapters.sessions.query import checked_query
from autoscaler.core.foreign import shown
from autoscaler.core.labels import Operator
from autoscaler.core.model import Resource, ResourceList
from autoscaler.core.policy import (
    ByDirection,
    ContainerPolicy,
    DrainPolicy,
    Fallback,
    FallbackAction,
    Landing,
    LimitMode,
    Migration,
    Mode,
    PodEndpoint,
    Stability,
    Strategy,
)
from autoscaler.core.recommender import Grid
from autoscaler.core.units import Bytes, Millicores, parse_cpu, parse_memory, parse_quantity
from autoscaler.names import (
    checked_container,
    checked_label_key,
    checked_label_value,
    checked_name,
    checked_namespace,
    checked_signal,
)
from autoscaler.recommenders.parameters import STRICT, Duration, Ratio

DEFAULT_RECOMMENDER = "bridge"
_STABILITY = Stability()
_FALLBACK = Fallback()
_MIGRATION = Migration()
_DRAIN = DrainPolicy()
_PATH = r"/[!-\"$-~]*"  # what may stand in a request line as it is, without the # of a fragment


def _amount(value: object, resource: Resource) -> int:
    example = "500m or 2" if resource is Resource.CPU else "256Mi or 4Gi"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{shown(value)} is not a quantity; write it like {example}")
    text = value if isinstance(value, str) else repr(value)
    exact = parse_quantity(text)
    whole = exact.scaleb(3) if resource is Resource.CPU else exact
    if whole != whole.to_integral_value():
        unit = "millicore" if resource is Resource.CPU else "byte (the suffix m means thousandths)"
        raise ValueError(f"{shown(text)} is a fraction of a {unit}; write it like {example}")
    if not exact:
        raise ValueError("0 is no bound; leave the key out")
    return parse_cpu(text) if resource is Resource.CPU else parse_memory(text)


def _cpu(value: object) -> int:
    return _amount(value, Resource.CPU)


def _memory(value: object) -> int:
    return _amount(value, Resource.MEMORY)


def _port(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65535:
        raise ValueError(f"{shown(value)} is not a port; write a number from 1 to 65535")
    return value


def _path(value: str) -> str:
    if re.fullmatch(_PATH, value) is None:
        raise ValueError(f"{shown(value)} is not a path; write it like /sessions, without spaces and #")
    return value


def _schema(examples: list[str]) -> WithJsonSchema:
    return WithJsonSchema({"type": ["string", "number"], "examples": examples})


Cpu = Annotated[int, PlainValidator(_cpu), _schema(["100m", "2"])]
Memory = Annotated[int, PlainValidator(_memory), _schema(["256Mi", "16Gi"])]
Name = Annotated[str, AfterValidator(checked_name)]
Namespace = Annotated[str, AfterValidator(checked_namespace)]
ContainerName = Annotated[str, AfterValidator(checked_container)]
LabelKey = Annotated[str, AfterValidator(checked_label_key)]
LabelValue = Annotated[str, AfterValidator(checked_label_value)]
Port = Annotated[int, PlainValidator(_port), WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 65535})]
Path = Annotated[str, AfterValidator(_path), WithJsonSchema({"type": "string", "pattern": f"^{_PATH}$"})]
Query = Annotated[str, AfterValidator(checked_query)]
SignalName = Annotated[str, AfterValidator(checked_signal)]
SignalQuery = Annotated[str, AfterValidator(partial(checked_query, placeholders=PLACEHOLDERS))]


class Section(BaseModel):
    """A mapping of the document: frozen, without unknown keys, in camelCase."""

    model_config = STRICT


class Metadata(Section):
    name: Name = Field(description="Name of the policy; unique among all files that are loaded.")


class ExpressionSection(Section):
    key: LabelKey = Field(description="Label key.")
    operator: Operator = Field(description="How the label is compared.")
    values: tuple[LabelValue, ...] = Field((), description="For In and NotIn: the values.")


class SelectorSection(Section):
    """Which pods the policy is for. All that is given must hold."""

    namespaces: tuple[Namespace, ...] = Field((), description='Namespaces by name; ["*"] for all. Default: all.')
    match_labels: dict[LabelKey, LabelValue] = Field({}, description="Labels that a pod must have.")
    match_expressions: tuple[ExpressionSection, ...] = Field((), description="Further requirements on labels.")


class RecommenderSection(Section):
    """The algorithm that turns usage into a target."""

    name: str = Field(DEFAULT_RECOMMENDER, description="Name of an installed recommender.")
    parameters: dict[str, Any] = Field({}, description="Parameters of that recommender.")


class AmountsSection(Section):
    cpu: Cpu | None = Field(None, description="CPU, as a Kubernetes quantity in whole millicores.")
    memory: Memory | None = Field(None, description="Memory, as a Kubernetes quantity in whole bytes.")

    def core(self) -> ResourceList:
        return ResourceList(
            None if self.cpu is None else Millicores(self.cpu), None if self.memory is None else Bytes(self.memory)
        )


class ContainerSection(Section):
    """How containers are sized. An exact name wins over a pattern; among patterns the first."""

    name: ContainerName = Field(description='Container name, or a pattern with * and ?; "*" for all.')
    mode: Literal["Auto", "Off"] = Field("Auto", description="Off leaves the container alone.")
    controlled_resources: tuple[Resource, ...] = Field(tuple(Resource), description="Resources that may be changed.")
    min_allowed: AmountsSection = Field(AmountsSection(), description="Requests are never set below this.")
    max_allowed: AmountsSection = Field(
        AmountsSection(), description="Requests are never set above this, and limits do not grow beyond it."
    )
    limits: LimitMode = Field(
        LimitMode.KEEP,
        description="What happens to limits: Keep the ratio to the request, Equal to it, or RequestsOnly.",
    )

    def core(self) -> ContainerPolicy:
        return ContainerPolicy(
            name=self.name,
            managed=self.mode == "Auto",
            controlled=frozenset(self.controlled_resources),
            min_allowed=self.min_allowed.core(),
            max_allowed=self.max_allowed.core(),
            limits=self.limits,
        )


class SignalSection(Section):
    """A signal of the policy's own."""

    query: SignalQuery = Field(
        description="PromQL for a number by namespace and pod, and container if it likes; selects pods by $pod."
    )


class MetricsSection(Section):
    """Which samples are read from Prometheus."""

    lookback: Duration = Field(timedelta(days=14), description="How far back usage is read at the start.")
    step: Duration = Field(timedelta(seconds=60), description="Distance of samples.")
    rate_window: Duration = Field(timedelta(minutes=5), description="Range of the CPU rate.")
    signals: dict[SignalName, SignalSection] = Field({}, description="For recommenders that read them.")
    min_coverage: Ratio = Field(0.8, description="Share of the samples without which nothing is lowered.")

    @property
    def grid(self) -> Grid:
        return Grid(int(self.step.total_seconds()), int(self.lookback.total_seconds()))


class MinChangeSection(Section):
    increase: Ratio = Field(_STABILITY.min_change.increase, description="Smallest increase worth doing.")
    decrease: Ratio = Field(_STABILITY.min_change.decrease, description="Smallest decrease worth doing.")


class MaxStepSection(Section):
    increase: Ratio = Field(_STABILITY.max_step.increase, description="Largest increase in one step.")
    decrease: Ratio = Field(_STABILITY.max_step.decrease, description="Largest decrease in one step.")


class CooldownSection(Section):
    increase: Duration = Field(_STABILITY.cooldown.increase, description="Wait after a resize before an increase.")
    decrease: Duration = Field(_STABILITY.cooldown.decrease, description="Wait after a resize before a decrease.")


class StabilitySection(Section):
    """What keeps sizes from flapping. Ratios are of the size in force."""

    min_change: MinChangeSection = Field(MinChangeSection(), description="Changes below this are not made.")
    max_step: MaxStepSection = Field(MaxStepSection(), description="Changes beyond this are made in steps.")
    cooldown: CooldownSection = Field(CooldownSection(), description="Time between two resizes of a pod.")
    other_writer_hold: Duration = Field(
        _STABILITY.other_writer_hold, description="How long a pod is left alone after someone else asked for a size."
    )

    def core(self) -> Stability:
        return Stability(
            min_change=ByDirection(self.min_change.increase, self.min_change.decrease),
            max_step=ByDirection(self.max_step.increase, self.max_step.decrease),
            cooldown=ByDirection(self.cooldown.increase, self.cooldown.decrease),
            other_writer_hold=self.other_writer_hold,
        )


class EndpointSection(Section):
    """An HTTP address of each pod."""

    port: Port = Field(description="Port of the pod, as a number.")
    path: Path = Field("/", description="Path, and query if any.")

    def core(self) -> PodEndpoint:
        return PodEndpoint(self.port, self.path)


class DrainSection(Section):
    """How the users' sessions are waited for. One of query and endpoint must be given."""

    query: Query | None = Field(
        None, description="PromQL for the number of live sessions by namespace and pod; selects pods by $pod."
    )
    endpoint: EndpointSection | None = Field(None, description="Answers GET with the number of live sessions.")
    notify: EndpointSection | None = Field(
        None, description="Is POSTed to when the pod is to take no new sessions, and when it may again."
    )
    max_wait: Duration = Field(
        _DRAIN.max_wait,
        description="How long sessions are waited for, from the first notice on; without notify from the deadline.",
    )
    then_force: bool = Field(_DRAIN.then_force, description="Then move the pod all the same; else it is not moved.")

    def core(self) -> DrainPolicy:
        return DrainPolicy(
            query=self.query,
            endpoint=None if self.endpoint is None else self.endpoint.core(),
            notify=None if self.notify is None else self.notify.core(),
            max_wait=self.max_wait,
            then_force=self.then_force,
        )


class FallbackSection(Section):
    """What happens to a resize that the kubelet does not do. Times count from the newest ask."""

    after: Duration = Field(_FALLBACK.after, description="How long a Deferred resize is waited for.")
    infeasible_after: Duration | None = Field(None, description="How long an Infeasible one is. Default: as after.")
    error_after: Duration = Field(
        _FALLBACK.error_after, description="How long a memory decrease that the kubelet cannot apply is waited for."
    )
    action: FallbackAction | None = Field(
        None,
        description="What then: Revert the spec to what is in force, Hold (keep asking), or Migrate the pod. "
        "Default: Migrate in mode ResizeOrMigrate, else Revert.",
    )
    fit: bool = Field(_FALLBACK.fit, description="Half-way to the deadline, ask for as much as the node has room for.")
    retry_after: Duration = Field(
        _FALLBACK.retry_after, description="After giving up, time before an ask that would be deferred again."
    )
    strategy: Strategy = Field(
        _MIGRATION.strategy,
        description="How a pod is moved: Evict; Surge (a new pod first, for Deployments); None (only say so).",
    )
    landing: Landing = Field(
        _MIGRATION.landing,
        description="Of the nodes that could take a replacement that is created too small, which must have room for "
        "the target.",
    )
    min_pod_age: Duration = Field(
        _MIGRATION.min_pod_age, description="How old the youngest pod of a workload must be before one is moved."
    )
    ready_within: Duration = Field(_MIGRATION.ready_within, description="How long a surge waits for its new pod.")
    drain: DrainSection | None = Field(
        None, description="How the users' sessions are waited for. Default: they are not."
    )

    def action_in(self, mode: Mode) -> FallbackAction:
        """What is done past the deadline, in a policy of this mode."""
        if self.action is not None:
            return self.action
        return FallbackAction.MIGRATE if mode is Mode.RESIZE_OR_MIGRATE else _FALLBACK.action

    def core(self, mode: Mode) -> Fallback:
        return Fallback(
            after=self.after,
            infeasible_after=self.after if self.infeasible_after is None else self.infeasible_after,
            error_after=self.error_after,
            retry_after=self.retry_after,
            action=self.action_in(mode),
            fit=self.fit,
            migration=Migration(
                strategy=self.strategy,
                min_pod_age=self.min_pod_age,
                landing=self.landing,
                ready_within=self.ready_within,
                drain=None if self.drain is None else self.drain.core(),
            ),
        )


class Spec(Section):
    selector: SelectorSection = Field(description="Which pods the policy is for.")
    mode: Mode = Field(
        Mode.RECOMMEND, description="Off: ignore these pods; Recommend: only say; Resize: do; ResizeOrMigrate: or move."
    )
    recommender: RecommenderSection = Field(RecommenderSection(), description="The algorithm and its parameters.")
    containers: tuple[ContainerSection, ...] = Field(
        (ContainerSection(name="*"),), description="How the containers of a pod are sized."
    )
    metrics: MetricsSection = Field(MetricsSection(), description="Which samples are read.")
    stability: StabilitySection = Field(StabilitySection(), description="What keeps sizes from flapping.")
    fallback: FallbackSection = Field(FallbackSection(), description="What happens to a resize that is not done.")


class PolicyDocument(Section):
    """A BridgePolicy: which pods are sized, by which algorithm, within which bounds."""

    api_version: Literal["bridge-autoscaler.dev/v1alpha1"] = Field(description="Version of this format.")
    kind: Literal["BridgePolicy"] = Field(description="Kind of this document.")
    metadata: Metadata = Field(description="What the policy is called.")
    spec: Spec = Field(description="What the policy says.")
