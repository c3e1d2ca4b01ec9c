"""The cluster that all stories share, and what each of them begins with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubelet import controller, observing
from tests.kubelet.cluster import Cluster, Ground
from tests.kubelet.emulated import Emulated
from tests.kubelet.figures import Figures
from tests.kubelet.named import ground_of
from tests.kubelet.pods import Lookout
from tests.kubelet.stage import House, Stage
from tests.machine import network

_FIGURES = pytest.StashKey[Figures]()


def pytest_configure(config: pytest.Config) -> None:
    """A place for figures."""
    config.stash[_FIGURES] = Figures()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Tell them."""
    if noted := config.stash[_FIGURES].noted:
        terminalreporter.section("measured")
        for figure in noted:
            terminalreporter.write_line(f"{figure.story}: {figure.text}")


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> Figures:
    """Where stories note what they measured."""
    return pytestconfig.stash[_FIGURES]


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """The cluster that E2E_KUBECONFIG names, or two emulated nodes."""
    if named := os.environ.get("E2E_KUBECONFIG"):
        yield ground_of(Path(named))
    elif network.inside():
        emulated = Emulated(tmp_path_factory.mktemp("emulated"))
        yield emulated.ground
        emulated.close()
    else:
        pytest.fail("there is no cluster here: run these tests with make e2e")


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
