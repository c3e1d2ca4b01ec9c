"""Running the installed command line against the rig, as a person or a Deployment would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.rig.rig import Rig


def command(rig: Rig, *arguments: str, prometheus_url: str | None = None) -> list[str]:
    """The command line with the controller's own identity and the rig's Prometheus."""
    verb, *rest = arguments
    return [
        *(sys.executable, "-m", "autoscaler", verb),
        f"--kubeconfig={rig.kubeconfig}",
        f"--prometheus-url={prometheus_url or rig.prometheus_url}",
        *rest,
    ]


def environment() -> dict[str, str]:
    """This process's environment without settings that a developer may have exported."""
    return {key: value for key, value in os.environ.items() if not key.startswith("BRIDGE_AUTOSCALER_")}


def run(*line: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run to the end; the caller looks at the exit status."""
    return subprocess.run(line, capture_output=True, text=True, timeout=timeout, env=environment())


def plan(rig: Rig, policies: Path, *arguments: str) -> dict[str, Any]:
    """The JSON document of `plan`."""
    done = run(*command(rig, "plan", f"--policies={policies}", "--output=json", *arguments))
    assert done.returncode in (0, 2), done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


class Controller:
    """`bridge-autoscaler run` as a process; ended by SIGTERM, as a kubelet would."""

    def __init__(self, rig: Rig, policies: Path, log: Path, *arguments: str) -> None:
        self._log = log
        line = command(rig, "run", f"--policies={policies}", "--log-format=json", *arguments)
        with log.open("w") as out:
            self._process = subprocess.Popen(line, stdout=out, stderr=subprocess.STDOUT, env=environment())

    def lines(self) -> list[dict[str, Any]]:
        """The log so far."""
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]

    def signal(self, number: signal.Signals) -> None:
        """Send any signal."""
        self._process.send_signal(number)

    def stop(self) -> int:
        """The exit status after SIGTERM; of one that was ended before, its own."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise

    def __enter__(self) -> Controller:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
