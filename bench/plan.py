"""How long `bridge-autoscaler plan` takes for 1,000 pods with 14 days, and with 1 hour, of history.

Starts the control plane and a Prometheus of its own, writes the pods and their history (one sample a minute, made from
sines and steps), runs the command as a process, and prints wall time and peak memory. Run it through `make bench`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import yaml

from tests.rig.build import binary
from tests.rig.prometheus_server import PrometheusServer
from tests.rig.rig import Rig

NAMESPACE = "bench"
PODS_PER_SET = 100
STEP_S = 60
DAY_S = 86400

POLICY = """\
apiVersion: bridge-autoscaler.dev/v1alpha1
kind: BridgePolicy
metadata: {{name: bench}}
spec:
  selector: {{namespaces: [bench]}}
  mode: Resize
  metrics: {{lookback: {lookback}}}
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pods", type=int, default=1000)
    options.add_argument("--days", type=int, default=14)
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        run(Path(folder), arguments.pods, arguments.days)


def run(folder: Path, pods: int, days: int) -> None:
    with Rig(folder / "rig", scrape_interval="60s") as rig:
        rig.install_role()
        started = time.monotonic()
        names = create_pods(rig, pods)
        say(f"{len(names)} pods running after {time.monotonic() - started:.0f} s")
        now = int(time.time())
        started = time.monotonic()
        data = folder / "history"
        (data / "data").mkdir(parents=True)
        for day in range(days, 0, -1):
            write_day(data / "data", names, now - day * DAY_S, now - (day - 1) * DAY_S)
        prometheus = PrometheusServer(data, scrape_interval="60s", arguments=["--query.max-concurrency=4"])
        try:
            say(
                f"{days} days of history, {2 * len(names) * days * DAY_S // STEP_S:,} samples, written in"
                f" {time.monotonic() - started:.0f} s"
            )
            for lookback in (f"{days}d", "1h"):
                policy = folder / f"policy-{lookback}.yaml"
                policy.write_text(POLICY.format(lookback=lookback))
                measure(rig, prometheus.url, policy, lookback)
        finally:
            prometheus.stop()


def create_pods(rig: Rig, pods: int) -> list[str]:
    """StatefulSets of 100 pods each, started all at once, on enough nodes; returns the pods' names."""
    for number in range(-(-pods // 100)):
        rig.agent.add_node(f"bench-{number}", cpu="64", memory="256Gi", pods=110)
    rig.kubectl("create", "namespace", NAMESPACE)
    names = []
    for first in range(0, pods, PODS_PER_SET):
        name, replicas = f"sim-{first // PODS_PER_SET}", min(PODS_PER_SET, pods - first)
        rig.apply(yaml.safe_dump(stateful_set(name, replicas)))
        names += [f"{name}-{ordinal}" for ordinal in range(replicas)]
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        phases = rig.kubectl("get", "pods", f"-n={NAMESPACE}", "-o=jsonpath={.items[*].status.phase}").split()
        if phases.count("Running") == pods:
            return names
        time.sleep(2)
    raise SystemExit(f"only {phases.count('Running')} of {pods} pods are running")


def stateful_set(name: str, replicas: int) -> dict[str, object]:
    resources = {"requests": {"cpu": "200m", "memory": "512Mi"}, "limits": {"cpu": "400m", "memory": "1Gi"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "app", "image": "bridge", "resources": resources}]},
            },
        },
    }


def write_day(data: Path, names: list[str], start: int, end: int) -> None:
    """One day of samples as TSDB blocks, a sample a minute, from OpenMetrics text."""
    text = data.parent / "day.om"
    times = np.arange(start - start % STEP_S + STEP_S, end + 1, STEP_S)
    with text.open("w") as out:
        out.write("# TYPE container_cpu_usage_seconds counter\n")
        out.writelines(lines("container_cpu_usage_seconds_total", names, times, cpu_seconds))
        out.write("# TYPE container_memory_working_set_bytes gauge\n")
        out.writelines(lines("container_memory_working_set_bytes", names, times, memory_bytes))
        out.write("# EOF\n")
    command = [binary("promtool"), "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=24h", "-q"]
    subprocess.run([*map(str, command), str(text), str(data)], check=True, stdout=subprocess.DEVNULL)
    text.unlink()


def lines(metric: str, names: list[str], times: np.ndarray, values_of: object) -> Iterator[str]:
    for number, name in enumerate(names):
        head = f'{metric}{{namespace="{NAMESPACE}",pod="{name}",container="app",id="/kubepods/{name}",image="bridge"}} '
        values = values_of(times, number)  # type: ignore[operator]
        yield "".join([f"{head}{value:.6g} {at}\n" for value, at in zip(values.tolist(), times.tolist(), strict=True)])


def cpu_seconds(times: np.ndarray, number: int) -> np.ndarray:
    """A counter: the integral of 0.1 to 0.3 cores with a daily wave."""
    angle = 2 * np.pi * times / DAY_S + number
    return np.round(0.2 * (times - 1.6e9) - 0.1 * DAY_S / (2 * np.pi) * np.cos(angle), 3)


def memory_bytes(times: np.ndarray, number: int) -> np.ndarray:
    return np.round(2**28 * (1 + 0.3 * np.sin(2 * np.pi * times / DAY_S + number)))


def measure(rig: Rig, prometheus_url: str, policy: Path, lookback: str) -> None:
    output = policy.with_suffix(".json")
    command = [sys.executable, "-m", "autoscaler", "plan", "-o", "json", f"--kubeconfig={rig.kubeconfig}"]
    command += [f"--prometheus-url={prometheus_url}", f"--policies={policy}"]
    walls, peaks = [], []
    for _ in range(3):
        started = time.monotonic()
        with output.open("w") as out, policy.with_suffix(".log").open("w") as log:
            process = subprocess.Popen(command, stdout=out, stderr=log)
            _, status, usage = os.wait4(process.pid, 0)
        walls.append(time.monotonic() - started)
        peaks.append(usage.ru_maxrss / 1024)
        if code := os.waitstatus_to_exitcode(status):
            raise SystemExit(f"plan ended with {code}: {policy.with_suffix('.log').read_text()[-2000:]}")
    say(
        f"plan, {lookback} of history: median {sorted(walls)[1]:.1f} s of {', '.join(f'{w:.1f}' for w in walls)} s,"
        f" at most {max(peaks):.0f} MiB resident"
    )


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
