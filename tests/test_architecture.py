"""What may import what, and what the pure core may not touch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = sorted((ROOT / "autoscaler").rglob("*.py"))
PURE = [path for path in CODE if path.relative_to(ROOT / "autoscaler").parts[0] in ("core", "diagnosis")]
TESTS = sorted((ROOT / "tests").rglob("*.py"))

IMPURE = frozenset(
    {
        *(
            "asyncio",
            "concurrent",
            "datetime.datetime.now",
            "http",
            "io",
            "logging",
            "multiprocessing",
            "os",
            "pathlib",
        ),
        *("queue", "random", "secrets", "select", "shutil", "signal", "socket", "sqlite3", "ssl", "structlog"),
        *("subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid", "warnings"),
    }
)
IMPURE_CALLS = frozenset({"open", "input", "print", "exec", "eval", "breakpoint", "__import__"})
CLOCKS = frozenset({"now", "utcnow", "today", "fromtimestamp"})


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported(tree: ast.AST) -> Iterator[str]:
    for item in ast.walk(tree):
        if isinstance(item, ast.Import):
            yield from (alias.name for alias in item.names)
        elif isinstance(item, ast.ImportFrom):
            assert item.level == 0, "imports are absolute"
            yield item.module or ""


def test_imports_go_one_way() -> None:
    """The contracts stand in pyproject.toml."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("path", PURE, ids=short)
def test_what_decides_or_judges_has_no_clock_no_files_and_no_network(path: Path) -> None:
    tree = ast.parse(path.read_text())
    allowed = ("autoscaler.core", "autoscaler.diagnosis", "numpy", *_PURE)
    for name in imported(tree):
        assert name.split(".")[0] not in IMPURE, f"imports {name}"
        assert any(name == one or name.startswith(f"{one}.") for one in allowed), f"imports {name}"
    for item in ast.walk(tree):
        assert not isinstance(item, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith)
        assert not isinstance(item, ast.Global)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Name):
            assert item.func.id not in IMPURE_CALLS, f"line {item.lineno} calls {item.func.id}"
        if isinstance(item, ast.Attribute):
            assert item.attr not in CLOCKS, f"line {item.lineno} reads a clock"
            random = isinstance(item.value, ast.Name) and item.value.id == "np" and item.attr == "random"
            assert not random, f"line {item.lineno} is left to chance"


_PURE = (
    *("__future__", "abc", "collections", "collections.abc", "dataclasses", "datetime", "decimal", "enum"),
    *("fnmatch", "functools", "itertools", "math", "numbers", "re", "types", "typing"),
)


@pytest.mark.parametrize("path", [*CODE, *TESTS], ids=short)
def test_files_are_short_and_named_by_what_they_do(path: Path) -> None:
    assert not {"utils", "util", "helpers", "helper", "manager", "common", "misc"} & set(
        path.relative_to(ROOT).with_suffix("").parts
    )
    if path in CODE:
        assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize("path", TESTS, ids=short)
def test_tests_put_fakes_behind_ports_and_patch_nothing(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not [name for name in imported(tree) if "mock" in name.split(".")]
    for item in ast.walk(tree):
        if isinstance(item, ast.Attribute) and isinstance(item.value, ast.Name) and item.value.id == "monkeypatch":
            assert item.attr != "setattr", f"line {item.lineno}"


def test_the_walk_sees_the_code() -> None:
    assert len(PURE) > 15
    assert len(CODE) > 40
