"""What an emulated node takes of the machine it runs on: Debian packages, which root may install, and a kernel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.rig.build import BuildError, cache_root

# What is asked for, and the Debian package that has it. `.a` and `.h`: what C is linked and compiled with.
_PACKAGES = {
    "qemu-system-x86_64": "qemu-system-x86",
    "mke2fs": "e2fsprogs",
    "depmod": "kmod",
    "cpio": "cpio",
    "busybox": "busybox-static",
    "gcc": "gcc",
    "pkg-config": "pkg-config",
    "unshare": "util-linux",
}
_LIBRARIES = {"libseccomp": "libseccomp-dev"}
_KERNEL = "linux-image-cloud-amd64"


def packages() -> list[str]:
    """Debian packages that are missing."""
    missing = [package for command, package in _PACKAGES.items() if shutil.which(command, path=_path()) is None]
    if shutil.which("pkg-config") is None or not all(_linked(library) for library in _LIBRARIES):
        missing += ["libc6-dev", *_LIBRARIES.values()]
    return missing


def install() -> None:
    """Install what is missing. Raises `BuildError` that names it where that cannot be done."""
    install_debian(packages(), "a node cannot be emulated here", "or name a cluster with E2E_KUBECONFIG")


def install_debian(missing: Sequence[str], without: str, instead: str) -> None:
    """Install Debian packages. Raises `BuildError` with what is so `without` them and what to do `instead`."""
    if not missing:
        return
    command = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise BuildError(
            f"{without} without {', '.join(missing)} (names of Debian packages): {' '.join(command)} as root, {instead}"
        )
    print(f"installing {', '.join(missing)} ...", flush=True)
    subprocess.run(["apt-get", "update"], capture_output=True)  # stale lists may still do
    run(command, {**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def kernel() -> Path:
    """A folder with Debian's kernel for virtual machines and its modules, unpacked and not installed.

    Without the package lists, the newest that was unpacked before. Raises `BuildError`.
    """
    cache = cache_root() / "kernel"
    package = _kernel_package()
    if package is None:
        before = sorted(cache.glob("*/boot"), key=lambda folder: folder.stat().st_mtime)
        if before:
            return before[-1].parent
        raise BuildError(f"no kernel for the emulated node: apt-cache knows no {_KERNEL}; run apt-get update")
    target = cache / package
    if not (target / "boot").is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            run(["apt-get", "download", package], cwd=work)
            (archive,) = Path(work).glob("*.deb")
            run(["dpkg-deb", "-x", archive, f"{work}/kernel"])
            Path(work, "kernel").rename(target)
    return target


def run(command: Sequence[str | Path], env: dict[str, str] | None = None, cwd: str | Path | None = None) -> str:
    """Its output. Raises `BuildError` with the end of what it said."""
    environment = {**(env or os.environ), "PATH": _path()}
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, env=environment, cwd=cwd)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise BuildError(f"{' '.join(map(str, command))} ended with status {done.returncode}:\n{tail}")
    return done.stdout


def _path() -> str:
    """PATH, and where a person's PATH has not the tools of an administrator."""
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _linked(library: str) -> bool:
    return subprocess.run(["pkg-config", "--exists", library], capture_output=True).returncode == 0


def _kernel_package() -> str | None:
    if shutil.which("apt-cache") is None:
        return None
    depends = subprocess.run(["apt-cache", "depends", _KERNEL], capture_output=True, text=True).stdout
    found = re.search(r"Depends: (linux-image-\S+)", depends)
    return found and found[1]
