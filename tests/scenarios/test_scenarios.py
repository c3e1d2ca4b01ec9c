"""Each scenario contains what it is named for, in every seed of development."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from autoscaler.scenarios.catalog import SCENARIOS
from autoscaler.scenarios.generator import Demand
from autoscaler.scenarios.ranges import GIB, MIB
from autoscaler.traces.trace import Column, EventKind
from tests.scenarios.made import SEEDS, made

SEED = pytest.mark.parametrize(
    "seed", [seed if seed < 2 else pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS]
)
HOUR = 3600


def cpu(demand: Demand) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return demand.trace.columns[Column.CPU].copy()


@SEED
def test_a_steady_class(seed: int) -> None:
    demand = made("steady-class", seed)
    users = demand.trace.columns[Column.SESSIONS]
    assert users[:240].max() == 0
    assert set(users[300:]) == {11, 12, 13}
    assert demand.transitions == ()
    assert (demand.trace.columns[Column.MEMORY][:60] > demand.base_bytes + demand.scenes.memory[0] * 0.99).all()
    assert len(demand.collections_s) > 4


@SEED
def test_a_workday(seed: int) -> None:
    demand = made("workday-ramp", seed)
    users = demand.trace.columns[Column.SESSIONS]
    assert users[: 7 * HOUR].max() == 0
    assert users[9 * HOUR : 12 * HOUR].mean() > 2
    night, day = cpu(demand)[HOUR : 7 * HOUR], cpu(demand)[9 * HOUR : 12 * HOUR]
    assert np.quantile(night, 0.95) <= 0.4 * np.quantile(day, 0.95)
    assert len(demand.transitions) > 20


@SEED
def test_a_scene_hopper(seed: int) -> None:
    """Two scenes side by side stand out above what was before and what is after."""
    demand = made("scene-hopper", seed)
    memory, found = demand.trace.columns[Column.MEMORY], 0
    for change in demand.transitions:
        before, after = memory[max(change.loads_s - 10, 0) : change.loads_s], memory[change.done_s :][:10]
        if change.old is not None and len(after):
            assert 2 <= change.drops_s - change.ready_s <= 30
            found += memory[change.ready_s : change.drops_s].min() > 1.2 * max(before.max(), after.max())
    assert found >= 20
    assert len(demand.scenes.memory) == 6
    assert set(demand.trace.columns[Column.SESSIONS][300:]) == {4}


@SEED
def test_a_slow_leak(seed: int) -> None:
    demand = made("slow-leak", seed)
    memory = demand.trace.columns[Column.MEMORY]
    grown = np.median(memory[35 * HOUR : 36 * HOUR]) - np.median(memory[HOUR : 2 * HOUR])
    assert 34 * 150 * MIB * 0.98 < grown < 34 * 400 * MIB * 1.02
    assert memory[37 * HOUR] < memory[35 * HOUR] - grown * 0.9
    assert [(cut.at_s, cut.restarts) for cut in demand.cuts] == [(36 * HOUR, True)]
    assert set(demand.trace.columns[Column.SESSIONS][37 * HOUR :]) == {6}
    boot = slice(36 * HOUR, demand.runs[1].compiles_s)
    assert memory[boot].max() < 1.02 * demand.base_bytes
    assert demand.trace.columns[Column.GPU_MEMORY][boot].max() == 0


@SEED
def test_a_sawtooth(seed: int) -> None:
    demand = made("gc-sawtooth", seed)
    periods = np.diff(demand.collections_s)
    assert 179 <= periods.min() <= periods.max() <= 602
    memory = demand.trace.columns[Column.MEMORY]
    for at_s in demand.collections_s[1:-1]:
        assert memory[at_s - 5 : at_s].min() - memory[at_s : at_s + 5].max() > 0.9 * GIB
    assert len(demand.transitions) == 1


@SEED
def test_a_gpu_plateau(seed: int) -> None:
    demand = made("gpu-plateau", seed)
    assert 4 * GIB <= demand.scenes.gpu_memory.min() <= demand.scenes.gpu_memory.max() <= 16 * GIB
    assert demand.scenes.work.max() <= 0.7
    gpu = demand.trace.columns[Column.GPU_MEMORY]
    stays = [later.loads_s - change.done_s for change, later in pairwise(demand.transitions)]
    assert max(stays) > 1000
    assert abs(np.corrcoef(gpu[HOUR:], cpu(demand)[HOUR:])[0, 1]) < 0.9
    assert gpu.max() > 4 * GIB


@SEED
def test_reconnect_storms(seed: int) -> None:
    demand = made("reconnect-storm", seed)
    users, memory = demand.trace.columns[Column.SESSIONS], demand.trace.columns[Column.MEMORY]
    gpu, peaks = demand.trace.columns[Column.GPU_MEMORY], []
    assert [cut.at_s for cut in demand.cuts] == [1800, 3600, 5400]
    for cut in demand.cuts:
        steady = slice(cut.at_s - 300, cut.at_s)
        assert users[cut.at_s - 1] == 16
        assert 3 <= cut.back_s - cut.at_s <= 15
        assert users[cut.at_s : cut.back_s].max() == 0
        assert users[cut.at_s + 300] == 16
        assert memory[cut.at_s : cut.at_s + 180].max() > memory[steady].max() + 0.3 * GIB
        assert set(gpu[steady]) == set(gpu[cut.at_s : cut.at_s + 600])
        peaks.append(cpu(demand)[cut.at_s : cut.at_s + 300].max() / np.median(cpu(demand)[steady]))
    assert max(peaks) > 2


@SEED
def test_an_idle_night(seed: int) -> None:
    demand = made("overnight-idle", seed)
    users, gpu = demand.trace.columns[Column.SESSIONS], demand.trace.columns[Column.GPU_MEMORY]
    assert users[: 2 * HOUR].max() > 0
    assert users[2 * HOUR : 16 * HOUR].max() == 0
    assert users[16 * HOUR + 60] == 10
    assert [change for change in demand.transitions if change.new is None and change.loads_s < 3 * HOUR]
    assert set(gpu[3 * HOUR : 16 * HOUR]) == {gpu[15 * HOUR]}
    assert gpu[15 * HOUR] < GIB
    assert np.median(cpu(demand)[4 * HOUR : 15 * HOUR]) < 0.4


@SEED
def test_a_cold_start(seed: int) -> None:
    demand = made("cold-start", seed)
    users, memory = demand.trace.columns[Column.SESSIONS], demand.trace.columns[Column.MEMORY]
    (run,) = demand.runs
    assert 40 <= run.ready_s <= 220
    assert (users[239], users[240]) == (0, 1)
    assert memory[: run.ready_s].max() > 1.25 * demand.base_bytes
    assert memory[run.ready_s + 30 : 240].max(initial=0) < 1.02 * demand.base_bytes
    assert np.median(cpu(demand)[run.compiles_s : run.ready_s]) > 2.5
    assert run.release_s <= 30


@SEED
def test_one_clean_step(seed: int) -> None:
    demand = made("demo-step", seed)
    users = demand.trace.columns[Column.SESSIONS]
    assert users[:2400].max() == 0
    assert set(users[2420:4800]) == {demand.most}
    assert users[4820:].max() == 0
    assert cpu(demand)[2500:4800].min() > cpu(demand)[1000:2400].max()


@SEED
def test_a_bad_day(seed: int) -> None:
    demand, scenario = made("bad-day", seed), SCENARIOS["bad-day"]
    kinds = [event.kind for event in demand.trace.events]
    assert kinds.count(EventKind.STORM) == 2
    assert len(demand.collections_s) > 20
    assert scenario.gaps_s == ((9 * HOUR, 180), (14 * HOUR, 1500))
    memory = demand.trace.columns[Column.MEMORY]
    assert memory[23 * HOUR :].min() > memory[HOUR : 7 * HOUR].min() + 1.5 * GIB
