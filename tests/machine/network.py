"""A network namespace in which the addresses of emulated nodes and their pods are local."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tests.machine import needs
from tests.machine.machine import network_of

MACHINES = 2
_INSIDE = "E2E_NETWORK"


def inside() -> bool:
    """Whether this process is in such a namespace."""
    return _INSIDE in os.environ


def enter(command: Sequence[str]) -> None:
    """Become this command, in a new namespace; `prepare` is what it has to do first."""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    os.execvpe("unshare", ["unshare", *user, "--net", "--", *command], {**os.environ, _INSIDE: "entered"})


def prepare() -> None:
    """Bring up loopback, and make the machines' networks local, with 127.0.0.1 as the source of what is sent there.

    With one of the guest's own addresses as the source the guest would drop what it gets.
    """
    needs.run(["busybox", "ip", "link", "set", "lo", "up"])
    for index in range(MACHINES):
        network = f"{network_of(index)}.0/24"
        needs.run(["busybox", "ip", "route", "replace", "local", network, "dev", "lo", "src", "127.0.0.1"])
