"""How long a bridge waits for a new size after its load has risen, measured over several steps: see docs/latency.md."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from autoscaler.core.reasons import Reason
from tests.kubelet import latency, observing
from tests.kubelet.cluster import eventually
from tests.kubelet.figures import Figures
from tests.kubelet.pods import sizes
from tests.kubelet.stage import Stage

STEPS = int(os.environ.get("E2E_STEPS", "0"))
FIRST = (0.2, 64)  # cores and MiB
GROWTH, MIB_EACH = 1.2, 24  # from step to step: within the limits, for load beyond them is throttled, or killed
MARGIN = "50%"
SMALL = sizes("320m", "120Mi")  # what is wanted for the first load
_KNOWN = {Reason.AT_TARGET, Reason.CHANGE_TOO_SMALL}


class Setting(NamedTuple):
    """Settings that are to be compared. `quiet_s`: as long without a resize, and a step is over. Not `cpu`: only the
    memory rises."""

    scrape_interval: str
    interval: str
    metrics: dict[str, str]
    min_history: str
    quiet_s: float
    within_s: float
    cpu: bool = True


SETTINGS = {
    # as shipped, but for the history that is waited for; a rate over 5m would rise for as long
    "usual": Setting("30s", "60s", {}, "1m", 70, 400, cpu=False),
    "brisk": Setting("15s", "10s", {"lookback": "12h", "step": "15s", "rateWindow": "1m"}, "1m", 75, 240),
    "shortest": Setting("5s", "2s", {"lookback": "6h", "step": "5s", "rateWindow": "30s"}, "20s", 20, 120),
}


@pytest.mark.whole_cluster  # a Guaranteed bridge cannot be resized on a static node
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.skipif(not STEPS, reason="to measure latencies, set E2E_STEPS to the number of steps of load, such as 5")
def test_latency_of_steps(name: str, stage: Stage, figures: Figures) -> None:
    setting = SETTINGS[name]
    prometheus = observing.prometheus(stage.cluster, stage.folder / "prometheus", setting.scrape_interval)
    try:
        stage.house = replace(stage.house, prometheus=prometheus)
        for line in _measure(stage, setting):
            figures.note(f"latency, {name}", line)
    finally:
        prometheus.stop()


def _measure(stage: Stage, setting: Setting) -> list[str]:
    cpu, memory_mib = FIRST
    node = latency.ordinary_node(stage)
    bridge = stage.bridge("sim", SMALL, node=node)
    bridge.load(cpu=cpu, memory_mib=memory_mib)
    stage.policy(**_policy(setting))
    controller = stage.controller(f"--interval={setting.interval}")
    eventually("it is known what the bridge uses", lambda: controller.tally().keys() & _KNOWN, setting.within_s)
    courses = []
    for number in range(STEPS):
        # not in step with any interval
        time.sleep(setting.quiet_s * (number + 0.5) / STEPS)
        cpu, memory_mib = cpu * GROWTH, memory_mib + MIB_EACH
        course = latency.run(
            bridge,
            stage.house.lookouts[node],
            stage.prometheus,
            controller,
            cpu=cpu if setting.cpu else None,
            memory_mib=memory_mib,
            quiet_s=setting.quiet_s,
            within_s=setting.within_s,
        )
        courses.append(course)
    bridge.untouched()
    resources = ("memory", "cpu") if setting.cpu else ("memory",)
    return [line for what in resources for line in latency.table(courses, what)] + latency.told(courses)


def _policy(setting: Setting) -> dict[str, Any]:
    """Up at once, by the greatest usage, and down as slowly as by default."""
    return {
        "mode": "Resize",
        "recommender": {
            "name": "percentile",
            "parameters": {
                "cpu": {"target": "max", "margin": MARGIN},
                "memory": {"margin": MARGIN},
                "minHistory": setting.min_history,
            },
        },
        "metrics": setting.metrics,
    }
