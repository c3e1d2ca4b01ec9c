"""Cases of the Vertical Pod Autoscaler (VPA) that hold here too, and those where this program differs on purpose."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from autoscaler.core import bounds
from autoscaler.core.decide import decide
from autoscaler.core.model import Container, Resource, ResourceList, Resources
from autoscaler.core.pairing import Blocked, Wish, pair, qos_class
from autoscaler.core.policy import ContainerPolicy, LimitMode, Mode
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Target
from tests.build import (
    FREE,
    amounts,
    both,
    config,
    container,
    fixed,
    history,
    measurements,
    one,
    pod,
    policy,
    sidecar,
    sizes,
    snapshot,
    specs,
    with_resize,
)

GROUPS = ("D1-proportional-limit", "D2-request-limit-pair", "D3-bounds-and-rounding", "D5-whole-path")

DIFFERENT = {
    "V002": "a namespace's default limit applies when a pod is created; a running pod never gains a limit",
    "V005": "a limit is rounded up (1334m), so that a kept ratio never falls to the request; VPA rounds down",
    "V007": "nothing set is BestEffort, which can never gain requests in place",
    "V008": "as V007",
    "V012": "maxAllowed holds for a limit that grows, too: 3 cores, not 4",
    "V014": "as V002: the ratio of a LimitRange's default is for pods that are being created",
    "V022": "requests are rounded up to 10m, which is what a systemd cgroup can tell apart; the step is no setting",
    "V023": "as V022",
    "V024": "as V022",
    "V045": "missing data holds the pod and names the container; a policy can leave an injected container alone",
}
ELSEWHERE = {
    "V015": "LimitRanges are left to the server's answer",
    **dict.fromkeys(("V025a", "V025b", "V025c", "V025d", "V025e"), "policies are validated where they are read"),
    "V042": "nothing is evicted",
    "V043b": "nothing is done at creation",
    "V044": "nothing is evicted",
}

PAIRS = [
    pytest.param(sizes("1", "1Gi", "2"), LimitMode.KEEP, ("10", None), sizes("10", "1Gi", "20"), id="V001"),
    pytest.param(sizes("1", "1Gi"), LimitMode.KEEP, ("10", None), sizes("10", "1Gi"), id="V002"),
    pytest.param(sizes("1", "1Gi"), LimitMode.KEEP, ("10", None), sizes("10", "1Gi"), id="V003"),
    # the server stores request = limit where only a limit was given
    pytest.param(sizes("2", "1Gi", "2"), LimitMode.KEEP, ("10", None), sizes("10", "1Gi", "10"), id="V004"),
    pytest.param(sizes("1500m", "1Gi", "2"), LimitMode.KEEP, ("1", None), sizes("1", "1Gi", "1334m"), id="V005"),
    pytest.param(
        sizes("1m", "1Gi", "10G"), LimitMode.KEEP, ("10G", None), sizes("10G", "1Gi", f"{2**63 - 1}m"), id="V006"
    ),
    pytest.param(both("1", "100Mi"), LimitMode.KEEP, ("2", "200Mi"), both("2", "200Mi"), id="V010"),
    pytest.param(both("2", "200Mi"), LimitMode.KEEP, ("2", "200Mi"), both("2", "200Mi"), id="V011"),
    pytest.param(
        sizes("1", "100Mi", "2", "200Mi"),
        LimitMode.KEEP,
        ("2", "200Mi"),
        sizes("2", "200Mi", "4", "400Mi"),
        id="V012 without bounds",
    ),
    pytest.param(
        sizes("1", "100Mi", "4", "400Mi"),
        LimitMode.REQUESTS_ONLY,
        ("2", "200Mi"),
        sizes("2", "200Mi", "4", "400Mi"),
        id="V013",
    ),
    pytest.param(sizes("2", "100Mi"), LimitMode.KEEP, ("2", "200Mi"), sizes("2", "200Mi"), id="V014"),
    pytest.param(sizes("1", "1M", "10", "10M"), LimitMode.KEEP, ("2", None), sizes("2", "1M", "20", "10M"), id="V016"),
    pytest.param(
        sizes("1", "1M", "10", "10M"),
        LimitMode.REQUESTS_ONLY,
        ("2", "2M"),
        sizes("2", "2M", "10", "10M"),
        id="V017",
    ),
    pytest.param(
        sizes("10", "60000", "30", "70000"),
        LimitMode.REQUESTS_ONLY,
        ("20", "80000"),
        sizes("20", "70000", "30", "70000"),
        id="V021",
    ),
    pytest.param(
        sizes("100m", "100Mi", "200m", "200Mi"),
        LimitMode.REQUESTS_ONLY,
        ("300m", "300Mi"),
        sizes("199m", "200Mi", "200m", "200Mi"),
        id="V056",
    ),
    pytest.param(sizes("100m", None, "105m"), LimitMode.KEEP, ("11m", None), sizes("11m", None, "12m"), id="V057"),
]


@pytest.mark.parametrize(("before", "limits", "wanted", "after"), PAIRS)
def test_pairs(before: Resources, limits: LimitMode, wanted: tuple[str | None, str | None], after: Resources) -> None:
    sized = pod(container(before))
    paired = pair(sized, {"app": Wish(amounts(*wanted), limits)})
    assert not isinstance(paired, Blocked)
    assert paired[0] == {"app": after}
    assert qos_class(sized, paired[0]) is sized.qos_class


def test_v006_says_that_the_ratio_is_not_kept() -> None:
    paired = pair(pod(container(sizes("1m", "1Gi", "10G"))), {"app": Wish(amounts("10G"))})
    assert not isinstance(paired, Blocked)
    (step,) = paired[1]["app"]
    assert step.name == "limit"
    assert step.cap


def test_v007_v008_best_effort_is_given_nothing() -> None:
    assert isinstance(pair(pod(container(Resources())), {"app": Wish(amounts("2", "200Mi"))}), Blocked)


@pytest.mark.parametrize(
    ("wanted", "entry", "expected", "capped"),
    [
        pytest.param(
            amounts("42m", "42Mi"),
            ContainerPolicy(min_allowed=amounts("50m", "50Mi")),
            amounts("50m", "50Mi"),
            ["minAllowed"],  # of memory: rounding has lifted CPU
            id="V018",
        ),
        pytest.param(
            amounts("42m", "42Mi"),
            ContainerPolicy(max_allowed=amounts("40m", "40Mi")),
            amounts("40m", "40Mi"),
            ["maxAllowed", "maxAllowed"],
            id="V019",
        ),
        pytest.param(
            amounts("42m", "42Mi"),
            ContainerPolicy(max_allowed=amounts("40m")),
            amounts("40m", "42Mi"),
            ["maxAllowed"],
            id="V020",
        ),
        pytest.param(amounts("79m"), ContainerPolicy(), amounts("80m"), [], id="V022a"),
        pytest.param(amounts("34m"), ContainerPolicy(), amounts("40m"), [], id="V022b"),
        pytest.param(amounts("100m"), ContainerPolicy(), amounts("100m"), [], id="V023"),
        pytest.param(amounts("8600m"), ContainerPolicy(), amounts("8600m"), [], id="V024"),
    ],
)
def test_bounds(wanted: ResourceList, entry: ContainerPolicy, expected: ResourceList, capped: list[str]) -> None:
    found: list[str] = []
    for resource in Resource:
        amount = wanted.get(resource)
        if amount is None:
            continue
        value, steps = bounds.bound(resource, amount, 10, entry, FREE, 0)
        assert value == expected.get(resource)
        found += [step.name for step in steps if step.cap]
    assert found == capped


WHOLE = [
    pytest.param(both("100m", "100Mi"), ("250m", "200Mi"), None, both("250m", "200Mi"), id="V037"),
    pytest.param(
        sizes("100m", "100Mi", "150m", "200Mi"),
        ("250m", "200Mi"),
        None,
        sizes("250m", "200Mi", "375m", "400Mi"),
        id="V038",
    ),
    pytest.param(
        sizes("100m", "100Mi"), ("250m", "200Mi"), amounts("233m", "150Mi"), sizes("233m", "150Mi"), id="V039"
    ),
    pytest.param(
        sizes("1", "100Mi", "2", "200Mi"),
        ("2", "200Mi"),
        amounts("3", "1Gi"),
        sizes("2", "200Mi", "3", "400Mi"),
        id="V012",
    ),
]


@pytest.mark.parametrize(("before", "target", "most", "after"), WHOLE)
def test_whole_path(before: Resources, target: tuple[str, str], most: ResourceList | None, after: Resources) -> None:
    sized = pod(container(before))
    entry = ContainerPolicy(max_allowed=most or ResourceList())
    settings = config(policy(fixed(*target), containers=(entry,)))
    decision = one(decide(snapshot(sized), measurements([sized], history(memory=(1.0,))), settings))
    assert decision.action is not None
    resized = with_resize(sized, decision.action)
    assert specs(resized) == {"app": after}
    assert qos_class(resized, {}) is sized.qos_class


@pytest.mark.parametrize("answer", [pytest.param(Target(None, None), id="V009")])
def test_no_target_no_change(answer: Target) -> None:
    sized = pod()
    decision = one(decide(snapshot(sized), measurements([sized], history(state=answer)), config()))
    assert (decision.action, decision.reason) == (None, Reason.AT_TARGET)


def test_v040_a_container_without_recommendation_keeps_its_size() -> None:
    sized = pod(container(name="app"), container(name="removed"))
    settings = config(policy(fixed("2", "2Gi"), containers=(ContainerPolicy("removed"),)))
    decision = one(decide(snapshot(sized), measurements([sized]), settings))
    assert decision.action is not None
    assert [change.name for change in decision.action.containers] == ["removed"]
    assert decision.proposals[0].proposed == sized.containers[0].spec


def test_v041_all_containers_of_all_pods_are_resized_as_they_are() -> None:
    sized = [pod(container(sizes("100m", "100Mi")), _second(), name=f"sim-{i}") for i in range(3)]
    plan = decide(snapshot(*sized), measurements(sized, history(memory=(1.0,))), config(policy(fixed("200m", "200Mi"))))
    for each, decision in zip(sized, plan.decisions, strict=True):
        assert decision.action is not None
        assert (decision.action.pod, decision.action.uid) == (each.ref, each.uid)
        assert set(specs(with_resize(each, decision.action)).values()) == {sizes("200m", "200Mi")}


def _second() -> Container:
    return container(sizes("100m", "100Mi"), "second")


def test_v043a_recommend_shows_and_does_nothing() -> None:
    sized = pod(container(sizes("100m", "100Mi")))
    settings = config(policy(fixed("250m", "200Mi"), mode=Mode.RECOMMEND))
    decision = one(decide(snapshot(sized), measurements([sized], history(memory=(1.0,))), settings))
    assert (decision.action, decision.reason) == (None, Reason.RECOMMEND_ONLY)
    assert decision.proposals[0].proposed == sizes("250m", "200Mi")


def test_v045_an_injected_container_can_be_left_alone() -> None:
    sized = pod(container(), sidecar(name="injected-proxy"))
    measured = measurements([pod(container())])
    wild = config(policy(fixed("2", "2Gi")))
    decision = one(decide(snapshot(sized), measured, wild))
    assert (decision.action, decision.reason) == (None, Reason.NO_DATA)
    assert "injected-proxy" in decision.detail
    entries = (ContainerPolicy("injected-*", managed=False), ContainerPolicy())
    decision = one(decide(snapshot(sized), measured, config(policy(fixed("2", "2Gi"), containers=entries))))
    assert decision.action is not None
    assert [change.name for change in decision.action.containers] == ["app"]


def test_every_case_is_tested_or_explained(shared: Path) -> None:
    with (shared / "cases" / "vpa-cases.csv").open(newline="") as file:
        rows = {row["id"] for row in csv.DictReader(file) if row["group"] in GROUPS}
    tested = {str(case.id) for case in (*PAIRS, *WHOLE)} | {"V009a", "V009b", "V018", "V019", "V020", "V040", "V041"}
    assert rows <= tested | {"V043a"} | DIFFERENT.keys() | ELSEWHERE.keys()
