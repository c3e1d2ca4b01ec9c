"""The Dockerfile, as far as it can be checked without an engine: what it copies is enough to build and to start."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
INSTRUCTIONS = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text()).splitlines()


def _copied() -> list[str]:
    """Sources of the COPY instructions that read the build context."""
    lines = [line.split()[1:] for line in INSTRUCTIONS if line.startswith("COPY ") and "--from=" not in line]
    return [source for *sources, _ in lines for source in sources]


def test_only_what_is_copied_enters_the_build() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = [line[1:] for line in lines if line.startswith("!")]
    assert "*" in lines
    assert sorted(allowed) == sorted(_copied())


def test_the_final_stage_is_not_root_and_starts_the_program() -> None:
    final = INSTRUCTIONS[max(i for i, line in enumerate(INSTRUCTIONS) if line.startswith("FROM ")) :]
    (user,) = [line.split()[1] for line in final if line.startswith("USER ")]
    assert int(user.split(":")[0]) > 0  # a number: with a name, runAsNonRoot cannot be verified
    assert 'ENTRYPOINT ["bridge-autoscaler"]' in final
    assert not [line for line in final if line.startswith("RUN ") and " install " in line]


def test_versions_are_those_that_were_tested() -> None:
    installs = [line for line in INSTRUCTIONS if line.startswith("RUN ") and " install " in line]
    assert installs
    assert all("--constraint constraints.txt" in line for line in installs)


def test_the_copied_files_make_a_wheel_with_all_its_data(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    for name in _copied():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    built = subprocess.run([*command, "--wheel-dir", tmp_path, source], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entry_points = next(archive.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    packaged = {p.relative_to(ROOT).as_posix() for p in (ROOT / "autoscaler").rglob("*") if p.is_file()}
    assert {name for name in packaged if "__pycache__" not in name} <= names
    assert "bridge-autoscaler = autoscaler.__main__:main" in entry_points
