"""`bridge-autoscaler scenario`: the files that it writes, and what it says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from autoscaler.cli import main
from autoscaler.scenarios.catalog import SCENARIOS
from autoscaler.scenarios.draws import VERSION
from autoscaler.scenarios.generator import generate
from autoscaler.traces.reading import read_trace
from autoscaler.traces.trace import Column


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_trace_and_what_it_is_made_of(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"scene-hopper-7{suffix}"
    assert main(["scenario", "scene-hopper", "--seed", "7", "--seconds", "3600", "-o", str(path)]) == 0
    trace = read_trace(path)
    assert trace == generate("scene-hopper", 7, 3600)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"{path}: 3600 rows; {path.with_suffix('.json')}: what they are made of\n"
    side = json.loads(path.with_suffix(".json").read_text())
    assert (side["scenario"], side["seed"], side["seconds"], side["generatorVersion"]) == (
        *("scene-hopper", 7, 3600),
        VERSION,
    )
    assert list(side["parameters"]) == sorted(side["parameters"])
    assert [(event["atS"], event["event"]) for event in side["events"]] == [*trace.events]
    begin, end = side["transitions"][3]["overlap"]
    memory = trace.columns[Column.MEMORY]
    assert memory[begin:end].min() > memory[: begin - 60].min()
    assert np.isclose(memory[begin], side["transitions"][3]["bytes"]["peak"] + side["baseBytes"], rtol=0.2)


def test_the_document_alone_is_on_stdout(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["scenario", "demo-step", "--seconds", "120"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    (tmp_path / "demo-step-0.csv").write_text(said.out)
    assert read_trace(tmp_path / "demo-step-0.csv") == generate("demo-step", 0, 120)


def test_help_names_the_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario", "--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"  {name}  " in said for name in SCENARIOS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such"], "'no-such' is not one of 'steady-class'"),
        (["demo-step", "--seconds", "1"], "'--seconds': 1 is not in the range 2<=x<=2592000"),
        (["demo-step", "--seed", "-1"], "'--seed': -1 is not in the range x>=0"),
        (["demo-step", "-o", "x.txt"], "--output x.txt: is neither CSV nor Parquet by its name; name it .csv or"),
        (["demo-step", "-o", "no-such/x.csv"], "--output no-such/x.csv: cannot be written: No such file"),
    ],
)
def test_wrong_calls(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario", *arguments]) == 1
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_side_file_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json").mkdir()
    assert main(["scenario", "demo-step", "--seconds", "2", "-o", str(tmp_path / "x.csv")]) == 1
    assert f"--output {tmp_path / 'x.json'}: cannot be written: Is a directory" in capsys.readouterr().err
