"""The cluster that all stories share, and what each of them begins with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kubelet import controller, observing
from tests.kubelet.cluster import Cluster, Ground
from tests.kubelet.figures import Figures, tell
from tests.kubelet.named import ground_of
from tests.kubelet.pods import Lookout
from tests.kubelet.stage import House, Stage


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what was measured."""
    tell(terminalreporter)


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Figures:
    """Where a story notes what it measured."""
    return Figures(request.node)


@pytest.fixture(scope="session")
def ground() -> Ground:
    """The cluster that E2E_KUBECONFIG names. Where stories are told side by side, each process has one of its nodes."""
    named = os.environ.get("E2E_KUBECONFIG")
    if not named:
        pytest.fail("there is no cluster here: run these tests with make e2e")
    found = ground_of(Path(named))
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        return found
    return replace(found, nodes=[found.nodes[int(worker.removeprefix("gw")) % len(found.nodes)]])


@pytest.fixture(scope="session")
def house(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """What all stories share."""
    folder = tmp_path_factory.mktemp("house")
    cluster = Cluster(folder, ground)
    try:
        kubeconfig = controller.grant(cluster, folder / "controller")
        prometheus = observing.prometheus(cluster, folder / "prometheus")
        try:
            watching = cluster.namespace("lookouts")
            lookouts = {node: Lookout(cluster, watching, node) for node in ground.nodes}
            yield House(cluster, prometheus, lookouts, kubeconfig)
        finally:
            prometheus.stop()
            controller.revoke(cluster, folder / "controller")
    finally:
        cluster.close()


@pytest.fixture
def stage(house: House, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A stage for one story."""
    made = Stage(house, tmp_path, str(request.node.path.stem).removeprefix("test_").replace("_", "-"))
    yield made
    made.close()
