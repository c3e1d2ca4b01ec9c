"""Whatever is asked for, by anyone, at any time: no QoS class changes and no pod is lost."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.core.actions import ContainerResize
from autoscaler.core.kubelet import allocated_on
from autoscaler.core.model import ContainerKind, PodRef, Resource, ResourceList, Resources
from autoscaler.core.pairing import qos_class
from autoscaler.core.units import Bytes, Millicores
from autoscaler.simulator.cluster import SimulatedCluster
from tests.simulator.builders import both, cluster, container, demand, node, pod, sizes

_CPU = st.none() | st.integers(0, 6000).map(Millicores)
_MEMORY = st.none() | st.integers(0, 9 << 30).map(Bytes)
_LISTS = st.builds(ResourceList, _CPU, _MEMORY)
_CHANGES = st.builds(Resources, _LISTS, _LISTS) | _LISTS.map(lambda amounts: Resources(amounts, amounts))
_ASKS = st.tuples(st.sampled_from("abcd"), st.sampled_from(("app", "side")), _CHANGES, st.floats(0, 400))


def _world() -> SimulatedCluster:
    side = container(both("100m", "64Mi"), "side", ContainerKind.SIDECAR)
    return cluster(
        pod("a", side, container(both("1", "1Gi"))),
        pod("b", side, container(sizes("500m", "512Mi", "2", "1Gi"), restart_on=frozenset({Resource.MEMORY}))),
        pod("c", container(sizes("500m", None)), workload="StatefulSet/c"),
        pod("d", container(sizes(None, None))),
        nodes=(node(cpu="4", memory="4Gi"),),
        usage=demand(cpu=[0.1, 2, 0.5], memory=["100Mi", "700Mi", "1500Mi"]),
    )


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(_ASKS, max_size=12))
def test_random_asks_change_no_qos_class_and_lose_no_pod(asks: list[tuple[str, str, Resources, float]]) -> None:
    sim = _world()
    before = asyncio.run(sim.observe())
    for name, target, change, wait in asks:
        sim.resize(PodRef("sim", name), (ContainerResize(target, ContainerKind.CONTAINER, change),), "anyone")
        sim.advance(sim.now + timedelta(seconds=wait))
    sim.advance(sim.now + timedelta(minutes=10))
    after = asyncio.run(sim.observe())

    assert after.pods.keys() == before.pods.keys()
    for ref, pod_ in after.pods.items():
        old = before.pods[ref]
        assert (pod_.uid, pod_.qos_class, pod_.phase) == (old.uid, old.qos_class, "Running")
        assert qos_class(pod_, {}) is old.qos_class
        assert [c.name for c in pod_.containers] == [c.name for c in old.containers]
    taken = allocated_on(after.pods.values())
    capacity = after.nodes["n1"].allocatable
    assert (taken.cpu or 0) <= (capacity.cpu or 0)
    assert (taken.memory or 0) <= (capacity.memory or 0)
