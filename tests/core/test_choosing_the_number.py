"""Choosing the number (NUM-…), from samples to what is asked for; more of it is in tests/recommenders."""

from __future__ import annotations

from dataclasses import replace

from autoscaler.core.decide import decide
from autoscaler.core.history import History, Measurements
from autoscaler.core.model import Pod, Resources
from autoscaler.core.policy import ContainerPolicy, LimitMode, Policy
from autoscaler.core.reasons import Reason
from autoscaler.recommenders.percentile import Percentile, PercentileParameters
from tests.build import (
    GUARANTEED,
    HOURS,
    config,
    container,
    grown,
    measurements,
    node,
    one,
    pod,
    policy,
    sizes,
    snapshot,
)

P95 = Percentile(PercentileParameters.model_validate({"cpu": {"window": "2h", "target": "p95", "margin": "0%"}}))


def measured(pods: tuple[Pod, ...], *cores: float) -> Measurements:
    """Two hours of each pod at so many cores."""
    found = measurements(pods)
    histories = dict(found.histories)
    for each, used in zip(pods, cores, strict=True):
        history = grown((used,) * 120, recommender=P95)
        assert isinstance(history, History)
        histories |= {ref: history for ref in histories if ref.pod_ref == each.ref}
    return replace(found, histories=histories)


def p95(limits: LimitMode = LimitMode.KEEP) -> Policy:
    return policy(P95, grid=HOURS, containers=(ContainerPolicy(limits=limits),))


def test_num_03_a_percentile_is_the_request_whatever_limits_do() -> None:
    burstable, guaranteed = pod(container(sizes("1", "1Gi", "2", "2Gi"))), pod(container(GUARANTEED))
    requests = set()
    for limits in (LimitMode.KEEP, LimitMode.REQUESTS_ONLY):
        (proposal,) = one(decide(snapshot(burstable), measured((burstable,), 1.5), config(p95(limits)))).proposals
        requests.add(proposal.proposed.requests.cpu)
    assert requests == {1500}
    (proposal,) = one(decide(snapshot(guaranteed), measured((guaranteed,), 1.5), config(p95()))).proposals
    assert proposal.proposed.requests == proposal.proposed.limits
    best_effort = pod(container(Resources()))
    assert one(decide(snapshot(best_effort), measured((best_effort,), 1.5), config(p95()))).reason is Reason.BEST_EFFORT


def test_num_04_each_pod_gets_its_own_size() -> None:
    pods = pod(container(sizes("1", "1Gi"))), pod(container(sizes("1", "1Gi")), name="sim-1")
    plan = decide(snapshot(*pods), measured(pods, 0.2, 3.0), config(p95()))
    wanted = {each.pod.name: each.proposals[0].proposed.requests.cpu for each in plan.decisions}
    # 0.2 as a 32-bit float may stand for a little more, which is rounded up
    assert wanted == {"sim-0": 210, "sim-1": 3000}


def test_num_06_no_node_that_is_large_enough_means_no_patch() -> None:
    sized = pod(container(sizes("20", "1Gi")))
    nodes = node(cpu="32"), node("node-b", "16")
    found = one(decide(snapshot(sized, nodes=nodes), measured((sized,), 40.0), config(p95())))
    assert (found.reason, found.action) == (Reason.EXCEEDS_NODE, None)
    assert "cpu, requested: 40000, allocatable: 32000" in found.detail
    capped = replace(p95(), containers=(ContainerPolicy(max_allowed=sizes("30").requests),))
    granted = one(decide(snapshot(sized, nodes=nodes), measured((sized,), 40.0), config(capped)))
    assert granted.action is not None
    assert granted.proposals[0].proposed.requests.cpu == 30000
    assert any(step.name == "maxAllowed" and step.cap for step in granted.proposals[0].trail)
