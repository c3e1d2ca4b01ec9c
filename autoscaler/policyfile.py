"""The policy document: what an SRE may write, what it means, and the core values that come of it.

apiVersion bridge-autoscaler.dev/v1alpha1, kind BridgePolicy. docs/policies.md describes each key; a test compares the
two. Files and folders are policystore.py's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from autoscaler.core.foreign import told
from autoscaler.core.labels import LabelSelector, Operator, Requirement
from autoscaler.core.model import Resource
from autoscaler.core.policy import FallbackAction, Mode, Policy, Selector, Strategy
from autoscaler.core.recommender import Recommender, Signal
from autoscaler.plugins import Catalog, UnknownRecommender
from autoscaler.policymodel import (
    ContainerSection,
    FallbackSection,
    MetricsSection,
    PolicyDocument,
    SelectorSection,
    Spec,
)
from autoscaler.recommenders.parameters import format_duration
from autoscaler.strictyaml import Document, Fault, KeyPath, Refused

API_VERSION = "bridge-autoscaler.dev/v1alpha1"
KIND = "BridgePolicy"
MAX_SAMPLES = 30_000  # of one container; 104 days in 5-minute blocks, 0.5 MB of float32
_BLOCK = timedelta(seconds=300)
_MAX_STEP = timedelta(hours=1)
_NOTHING, _SECOND, _MONTH = timedelta(0), timedelta(seconds=1), timedelta(days=30)  # asks are dated to the second


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
        fallback=spec.fallback.core(spec.mode),
        grid=spec.metrics.grid,
        rate_window=spec.metrics.rate_window,
        signals={name: section.query for name, section in spec.metrics.signals.items()},
        min_coverage=spec.metrics.min_coverage,
        source=f"{document.source}:{document.marks[()][0]}",
    )
    warnings = [document.fault(("spec", *path), text) for path, text in _idle(spec, recommender)]
    return Loaded(policy, document, tuple(warnings))


def _selector(section: SelectorSection) -> Selector:
    return Selector(
        namespaces=frozenset() if section.namespaces == ("*",) else frozenset(section.namespaces),
        labels=LabelSelector(
            match_labels=tuple(section.match_labels.items()),
            match_expressions=tuple(
                Requirement(entry.key, entry.operator, frozenset(entry.values)) for entry in section.match_expressions
            ),
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
        hash(recommender.fold_key)  # asked for in each turn: what it raises is found here, not there
        reads, optional = frozenset(recommender.signals), frozenset(recommender.optional_signals)  # as well
    except (Refused, KeyboardInterrupt):
        raise
    except BaseException as error:  # foreign code: it may refuse its parameters in any way it likes
        text = f"recommender {section.name} refuses them: {told(error)}"
        raise Refused([document.fault(_PARAMETERS, text)]) from None
    if spec.metrics.lookback < needs:
        need, lookback = format_duration(needs), format_duration(spec.metrics.lookback)
        why = f"{lookback} is shorter than the {need} of history that recommender {section.name} needs"
        raise Refused([document.fault(("spec", "metrics", "lookback"), f"{why}; write at least {need}")])
    if lacking := sorted(reads - optional - frozenset(Signal) - spec.metrics.signals.keys()):
        text = f"recommender {section.name} reads {', '.join(map(str, lacking))}; define that under metrics.signals"
        raise Refused([document.fault(("spec", "recommender", "name"), text)])
    return recommender


_Objection = tuple[KeyPath, str]


def _contradictions(spec: Spec) -> Iterator[_Objection]:
    """What cannot be meant, by key path below spec."""
    yield from _selector_contradictions(spec.selector)
    yield from _container_contradictions(spec.containers)
    yield from _metrics_contradictions(spec.metrics)
    yield from _fallback_contradictions(spec.fallback)
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


def _fallback_contradictions(fallback: FallbackSection) -> Iterator[_Objection]:
    path: KeyPath = ("fallback",)
    drain = fallback.drain
    for where, value, least in (
        ((*path, "after"), fallback.after, _SECOND),
        ((*path, "infeasibleAfter"), fallback.infeasible_after, _SECOND),
        ((*path, "errorAfter"), fallback.error_after, _SECOND),
        ((*path, "minPodAge"), fallback.min_pod_age, _NOTHING),
        ((*path, "readyWithin"), fallback.ready_within, _SECOND),
        ((*path, "drain", "maxWait"), None if drain is None else drain.max_wait, _NOTHING),
    ):
        if value is not None and not least <= value <= _MONTH:
            yield where, f"{format_duration(value)} is out of range; write {format_duration(least)} to 30d"
    if drain is not None:
        where = (*path, "drain")
        if drain.query is None and drain.endpoint is None:
            yield where, "does not say how sessions are counted; give it query or endpoint"
        if drain.query is not None and drain.endpoint is not None:
            yield (*where, "endpoint"), "sessions are counted by query already; leave one of the two out"


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
    if metrics.min_coverage > 1:
        yield (*path, "minCoverage"), "there are never more than 100% of the samples; write up to 100%"
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
    yield from _idle_fallback(spec.fallback, spec.mode)
    grid, window = spec.metrics.grid, spec.metrics.rate_window
    if window < timedelta(seconds=grid.block):
        text = f"{format_duration(window)} is shorter than the {grid.block} s to which a look-back of this length"
        yield ("metrics", "rateWindow"), f"{text} is reduced: CPU peaks in between are not seen"
    for name in spec.metrics.signals.keys() - recommender.signals:
        yield ("metrics", "signals", name), f"has no effect, as recommender {recommender.name} does not read it"
    remembers = recommender.params.remembers()
    if spec.metrics.lookback < remembers:
        text = f"{format_duration(spec.metrics.lookback)} is shorter than the {format_duration(remembers)}"
        yield ("metrics", "lookback"), f"{text} that recommender {recommender.name} remembers: a restart forgets some"


def _idle_fallback(fallback: FallbackSection, mode: Mode) -> Iterator[_Objection]:
    path: KeyPath = ("fallback",)
    action, drain = fallback.action_in(mode), fallback.drain
    if action is not FallbackAction.MIGRATE:
        if mode is Mode.RESIZE_OR_MIGRATE:
            text = f"{mode} moves no pod, as fallback.action is {action}; leave that out, or write mode: {Mode.RESIZE}"
            yield ("mode",), text
        for name in ("strategy", "landing", "min_pod_age", "ready_within", "drain"):
            if name in fallback.model_fields_set:
                field = FallbackSection.model_fields[name]
                yield (*path, str(field.alias)), f"has no effect, as fallback.action is {action}"
        return
    if mode is Mode.RESIZE:
        text = f"{action} moves no pod in mode {mode}: the resize waits on; write mode: {Mode.RESIZE_OR_MIGRATE}"
        yield (*path, "action"), text
    if "ready_within" in fallback.model_fields_set and fallback.strategy is not Strategy.SURGE:
        yield (*path, "readyWithin"), f"has no effect, as strategy is {fallback.strategy}"
    if "landing" in fallback.model_fields_set and fallback.strategy is Strategy.SURGE:
        yield (*path, "landing"), f"has no effect, as strategy is {fallback.strategy}"
    if drain is not None:
        if drain.notify is not None and fallback.strategy is Strategy.NONE:
            yield (*path, "drain", "notify"), f"has no effect, as strategy is {fallback.strategy}"
        if drain.then_force and not drain.max_wait:
            yield (*path, "drain"), "has no effect, as maxWait is 0s and thenForce is true"
