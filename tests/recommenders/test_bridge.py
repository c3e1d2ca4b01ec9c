"""The recommender `bridge`: what it needs, when it raises and lowers, and that nothing but samples decides it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from autoscaler.core.history import History, advance
from autoscaler.core.model import Resource, ResourceList, Resources, Termination
from autoscaler.core.recommender import EMPTY, Abstain, Grid, Samples, Signal, Situation, Step, Target
from autoscaler.core.units import Bytes, Millicores
from autoscaler.recommenders.bridge import Bridge, Folded
from autoscaler.recommenders.bridge_parameters import (
    BridgeParameters,
    CpuParameters,
    LoweringParameters,
    MemoryLoweringParameters,
    MemoryParameters,
)

T0 = 1_700_000_100 // 86400 * 86400
MIB = 1 << 20
NAN = math.nan

CPU = CpuParameters(
    window=timedelta(minutes=20),
    margin=0.2,
    growth=0.5,
    lowering=LoweringParameters(change_cost=timedelta(minutes=6), dead_band=0.1, settle=0.1),
).model_copy(update={"hurry": 2.0})
MEMORY = MemoryParameters(
    window=timedelta(minutes=15),
    margin=0.05,
    rises=0.5,
    rise_within=timedelta(minutes=10),
    rise_half_life=timedelta(days=1),
    beyond=0.25,
    highest_half_life=timedelta(days=365),
    newcomer=0.0,
    kill=0.2,
    dead_band=0.03,
    lowering=MemoryLoweringParameters(change_cost=timedelta(minutes=30), dead_band=0.05, settle=0.1),
)
BRIDGE = Bridge(BridgeParameters(cpu=CPU, memory=MEMORY))


def minutes(
    cpu: Sequence[float] = (),
    memory: Sequence[float] = (),
    *,
    start: int = T0,
    step: int = 60,
    signals: Mapping[str, Sequence[float]] | Mapping[Signal, Sequence[float]] | None = None,
) -> Samples:
    """Samples of each minute; memory in MiB. What is not given is missing."""
    count = max(len(cpu), len(memory))
    cpus, memories = (*cpu, *[NAN] * (count - len(cpu))), (*memory, *[NAN] * (count - len(memory)))
    made = Samples.of([start + step * (n + 1) for n in range(count)], cpus, [one * MIB for one in memories])
    named: dict[str, NDArray[np.float32]] = {
        name: np.asarray(values, np.float32) for name, values in (signals or {}).items()
    }
    return Samples(made.end_at, made.cpu, made.memory, named)


def size(cores: float = 0.0, mib: float = 0.0, *, limited: bool = True) -> Resources:
    amounts = ResourceList.of(
        {
            resource: amount
            for resource, amount in (
                (Resource.CPU, Millicores(round(cores * 1000))),
                (Resource.MEMORY, Bytes(round(mib * MIB))),
            )
            if amount
        }
    )
    return Resources(amounts, amounts if limited else ResourceList())


def asked(
    past: Samples,
    in_force: Resources,
    *,
    bridge: Bridge = BRIDGE,
    ended: Termination | None = None,
    later_s: int = 0,
    step: int = 60,
    resized_at: int = 0,
    rates_s: int = 0,
) -> Target:
    """The answer after folding samples of a minute each, as a replay does. `rates_s`: the window of rates."""
    state = bridge.fold(bridge.start(), past, step) if len(past) else bridge.start()
    now = datetime.fromtimestamp(int(past.end_at[-1]) + later_s, UTC)
    recent = past[-7200 // step :]
    situation = Situation(now, recent, EMPTY, in_force, step, step, ended, resized_at=resized_at, rate_window_s=rates_s)
    answer = bridge.recommend(state, situation)
    assert isinstance(answer, Target)
    return answer


def steps(target: Target, resource: Resource) -> dict[str, Step]:
    return {step.name: step for step in target.trail if step.resource is resource}


def adds_up(target: Target) -> bool:
    """Whether each step of a trail begins where the one before it ended, and the last ends at the number."""
    for resource, value, scale in ((Resource.CPU, target.cpu, 1000), (Resource.MEMORY, target.memory, 1)):
        trail = [step for step in target.trail if step.resource is resource]
        if trail[0].before is not None or any(a.after != b.before for a, b in pairwise(trail)):
            return False
        if value is None:
            if trail[-1].after is not None:
                return False
        elif trail[-1].after != math.ceil(value * scale * (1 - 1e-12)):
            return False
    return True


# ---- CPU


def test_a_size_that_still_fits_is_kept() -> None:
    answer = asked(minutes([0.95] * 90), size(1.0))
    assert answer.cpu == 1.0
    assert steps(answer, Resource.CPU)["kept"].because == "the size has not been used up"


def test_a_size_that_is_used_up_grows_at_once() -> None:
    answer = asked(minutes([0.5] * 59 + [1.0]), size(1.0))
    assert answer.cpu == pytest.approx(1.5)
    step = steps(answer, Resource.CPU)["reached"]
    assert step.because == "100% of the size is used: more may be wanted than is seen, +50%"


def test_throttling_makes_it_grow_and_each_sample_in_a_row_makes_it_grow_faster() -> None:
    usage, calm = [0.5] * 57, [0.0] * 57
    once = minutes([*usage, 0.5, 0.5, 0.9], signals={Signal.THROTTLED: [*calm, 0.0, 0.0, 0.4]})
    again = minutes([*usage, 0.5, 0.9, 0.9], signals={Signal.THROTTLED: [*calm, 0.0, 0.4, 0.4]})
    assert asked(once, size(1.0)).cpu == pytest.approx(1.5)
    assert asked(again, size(1.0)).cpu == pytest.approx(2.0)
    assert "throttled in 40% of the time" in steps(asked(once, size(1.0)), Resource.CPU)["reached"].because


def _under_rates(demand: Sequence[float], step: int) -> list[tuple[int, float]]:
    """When a container that has 1 core, and wants so many in each second from 3600 on and 0.6 before, was given another
    size, and what size, as in a cluster: samples are rates over five minutes, as Prometheus tells them, and known half
    a minute later; a size is in force five seconds after it was asked for."""
    wanted = [*[0.6] * 3600, *demand]
    given, used, throttled = [(0, 1.0)], [0.0], [0.0]  # the last two: seconds of it until then
    for second, cores in enumerate(wanted):
        limit = next(cores for since, cores in reversed(given) if second >= (since and since + 5))
        used.append(used[-1] + min(cores, limit))
        throttled.append(throttled[-1] + (cores > limit))
        end = second + 1 - 30
        if second < 3600 or end % step:
            continue
        ends = range(end - 3000, end + 1, step)
        cpu, shares = ([(one[at] - one[at - 300]) / 300 for at in ends] for one in (used, throttled))
        past = minutes(cpu, start=T0 + ends[0] - step, step=step, signals={Signal.THROTTLED: shares})
        asked_at, cores = given[-1]
        answer = asked(past, size(cores), step=step, resized_at=asked_at and T0 + asked_at, rates_s=300).cpu
        if answer is not None and answer > cores * 1.01:
            given.append((second, answer))
    return [(at - 3600, cores) for at, cores in given[1:]]


@pytest.mark.parametrize("step", [60, 15])
@pytest.mark.parametrize("burst_s", [30, 60, 100])
def test_one_burst_raises_once_though_rates_show_it_for_minutes(step: int, burst_s: int) -> None:
    """For the whole of their window, and as high: they fall only when the burst leaves it."""
    raises = _under_rates([*[1.3] * burst_s, *[0.6] * 600], step)
    assert [cores for _, cores in raises] == [pytest.approx(1.5)]


@pytest.mark.parametrize("step", [60, 15])
def test_what_stays_throttled_after_a_raise_is_raised_again(step: int) -> None:
    """As soon as rates rise by more than what was before it; where they do not, once their window has passed."""
    steady = _under_rates([8.0] * 900, step)
    assert steady[-1][1] >= 8.0
    assert all(b - a <= 180 for (a, _), (b, _) in pairwise(steady))
    hitches = [*[8.0] * 12, *[0.2] * 48] * 20
    twice = _under_rates(hitches, step)[:2]
    assert 300 <= twice[1][0] - twice[0][0] <= 420


@pytest.mark.parametrize(
    ("share", "cores"), [([0.2] * 5, 1.5), ([NAN, 0.2, 0.2, 0.5], 1.5), ([0.2] * 6, 1.5), ([0.2] * 7, 2.25)]
)
def test_a_share_counts_again_when_its_window_begins_after_the_resize(share: list[float], cores: float) -> None:
    shares = [*[0.0] * (60 - len(share)), *share]
    past = minutes([1.0] * 60, signals={Signal.THROTTLED: shares})
    resized_at = int(past.end_at[-len(share)])
    assert asked(past, size(1.5), resized_at=resized_at, rates_s=300).cpu == pytest.approx(cores)


def test_pressure_that_rates_still_show_after_a_resize_does_not_count() -> None:
    past = minutes([0.9] * 60, signals={Signal.CPU_PRESSURE: [0.0] * 56 + [0.5] * 4})
    assert asked(past, size(1.0), resized_at=int(past.end_at[-3]), rates_s=300).cpu == 1.0
    assert asked(past, size(1.0), rates_s=300).cpu == pytest.approx(1.5)


def test_a_hitch_among_the_samples_of_a_minute_is_no_lack_of_cpu() -> None:
    """One second of sixty; with one in each quarter of a minute it is."""
    calm, hitch, end = [0.0] * 720, [0.2, *[0.0] * 11], [0.2]
    once = minutes([0.5] * 721, step=5, signals={Signal.THROTTLED: [*calm, *end]})
    often = minutes([0.5] * 733, step=5, signals={Signal.THROTTLED: [*calm, *[*hitch[:3]] * 4, *end]})
    assert asked(once, size(0.6), step=5).cpu == 0.6
    assert asked(often, size(0.6), step=5).cpu == pytest.approx(0.9)


def test_how_much_longer_frames_take_says_how_much_more_is_wanted() -> None:
    signals = {Signal.THROTTLED: [0.0] * 59 + [0.9], "frameTime": [0.02] * 30 + [0.025] * 29 + [0.075]}
    answer = asked(minutes([0.5] * 60, signals=signals), size(0.6))
    assert answer.cpu == pytest.approx(1.8)
    assert steps(answer, Resource.CPU)["reached"].because == (
        "throttled, and frames take 3.0 times as long as before: more may be wanted than is seen, +200%"
    )
    endless = {**signals, "frameTime": [0.02] * 59 + [1e37]}
    because = steps(asked(minutes([0.5] * 60, signals=endless), size(0.6)), Resource.CPU)["reached"].because
    assert "frames take 1000.0 times as long" in because
    stalled = {**signals, Signal.THROTTLED: [0.0] * 60}
    assert asked(minutes([0.5] * 60, signals=stalled), size(0.6)).cpu == 0.6


def test_frames_that_take_longer_count_where_throttling_is_not_measured() -> None:
    frames = {"frameTime": [0.02] * 59 + [0.04]}
    assert asked(minutes([0.9] * 60, signals=frames), size(1.0)).cpu == pytest.approx(1.5)
    assert asked(minutes([0.7] * 60, signals=frames), size(0.9)).cpu == 0.9
    assert asked(minutes([0.9] * 60, signals={"frameTime": [0.02] * 59 + [NAN]}), size(1.0)).cpu == 1.0


def _users(*counts: int | float) -> list[float]:
    """The numbers of users of six hours, each for as long as the others."""
    return [float(count) for count in counts for _ in range(360 // len(counts))]


def test_what_so_many_users_took_is_there_when_they_come_back() -> None:
    usage = [0.2] * 120 + [3.0] * 120 + [0.2] * 119 + [0.3]
    users = {"sessions": [*_users(0, 10, 0)[:-1], 9.0]}
    answer = asked(minutes(usage, signals=users), size(0.5))
    assert answer.cpu == pytest.approx(3.0 * 2 ** (-2 / 6), rel=0.01)
    assert steps(answer, Resource.CPU)["sessions"].because == "8-15 users took up to so much 2h ago, fading"
    assert adds_up(answer)
    fewer = asked(minutes(usage, signals={"sessions": [*users["sessions"][:-1], 7.0]}), size(0.5))
    assert fewer.cpu == 0.5


def test_nothing_is_lowered_to_less_than_what_those_who_are_there_took() -> None:
    usage = [0.2] * 120 + [3.0] * 20 + [1.0] * 220
    answer = asked(minutes(usage, signals={"sessions": [5.0] * 360}), size(4.0))
    assert answer.cpu == pytest.approx(3.0 * 2 ** (-220 / 360), rel=0.01)
    assert asked(minutes(usage), size(4.0)).cpu == pytest.approx(1.2)


@pytest.mark.parametrize("users", [NAN, -1.0, math.inf])
def test_users_that_are_not_known_are_not_nobody(users: float) -> None:
    """They are as many as there were for as long as usage counts, and then nothing is read of them."""
    usage, known = [3.0] * 60 + [1.0] * 240, [5.0] * 290
    soon = asked(minutes(usage, signals={"sessions": [*known, *[users] * 10]}), size(4.0))
    assert "sessions" in steps(soon, Resource.CPU)
    late = asked(minutes([*usage, *[1.0] * 20], signals={"sessions": [*known, *[users] * 30]}), size(4.0))
    assert "sessions" not in steps(late, Resource.CPU)


def test_growth_ends_at_a_multiple_of_what_is_used() -> None:
    past = minutes([0.1] * 60, signals={Signal.THROTTLED: [0.5] * 60})
    assert asked(past, size(0.39)).cpu == pytest.approx(0.4)
    assert asked(past, size(0.45)).cpu == pytest.approx(0.45)


def test_without_a_limit_nothing_is_hidden_and_the_size_follows_usage() -> None:
    assert asked(minutes([3.0] * 60), size(1.0, limited=False)).cpu == pytest.approx(3.6)


def test_pressure_counts_where_throttling_is_not_measured() -> None:
    waits = {Signal.CPU_PRESSURE: [0.5] * 60}
    assert asked(minutes([0.9] * 60, signals=waits), size(1.0)).cpu == pytest.approx(1.5)
    both = {**waits, Signal.THROTTLED: [0.0] * 60}
    assert asked(minutes([0.9] * 60, signals=both), size(1.0)).cpu == 1.0
    assert asked(minutes([0.5] * 60, signals=waits), size(0.65)).cpu == 0.65


def test_what_was_too_much_is_lowered_when_it_has_cost_as_much_as_a_change() -> None:
    """Usage of 0.5 needs 0.6; of a size of 1.2, half is too much, so that 6 minutes are worth a change after 12."""
    past = [1.0] * 60 + [0.5] * 15  # then the last block with the peak leaves the window
    kept = asked(minutes([*past, *[0.5] * 11]), size(1.2))
    assert kept.cpu == 1.2
    assert steps(kept, Resource.CPU)["kept"].because == (
        "too much in the last 11m: worth 6m of the whole size, a change is worth 6m"
    )
    lowered = asked(minutes([*past, *[0.5] * 12]), size(1.2))
    assert lowered.cpu == pytest.approx(0.6)
    assert steps(lowered, Resource.CPU)["lowered"].because == "too much in the last 12m: worth 6m of the whole size"


def test_throttling_starts_the_count_anew() -> None:
    """Bursts that are shorter than the distance of samples show nowhere else: without that it would be lowered at once
    to the size at which it was throttled."""
    throttled = [0.0] * 92 + [0.3]
    soon = asked(minutes([0.5] * 95, signals={Signal.THROTTLED: [*throttled, *[0.0] * 2]}), size(1.2))
    assert soon.cpu == 1.2
    assert steps(soon, Resource.CPU)["kept"].because == "it has been throttled in the last five minutes"
    kept = asked(minutes([0.5] * 106, signals={Signal.THROTTLED: [*throttled, *[0.0] * 13]}), size(1.2))
    assert kept.cpu == 1.2
    late = asked(minutes([0.5] * 107, signals={Signal.THROTTLED: [*throttled, *[0.0] * 14]}), size(1.2))
    assert late.cpu == pytest.approx(0.6)


def test_a_need_that_rose_starts_the_count_anew() -> None:
    flat = asked(minutes([0.3] * 120), size(1.0))
    rising = asked(minutes([0.3] * 118 + [0.4, 0.4]), size(1.0))
    assert flat.cpu == pytest.approx(0.36)
    assert rising.cpu == 1.0


def test_nothing_is_lowered_on_less_than_an_hour_of_samples() -> None:
    assert asked(minutes([0.1] * 59), size(4.0)).cpu == 4.0
    assert asked(minutes([0.1] * 60), size(4.0)).cpu == pytest.approx(0.12)
    assert "59m of 1h of samples" in steps(asked(minutes([0.1] * 59), size(4.0)), Resource.CPU)["kept"].because


def test_what_uses_nothing_gets_what_binds_at_least() -> None:
    assert asked(minutes([0.0] * 120), size(1.0)).cpu == 0.01


# ---- memory


def test_memory_that_is_calm_gets_little_more_than_it_uses() -> None:
    assert asked(minutes(memory=[1000.0] * 120), size(mib=4000)).memory == pytest.approx(1050 * MIB)


def test_room_is_left_for_the_largest_rise_and_fades() -> None:
    """A rise of 1000 MiB: half of it at once, a quarter after a day. It ends 25 % above the highest usage."""
    job = [1000.0] * 60 + [2000.0] * 10
    fresh = asked(minutes(memory=[*job, *[1000.0] * 50]), size(mib=1000))
    assert fresh.memory == pytest.approx(1500 * MIB, rel=0.01)
    day = asked(minutes(memory=[*job, *[1000.0] * 1440]), size(mib=1000))
    assert day.memory == pytest.approx(1250 * MIB, rel=0.01)
    trail = steps(day, Resource.MEMORY)
    assert trail["rise"].because == "50% of the largest rise, 1000Mi 1d ago, fading"


def test_from_the_highest_usage_nothing_rises() -> None:
    calm = asked(minutes(memory=[100.0] * 60 + [2000.0] * 60), size(mib=2000))
    assert calm.memory == pytest.approx(2500 * MIB, rel=0.01)
    assert "25% above the highest usage, 2000Mi" in steps(calm, Resource.MEMORY)["highest"].because


def test_memory_grows_at_once_and_is_lowered_late() -> None:
    assert asked(minutes(memory=[1000.0] * 60 + [1900.0]), size(mib=1500)).memory == pytest.approx(2350 * MIB)
    soon = asked(minutes(memory=[3000.0] * 60 + [1000.0] * 45), size(mib=3150))
    assert soon.memory == 3150 * MIB
    late = asked(minutes(memory=[3000.0] * 60 + [1000.0] * 62), size(mib=3150))
    assert late.memory == pytest.approx(1050 * MIB)


def test_a_newcomer_gets_room_for_what_is_not_known_of_it() -> None:
    wary = Bridge(BridgeParameters(memory=MEMORY.model_copy(update={"newcomer": 0.5})))
    young = asked(minutes(memory=[1000.0] * 61), size(mib=1000), bridge=wary)
    assert young.memory == pytest.approx((1250 + 1000 * 0.5 * 2 ** (-1 / 6)) * MIB, rel=0.15)
    old = asked(minutes(memory=[1000.0] * 60 * 48), size(mib=1000), bridge=wary)
    assert old.memory == pytest.approx(1050 * MIB, rel=0.01)


def killed(seconds_after: int) -> Termination:
    return Termination("OOMKilled", 137, datetime.fromtimestamp(T0 + seconds_after, UTC))


def test_a_kill_raises_once_however_often_it_is_seen() -> None:
    past = minutes(memory=[1000.0] * 60, signals={Signal.MEMORY_LIMIT: [1000.0 * MIB] * 60})
    first = asked(past, size(mib=1000), ended=killed(3600))
    assert first.memory == pytest.approx(1200 * MIB)
    assert steps(first, Resource.MEMORY)["oomKill"].because == "killed for lack of memory 0s ago, +20%"
    more = {Signal.MEMORY_LIMIT: [1000.0 * MIB] * 60 + [1200.0 * MIB] * 10}
    again = asked(minutes(memory=[1000.0] * 60 + [600.0] * 10, signals=more), size(mib=1200), ended=killed(3600))
    assert again.memory == pytest.approx(1200 * MIB)


def test_a_kill_is_forgotten_soon_but_not_the_rise_behind_it() -> None:
    past = minutes(memory=[400.0] * 60 + [1000.0] + [400.0] * 120)
    answer = asked(past, size(mib=1000), ended=killed(3660))
    assert "oomKill" not in steps(answer, Resource.MEMORY)
    assert answer.memory == pytest.approx((400 + 0.5 * 600) * MIB, rel=0.06)


def test_waiting_for_memory_counts_as_a_kill_that_has_not_come_yet() -> None:
    past = minutes(memory=[990.0] * 60, signals={Signal.MEMORY_PRESSURE: [0.0] * 59 + [0.3]})
    assert asked(past, size(mib=1000)).memory == pytest.approx(1.2 * 990 * MIB)
    assert asked(past, size(mib=1200)).memory == 1200 * MIB


# ---- the past


def test_a_gap_is_no_usage_of_zero() -> None:
    """Missing samples neither raise nor lower: after a gap of a day the level is that of the newest samples."""
    before, after = minutes([0.5] * 60, [1000.0] * 60), minutes([0.5] * 5, [1000.0] * 5, start=T0 + 86400)
    answer = asked(before + after, size(0.6, 1050))
    assert answer.cpu == 0.6
    assert answer.memory == 1050 * MIB


def test_what_is_no_usage_is_missing() -> None:
    odd = [NAN, math.inf, -math.inf, -1.0, 1e18]
    clean, soiled = minutes([0.5] * 60, [900.0] * 60), minutes([0.5] * 55 + odd, [900.0] * 55 + odd)
    state = BRIDGE.fold(BRIDGE.start(), soiled, 60)
    assert state.cpu_s == state.memory_s == 55 * 60
    assert state.cpu.peak == 0.5
    assert asked(soiled, size(4.0, 4000)).cpu == 4.0  # an hour is not there
    assert asked(clean, size(4.0, 4000)).cpu == pytest.approx(0.6)


def test_nothing_is_no_answer() -> None:
    situation = Situation(datetime.fromtimestamp(T0, UTC), EMPTY, EMPTY, size(1.0, 100), 60, 60)
    answer = BRIDGE.recommend(BRIDGE.start(), situation)
    assert isinstance(answer, Abstain)
    assert answer.insufficient_history
    half = asked(minutes(memory=[100.0] * 60), size(1.0, 100))
    assert half.cpu is None
    assert adds_up(half)


def _random(seed: int, count: int) -> Samples:
    """Usage with plateaus, spikes and holes."""
    rng = np.random.default_rng(seed)
    level = np.repeat(rng.lognormal(0, 1, count // 30 + 1), 30)[:count]
    cpu = level * rng.uniform(0.8, 1.2, count) * np.where(rng.random(count) < 0.01, 5, 1)
    memory = 500 * np.repeat(rng.lognormal(0, 0.7, count // 90 + 1), 90)[:count]
    keep = rng.random(count) > 0.05
    throttled = np.where(rng.random(count) < 0.05, rng.random(count), 0.0)
    users = np.where(rng.random(count) < 0.02, NAN, np.repeat(rng.integers(0, 20, count // 45 + 1), 45)[:count])
    beside = {Signal.THROTTLED: throttled.tolist(), "sessions": users.tolist()}
    made = minutes(cpu.tolist(), memory.tolist(), signals=beside)
    return made.each(lambda values: values[keep])


@given(st.integers(0, 1000), st.floats(0.05, 10), st.floats(50, 8000))
@settings(max_examples=60, deadline=None)
def test_explanations_add_up_to_the_number(seed: int, cores: float, mib: float) -> None:
    default = Bridge(BridgeParameters())
    answer = asked(_random(seed, 200), size(cores, mib), bridge=default)
    assert adds_up(answer)
    assert answer.cpu is not None
    assert answer.memory is not None
    assert 0 < answer.cpu <= 10_000
    assert 0 < answer.memory <= 1 << 50


@pytest.mark.parametrize("seed", range(5))
def test_folding_at_once_in_pieces_or_one_by_one_is_the_same(seed: int) -> None:
    past = _random(seed, 3000)
    at_once = BRIDGE.fold(BRIDGE.start(), past, 60)
    pieces = one_by_one = BRIDGE.start()
    for first in range(0, len(past), 97):
        pieces = BRIDGE.fold(pieces, past[first : first + 97], 60)
    for index in range(len(past)):
        one_by_one = BRIDGE.fold(one_by_one, past[index : index + 1], 60)
    assert _close(at_once, one_by_one)
    assert _close(pieces, one_by_one)


def _close(one: Folded, other: Folded) -> bool:
    def flat(value: Any) -> list[float]:
        return (
            [part for each in value for part in flat(each)] if isinstance(value, tuple | np.ndarray) else [float(value)]
        )

    return flat(one) == pytest.approx(flat(other), rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_a_controller_that_restarts_answers_as_if_it_had_not(seed: int) -> None:
    """Two weeks by the minute, folded as they come, against a back-fill by blocks and the last hours by the minute."""
    bridge, grid = Bridge(BridgeParameters()), Grid()
    past = _random(seed, 14 * 1440 - 7)
    assert grid.block == 300
    live: History | None = None
    for first in range(0, len(past), 50):
        live = advance(live, past[first : first + 50], bridge, grid, sample_s=60)
    from_blocks = past.end_at[-1] - 2 * 3600
    cut = int(past.end_at.searchsorted(from_blocks - from_blocks % 300, side="right"))
    restarted = advance(None, _blocks(past[:cut]), bridge, grid, sample_s=300)
    restarted = advance(restarted, past[cut:], bridge, grid, sample_s=60)
    assert live is not None
    assert restarted is not None
    for in_force in (size(0.3, 300), size(2.0, 2000), size(9.0, 9000)):
        one, other = (_answer(bridge, history, in_force) for history in (live, restarted))
        assert one.cpu == pytest.approx(other.cpu)
        assert one.memory == pytest.approx(other.memory)


def _blocks(samples: Samples) -> Samples:
    """As Prometheus answers at block resolution: CPU at the end of each block, memory the maximum in it."""
    number = -(-samples.end_at // 300)
    first = np.flatnonzero(np.diff(number, prepend=number[0] - 1))
    last = np.append(first[1:], len(samples)) - 1
    cpu = np.where(samples.end_at[last] % 300 == 0, samples.cpu[last], np.float32(NAN)).astype(np.float32)
    signals: dict[str, NDArray[np.float32]] = {
        name: np.where(samples.end_at[last] % 300 == 0, values[last], np.float32(NAN)).astype(np.float32)
        for name, values in samples.signals.items()
    }
    return Samples(number[first] * 300, cpu, np.fmax.reduceat(samples.memory, first), signals)


def _answer(bridge: Bridge, history: History, in_force: Resources) -> Target:
    now = datetime.fromtimestamp(history.newest_at, UTC)
    answer = bridge.recommend(history.state, Situation(now, history.recent, history.open, in_force, 60, 300))
    assert isinstance(answer, Target)
    assert adds_up(answer)
    return answer


def test_what_fold_does_not_read_keeps_the_states() -> None:
    wider = BridgeParameters(cpu=CpuParameters(margin=0.3))
    assert Bridge(wider).fold_key != Bridge(BridgeParameters()).fold_key
    same = BridgeParameters(cpu=CpuParameters(growth=1.0), min_history=timedelta(0))
    assert Bridge(same).fold_key == Bridge(BridgeParameters()).fold_key


def test_memory_of_gpus_has_parameters_of_its_own() -> None:
    params = BridgeParameters()
    assert Bridge(params).for_gpu_memory().params.memory == params.gpu_memory
