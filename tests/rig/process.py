"""Starts a server, waits until it is ready, and stops it. Nothing here knows what the servers are for."""

from __future__ import annotations

import os
import random
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

_PORTS = range(20000, 32000)  # below the ephemeral range, so that no outgoing connection takes one in between
_TAIL_LINES = 25


class StartError(Exception):
    """A server did not come up; the text ends with the last lines of its log."""


def free_ports(count: int) -> list[int]:
    """Loopback TCP ports that nobody listens on now, all different."""
    held: list[socket.socket] = []
    try:
        while len(held) < count:
            candidate = socket.socket()
            try:
                candidate.bind(("127.0.0.1", random.choice(_PORTS)))
            except OSError:
                candidate.close()
            else:
                held.append(candidate)
        return [taken.getsockname()[1] for taken in held]
    finally:
        for taken in held:
            taken.close()


class Process:
    """One server process with its log file. It dies with us, even if we are killed."""

    def __init__(self, name: str, argv: Sequence[str | Path], log: Path, **environment: str) -> None:
        """`environment`: variables that it gets beside ours."""
        self.name = name
        self._log = log
        guard = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
        with log.open("wb") as output:
            self._popen = subprocess.Popen(
                [*guard, *map(str, argv)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=log.parent,
                env={**os.environ, **environment},
                start_new_session=True,  # Ctrl-C is for us, who then stop the servers in order
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def cpu_s(self) -> float:
        """Seconds of CPU that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime: proc(5)

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def wait_ready(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        context: ssl.SSLContext | None = None,
        within_s: float = 60,
    ) -> None:
        """Return when `url` answers 200. Raises `StartError` when the process ends first or the time is over."""
        give_up_at = time.monotonic() + within_s
        last = ""
        while time.monotonic() < give_up_at:
            if self._popen.poll() is not None:
                raise StartError(f"{self.name} ended with status {self._popen.returncode}\n{self.tail()}")
            try:
                request = urllib.request.Request(url, headers=dict(headers or {}))
                with urllib.request.urlopen(request, timeout=5, context=context):
                    return
            except urllib.error.HTTPError as error:
                last = f"HTTP {error.code}"
                error.close()
            except OSError as error:
                last = str(error)
            time.sleep(0.05)
        raise StartError(f"{self.name} is not ready after {within_s:g} s ({last})\n{self.tail()}")

    def tail(self) -> str:
        """The last lines of the log."""
        lines = self._log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return "\n".join([f"last lines of {self._log.name}:", *lines])

    def stop(self) -> None:
        """Ask the process to end, and wait until it has."""
        self._popen.terminate()
        try:
            self._popen.wait(20)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
