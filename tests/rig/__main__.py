"""`make rig`: a cluster on loopback for trying things by hand, with sample bridges whose usage moves."""

from __future__ import annotations

import math
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

from tests.rig.build import BuildError
from tests.rig.process import StartError
from tests.rig.prometheus_server import Series
from tests.rig.rig import ROOT, Rig, eventually
from tests.rig.usage import Usage, at

_MIB = 2**20
_PODS = 5  # of sample.yaml
_HISTORY_S, _STEP_S = 86400, 30
_USAGE = {  # mean cores, mean MiB, and how many seconds one wave takes
    ("twin", "app"): (0.45, 330, 600),
    ("viewer", "app"): (0.20, 150, 300),
    ("studio", "app"): (0.40, 500, 900),
    ("studio", "encoder"): (0.55, 200, 120),
    ("studio", "recorder"): (0.03, 60, 600),
}


def main() -> int:
    """Run until interrupted; the exit status is 1 when something cannot start."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="bridge-autoscaler-rig-") as folder,
            Rig(Path(folder) / "rig", out_of_order="2d") as rig,
        ):
            _populate(rig)
            print(_instructions(rig), flush=True)
            signal.pause()
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
    except (BuildError, StartError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _populate(rig: Rig) -> None:
    rig.install_role()
    for name in ("node-a", "node-b", "node-c"):
        rig.agent.add_node(name)
    for (owner, container), (cores, mib, period_s) in _USAGE.items():
        rig.agent.usage["sim", owner, container] = Usage(_wave(cores, period_s), _wave(mib * _MIB, period_s))
    rig.apply((Path(__file__).parent / "sample.yaml").read_text())
    pods = eventually("the sample bridges run", lambda: _running(rig))
    rig.prometheus.write(series for pod in pods for series in _history(rig, pod))


def _running(rig: Rig) -> list[str] | None:
    """The names of the sample pods, once all of them run."""
    listed = rig.kubectl(
        "get", "pods", "--namespace=sim", "-o=jsonpath={range .items[*]}{.metadata.name} {.status.phase}{'\\n'}{end}"
    )
    pods = dict(line.split() for line in listed.splitlines())
    return list(pods) if len(pods) == _PODS and set(pods.values()) == {"Running"} else None


def _history(rig: Rig, pod: str) -> Iterator[Series]:
    """A day of what the pod's containers would have used, so that a plan has something to say at once."""
    now = time.time()
    times = [now - ago for ago in range(_HISTORY_S, 0, -_STEP_S)]
    for (_, owner, container), usage in rig.agent.usage.items():
        if pod.rpartition("-")[0] == owner:
            labels = {"namespace": "sim", "pod": pod, "container": container, "job": "history"}
            cpu_seconds = accumulate(at(usage.cpu, then) * _STEP_S for then in times)
            yield labels | {"__name__": "container_cpu_usage_seconds_total"}, list(zip(times, cpu_seconds, strict=True))
            memory = [(then, at(usage.memory, then)) for then in times]
            yield labels | {"__name__": "container_memory_working_set_bytes"}, memory


def _wave(mean: float, period_s: float) -> Callable[[float], float]:
    return lambda now: mean * (1 + 0.4 * math.sin(2 * math.pi * now / period_s))


def _instructions(rig: Rig) -> str:
    folders = [Path(sys.executable).parent, Path(rig.kubectl_path).parent]
    return f"""\
Three nodes and three sample StatefulSets in namespace sim, whose usage moves. Ctrl-C stops and removes everything.
In another terminal, as the controller's service account, which has every role under rbac/ (migrate and surge too: it
may move pods if a policy says so), and with kubectl as cluster admin:

export PATH={":".join(map(str, folders))}:$PATH
export BRIDGE_AUTOSCALER_KUBECONFIG={rig.kubeconfig}
export BRIDGE_AUTOSCALER_PROMETHEUS_URL={rig.prometheus_url}
export BRIDGE_AUTOSCALER_POLICIES={ROOT / "policies"}
export KUBECONFIG={rig.admin_kubeconfig}

bridge-autoscaler plan
bridge-autoscaler explain sim/twin-0
bridge-autoscaler plan -o patch --pod sim/twin-0 | bash -x
bridge-autoscaler run
kubectl get pods --namespace sim
"""


if __name__ == "__main__":
    sys.exit(main())
