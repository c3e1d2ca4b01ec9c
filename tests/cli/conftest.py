"""Policies on disk, and a process whose signal handlers, logs and environment stay as they were."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

POLICY = """\
apiVersion: bridge-autoscaler.dev/v1alpha1
kind: BridgePolicy
metadata: {{name: {name}}}
spec:
  selector: {{namespaces: [{namespace}]}}
  mode: {mode}
  metrics: {{lookback: 14d}}
"""


def write_policy(folder: Path, name: str = "bridges", mode: str = "Resize", namespace: str = "sim") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(POLICY.format(name=name, mode=mode, namespace=namespace))
    return path


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    folder = tmp_path / "policies"
    folder.mkdir()
    write_policy(folder)
    return folder


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in os.environ:
        if name.startswith("BRIDGE_AUTOSCALER_"):
            monkeypatch.delenv(name)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    root = logging.getLogger()
    kept = root.handlers[:], root.level
    yield
    root.handlers[:] = kept[0]
    root.setLevel(kept[1])
    structlog.reset_defaults()
    for number, handler in handlers.items():
        signal.signal(number, handler)
