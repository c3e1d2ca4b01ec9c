"""Runs the stories on real kubelets: `python -m tests.kubelet [--hold | --image FILE | pytest arguments]`.

With E2E_KUBECONFIG in a cluster of that kubeconfig, else on two emulated nodes, for which it enters a network namespace
of its own. There, if all of them are told, a story that fails is told once more, which the summary shows as RERUN. With
--hold it starts those nodes, says how to use them, and keeps them until it is interrupted. With --image it writes the
image of the test bridge as an archive, for a cluster's nodes to load.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.kubelet.emulated import NODES, STATIC, Emulated
from tests.kubelet.named import ground_of
from tests.machine import needs, network
from tests.machine.root import bridge_image, disk
from tests.rig.build import RIG, BuildError, binary
from tests.rig.process import StartError

_HOLD, _IMAGE = "--hold", "--image"
_ONCE_MORE = ("--reruns=1", "-raR")  # two emulated nodes on two cores miss scrapes when anything else wants one


def main() -> int:
    """The exit status: of pytest, or 1 if something is missing."""
    arguments = sys.argv[1:]
    try:
        if _IMAGE in arguments:
            bridge_image(Path(arguments[arguments.index(_IMAGE) + 1]))
            return 0
        if kubeconfig := os.environ.get("E2E_KUBECONFIG"):
            for name in ("kubectl", "prometheus"):
                binary(name)
            return _tell(len(ground_of(Path(kubeconfig)).nodes), arguments, (), {})
        if not network.inside():
            needs.install()
            for name in RIG:
                binary(name)
            disk()
            network.enter([sys.executable, "-m", "tests.kubelet", *arguments])
        return _emulated(arguments)
    except (BuildError, StartError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _tell(nodes: int, arguments: Sequence[str], more: Sequence[str], environment: Mapping[str, str]) -> int:
    """First what takes a node, side by side on all of them; then what takes the whole cluster."""
    if arguments:
        return _pytest(arguments, environment)
    aside = ["-n", str(nodes), "--dist=load", "--maxschedchunk=1", "-m", "kubelet and not whole_cluster"]
    status = _pytest([*aside, *more], environment)
    return status or _pytest(["-m", "kubelet and whole_cluster", *more], environment)


def _pytest(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    line = [sys.executable, "-m", "pytest", "-q", "-m", "kubelet", *arguments, "tests/kubelet"]
    process = subprocess.Popen(line, env={**os.environ, **environment})
    # Ctrl-C is told to it as well, and it takes away first what it has made
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT))
    return process.wait()


def _emulated(arguments: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        emulated = Emulated(Path(folder) / "emulated")
        try:
            kubeconfig = str(emulated.kubeconfig)
            named = {"E2E_KUBECONFIG": kubeconfig, "E2E_STATIC_NODE": STATIC, "E2E_REACHES_PODS": "yes"}
            if _HOLD not in arguments:
                return _tell(len(NODES), arguments, _ONCE_MORE, named)
            shown = " ".join(f"{name}={value}" for name, value in named.items())
            print(f"Both nodes are ready, in the network namespace of process {os.getpid()}:")
            print(f"  nsenter --net=/proc/{os.getpid()}/ns/net -- env {shown} ...")
            print("Ctrl-C stops them.", flush=True)
            signal.pause()
        except KeyboardInterrupt:
            return 130
        finally:
            emulated.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
