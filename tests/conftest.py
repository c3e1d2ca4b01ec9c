"""Fixtures that everybody shares: the rig, a Prometheus of one's own, and the optional folder of recorded cases."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.rig import rights
from tests.rig.prometheus_server import PrometheusServer
from tests.rig.rig import Rig

# the same examples on each run, on machines of any speed
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

_SHARED = "BRIDGE_AUTOSCALER_SHARED"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the rig or real kubelets, so that it can be left out."""
    for item in items:
        needs = set(getattr(item, "fixturenames", ()))
        if needs & {"rig", "prometheus"}:
            item.add_marker(pytest.mark.rig)
        if "house" in needs:
            item.add_marker(pytest.mark.kubelet)


@pytest.fixture(scope="session")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """The real control plane with nodes `node-a`, `node-b` and `node-c`, and the controller's shipped role bound.

    A rig that cannot start is an error, never a skip.
    """
    with Rig(tmp_path_factory.mktemp("rig")) as running:
        running.install_role()
        for name in ("node-a", "node-b", "node-c"):
            running.agent.add_node(name)
        yield running
        rights.keep(running)


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """A Prometheus without scrapes, for samples written by tests, of any time. Share it: one namespace label a test."""
    server = PrometheusServer(tmp_path_factory.mktemp("prometheus"), out_of_order="100y")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recorded cases, which is not part of the repository."""
    folder = Path(os.environ.get(_SHARED) or Path(__file__).parents[2] / "shared")
    if not folder.is_dir():
        pytest.skip(f"recorded cases are not here: {folder} does not exist ({_SHARED} can name another folder)")
    return folder
