"""Time of one `decide()` over 10,000 pods with 20,000 containers, recommendations included: `python -m bench.decide`.

Half of the pods change. Once with a recommender that answers at once, which leaves the core alone, and once with the
shipped `percentile`. Prints the median of five rounds, of process time on one core.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np

from autoscaler.cli.wiring import relax_garbage_collection
from autoscaler.core.decide import decide
from autoscaler.core.history import ContainerRef, History, Measurements, advance
from autoscaler.core.labels import LabelSelector
from autoscaler.core.model import ClusterSnapshot, Pod
from autoscaler.core.policy import ByDirection, Config, Policy, Selector, Stability
from autoscaler.core.recommender import Grid, Recommender, Samples, Target
from autoscaler.recommenders.percentile import Percentile, PercentileParameters
from tests.build import NOW, Fixed, config, container, in_use, node, pod, policy, sidecar, sizes, snapshot

_PODS, _NODES, _POLICIES, _ROUNDS = 10_000, 500, 10, 5
_SMALL, _LARGE = sizes("1", "2Gi", "2", "4Gi"), sizes("2", "4Gi", "4", "8Gi")
_PROXY = sizes("100m", "128Mi", "200m", "256Mi")


def _pod(index: int) -> Pod:
    # the half whose app is already large enough stays as it is
    app = container(_LARGE if index % 2 else _SMALL)
    labels = {"app.kubernetes.io/component": f"bridge-{index % _POLICIES}", "statefulset": f"sim-{index // 3}"}
    return pod(sidecar(_PROXY), app, name=f"sim-{index}", node=f"node-{index % _NODES}", labels=labels)


def _policy(index: int, recommender: Recommender[Any]) -> Policy:
    selector = Selector(frozenset({"bridge"}), LabelSelector((("app.kubernetes.io/component", f"bridge-{index}"),)))
    step = Stability(max_step=ByDirection(3.0, 0.3), cooldown=ByDirection(timedelta(0), timedelta(0)))
    return policy(recommender, f"bridge-{index}", selector=selector, stability=step, grid=Grid(lookback=86400))


def _measured(cluster: ClusterSnapshot, history: Callable[[str], History]) -> Measurements:
    """Every container has arrays of its own, as in a controller: shared ones would stay in the processor's cache."""
    made = {name: history(name) for name in ("app", "proxy")}
    found = {
        ContainerRef(each.namespace, each.name, one.name): copy.deepcopy(made[one.name])
        for each in cluster.pods.values()
        for one in each.containers
    }
    return Measurements(NOW, found, in_use=in_use(found))


def _samples(name: str) -> Samples:
    """Two hours at 60 s around 1.7 cores and 3.4 GiB, or around 80m and 100 MiB for the proxy."""
    rng = np.random.default_rng(0)
    cores, size = (1.7, 3.4 * 2**30) if name == "app" else (0.08, 100.0 * 2**20)
    newest = int(NOW.timestamp()) - 60
    end_at = np.arange(newest - 7200 + 60, newest + 1, 60)
    noise = rng.uniform(0.98, 1.0, len(end_at))
    return Samples.of(end_at.tolist(), (cores * noise).tolist(), (size * noise).tolist())


def _fixed(name: str) -> History:
    samples = _samples(name)
    state = Target(2.0, 4.0 * 2**30) if name == "app" else Target(0.1, 128.0 * 2**20)
    return History(state, samples, int(samples.end_at[-2]), int(samples.end_at[0]), int(samples.end_at[-1]))


def _percentile(name: str, recommender: Percentile) -> History:
    made = advance(None, _samples(name), recommender, Grid(lookback=86400), sample_s=60)
    assert made is not None
    return made


def _round(cluster: ClusterSnapshot, measured: Measurements, settings: Config) -> tuple[float, int]:
    started = time.process_time()
    plan = decide(cluster, measured, settings)
    return time.process_time() - started, sum(decision.action is not None for decision in plan.decisions)


def main() -> None:
    """Print the medians."""
    relax_garbage_collection()  # as the commands do
    cluster = snapshot(*map(_pod, range(_PODS)), nodes=[node(f"node-{i}", "256", "1Ti") for i in range(_NODES)])
    percentile = Percentile(PercentileParameters())
    for name, recommender, measured in (
        ("fixed", Fixed(), _measured(cluster, _fixed)),
        ("percentile", percentile, _measured(cluster, lambda name: _percentile(name, percentile))),
    ):
        settings = config(*(_policy(index, recommender) for index in range(_POLICIES)))
        rounds = [_round(cluster, measured, settings) for _ in range(_ROUNDS)]
        median = statistics.median(took for took, _ in rounds)
        print(f"decide() over {_PODS} pods, {2 * _PODS} containers, {rounds[0][1]} changing, {name}: {median:.2f} s")


if __name__ == "__main__":
    main()
