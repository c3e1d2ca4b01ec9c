"""Two controllers, one leader: whoever is killed, frozen or ended, the other goes on, and nothing is done twice."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from autoscaler.adapters.kubernetes.cluster import KubernetesCluster
from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.credentials import Kubeconfig
from autoscaler.core.actions import ContainerResize, OutcomeKind, Resize
from autoscaler.core.model import ContainerKind, Pod, PodRef, ResourceList, Resources
from autoscaler.core.units import Millicores
from tests.e2e.cli import Controller, command, run
from tests.rig.control_plane import CONTROLLER
from tests.rig.rig import Rig, eventually
from tests.rig.usage import Usage

pytestmark = pytest.mark.rig

LEASE_S, RETRY_S = 15, 2
POLICY = """\
apiVersion: bridge-autoscaler.dev/v1alpha1
kind: BridgePolicy
metadata: {{name: leader}}
spec:
  selector: {{namespaces: [{namespace}]}}
  mode: Resize
  recommender: {{name: percentile, parameters: {{minHistory: 20s, cpu: {{halfLife: 10s}}, memory: {{halfLife: 10s}}}}}}
  containers:
  - {{name: "*", controlledResources: [cpu], minAllowed: {{cpu: {cpu}}}, maxAllowed: {{cpu: {cpu}}}}}
  metrics: {{lookback: 2m, step: 5s, rateWindow: 10s}}
  stability: {{cooldown: {{increase: 1s, decrease: 1s}}}}
"""


class Stage:
    """One bridge, and a policy that says to the millicore how large it is to be."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig, self.folder = rig, folder
        self.namespace = rig.namespace("leader")
        self.policies = folder / "policy.yaml"
        size = {"cpu": "500m", "memory": "256Mi"}
        container = {"name": "app", "image": "bridge", "resources": {"requests": size, "limits": size}}
        rig.apply(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": "sim-0", "namespace": self.namespace},
                    "spec": {"containers": [container]},
                }
            )
        )
        rig.agent.usage[(self.namespace, "sim-0", "app")] = Usage(cpu=0.3, memory=100 << 20)

    def want(self, cpu: str) -> None:
        self.policies.write_text(POLICY.format(namespace=self.namespace, cpu=cpu))

    def start(self, name: str) -> Controller:
        return Controller(
            self.rig, self.policies, self.folder / f"{name}.log", "--interval=1s", "--metrics-address=127.0.0.1:0"
        )

    def cpu(self) -> str:
        spec = self.rig.pod(self.namespace, "sim-0")["spec"]
        found: str = spec["containers"][0]["resources"]["requests"]["cpu"]
        return found

    def stored(self) -> int:
        """How many resizes of the bridge the API server has stored."""
        return sum(
            (target.get("namespace"), target.get("subresource")) == (self.namespace, "resize")
            and record["user"]["username"] == CONTROLLER
            and record["responseStatus"]["code"] == 200
            for record in self.rig.audit()
            if (target := record.get("objectRef"))
        )


@pytest.fixture
def stage(rig: Rig, tmp_path: Path) -> Iterator[Stage]:
    yield Stage(rig, tmp_path)
    rig.kubectl("delete", "lease", "bridge-autoscaler", "-n=bridge-autoscaler", "--ignore-not-found")


def lines(controller: Controller, event: str) -> list[dict[str, Any]]:
    return [line for line in controller.lines() if line["event"] == event]


def leads(controller: Controller) -> bool:
    return [line["leading"] for line in lines(controller, "leader")][-1:] == [True]


def leading_turns(controller: Controller) -> list[dict[str, Any]]:
    return [line for line in lines(controller, "turn") if line["leading"]]


def accepted(*controllers: Controller) -> int:
    return sum(line["outcome"] == "Accepted" for each in controllers for line in lines(each, "resize"))


def stands_by_measured(controller: Controller) -> bool:
    """Whether it has measured and decided about the bridge, and left it at that."""
    turns = lines(controller, "turn")
    return bool(turns) and not turns[-1]["leading"] and turns[-1]["reasons"] == {"AtTarget": 1}


def test_a_killed_leader_is_followed_by_the_other_without_a_back_fill(stage: Stage) -> None:
    stage.want("600m")
    with stage.start("a") as a:
        eventually("the first leads and resizes", lambda: leads(a) and stage.cpu() == "600m", 60)
        with stage.start("b") as b:
            eventually("the second stands by", lambda: stands_by_measured(b), 60)
            a.signal(signal.SIGKILL)
            killed_at = time.monotonic()
            stage.want("700m")
            eventually("the second takes over", lambda: stage.cpu() == "700m", 60)
            took_s = time.monotonic() - killed_at
            assert took_s <= LEASE_S + RETRY_S + 2  # the retry is what it takes to see the last renewal, 2 s are a turn
            first = eventually("its turn is over", lambda: next(iter(leading_turns(b)), None))
            log = b.lines()
            began = next(i for i, line in enumerate(log) if line["event"] == "leader" and line["leading"])
            before = [line for line in log[:began] if line["event"] == "turn"]
            assert before[-1]["sentence"] == "standing by, the leader is left to resize 1 of 1 pods"
            assert first["sentence"] == "1 of 1 pods resized"
            eventually("that is all, and told", lambda: accepted(a, b) == stage.stored() == 2)


def test_a_frozen_leader_that_wakes_up_writes_nothing_and_an_ended_one_is_followed_at_once(stage: Stage) -> None:
    stage.want("600m")
    with stage.start("a") as a:
        eventually("the first leads and resizes", lambda: leads(a) and stage.cpu() == "600m", 60)
        with stage.start("b") as b:
            eventually("the second stands by", lambda: stands_by_measured(b), 60)
            a.signal(signal.SIGSTOP)
            try:
                stage.want("700m")
                eventually("the second takes over", lambda: stage.cpu() == "700m", 60)
                stage.want("800m")  # what the frozen one finds when it wakes up
            finally:
                a.signal(signal.SIGCONT)
            eventually("the second resizes again", lambda: stage.cpu() == "800m")
            eventually("the first stands by", lambda: not leads(a) and stands_by_measured(a), 30)
            assert [line["outcome"] for line in lines(a, "resize")] == ["Accepted"]  # from before
            eventually("that is all, and told", lambda: accepted(a, b) == stage.stored() == 3)

            began = time.monotonic()
            assert b.stop() == 0
            stage.want("900m")
            eventually("the first takes over", lambda: stage.cpu() == "900m")
            assert time.monotonic() - began <= RETRY_S + 4  # the end of the process, a retry, a turn
            eventually("that is all, and told", lambda: accepted(a, b) == stage.stored() == 4)
    lease = stage.rig.kubectl(
        "get", "lease", "bridge-autoscaler", "-n=bridge-autoscaler", "-o=jsonpath={.spec.holderIdentity}"
    )
    assert lease == ""


def test_without_permission_for_leases_it_says_which_and_runs_when_told_to(stage: Stage) -> None:
    stage.want("600m")
    line = command(
        stage.rig, "run", f"--policies={stage.policies}", "--metrics-address=127.0.0.1:0", "--lease-namespace=default"
    )
    done = run(*line)
    assert done.returncode == 1
    assert "lacks the rule" in done.stderr
    assert "leases" in done.stderr
    assert "rbac/leader" in done.stderr
    assert "--leader-elect=false" in done.stderr
    with Controller(
        stage.rig,
        stage.policies,
        stage.folder / "alone.log",
        *("--lease-namespace=default", "--leader-elect=false", "--interval=1s", "--metrics-address=127.0.0.1:0"),
    ) as alone:
        eventually("it acts", lambda: stage.cpu() == "600m", 60)
        assert lines(alone, "leader") == []


class Held:
    """A way to the API server on which requests can be held up, as they are in a process that froze."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self.open = asyncio.Event()
        self.open.set()
        self.waiting = asyncio.Event()

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._target.hostname, self._target.port)
        await asyncio.gather(self._copy(reader, back, held=True), self._copy(there, writer, held=False))

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, held: bool) -> None:
        while piece := await source.read(65536):
            if held and not self.open.is_set():
                self.waiting.set()
                await self.open.wait()
            sink.write(piece)
            await sink.drain()
        sink.close()


@asynccontextmanager
async def cluster_of(kubeconfig: Path) -> AsyncIterator[KubernetesCluster]:
    connection = await Connection.open(Kubeconfig((kubeconfig,)))
    cluster = KubernetesCluster(connection, act_s=30)
    try:
        await cluster.start(watch=False)
        yield cluster
    finally:
        await cluster.close()
        await connection.close()


def to(pod: Pod, cpu: int) -> Resize:
    amounts = ResourceList(Millicores(cpu), None)
    change = ContainerResize("app", ContainerKind.CONTAINER, Resources(amounts, amounts))
    return Resize(pod.ref, pod.uid, pod.generation, (change,))


async def test_a_write_that_froze_on_its_way_is_refused_after_another_has_resized(stage: Stage) -> None:
    """The guarantee that needs no clock: what the old leader sent before it froze comes too late."""
    rig, ref = stage.rig, PodRef(stage.namespace, "sim-0")
    rig.kubectl("wait", "--for=jsonpath={.status.phase}=Running", f"-n={ref.namespace}", "pod/sim-0", "--timeout=60s")
    held = Held(rig.control_plane.url)
    server = await asyncio.start_server(held.relay, "127.0.0.1", 0)
    config = yaml.safe_load(rig.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    detour = stage.folder / "kubeconfig"
    detour.write_text(yaml.safe_dump(config))
    async with cluster_of(rig.kubeconfig) as new, cluster_of(detour) as old:
        pod = (await new.observe()).pods[ref]
        held.open.clear()
        late = asyncio.create_task(old.perform(to((await old.observe()).pods[ref], 700)))
        await held.waiting.wait()
        assert (await new.perform(to(pod, 600))).kind is OutcomeKind.ACCEPTED
        held.open.set()
        assert (await late).kind is OutcomeKind.CONFLICT
    assert stage.cpu() == "600m"
    assert stage.stored() == 1
    server.close()
