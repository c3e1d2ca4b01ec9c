"""The recommender of VPA: recorded cases of it, steady usage, reactions to steps, kills, and its updater."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from autoscaler.core.model import Resource, ResourceList, Resources, Termination
from autoscaler.core.recommender import EMPTY, Samples, Signal, Situation, Target
from autoscaler.core.units import Bytes, Millicores, parse_cpu, parse_memory
from autoscaler.recommenders.buckets import Buckets, Fading
from autoscaler.recommenders.histogram import (
    DAY_S,
    Folded,
    Histogram,
    HistogramParameters,
    bumped,
    confidence,
)
from autoscaler.recommenders.updater import UpdateParameters, difference, due
from tests.core import test_vpa_cases, test_vpa_lifecycle

CASES = Path(__file__).parents[1] / "cases" / "vpa-cases.csv"
T0 = 1_700_006_400
MIB = 1 << 20
NAN = float("nan")

with CASES.open(newline="") as _file:
    ROWS: Mapping[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
        row["id"]: (row["group"], json.loads(row["input"]), json.loads(row["expected"]))
        for row in csv.DictReader(_file)
    }

STARTUP = "a larger size while starting is not set in advance: a raise in place follows the usage of the start"
ELSEWHERE = {
    "V080": "a kill counts in the day in which it was, and at the limit of then",
    "V084": "without history there is no answer instead of bounds without end",
    **dict.fromkeys(("V088", "V089", "V090", "V091", "V092", "V093"), STARTUP),
    "V070": "pods come in the order of a kubelet: priority, QoS class, time waited",
    "V069": "a container that a policy leaves alone is not asked for",
    **dict.fromkeys(("V065", "V066"), "each amount is compared with its own container's, not with the sum of the pod"),
}


def histogram(**parameters: Any) -> Histogram:
    return Histogram(HistogramParameters.model_validate(parameters))


ALWAYS = {"updates": {"when": "Always"}}


def samples(
    cpu: Sequence[float], memory: Sequence[float], *, start: int = T0, step: int = 60, limit: float = NAN
) -> Samples:
    end_at = start + step * (1 + np.arange(len(cpu), dtype=np.int64))
    limits = np.full(len(cpu), limit, np.float32)
    return Samples(end_at, np.asarray(cpu, np.float32), np.asarray(memory, np.float32), {Signal.MEMORY_LIMIT: limits})


def steady(cpu: float, memory: float, minutes: int, start: int = T0) -> Samples:
    return samples([cpu] * minutes, [memory] * minutes, start=start)


def recommended(
    algorithm: Histogram, state: Folded, in_force: Resources | None = None, ended: Termination | None = None
) -> Target:
    now = datetime.fromtimestamp(state.last_at, UTC)
    found = algorithm.recommend(state, Situation(now, EMPTY, EMPTY, in_force or Resources(), 60, 60, ended))
    assert isinstance(found, Target)
    return found


def millicores(target: Target) -> int:
    assert target.cpu is not None
    return round(target.cpu * 1000)


@pytest.mark.parametrize(
    ("cores", "expected"),
    [(0.05, 63), (0.1, 126), (0.25, 296), (0.5, 587), (1, 1168), (2, 2406), (4, 4742), (0.005, 25)],
)
def test_steady_cpu(cores: float, expected: int) -> None:
    algorithm = histogram()
    assert millicores(recommended(algorithm, algorithm.fold(algorithm.start(), steady(cores, NAN, 60), 60))) == expected


@pytest.mark.parametrize(
    ("mebibytes", "expected"),
    [
        (256, 323522422),
        (512, 628694953),
        (1024, 1238659775),
        (2048, 2539377048),
        (4096, 4992073454),
        (100, 262144000),
    ],
)
def test_steady_memory(mebibytes: int, expected: int) -> None:
    algorithm = histogram()
    state = algorithm.fold(algorithm.start(), steady(NAN, mebibytes * MIB, 60), 60)
    assert recommended(algorithm, state).memory == expected
    without_floor = histogram(memory={"floor": "0"})
    assert recommended(without_floor, state).memory == (126805489 if mebibytes == 100 else expected)


def reacts_after_h(before: float, after: float, hours: int) -> dict[str, float]:
    """Hours until bounds and target of CPU have moved, after so many hours of another usage."""
    algorithm = histogram()
    state = algorithm.fold(algorithm.start(), steady(before, NAN, hours * 60), 60)

    def read(state: Folded) -> dict[str, int]:
        estimates = algorithm._estimates[Resource.CPU]
        return dict(zip(("lower", "target", "upper"), estimates.read(state.cpu[None])[0], strict=True))

    found: dict[str, float] = {}
    first = read(state)
    for minute in range(1, 110 * 60):
        state = algorithm.fold(state, steady(after, NAN, 1, start=state.last_at), 60)
        for name, bucket in read(state).items():
            if bucket != first[name] and name not in found:
                found[name] = minute / 60
        if len(found) == 3:
            break
    return found


@pytest.mark.parametrize(
    ("before", "after", "hours", "expected"),
    [
        (0.1, 1.0, 192, {"upper": 1.8, "target": 3.65, "lower": 23.95}),
        (1.0, 0.1, 192, {"lower": 23.95, "target": 79.6, "upper": 103.6}),
        (0.1, 1.0, 24, {"upper": 0.9, "target": 1.9, "lower": 14.05}),
    ],
)
def test_a_step_of_cpu_is_answered_as_late_as_by_vpa(
    before: float, after: float, hours: int, expected: dict[str, float]
) -> None:
    # the ninth day's samples are not forgotten here: with a half-life of a day they weigh less than half a percent
    assert reacts_after_h(before, after, hours) == pytest.approx(expected, abs=0.06)


def test_one_high_day_of_memory_is_remembered_for_two_more() -> None:
    algorithm = histogram()
    state = algorithm.start()
    sizes = []
    for day, mebibytes in enumerate([500] * 8 + [2000] + [500] * 4):
        state = algorithm.fold(
            state, samples([NAN] * 24, [mebibytes * MIB] * 24, start=T0 + day * DAY_S, step=3600), 3600
        )
        sizes.append(round((recommended(algorithm, state).memory or 0) / MIB))
    assert sizes[7:] == [600, 2422, 2422, 2422, 600, 600]


@pytest.mark.parametrize(("first", "needed", "kills"), [(250, 1024, 4), (250, 4096, 8), (1024, 8192, 6)])
def test_the_ladder_of_oom_kills(first: int, needed: int, kills: int) -> None:
    algorithm = histogram(**ALWAYS)
    limit, state = float(first * MIB), algorithm.start()
    seen: list[int] = []
    while limit < needed * MIB:
        at = T0 + 60 * len(seen)
        state = algorithm.fold(state, samples([NAN], [limit], start=at, limit=limit), 60)
        limit = recommended(algorithm, state).memory or 0.0
        seen.append(round(limit / MIB))
    assert len(seen) == kills
    if first == 250 and needed == 1024:
        assert seen == [422, 641, 933, 1325]


@pytest.mark.parametrize(
    ("hours", "upper", "lower"), [(1 / 12, 289, 0.603), (1, 25, 0.954), (12, 3, 0.996), (24, 2, 0.998), (168, 1.143, 1)]
)
def test_bounds_come_closer_the_more_is_known(hours: float, upper: float, lower: float) -> None:
    known = confidence(hours * 3600, hours * 60)
    assert 1 + 1 / known == pytest.approx(upper, rel=0.002)
    assert (1 + 0.001 / known) ** -2 == pytest.approx(lower, abs=0.001)


def test_bursts_of_a_tenth_of_the_day_are_invisible_and_longer_ones_are_not() -> None:
    algorithm = histogram()
    for share, expected in ((0.05, 126), (0.2, 4742)):
        minutes = [4.0 if minute % 100 < 100 * share else 0.1 for minute in range(8 * 1440)]
        state = algorithm.fold(algorithm.start(), samples(minutes, [NAN] * len(minutes)), 60)
        assert millicores(recommended(algorithm, state)) == expected


def peaks(events: Sequence[Mapping[str, float]]) -> tuple[float, float]:
    """The greatest of the newest day, and of all, after usage and OOM kills at a limit that is their request."""
    algorithm = histogram()
    state = algorithm.start()
    ended = None
    newest = 0
    for event in events:
        at = T0 + DAY_S * 10 + int(event["t_s"])
        if "usage_bytes" in event:
            state = algorithm.fold(state, samples([NAN], [event["usage_bytes"]], start=at - 60), 60)
            newest = max(newest, at)
        elif at < newest:  # what is not new is not folded: a kill of then shows in the container's last end alone
            state = state._replace(limits=((at, event["oom_request_bytes"]), *state.limits))
            ended = Termination("OOMKilled", 137, datetime.fromtimestamp(at, UTC))
        else:
            size = event["oom_request_bytes"]
            state = algorithm.fold(state, samples([NAN], [size], start=at - 60, limit=size), 60)
    from autoscaler.recommenders.histogram import _with_kill

    now = datetime.fromtimestamp(state.last_at, UTC)
    days = _with_kill(state, Situation(now, EMPTY, EMPTY, Resources(), 60, 60, ended))
    return max(days[-1].peak, days[-1].kill), max(max(day.peak, day.kill) for day in days)


@pytest.mark.parametrize("name", ["V075", "V076", "V077", "V078", "V079"])
def test_oom_kills_of_a_day(name: str) -> None:
    _, given, expected = ROWS[name]
    newest, _ = peaks(given["events"])
    assert newest == pytest.approx(expected["window_peak_bytes"], rel=2e-7)  # samples are 32-bit floats


def test_v080_a_kill_counts_in_the_day_in_which_it_was() -> None:
    """VPA, which learns of it a day later, adds a fifth to what was used that day, after the limit had been raised."""
    _, given, expected = ROWS["V080"]
    newest, _ = peaks(given["events"])
    assert newest == 2097152000 != expected["window_peak_bytes"]
    _, of_its_day = peaks([given["events"][0], {**given["events"][2], "t_s": 60}])
    assert of_its_day == bumped(given["events"][2]["oom_request_bytes"])


def test_v081_a_day_has_one_peak() -> None:
    _, given, expected = ROWS["V081"]
    algorithm = histogram()
    state = algorithm.start()
    weights: dict[tuple[float, int], int] = {}
    for step, value, at in expected["histogram_ops"]:
        weights[value, at] = weights.get((value, at), 0) + (1 if step == "add" else -1)
    for at, value in given["samples_bytes"]:
        state = algorithm.fold(state, samples([NAN], [value], start=T0 + at - 60), 60)
    found = {(day.peak, day.end_at - T0): 1 for day in state.days}
    assert found == {key: weight for key, weight in weights.items() if weight}


@pytest.mark.parametrize("name", ["V082", "V083"])
def test_confidence(name: str) -> None:
    _, given, expected = ROWS[name]
    history_s = (given["cpu_samples"] - 1) * given["spacing_s"]
    known = confidence(history_s * DAY_S / given["interval_s"], given["cpu_samples"] * DAY_S / given["interval_s"])
    assert known == pytest.approx(expected["confidence"])
    if name == "V083":
        factor = (1 + given["multiplier"] / known) ** given["exponent"]
        assert int(given["base_cores"] * 1000 * factor) == expected["cpu_millicores"]
        assert int(given["base_bytes"] * factor) == expected["memory_bytes"]


def test_v084_without_history_there_are_no_bounds() -> None:
    _, _, expected = ROWS["V084"]
    assert histogram()._estimates[Resource.CPU].bounds(0, 0, 0.0) == (
        expected["lower_amount"],
        expected["upper_amount"],
    )


def test_v085_exponential_buckets() -> None:
    _, given, expected = ROWS["V085"]
    buckets = Buckets.exponential(given["first_bucket"], given["max"], given["ratio"])
    assert len(buckets) == expected["buckets"]
    assert buckets.starts.tolist() == pytest.approx(expected["starts"])
    values = np.array([float(value) for value in expected["find"]])
    assert buckets.find(values).tolist() == list(expected["find"].values())


def test_v086_percentiles_of_faded_samples() -> None:
    _, given, expected = ROWS["V086"]
    buckets, fading = Buckets.linear(given["bucket"], given["max"]), Fading(given["half_life_s"])
    weights = np.zeros((1, len(buckets)))
    for at, value, weight in given["samples"]:
        weights[0, buckets.find(np.array([value], np.float64))] += weight * fading.weight(at, 0.0)
    shares = tuple(float(share) for share in expected["percentiles"])
    found = buckets.ends[buckets.percentile(weights, shares)[:, 0]]
    assert found.tolist() == list(expected["percentiles"].values())


def test_176_buckets_of_each() -> None:
    from autoscaler.recommenders.histogram import BUCKETS

    assert {len(buckets) for buckets in BUCKETS.values()} == {176}


@pytest.mark.parametrize(("name", "cpu", "memory"), [("V087a", 0.6, NAN), ("V087b", NAN, 1024e6)])
def test_end_to_end_ranges(name: str, cpu: float, memory: float) -> None:
    _, _, expected = ROWS[name]
    algorithm = histogram()
    found = recommended(algorithm, algorithm.fold(algorithm.start(), steady(cpu, memory, 10), 60))
    low, high = expected["request_range"]
    if name == "V087a":
        assert parse_cpu(low) <= millicores(found) <= parse_cpu(high)
    else:
        assert parse_memory(low) <= (found.memory or 0) <= parse_memory(high)


def amount(entry: Mapping[str, str], resource: Resource) -> int | None:
    read = parse_cpu if resource is Resource.CPU else parse_memory
    return read(entry[resource]) if resource in entry else None


@pytest.mark.parametrize("name", ["V060", "V061", "V062", "V063", "V064"])
def test_what_makes_a_change_due(name: str) -> None:
    """Of one container each resource by itself; the differences add up to VPA's."""
    _, given, expected = ROWS[name]
    (entry,) = given["containers"]
    total, outside = 0.0, False
    for resource in Resource:
        request, target = amount(entry["requests"], resource), amount(entry["target"], resource)
        if request is None or target is None:
            continue
        total += difference(target, request)
        bounds = (
            (amount(entry["lower"], resource) or 0, amount(entry["upper"], resource) or 0)
            if "lower" in entry
            else (0, 10**14)
        )
        because = due(target, request, bounds, 0.0, False, UpdateParameters())
        outside = outside or "bound" in because
    assert total == pytest.approx(expected["diff"])
    assert outside is expected["outside"]


@pytest.mark.parametrize("name", ["V067a", "V067b", "V067c", "V068a", "V068b"])
def test_when_a_change_is_due(name: str) -> None:
    _, given, expected = ROWS[name]
    rule = UpdateParameters.model_validate(
        {
            "minAge": f"{given['min_age_h']}h",
            "minDifference": f"{100 * given['threshold']:g}%",
            "quickOom": f"{given.get('quick_oom_s', 600)}s",
        }
    )
    quick = given.get("last_termination") == "OOMKilled" and given["ran_s"] < given["quick_oom_s"]
    in_force = 1000
    target = round(in_force * (1 + given["diff"]))
    bounds = (0, 900) if given.get("outside") else (0, 10**14)
    found = due(target, in_force, bounds, given["pod_age_h"] * 3600, quick, rule)
    assert bool(found) is expected["update"]


def test_a_request_that_is_missing_is_outside() -> None:
    assert due(100, None, (0, 10**14), 0.0, False, UpdateParameters()) == "no request yet"


def test_the_size_in_force_stays_until_a_change_is_due() -> None:
    algorithm = histogram()
    state = algorithm.fold(algorithm.start(), steady(0.5, 512 * MIB, 60), 60)
    in_force = Resources(ResourceList(Millicores(700), Bytes(800 * MIB)))
    found = recommended(algorithm, state, in_force)
    assert (millicores(found), found.memory) == (700, 800 * MIB)
    step = [one for one in found.trail if one.resource is Resource.CPU][-1]
    assert (step.name, step.before, step.after, step.cap) == ("updater", 587, 700, True)
    killed = datetime.fromtimestamp(state.last_at - 30, UTC)
    quick = Termination("OOMKilled", 137, killed, killed - timedelta(minutes=9))
    assert recommended(algorithm, state, in_force, quick).memory == 628694953
    slow = Termination("OOMKilled", 137, killed, killed - timedelta(minutes=11))
    assert recommended(algorithm, state, in_force, slow).memory == 800 * MIB
    state = algorithm.fold(state, steady(0.5, 512 * MIB, 12 * 60, start=state.last_at), 60)
    assert millicores(recommended(algorithm, state, in_force)) == 587
    assert millicores(recommended(histogram(**ALWAYS), state, in_force)) == 587


def test_a_kill_that_samples_do_not_show_is_counted_in_its_day() -> None:
    algorithm = histogram(**ALWAYS)
    state = algorithm.fold(algorithm.start(), samples([NAN] * 60, [300 * MIB] * 60, limit=1000 * MIB), 60)
    ended = Termination("OOMKilled", 137, datetime.fromtimestamp(state.last_at - 30, UTC))
    found = recommended(algorithm, state, ended=ended)
    assert found.memory is not None
    assert found.memory >= bumped(1000 * MIB)
    assert found.trail[-2].because == "p90 of 1 daily peaks, 1 of them of an OOM kill"
    much_later = algorithm.fold(state, samples([NAN] * 96, [300 * MIB] * 96, start=T0 + 2 * DAY_S, step=3600), 3600)
    assert (recommended(algorithm, much_later, ended=ended).memory or 0) < bumped(1000 * MIB)


def test_after_eight_days_without_samples_the_past_is_forgotten() -> None:
    algorithm = histogram()
    state = algorithm.fold(algorithm.start(), steady(4.0, 4096 * MIB, 600), 60)
    later = steady(0.1, 300 * MIB, 10, start=state.last_at + 9 * DAY_S)
    assert millicores(recommended(algorithm, algorithm.fold(state, later, 60))) == 126


@given(
    st.lists(st.tuples(st.floats(0, 4, width=32), st.integers(1, 4096)), min_size=1, max_size=60), st.integers(0, 60)
)
def test_folding_in_pieces_is_folding_at_once(past: list[tuple[float, int]], cut: int) -> None:
    algorithm = histogram()
    whole = samples([cpu for cpu, _ in past], [size * MIB for _, size in past], step=7200, limit=2048 * MIB)
    once = algorithm.fold(algorithm.start(), whole, 60)
    pieces = algorithm.fold(algorithm.fold(algorithm.start(), whole[:cut], 60), whole[cut:], 60)
    np.testing.assert_allclose(pieces.cpu, once.cpu, rtol=1e-9)
    assert pieces[1:] == once[1:]


@pytest.mark.parametrize("half_life", ["9m", "91d"])
def test_half_lives_are_bounded(half_life: str) -> None:
    with pytest.raises(ValidationError, match="out of range; write 10m to 90d"):
        histogram(cpu={"halfLife": half_life})


def test_every_recorded_case_is_tested_or_explained() -> None:
    """Across all tests of VPA's cases."""
    here = Path(__file__).read_text()
    tested = {name for name in ROWS if f'"{name}"' in here or f"{name.lower()}_" in here}
    pairs = {str(case.id) for case in (*test_vpa_cases.PAIRS, *test_vpa_cases.WHOLE)}
    elsewhere = (
        pairs
        | {"V009a", "V009b", "V018", "V019", "V020", "V040", "V041", "V043a"}
        | test_vpa_lifecycle.TESTED
        | test_vpa_cases.DIFFERENT.keys()
        | test_vpa_cases.ELSEWHERE.keys()
        | test_vpa_lifecycle.DIFFERENT.keys()
        | test_vpa_lifecycle.ELSEWHERE.keys()
    )
    limit_ranges = {name for name, (group, _, _) in ROWS.items() if group == "D4-limit-range"}
    assert set(ROWS) - tested - elsewhere - ELSEWHERE.keys() - limit_ranges == set()


def test_the_copy_of_the_cases_is_that_of_the_folder(shared: Path) -> None:
    assert (shared / "cases" / CASES.name).read_bytes() == CASES.read_bytes()
