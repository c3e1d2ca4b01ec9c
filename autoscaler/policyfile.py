"""The policy document: what an SRE may write, what it means, and the core values that come of it.

apiVersion bridge-autoscaler.dev/v1alpha1, kind BridgePolicy. docs/policies.md describes each key; a test compares the
two. Files and folders are policystore.py's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, Field, PlainValidator, WithJsonSchema

from autoscaler.core.foreign import shown, told
from autoscaler.core.model import Resource, ResourceList
from autoscaler.core.policy import (
    ByDirection,
    ContainerPolicy,
    LimitMode,
    Mode,
    Operator,
    Policy,
    Requirement,
    Selector,
    Stability,
)
from autoscaler.core.recommender import Grid, Recommender
from autoscaler.core.units import Bytes, Millicores, parse_cpu, parse_memory, parse_quantity
from autoscaler.names import checked_container, checked_label_key, checked_label_value, checked_name, checked_namespace
from autoscaler.plugins import Catalog, UnknownRecommender
from autoscaler.recommenders.parameters import STRICT, Duration, Ratio, format_duration
from autoscaler.strictyaml import Document, Fault, KeyPath, Refused

API_VERSION = "bridge-autoscaler.dev/v1alpha1"
KIND = "BridgePolicy"
DEFAULT_RECOMMENDER = "percentile"
MAX_SAMPLES = 30_000  # of one container; 104 days in 5-minute blocks, 0.5 MB of float32
_BLOCK = timedelta(seconds=300)
_MAX_STEP = timedelta(hours=1)
_STABILITY = Stability()


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


def _schema(examples: list[str]) -> WithJsonSchema:
    return WithJsonSchema({"type": ["string", "number"], "examples": examples})


Cpu = Annotated[int, PlainValidator(_cpu), _schema(["100m", "2"])]
Memory = Annotated[int, PlainValidator(_memory), _schema(["256Mi", "16Gi"])]
Name = Annotated[str, AfterValidator(checked_name)]
Namespace = Annotated[str, AfterValidator(checked_namespace)]
ContainerName = Annotated[str, AfterValidator(checked_container)]
LabelKey = Annotated[str, AfterValidator(checked_label_key)]
LabelValue = Annotated[str, AfterValidator(checked_label_value)]


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


class MetricsSection(Section):
    """Which samples are read from Prometheus."""

    lookback: Duration = Field(timedelta(days=14), description="How far back usage is read at the start.")
    step: Duration = Field(timedelta(seconds=60), description="Distance of samples.")
    rate_window: Duration = Field(timedelta(minutes=5), description="Range of the CPU rate.")

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

    def core(self) -> Stability:
        return Stability(
            min_change=ByDirection(self.min_change.increase, self.min_change.decrease),
            max_step=ByDirection(self.max_step.increase, self.max_step.decrease),
            cooldown=ByDirection(self.cooldown.increase, self.cooldown.decrease),
        )


class Spec(Section):
    selector: SelectorSection = Field(description="Which pods the policy is for.")
    mode: Mode = Field(Mode.RECOMMEND, description="Off: ignore these pods; Recommend: only say; Resize: do.")
    recommender: RecommenderSection = Field(RecommenderSection(), description="The algorithm and its parameters.")
    containers: tuple[ContainerSection, ...] = Field(
        (ContainerSection(name="*"),), description="How the containers of a pod are sized."
    )
    metrics: MetricsSection = Field(MetricsSection(), description="Which samples are read.")
    stability: StabilitySection = Field(StabilitySection(), description="What keeps sizes from flapping.")


class PolicyDocument(Section):
    """A BridgePolicy: which pods are sized, by which algorithm, within which bounds."""

    api_version: Literal["bridge-autoscaler.dev/v1alpha1"] = Field(description="Version of this format.")
    kind: Literal["BridgePolicy"] = Field(description="Kind of this document.")
    metadata: Metadata = Field(description="What the policy is called.")
    spec: Spec = Field(description="What the policy says.")


class Loaded(NamedTuple):
    """A policy, where it came from, and what in it has no effect."""

    policy: Policy
    document: Document
    warnings: tuple[Fault, ...]


def read_policy(document: Document, catalog: Catalog) -> Loaded:
    """One document as a core policy. Raises `Refused` with every fault that was found."""
    document.require_kind(API_VERSION, KIND)
    read = document.validated(PolicyDocument)
    spec = read.spec
    faults = [document.fault(("spec", *path), text) for path, text in _contradictions(spec)]
    recommender: Recommender[Any] | None = None
    try:
        recommender = _recommender(spec, document, catalog)
    except Refused as refused:
        faults += refused.faults
    if recommender is None or faults:
        raise Refused(sorted(faults))
    policy = Policy(
        name=read.metadata.name,
        recommender=recommender,
        selector=_selector(spec.selector),
        mode=spec.mode,
        containers=tuple(section.core() for section in spec.containers),
        stability=spec.stability.core(),
        grid=spec.metrics.grid,
        rate_window=spec.metrics.rate_window,
        source=f"{document.source}:{document.marks[()][0]}",
    )
    warnings = [document.fault(("spec", *path), text) for path, text in _idle(spec, recommender)]
    return Loaded(policy, document, tuple(warnings))


def _selector(section: SelectorSection) -> Selector:
    return Selector(
        namespaces=frozenset() if section.namespaces == ("*",) else frozenset(section.namespaces),
        match_labels=tuple(section.match_labels.items()),
        match_expressions=tuple(
            Requirement(entry.key, entry.operator, frozenset(entry.values)) for entry in section.match_expressions
        ),
    )


_PARAMETERS: KeyPath = ("spec", "recommender", "parameters")


def _recommender(spec: Spec, document: Document, catalog: Catalog) -> Recommender[Any]:
    section = spec.recommender
    try:
        factory = catalog.named(section.name)
    except UnknownRecommender as error:
        raise Refused([document.fault(("spec", "recommender", "name"), str(error))]) from None
    try:
        params = document.validated(factory.Parameters, _PARAMETERS, section.parameters)
        needs = params.needs()
        recommender = factory(params)
    except Refused:
        raise
    except (Exception, SystemExit) as error:  # foreign code: it may refuse its parameters in any way it likes
        text = f"recommender {section.name} refuses them: {told(error)}"
        raise Refused([document.fault(_PARAMETERS, text)]) from None
    if spec.metrics.lookback < needs:
        need, lookback = format_duration(needs), format_duration(spec.metrics.lookback)
        why = f"{lookback} is shorter than the {need} of history that recommender {section.name} needs"
        raise Refused([document.fault(("spec", "metrics", "lookback"), f"{why}; write at least {need}")])
    return recommender


_Objection = tuple[KeyPath, str]


def _contradictions(spec: Spec) -> Iterator[_Objection]:
    """What cannot be meant, by key path below spec."""
    yield from _selector_contradictions(spec.selector)
    yield from _container_contradictions(spec.containers)
    yield from _metrics_contradictions(spec.metrics)
    low, high = spec.stability.min_change, spec.stability.max_step
    for direction, least, most in (
        ("increase", low.increase, high.increase),
        ("decrease", low.decrease, high.decrease),
    ):
        if least > most or not most:
            text = f"{100 * most:.4g}% is below minChange.{direction} {100 * least:.4g}%: no {direction} could be made"
            yield ("stability", "maxStep", direction), text if most else f"0 forbids every {direction}; raise it"
    if high.decrease > 1:
        yield ("stability", "maxStep", "decrease"), "more than 100% cannot be taken away"


def _selector_contradictions(selector: SelectorSection) -> Iterator[_Objection]:
    path: KeyPath = ("selector",)
    if not (selector.namespaces or selector.match_labels or selector.match_expressions):
        yield path, 'selects every pod of the cluster; if that is meant, write namespaces: ["*"]'
    if "*" in selector.namespaces and len(selector.namespaces) > 1:
        yield (*path, "namespaces"), '"*" already means every namespace; leave the others out'
    for index, entry in enumerate(selector.match_expressions):
        where: KeyPath = (*path, "matchExpressions", index, "values")
        if entry.operator in (Operator.IN, Operator.NOT_IN):
            if not entry.values:
                yield where, f"operator {entry.operator} needs at least one value"
        elif entry.values:
            yield where, f"operator {entry.operator} takes no values; leave them out"


def _container_contradictions(containers: tuple[ContainerSection, ...]) -> Iterator[_Objection]:
    if not containers:
        yield ("containers",), 'is empty: no container would be sized; leave the key out, or use name: "*"'
    names = [section.name for section in containers]
    for index, section in enumerate(containers):
        path: KeyPath = ("containers", index)
        earlier = names[:index]
        if section.name in earlier:
            yield (*path, "name"), f"{section.name} has an entry already: containers[{earlier.index(section.name)}]"
        elif "*" in earlier and any(letter in section.name for letter in "*?["):
            yield (*path, "name"), f'{section.name} is never reached: "*" comes first; move it up'
        if not section.controlled_resources:
            yield (*path, "controlledResources"), "is empty; to leave the container alone write mode: Off"
        for resource in Resource:
            low, high = getattr(section.min_allowed, resource), getattr(section.max_allowed, resource)
            if low is not None and high is not None and low > high:
                least, most = resource.quantity(low), resource.quantity(high)
                text = f"{least} is above maxAllowed.{resource} {most}; lower one or raise the other"
                yield (*path, "minAllowed", resource.value), text


def _metrics_contradictions(metrics: MetricsSection) -> Iterator[_Objection]:
    path: KeyPath = ("metrics",)
    whole = timedelta(seconds=1)
    uneven = False
    for key, value in (("lookback", metrics.lookback), ("step", metrics.step), ("rateWindow", metrics.rate_window)):
        if value < whole or value % whole:
            uneven = True
            yield (*path, key), f"{format_duration(value)}: write whole seconds, at least 1s"
    if uneven:
        return
    step, lookback = format_duration(metrics.step), format_duration(metrics.lookback)
    if metrics.step > _MAX_STEP or (_BLOCK % metrics.step and metrics.step % _BLOCK):
        yield (*path, "step"), f"{step}: write a step that divides 5m (15s, 30s, 1m), or a multiple of 5m up to 1h"
    if metrics.lookback < metrics.step:
        yield (*path, "lookback"), f"{lookback} is shorter than the step {step}"
    if metrics.rate_window < metrics.step:
        window = format_duration(metrics.rate_window)
        yield (*path, "rateWindow"), f"{window} is shorter than the step {step}: usage in between would not be seen"
    count = metrics.grid.lookback // metrics.grid.block
    if count > MAX_SAMPLES:
        text = f"{lookback} at {metrics.grid.block} s are {count:,} samples a container; at most {MAX_SAMPLES:,}"
        yield (*path, "lookback"), f"{text}: shorten lookback or lengthen step"


def _idle(spec: Spec, recommender: Recommender[Any]) -> Iterator[_Objection]:
    """What has no effect, or not the one that one would expect."""
    for index, section in enumerate(spec.containers):
        path: KeyPath = ("containers", index)
        if section.mode == "Off":
            for name, field in ContainerSection.model_fields.items():
                if name in section.model_fields_set - {"name", "mode"}:
                    yield (*path, str(field.alias)), "has no effect, as mode is Off"
            continue
        for key, amounts in (("minAllowed", section.min_allowed), ("maxAllowed", section.max_allowed)):
            for resource in Resource:
                if resource not in section.controlled_resources and getattr(amounts, resource) is not None:
                    yield (*path, key, resource.value), f"has no effect, as controlledResources leaves {resource} out"
    grid, window = spec.metrics.grid, spec.metrics.rate_window
    if window < timedelta(seconds=grid.block):
        text = f"{format_duration(window)} is shorter than the {grid.block} s to which a look-back of this length"
        yield ("metrics", "rateWindow"), f"{text} is reduced: CPU peaks in between are not seen"
    remembers = recommender.params.remembers()
    if spec.metrics.lookback < remembers:
        text = f"{format_duration(spec.metrics.lookback)} is shorter than the {format_duration(remembers)}"
        yield ("metrics", "lookback"), f"{text} that recommender {recommender.name} remembers: a restart forgets some"
