"""Measurements that are no reason to lower anything, and what is said of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.decide import decide
from autoscaler.core.history import ContainerRef, Gap, History, advance
from autoscaler.core.model import Container, Pod, Problem, Resource
from autoscaler.core.plan import Decision
from autoscaler.core.presence import Presence
from autoscaler.core.problems import Trouble
from autoscaler.core.quality import EFFECTS, Effect, unfit
from autoscaler.core.reasons import Reason
from autoscaler.core.recommender import Grid, Samples, Signal
from autoscaler.core.trail import sentence
from autoscaler.recommenders.percentile import Percentile, PercentileParameters
from tests.build import (
    HOURS,
    NOW,
    Fixed,
    config,
    container,
    fixed,
    grown,
    measurements,
    one,
    pod,
    policy,
    snapshot,
)

NAN = float("nan")
MIB = float(1 << 20)
LESS = fixed("300m", "512Mi")  # of 500m and 1Gi
MORE = fixed("700m", "1536Mi")
STEPS = {
    *("lowCoverage", "scrapeGap", "partialResponse", "counterReset", "insufficientHistory", "rateWindowTooShort"),
    *("sourceChanged", "rangeTruncated", "resolutionReduced", "counterResetStorm"),
    *("gpuUnattributed", "gpuUtilizationUnknown"),
}


def decided(
    measured: History, recommender: Fixed | Percentile = LESS, one_pod: Pod | None = None, every_s: int | None = 60
) -> Decision:
    one_pod = one_pod or pod()
    found = replace(measurements([one_pod], measured), scrape_interval_s=every_s)
    return one(decide(snapshot(one_pod), found, config(policy(recommender, grid=HOURS))), one_pod.name)


def without(values: Sequence[float], missing: Sequence[int]) -> list[float]:
    return [NAN if i in missing else value for i, value in enumerate(values)]


def said(decision: Decision) -> set[tuple[str, Resource]]:
    """The doubts that are shown, and of which resource."""
    return {(s.name, s.resource) for p in decision.proposals for s in p.trail if s.name in STEPS}


def kept(decision: Decision) -> set[Resource]:
    """The resources that doubts keep as they are."""
    return {s.resource for p in decision.proposals for s in p.trail if s.name in STEPS and s.cap}


def test_what_is_whole_is_not_doubted() -> None:
    found = decided(grown())
    assert found.reason is Reason.DECREASE
    assert said(found) == set()


def test_half_of_the_samples_lower_nothing_and_raise() -> None:
    half = grown(without([0.2] * 120, range(1, 120, 2)), without([200 * MIB] * 120, range(1, 120, 2)))
    found = decided(half)
    assert (found.reason, found.action) == (Reason.LOW_COVERAGE, None)
    assert "container app: cpu: 50% of the samples of 114m, below 80%" in found.detail  # the first window has no rate
    assert "container app: memory: 50% of the samples of 119m, below 80%" in found.detail
    assert kept(found) == set(Resource)
    raised = decided(half, MORE)
    assert raised.reason is Reason.INCREASE
    assert said(raised) == said(found)
    assert kept(raised) == set()


def test_one_resource_may_be_doubted_alone() -> None:
    found = decided(grown(without([0.2] * 120, range(60, 90))))
    assert found.reason is Reason.DECREASE
    assert kept(found) == {Resource.CPU}
    assert found.proposals[0].proposed.requests.cpu == 500


def test_every_second_scrape_is_all_that_is_expected_if_scrapes_are_two_steps_apart() -> None:
    half = grown(without([0.2] * 120, range(1, 120, 2)), without([200 * MIB] * 120, range(1, 120, 2)))
    found = decided(half, every_s=120)
    assert {name for name, _ in said(found)} == {"rateWindowTooShort"}  # five minutes hold two and a half
    assert kept(found) == {Resource.CPU}


@pytest.mark.parametrize(("length", "effect"), [(2, None), (3, Effect.NOTE), (11, Effect.NOTE), (13, Effect.NO_DOWN)])
def test_a_hole_is_said_and_a_long_one_lowers_nothing(length: int, effect: Effect | None) -> None:
    found = decided(grown(without([0.2] * 120, range(60, 60 + length)), [200 * MIB] * 120))
    assert (("scrapeGap", Resource.CPU) in said(found)) is (effect is not None)
    assert (Resource.CPU in kept(found)) is (effect is Effect.NO_DOWN)
    if effect is not None:
        words = [sentence(step) for step in found.proposals[0].trail if step.name == "scrapeGap"]
        assert words[0].startswith(f"cpu: scrapeGap no samples for {length}m of ")
        assert "allowed are 10%" in words[0]


def test_prm_06_a_rate_window_of_one_scrape_is_named_with_both_numbers() -> None:
    """CPU is left as it is; it is neither 0 nor plainly missing, and memory goes on."""
    lacking = grown([NAN] * 120)
    short = replace(policy(LESS, grid=HOURS), rate_window=timedelta(seconds=75))
    found = replace(measurements([pod()], lacking), scrape_interval_s=60)
    decision = one(decide(snapshot(pod()), found, config(short)))
    assert decision.reason is Reason.DECREASE
    assert decision.proposals[0].proposed.requests.cpu == 500
    assert decision.proposals[0].proposed.requests.memory == 512 << 20
    words = [sentence(step) for step in decision.proposals[0].trail]
    assert any("rate window too short (75 s for 60 s scrapes)" in each for each in words)
    alone = one(decide(snapshot(pod()), found, config(replace(short, recommender=fixed("300m", None)))))
    assert alone.reason is Reason.RATE_WINDOW_TOO_SHORT
    nothing = one(decide(snapshot(pod()), found, config(replace(short, recommender=fixed(None, "1Gi")))))
    assert nothing.reason is Reason.RATE_WINDOW_TOO_SHORT
    assert "75 s for 60 s scrapes" in nothing.detail


@pytest.mark.parametrize(("window_s", "every_s", "short"), [(240, 60, False), (239, 60, True), (75, None, False)])
def test_four_scrapes_are_a_window(window_s: int, every_s: int | None, short: bool) -> None:
    rules = replace(policy(LESS, grid=HOURS), rate_window=timedelta(seconds=window_s))
    found = replace(measurements([pod()], grown()), scrape_interval_s=every_s)
    assert (("rateWindowTooShort", Resource.CPU) in said(one(decide(snapshot(pod()), found, config(rules))))) is short


def test_prm_13_half_of_the_pods_lower_nothing_and_raise() -> None:
    pods = [pod(name=f"sim-{i}") for i in range(4)]
    half = {**measurements(pods[:2], grown()).histories}
    missing = measurements(pods[2:], Gap(Reason.NO_DATA, "no samples in Prometheus")).histories
    found = replace(measurements(pods), histories={**half, **missing})
    plan = decide(snapshot(*pods), found, config(policy(LESS, grid=HOURS)))
    assert [d.reason for d in plan.decisions] == [Reason.LOW_COVERAGE] * 2 + [Reason.NO_DATA] * 2
    assert "2 of 4 pods of StatefulSet/sim have samples: 50% below 80%" in plan.decisions[0].detail
    raised = decide(snapshot(*pods), found, config(policy(MORE, grid=HOURS)))
    assert [d.reason for d in raised.decisions] == [Reason.INCREASE] * 2 + [Reason.NO_DATA] * 2


def test_pods_that_have_just_started_are_not_missed() -> None:
    young = pod(container(started_at=NOW - timedelta(minutes=1)), name="sim-1")
    found = measurements([pod()], grown())
    plan = decide(snapshot(pod(), young), found, config(policy(LESS, grid=HOURS)))
    assert one(plan).reason is Reason.DECREASE


def test_a_partial_answer_lowers_nothing_for_as_long_as_it_is_looked_back_on() -> None:
    whole = grown()
    for ago_s, doubted in ((0, True), (7199, True), (7200, False)):
        found = decided(replace(whole, partial_at=whole.newest_at - ago_s))
        assert (found.reason is Reason.PARTIAL_RESPONSE) is doubted
    assert decided(replace(whole, partial_at=whole.newest_at), MORE).reason is Reason.INCREASE


def test_what_another_source_says_since_a_short_time_ago_lowers_nothing() -> None:
    words = 'its series are of job="b" now, and were of another 2 h ago'
    for of, recommender, reason in (
        (pod(), LESS, Reason.SOURCE_CHANGED),
        (pod(), MORE, Reason.INCREASE),
        (pod(name="sim-1"), LESS, Reason.DECREASE),
    ):
        found = replace(measurements([of], grown()), moved={ContainerRef("bridge", "sim-0", "app"): words})
        decision = one(decide(snapshot(of), found, config(policy(recommender, grid=HOURS))), of.name)
        assert decision.reason is reason
        assert (("sourceChanged", Resource.CPU) in said(decision)) is (of.name == "sim-0")
        assert (words in decision.detail) is (reason is Reason.SOURCE_CHANGED)


def test_a_look_back_that_was_cut_lowers_nothing_until_it_has_passed() -> None:
    whole = grown()
    for ago_s, doubted in ((3600, True), (7199, True), (7200, False)):
        found = decided(replace(whole, unread_before=whole.newest_at - ago_s))
        assert (found.reason is Reason.RANGE_TRUNCATED) is doubted
    cut = replace(whole, unread_before=whole.newest_at - 3600)
    assert "60m of 2h were read" in decided(cut).detail
    assert decided(cut, MORE).reason is Reason.INCREASE


@pytest.mark.parametrize(("age_s", "doubted"), [(3600, False), (5400, True), (3000, True), (None, True)])
def test_a_look_back_that_was_cut_has_left_nothing_out_of_a_younger_pod(age_s: int | None, doubted: bool) -> None:
    """The first sample tells nothing: there may be a hole, or an earlier pod of the name. Here it is an hour old."""
    cut = replace(grown((0.2,) * 60, (float(200 << 20),) * 60), unread_before=int(NOW.timestamp()) - 4800)
    created_at = None if age_s is None else NOW - timedelta(seconds=age_s)
    found = decided(cut, one_pod=pod(created_at=created_at))
    assert (("rangeTruncated", Resource.CPU) in said(found)) is doubted


@pytest.mark.parametrize(
    ("grid", "window_s", "doubted"), [(Grid(), 299, True), (Grid(), 300, False), (HOURS, 60, False)]
)
def test_rates_that_leave_time_out_between_blocks_do_not_lower_cpu(grid: Grid, window_s: int, doubted: bool) -> None:
    rules = replace(policy(LESS, grid=grid), rate_window=timedelta(seconds=window_s), min_coverage=0.0)
    found = replace(measurements([pod()], grown()), scrape_interval_s=15)
    decision = one(decide(snapshot(pod()), found, config(rules)))
    assert (("resolutionReduced", Resource.CPU) in said(decision)) is doubted
    assert (Resource.CPU in kept(decision)) is doubted
    assert Resource.MEMORY not in kept(decision)


def restarting(count: int, minutes: int) -> Container:
    return container(restart_count=count, started_at=NOW - timedelta(minutes=minutes))


@pytest.mark.parametrize(("restarts", "reason"), [(1, Reason.COUNTER_RESET), (3, Reason.COUNTER_RESET_STORM)])
def test_a_restart_is_said_and_many_keep_cpu_from_being_lowered(restarts: int, reason: Reason) -> None:
    """Each makes CPU read too low for a window of five minutes; the pod is two hours old."""
    found = decided(grown(), one_pod=pod(restarting(restarts, 15), created_at=NOW - timedelta(hours=2)))
    assert said(found) == {(reason[0].lower() + reason[1:], Resource.CPU)}
    assert kept(found) == ({Resource.CPU} if reason is Reason.COUNTER_RESET_STORM else set())
    assert found.reason is Reason.DECREASE
    quiet = decided(grown(), one_pod=pod(restarting(restarts, 150), created_at=NOW - timedelta(hours=4)))
    assert said(quiet) == set()


class OfGpus(Fixed):
    """Reads what GPUs do."""

    @property
    def signals(self) -> frozenset[str]:
        return frozenset({Signal.GPU_MEMORY, Signal.GPU_UTILISATION})


@pytest.mark.parametrize("recommender", [OfGpus(0.3, 512 * MIB), OfGpus(0.7, 1536 * MIB)], ids=["less", "more"])
@pytest.mark.parametrize(
    ("asks", "unattributed", "known", "expected"),
    [
        (1, True, (), Reason.GPU_UNATTRIBUTED),
        (0, True, (), None),
        (1, False, (), None),
        (1, True, (Signal.GPU_MEMORY, Signal.GPU_UTILISATION), None),
        (1, False, (Signal.GPU_MEMORY,), Reason.GPU_UTILIZATION_UNKNOWN),
        (1, True, (Signal.GPU_MEMORY,), Reason.GPU_UTILIZATION_UNKNOWN),
    ],
)
def test_who_reads_of_gpus_what_nobody_knows_is_held(
    recommender: Fixed, asks: int, unattributed: bool, known: tuple[Signal, ...], expected: Reason | None
) -> None:
    whole = grown()
    recent = replace(whole.recent, signals={name: np.full(len(whole.recent), 0.5, np.float32) for name in known})
    with_gpu = pod()
    with_gpu = replace(with_gpu, scheduling=replace(with_gpu.scheduling, extended={"nvidia.com/gpu": asks}))
    note = (Problem("Prometheus", Trouble.GPU_UNATTRIBUTED, "2 GPUs are of no pod"),) if unattributed else ()
    found = replace(measurements([with_gpu], replace(whole, recent=recent)), scrape_interval_s=60, problems=note)
    decision = one(decide(snapshot(with_gpu), found, config(policy(recommender, grid=HOURS))))
    if expected is None:
        assert said(decision) == set()
        return
    assert decision.reason is expected
    assert decision.action is None
    assert kept(decision) == set(Resource)
    other = one(decide(snapshot(with_gpu), found, config(policy(LESS, grid=HOURS))))
    assert other.reason is Reason.DECREASE  # its recommender reads nothing of GPUs


def test_what_an_earlier_pod_of_the_name_used_lowers_nothing() -> None:
    for age, doubted in ((timedelta(minutes=4), True), (timedelta(minutes=7), False)):
        found = decided(grown(), one_pod=pod(container(started_at=NOW - age), created_at=NOW - age))
        assert (found.reason is Reason.INSUFFICIENT_HISTORY) is doubted


def test_nothing_is_expected_of_before_the_pod_and_before_the_first_sample() -> None:
    young = [NAN] * 80 + [0.2] * 40
    memory = [200 * MIB] * 3 + [NAN] * 72 + [200 * MIB] * 45
    began = NOW - timedelta(minutes=46)
    found = decided(grown(young, memory), one_pod=pod(container(started_at=began), created_at=began))
    assert said(found) == set()
    assert said(decided(grown([NAN] * 80 + [0.2] * 40, [NAN] * 80 + [200 * MIB] * 40))) == set()


# --- properties

USED = st.lists(st.floats(0.0625, 0.375, width=32), min_size=120, max_size=120)
MISSING = st.one_of(
    st.sets(st.integers(1, 118)),
    st.tuples(st.integers(1, 100), st.integers(0, 60)).map(lambda hole: set(range(hole[0], min(118, sum(hole))))),
)


def percentile() -> Percentile:
    return Percentile(PercentileParameters())


def judged(used: Sequence[float], missing: set[int]) -> Decision:
    learner = percentile()
    values = without(used, sorted(missing))
    return decided(grown(values, [each * 1000 * MIB for each in values], learner), learner)


def amounts(decision: Decision) -> tuple[int, int]:
    """Millicores and bytes of the only container."""
    requests = decision.proposals[0].proposed.requests
    assert requests.cpu is not None
    assert requests.memory is not None
    return requests.cpu, requests.memory


@given(USED, MISSING)
def test_missing_samples_never_lower_anything(used: Sequence[float], missing: set[int]) -> None:
    """What a few are missing of may still shrink; what much is missing of may only grow."""
    found = judged(used, missing)
    few = len(missing) <= 12
    longest = max(map(len, "".join("x" if i in missing else " " for i in range(120)).split(" ")))
    if len(missing) > 25 or (not few and longest > 2):
        assert all(now >= was for now, was in zip(amounts(found), (500, 1 << 30), strict=True))


@given(st.floats(0.0625, 2.0, width=32), MISSING)
def test_a_gap_in_steady_usage_changes_no_target(used: float, missing: set[int]) -> None:
    whole, holed = amounts(judged([used] * 120, set())), amounts(judged([used] * 120, missing))
    assert all(now >= was for now, was in zip(holed, whole, strict=True))


@given(MISSING)
def test_doubts_are_said_if_and_only_if_they_hold(missing: set[int]) -> None:
    found = judged([0.2] * 120, missing)
    there = [i not in missing for i in range(120)]
    longest = max(map(len, "".join(" " if each else "x" for each in there).split(" ")))
    assert (("lowCoverage", Resource.MEMORY) in said(found)) is (sum(there) / 120 < 0.8)
    assert (("scrapeGap", Resource.MEMORY) in said(found)) is (longest > 2)


@given(st.lists(st.booleans(), min_size=1, max_size=200), st.lists(st.integers(1, 199)), st.integers(1, 5))
def test_presence_is_what_was_there_however_it_arrives(there: list[bool], cuts: list[int], every: int) -> None:
    ends = np.arange(60, 60 * len(there) + 1, 60, dtype=np.int64)
    flags = np.asarray(there)
    known = Presence(60)
    for part in np.split(np.arange(len(there)), sorted({cut for cut in cuts if cut < len(there)})):
        known = known.with_values(ends[part], flags[part], 7200)
    looked_at = there[-120:]
    covered = known.within(60 * (len(there) - len(looked_at)), 60.0)
    assert (covered.there, covered.expected) == (sum(looked_at), len(looked_at))
    assert covered.hole == max(map(len, "".join(" " if each else "x" for each in looked_at).split(" ")))
    assert known.within(0, 60.0 * every).there >= covered.there


def test_prm_11_what_is_no_number_is_left_out() -> None:
    """Of 1, NaN, 2, +Inf and NaN, 1 and 2 are used."""
    made = advance(
        None,
        Samples.of([60, 120, 180, 240, 300], [1, NAN, 2, math.inf, NAN], [NAN] * 5),
        Fixed(),
        Grid(60, 300),
        sample_s=60,
    )
    assert made is not None
    assert made.recent.cpu.tolist() == [1, 2]
    assert made.seen is not None
    assert made.seen.cpu[0].within(0, 60).there == 2
    assert advance(None, Samples.of([60], [NAN], [math.inf]), Fixed(), Grid(60, 300), sample_s=60) is None


def test_every_reason_to_doubt_has_an_effect() -> None:
    assert EFFECTS[Reason.LOW_COVERAGE] is Effect.NO_DOWN
    assert unfit(Gap(Reason.NO_DATA, ""), "app", HOURS, NOW, timedelta(minutes=5)) is not None
