"""`make rig` as a person uses it: wait for the instructions, follow one, press Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.rig import ROOT, eventually


@pytest.mark.rig
def test_it_prints_commands_that_work_and_cleans_up_when_interrupted(tmp_path: Path) -> None:
    output = tmp_path / "output"
    # pytest's own processes ignore it, and a process inherits that
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    with output.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.rig"],
            cwd=ROOT,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
    signal.signal(signal.SIGINT, inherited)
    try:
        script = eventually(
            "the instructions are printed",
            lambda: re.search(r"^export .*^kubectl .*?$", output.read_text(), re.M | re.S),
            within_s=120,
        )
        exports = "".join(line + "\n" for line in script[0].splitlines() if line.startswith("export "))
        commands = "bridge-autoscaler plan -o patch --pod sim/twin-0 | bash\nkubectl get pods --namespace sim\n"
        assert set(commands.split()) <= set(script[0].split())
        done = subprocess.run(["bash", "-eu"], input=exports + commands, capture_output=True, text=True, check=True)
        pods = done.stdout
        assert pods.startswith("pod/twin-0 patched\n")
        assert pods.count("Running") == 5
        assert list(tmp_path.glob("bridge-autoscaler-rig-*"))
    finally:
        process.send_signal(signal.SIGINT)
        status = process.wait(timeout=120)
    assert status == 0
    assert output.read_text().endswith("stopped\n")
    assert not list(tmp_path.glob("bridge-autoscaler-rig-*"))
