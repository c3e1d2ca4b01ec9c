"""One thing that a check found, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice


class Check(StrEnum):
    """What is looked at, in this order: each needs only what comes before it."""

    CREDENTIALS = "credentials"
    SERVER = "api-server"
    POLICIES = "policies"
    PERMISSIONS = "permissions"
    PODS = "pods"
    RESIZE = "resize"
    NODES = "nodes"
    PROMETHEUS = "prometheus"
    CLOCKS = "clocks"
    LABELS = "labels"
    CLUSTERS = "clusters"
    SCRAPES = "scrapes"
    METRICS = "metrics"
    SIGNALS = "signals"
    SESSIONS = "sessions"
    CGROUPS = "cgroups"


class Status(StrEnum):
    """How bad it is, from best to worst."""

    OK = "Ok"
    NOTE = "Note"  # worth knowing, nothing is wrong
    UNKNOWN = "Unknown"  # it could not be found out
    SKIPPED = "Skipped"  # it was not looked at
    WARNING = "Warning"  # it works, but for less than it could
    ERROR = "Error"  # the program cannot run, or pods that a policy selects cannot be sized as it says


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `subject`: which of several, like the folder of a role; `remedy`: what to do."""

    check: Check
    status: Status
    detail: str
    remedy: str = ""
    subject: str = ""


def skipped(check: Check, reason: str) -> Finding:
    """A check that was not made, and why."""
    return Finding(check, Status.SKIPPED, reason)


def failed(check: Check, text: str, remedy: str = "", status: Status = Status.ERROR) -> Finding:
    """What went wrong, in the words of an error: their second half is the remedy, unless there is another."""
    detail, _, said = text.partition("; ")
    return Finding(check, status, detail, said or remedy)


def listed(names: Iterable[str], most: int = 5) -> str:
    """Some of the names, and how many there are besides: `a, b and 3 more`."""
    every = list(names)
    shown = ", ".join(islice(every, most))
    return f"{shown} and {len(every) - most} more" if len(every) > most else shown


def counted(number: int, word: str) -> str:
    """`1 pod`, `3 pods`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
