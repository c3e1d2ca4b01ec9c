"""Builds binaries for tests from Go modules, once, into a cache outside the tree.

`python -m tests.rig.build` builds what the rig lacks. The cache folder is named after the module's pins, its own
sources and the build flags, so that a change of these is a new folder. `KUBEBUILDER_ASSETS` may name a folder that
holds some of them already.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).parents[1]
MINIMUM_GO = (1, 26)  # the `go` line of the modules
KUBERNETES = "1.37.2"
_VERSION = "k8s.io/component-base/version"
# Without a version the API server calls itself v0.0.0 and its feature gates misbehave.
_KUBERNETES_FLAGS = f"-s -w -X {_VERSION}.gitVersion=v{KUBERNETES} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=37"


@dataclass(frozen=True)
class Tool:
    """A binary: the module that pins it, its package, the name that `go build` gives it, and how it is built.

    `cgo`: C is linked into it, statically.
    """

    module: str
    package: str
    built_as: str
    linker_flags: str = "-s -w"
    tags: str = ""
    cgo: bool = False


_CONTAINERD = "github.com/containerd/containerd/v2"
_CNI = "github.com/containernetworking/plugins/plugins"

TOOLS = {
    "etcd": Tool("rig/controlplane", "go.etcd.io/etcd/server/v3", "server", _KUBERNETES_FLAGS),
    **{
        name: Tool("rig/controlplane", f"k8s.io/kubernetes/cmd/{name}", name, _KUBERNETES_FLAGS)
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    },
    **{
        name: Tool("rig/prometheus", f"github.com/prometheus/prometheus/cmd/{name}", name)
        for name in ("prometheus", "promtool")
    },
    "bridge": Tool("bridge", ".", "bridge"),
    "kubelet": Tool("machine/kubelet", "k8s.io/kubernetes/cmd/kubelet", "kubelet", _KUBERNETES_FLAGS, "netgo,osusergo"),
    **{
        name: Tool(
            "machine/runtime",
            f"{_CONTAINERD}/cmd/{name}",
            name,
            f"-s -w -X {_CONTAINERD}/version.Version=v2.4.2",
            "netgo,osusergo,no_btrfs,no_devmapper,no_zfs",
        )
        for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    },
    "runc": Tool(
        "machine/runtime",
        "github.com/opencontainers/runc",
        "runc",
        "-s -w -X main.version=1.5.3 -extldflags '-static'",
        "netgo,osusergo,seccomp",
        cgo=True,
    ),
    "cni-bridge": Tool("machine/runtime", f"{_CNI}/main/bridge", "bridge"),
    "cni-loopback": Tool("machine/runtime", f"{_CNI}/main/loopback", "loopback"),
    "cni-host-local": Tool("machine/runtime", f"{_CNI}/ipam/host-local", "host-local"),
}
RIG = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "prometheus")
GUEST = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "kubelet")
CNI = ("cni-bridge", "cni-loopback", "cni-host-local")


class BuildError(Exception):
    """A binary could not be made; the text says what to do about it."""


def binary(name: str) -> Path:
    """The path of a binary of the rig, built if it is missing. Raises `BuildError`."""
    provided = os.environ.get("KUBEBUILDER_ASSETS")
    if provided and (Path(provided) / name).is_file():
        return Path(provided) / name
    target = _cache(TOOLS[name]) / name
    if not target.is_file():
        _build(name, target)
    return target


def cache_root() -> Path:
    """The folder of everything that is built or fetched once."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bridge-autoscaler"


def _cache(tool: Tool) -> Path:
    digest = hashlib.sha256((tool.linker_flags + tool.tags).encode())
    module = MODULES / tool.module
    for source in (module / "go.mod", module / "go.sum", *sorted(module.glob("*.go"))):
        digest.update(source.read_bytes())
    return cache_root() / "rig" / digest.hexdigest()[:16]


def _build(name: str, target: Path) -> None:
    _check_go(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_file():  # somebody else built it while we waited
            return
        with tempfile.TemporaryDirectory(dir=target.parent) as work:
            tool = TOOLS[name]
            how = [
                "-trimpath",
                "-buildvcs=false",
                "-ldflags",
                tool.linker_flags,
                *(["-tags", tool.tags] if tool.tags else []),
            ]
            command = ["go", "build", *how, "-o", f"{work}/", tool.package]
            _run(command, tool, f"building {name} (kept in the cache afterwards)")
            (Path(work) / tool.built_as).rename(target)


def _check_go(name: str) -> None:
    wanted = ".".join(map(str, MINIMUM_GO))
    remedy = f"install Go {wanted} or newer and put it on PATH, or point KUBEBUILDER_ASSETS at a folder that has {name}"
    if shutil.which("go") is None:
        raise BuildError(f"go is not installed, and {name} has to be built once: {remedy}")
    # Outside of a module and without toolchain switching: the version that is installed, not one to be fetched.
    found = subprocess.run(
        ["go", "env", "GOVERSION"], cwd="/", env={**os.environ, "GOTOOLCHAIN": "local"}, capture_output=True, text=True
    ).stdout.strip()
    numbers = re.match(r"go(\d+)\.(\d+)", found)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < MINIMUM_GO:
        raise BuildError(f"{found or 'the go command'} is too old to build {name}: {remedy}")


def _run(command: Sequence[str], tool: Tool, title: str) -> None:
    live = sys.stderr.isatty()
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as log:
        environment = {**os.environ, "CGO_ENABLED": "1" if tool.cgo else "0"}
        process = subprocess.Popen(command, cwd=MODULES / tool.module, env=environment, stdout=log, stderr=log)
        if not live:
            print(f"{title} ...", end="", file=sys.stderr, flush=True)
        try:
            while process.poll() is None:
                time.sleep(0.2)
                if live:
                    print(f"\r{title} ... {_elapsed(started)}", end="", file=sys.stderr, flush=True)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        print("" if live else f" {_elapsed(started)}", file=sys.stderr, flush=True)
        if process.returncode:
            log.seek(0)
            tail = [line for line in log.read().splitlines() if not line.startswith("go: downloading")][-20:]
            raise BuildError(f"{title} failed:\n" + "\n".join(tail))


def _elapsed(started: float) -> str:
    minutes, seconds = divmod(int(time.monotonic() - started), 60)
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"


def main() -> int:
    """Build what is missing; the exit status says whether everything is there."""
    try:
        for name in RIG:
            binary(name)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
