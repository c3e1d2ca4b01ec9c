"""What differs in a history in which pods may be moved: workloads of several kinds, a third node, and the policy."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import NamedTuple

from autoscaler.core.labels import LabelSelector
from autoscaler.core.model import Pod, Resource, Workload, WorkloadRef
from autoscaler.core.policy import (
    Budgets,
    Config,
    DrainPolicy,
    FallbackAction,
    Landing,
    Migration,
    Mode,
    PodEndpoint,
    Policy,
    Strategy,
)
from autoscaler.core.scheduling import DisruptionBudget
from tests.properties.events import Event, History
from tests.simulator.builders import both, container, pod, sizes

MIN_POD_AGE = timedelta(seconds=100)
READY_WITHIN = timedelta(seconds=60)
MAX_WAIT = timedelta(seconds=60)


class Described(NamedTuple):
    """A workload, what its pods are made from, and those that it has at first."""

    workload: Workload
    template: Pod
    pods: tuple[Pod, ...]


def config(history: History, policy: Policy) -> Config:
    """The policy with leave to move pods, in the way of the seed."""
    rng = random.Random(history.seed)
    drain = DrainPolicy(query="sessions", max_wait=MAX_WAIT, then_force=rng.random() < 0.5)
    migration = Migration(
        rng.choice((Strategy.EVICT, Strategy.SURGE)),
        MIN_POD_AGE,
        rng.choice((Landing.EVERY, Landing.SOME)),
        READY_WITHIN,
        rng.choice((None, drain)),
    )
    if migration.drain is not None and rng.random() < 0.5:  # from when on it is waited for
        migration = replace(migration, drain=replace(drain, notify=PodEndpoint(8080, "/drain")))
    fallback = replace(policy.fallback, action=FallbackAction.MIGRATE, migration=migration)
    moves = replace(policy, mode=Mode.RESIZE_OR_MIGRATE, fallback=fallback)
    return Config((moves,), budgets=Budgets(max_disruptions_per_namespace=2, max_disruptions_cluster=2))


def workloads() -> Iterable[Described]:
    """Two pods and one of a StatefulSet, two and one of a Deployment."""
    memory = frozenset({Resource.MEMORY})
    yield _described("StatefulSet/a", pod("t", container(both("500m", "512Mi"), restart_on=memory)), "n1", "n2")
    side = container(both("100m", "256Mi"), "side")
    yield _described("StatefulSet/b", pod("t", container(sizes("500m", "512Mi", "1", "1Gi")), side), "n1")
    yield _described("Deployment/c", pod("t", container(both("1", "1Gi"))), "n2", "n1")
    yield _described("Deployment/d", pod("t", container(sizes("1", "1Gi"))), "n2")


def _described(name: str, template: Pod, *nodes: str) -> Described:
    ref = WorkloadRef("sim", name)
    template = replace(template, labels=MappingProxyType({"app": ref.name}))
    stem = f"{ref.name}-abc-old" if ref.kind == "Deployment" else ref.name
    names = [f"{stem}-{number}" for number in range(len(nodes))]
    pods = [
        replace(template, name=name, uid=f"{name}#1", workload=ref.object, node=node)
        for name, node in zip(names, nodes, strict=True)
    ]
    workload = Workload(ref, ref.name, replicas=len(nodes), labels=template.labels)
    return Described(workload, template, tuple(pods))


def budget(event: Event) -> DisruptionBudget:
    """The PodDisruptionBudget that an event is about."""
    selector = LabelSelector((("app", event.who),) if event.who else ())
    return DisruptionBudget("sim", f"budget-{event.who or 'all'}", selector, desired=event.number)
