"""A server that does not start, or a binary that cannot be built, says so in words that help."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from tests.rig.build import MODULES, TOOLS, BuildError, binary
from tests.rig.process import Process, StartError, free_ports


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing built and nothing on PATH but what a test puts there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    (tmp_path / "bin").mkdir()
    return tmp_path


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_without_go_it_says_what_to_install(empty: Path) -> None:
    with pytest.raises(BuildError, match=r"go is not installed.*install Go 1\.26 or newer.*KUBEBUILDER_ASSETS"):
        binary("etcd")


def test_an_old_go_is_named(empty: Path) -> None:
    script(empty / "bin" / "go", "echo go1.19.8")
    with pytest.raises(BuildError, match=r"go1\.19\.8 is too old to build etcd"):
        binary("etcd")


def test_a_failed_build_shows_the_end_of_its_output(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script(empty / "bin" / "go", 'if [ "$1" = env ]; then echo go1.26.8; else echo "no space left" >&2; exit 1; fi')
    with pytest.raises(BuildError, match=r"building etcd.*failed:\nno space left"):
        binary("etcd")
    assert capsys.readouterr().err.startswith("building etcd")


def test_a_build_is_kept_and_not_repeated(empty: Path) -> None:
    # stands for the compiler: writes the binary where -o says, under the name that go gives it
    script(
        empty / "bin" / "go",
        'if [ "$1" = env ]; then echo go1.26.8; exit; fi\n'
        'while [ "$1" != -o ]; do shift; done; echo "$2" >>"$XDG_CACHE_HOME/../builds"; echo built >"$2/server"',
    )
    first = binary("etcd")
    assert first == binary("etcd")
    assert first.read_text() == "built\n"
    assert len((empty / "builds").read_text().splitlines()) == 1


def test_provided_binaries_are_used_and_the_rest_is_built(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (empty / "assets").mkdir()
    script(empty / "assets" / "etcd", "exit 0")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(empty / "assets"))
    assert binary("etcd") == empty / "assets" / "etcd"
    with pytest.raises(BuildError, match="kubectl"):
        binary("kubectl")


def test_every_tool_is_pinned_by_its_module() -> None:
    for name, tool in TOOLS.items():
        if tool.package != ".":  # its own module's
            pins = (MODULES / tool.module / "go.mod").read_text()
            assert re.search(rf"^(tool |\t){re.escape(tool.package)}$", pins, re.MULTILINE), name


def test_a_server_that_ends_shows_the_end_of_its_log(tmp_path: Path) -> None:
    process = Process("broken", ["sh", "-c", "echo cannot bind; exit 3"], tmp_path / "broken.log")
    with pytest.raises(StartError, match=r"broken ended with status 3\nlast lines of broken\.log:\ncannot bind"):
        process.wait_ready("http://127.0.0.1:1/")


def test_a_server_that_is_never_ready_is_given_up_and_can_be_stopped(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    process = Process("slow", ["sleep", "60"], tmp_path / "slow.log")
    with pytest.raises(StartError, match="slow is not ready after"):
        process.wait_ready(f"http://127.0.0.1:{port}/", within_s=0.2)
    process.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_free_ports_differ() -> None:
    assert len(set(free_ports(20))) == 20
