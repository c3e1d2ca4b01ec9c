"""Running the installed command line against the rig, as a person or a Deployment would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

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


class Running:
    """`bridge-autoscaler run` as a process; ended by SIGTERM, as a kubelet would."""

    ends_within_s = 15.0

    def __init__(self, line: Sequence[str], log: Path, *, append: bool = False) -> None:
        self._log = log
        with log.open("a" if append else "w") as out:
            self._process = subprocess.Popen(line, stdout=out, stderr=subprocess.STDOUT, env=environment())

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        """The log so far; of one kind of event, if said so."""
        lines = [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if event in (None, line["event"])]

    def signal(self, number: signal.Signals) -> None:
        """Send any signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """The exit status after SIGTERM; of one that was ended before, its own."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout=self.ends_within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Controller(Running):
    """The controller of a rig."""

    def __init__(self, rig: Rig, policies: Path, log: Path, *arguments: str) -> None:
        super().__init__(command(rig, "run", f"--policies={policies}", "--log-format=json", *arguments), log)
