"""Runs the stories on real kubelets: `python -m tests.kubelet [--hold | --image FILE | pytest arguments]`.

With E2E_KUBECONFIG in a cluster of that kubeconfig, else on two emulated nodes, for which it enters a network namespace
of its own. With --hold it starts those nodes, says how to use them, and keeps them until it is interrupted. With
--image it writes the image of the test bridge as an archive, for a cluster's nodes to load.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.kubelet.emulated import STATIC, Emulated
from tests.machine import needs, network
from tests.machine.root import bridge_image, disk
from tests.rig.build import RIG, BuildError, binary

_HOLD, _IMAGE = "--hold", "--image"


def main() -> int:
    """The exit status of pytest, or 1 if something is missing."""
    arguments = sys.argv[1:]
    try:
        if _IMAGE in arguments:
            bridge_image(Path(arguments[arguments.index(_IMAGE) + 1]))
            return 0
        if os.environ.get("E2E_KUBECONFIG"):
            for name in ("kubectl", "prometheus"):
                binary(name)
        elif not network.inside():
            needs.install()
            for name in RIG:
                binary(name)
            disk()
            network.enter([sys.executable, "-m", "tests.kubelet", *arguments])
        if _HOLD in arguments:
            return _hold()
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    line = [sys.executable, "-m", "pytest", "-q", "-m", "kubelet", "tests/kubelet", *arguments]
    return subprocess.run(line).returncode


def _hold() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        emulated = Emulated(Path(folder) / "emulated")
        try:
            named = f"E2E_KUBECONFIG={emulated.ground.kubeconfig} E2E_STATIC_NODE={STATIC} E2E_REACHES_PODS=yes"
            print(f"Both nodes are ready, in the network namespace of process {os.getpid()}:")
            print(f"  nsenter --net=/proc/{os.getpid()}/ns/net -- env {named} ...")
            print("Ctrl-C stops them.", flush=True)
            signal.pause()
        except KeyboardInterrupt:
            pass
        finally:
            emulated.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
