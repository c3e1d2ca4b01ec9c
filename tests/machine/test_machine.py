"""What an emulated node is made of, without booting one."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.machine.images import write_image

ROOT = Path(__file__).parents[2]


def test_an_image_has_its_programs_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    for name in ("one.tar", "two.tar"):
        write_image(tmp_path / name, "localhost/some:1", {"/program": program}, ["/program"])
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    with tarfile.open(tmp_path / "one.tar") as archive:
        archive.extractall(tmp_path / "image", filter="data")
    (manifest,) = json.loads((tmp_path / "image" / "manifest.json").read_text())
    assert manifest["RepoTags"] == ["localhost/some:1"]
    config = json.loads((tmp_path / "image" / manifest["Config"]).read_text())
    assert config["config"]["Entrypoint"] == ["/program"]
    with tarfile.open(tmp_path / "image" / manifest["Layers"][0]) as layer:
        entry = layer.getmember("program")
        assert (entry.mode, entry.size) == (0o755, 4)
        assert layer.getmember("tmp").isdir()


def test_without_its_tools_it_names_the_packages_and_the_way_out(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.kubelet"],
        cwd=ROOT,
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: a node cannot be emulated here without qemu-system-x86, ")
    assert "libseccomp-dev" in done.stderr
    assert "apt-get install" in done.stderr
    assert done.stderr.rstrip().endswith("or name a cluster with E2E_KUBECONFIG")
