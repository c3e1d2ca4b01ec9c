"""Random histories: what happens to a small cluster and to its controller, from one seed; made smaller on failure."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

LASTS_S = 8 * 60  # events happen in the first 8 minutes
PODS = ("a", "b", "c", "d")
NODES = ("n1", "n2")
MORE_NODES = (*NODES, "n3")  # where pods may be moved


class Kind(StrEnum):
    """What can happen. `who`: a pod or its workload, a node or a neighbour; amounts in millicores and MiB."""

    TARGET = "target"  # the recommender wants another size for a pod
    USAGE = "usage"  # a pod takes another amount of memory from this minute on
    ARRIVE = "arrive"  # a neighbour is scheduled onto a node
    LEAVE = "leave"  # a neighbour is deleted
    ALLOCATABLE = "allocatable"  # a node's allocatable becomes another
    SILENT = "silent"  # a kubelet says nothing for `seconds`
    USER = "user"  # someone resizes a pod with kubectl
    DELETE = "delete"  # a pod is deleted, and replaced if it belongs to a StatefulSet
    # where pods may be moved
    CORDON = "cordon"  # no further pod may come onto a node
    UNCORDON = "uncordon"
    GATE = "gate"  # each pod of a workload has so many sessions from now on; a negative number: it does not answer
    # a PodDisruptionBudget for a workload (or all) appears, whose minAvailable is `number`; a negative number: it goes
    BUDGET = "budget"
    KILL = "kill"  # the controller is killed at its `number`-th call from now on, and is back after `seconds`
    # for `seconds` of time
    REFUSE = "refuse"  # a LimitRange refuses whatever grows
    CONFLICT = "conflict"  # each patch meets a 409
    LOSE = "lose"  # no answer; every second patch is stored all the same
    THROTTLE = "throttle"  # 429
    BLIND = "blind"  # the cluster cannot be observed
    STALE = "stale"  # Prometheus hangs: nothing new is measured


class Event(NamedTuple):
    """Something that happens `at` so many seconds after the start."""

    at: int
    kind: Kind
    who: str = ""
    cpu: int = 0
    memory: int = 0
    seconds: int = 0
    number: int = 0


class History(NamedTuple):
    """A seed's cluster and what happens to it. `calm`: the API server and the kubelets refuse nothing for good.
    `moving`: pods may be moved."""

    seed: int
    calm: bool
    events: tuple[Event, ...]
    moving: bool = False


def history(seed: int) -> History:
    """The history of a seed: 50 to 60 events. Every second one is calm, and in half of them pods may be moved."""
    rng = random.Random(seed)
    calm, moving = seed % 2 == 0, seed % 4 >= 2
    frequent = [Kind.TARGET] * 8 + [Kind.USAGE] * 4 + [Kind.ARRIVE] * 4 + [Kind.LEAVE] * 3 + [Kind.KILL] * 3
    rare = [Kind.ALLOCATABLE, Kind.SILENT, Kind.USER, Kind.DELETE]
    wild = [] if calm else [Kind.REFUSE, Kind.CONFLICT, Kind.LOSE, Kind.THROTTLE, Kind.BLIND, Kind.STALE, Kind.KILL]
    moves = [Kind.CORDON, Kind.UNCORDON, Kind.GATE, Kind.GATE, Kind.BUDGET, Kind.ARRIVE, Kind.ARRIVE] if moving else []
    kinds = frequent + rare + wild + moves
    moments = sorted(rng.sample(range(1, LASTS_S), rng.randint(50, 60)))
    return History(seed, calm, tuple(_event(rng, at, rng.choice(kinds), calm, moving) for at in moments), moving)


def _event(rng: random.Random, at: int, kind: Kind, calm: bool, moving: bool) -> Event:
    nodes = MORE_NODES if moving else NODES
    match kind:
        case Kind.TARGET | Kind.USER:
            return Event(at, kind, rng.choice(PODS), rng.randint(10, 400) * 10, rng.randint(100, 4000))
        case Kind.USAGE:
            return Event(at, kind, rng.choice(PODS), memory=rng.randint(20, 2500))
        case Kind.ARRIVE:
            return Event(at, kind, rng.choice(nodes), rng.randint(1, 30) * 100, rng.randint(100, 4000))
        case Kind.LEAVE:
            return Event(at, kind, number=rng.randrange(100))
        case Kind.ALLOCATABLE:
            # what no node could ever give is waited for from a moment that only the controller's memory knows
            least = 45 if moving and calm else 40
            return Event(at, kind, rng.choice(nodes), rng.randint(least, 90) * 100, rng.randint(8, 16) * 1024)
        case Kind.SILENT:
            return Event(at, kind, rng.choice(nodes), seconds=rng.randint(1, 60))
        case Kind.DELETE:
            return Event(at, kind, rng.choice(PODS))
        case Kind.CORDON | Kind.UNCORDON:
            return Event(at, kind, rng.choice(nodes))
        case Kind.GATE:
            return Event(at, kind, rng.choice(PODS), number=rng.choice((-1, 0, 0, 1, 3)))
        case Kind.BUDGET:
            return Event(at, kind, rng.choice((*PODS, *PODS, "")), number=rng.choice((-1, -1, 0, 1, 2)))
        case Kind.KILL:
            return Event(at, kind, seconds=0 if calm else rng.choice((0, 0, 1, 20, 60)), number=rng.randint(1, 8))
        case _:
            return Event(at, kind, seconds=rng.randint(1, 100))


def smallest(found: History, fails: Callable[[History], bool]) -> History:
    """A part of a failing history that still fails: pieces are left out for as long as that is so."""
    piece = len(found.events) // 2
    while piece:
        start = 0
        while start < len(found.events):
            less = found._replace(events=found.events[:start] + found.events[start + piece :])
            if fails(less):
                found = less
            else:
                start += piece
        piece //= 2
    return found
