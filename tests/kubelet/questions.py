"""What kubelets are asked, and about which pods. A node with a free core and 500 MiB will do.

`free` and `all`: see `asking`. `free+100m` is what a pod that requests 100m can grow to.
"""

from __future__ import annotations

from autoscaler.core.model import ContainerKind
from tests.kubelet.asking import Actor, Ask, Delete, Hold, Json, Part, Question, Step, both, limits, requests

SMALL = requests("100m", "32Mi")
LIMITED = requests("100m", "128Mi") | limits("1", "160Mi")

ACTORS = (
    Actor("plain", (Part(SMALL),), lingers=True),
    Actor("limited", (Part(LIMITED, serves=True),)),
    Actor("prior", (Part(SMALL | limits(None, "160Mi"), restarts=True, serves=True),), prior=True),
    Actor("guaranteed", (Part(both("300m", "64Mi")),)),
    Actor(
        "many",
        (
            Part(requests("50m", "16Mi"), "proxy", ContainerKind.SIDECAR),
            Part(requests("50m", "16Mi"), "init", ContainerKind.INIT),
            Part(SMALL),
            Part(requests("50m", "16Mi"), "second"),
        ),
        overhead={"cpu": "20m", "memory": "8Mi"},
    ),
    Actor("waiting", (Part({}, "init", ContainerKind.INIT), Part(SMALL)), phase="Pending"),
    Actor("succeeded", (Part(SMALL),), phase="Succeeded"),
    Actor("failed", (Part({}),), phase="Failed"),
)


def _asked(pod: str, resources: Json, name: str = "app", *, at_once: bool = False) -> Ask:
    return Ask(pod, {name: resources}, at_once)


def _asks(what: str, pod: str, resources: Json, name: str = "app") -> Question:
    return Question(what, [_asked(pod, resources, name)])


def _contest(what: str, *asks: Step, filler: str, left: str, static: bool | None = None) -> Question:
    """On a node that one pod fills others ask, one after the other, and are deferred; then it leaves room for one."""
    filled, leaves = _asked(filler, requests("free+100m")), _asked(filler, requests(left))
    return Question(what, [filled, *asks, leaves], static=static)


REFUSED = (
    _asks("a CPU request above its limit", "limited", requests("1100m")),
    _asks("a memory request above its limit", "limited", requests(None, "161Mi")),
    _asks("limits below their requests", "limited", limits("50m", "100Mi")),
    _asks("a Burstable pod would become Guaranteed", "limited", both("1", "160Mi")),
    _asks("a Guaranteed pod would become Burstable", "guaranteed", limits("400m")),
    _asks("a BestEffort pod would become Burstable", "failed", requests("10m")),
    Question(
        "a container that the pod does not have",
        [_asked("plain", SMALL, "other")],
        differs="such a container is also invalid in itself: the model says only that none can be added",
    ),
    _asks("more CPU than the node has", "plain", requests("all+1m")),
    _asks("more memory than the node has", "plain", requests(None, "all+1")),
    _asks("more of both than the node has", "plain", requests("all+1m", "all+1")),
    _asks("more than the node has, by sidecar and overhead", "many", requests("all", "all")),
    _asks("an init container beside a sidecar that the node cannot hold", "many", requests("all-69m"), "init"),
)

QUANTITIES = (
    _asks("equal amounts, written otherwise", "plain", requests("0.1", "32768Ki")),
    _asks("a fraction of a millicore", "plain", requests("100500u")),
    Question(
        "a fraction of a byte",
        [_asked("plain", requests(None, "40000000500m"))],
        differs="a kubelet puts whole bytes in force, finds that less than what is allocated, and never gets done;"
        " the model, as the program, knows whole bytes alone",
    ),
    _asks("memory that is no multiple of a page", "limited", limits(None, "200000001")),
    _asks("CPU that is no round number", "limited", requests("123m") | limits("1234m")),
    _asks("less CPU than a cgroup can be told", "limited", requests("1m") | limits("5m")),
    _asks("no CPU at all", "plain", requests("0")),
)

ACCEPTED = (
    _asks("higher requests", "plain", requests("150m", "40Mi")),
    _asks("lower requests", "plain", requests("50m", "16Mi")),
    _asks("higher limits", "limited", limits("1500m", "192Mi")),
    _asks("lower limits", "limited", limits("500m", "144Mi")),
    _asks("higher requests and limits", "limited", requests("150m", "144Mi") | limits("1200m", "176Mi")),
    _asks("lower requests and limits", "limited", requests("50m", "64Mi") | limits("800m", "144Mi")),
    _asks("more CPU and less memory", "limited", requests("150m", "96Mi") | limits("1200m", "128Mi")),
    _asks("a Guaranteed pod's memory", "guaranteed", both(None, "80Mi")),
    Question("a Guaranteed pod's CPU", [_asked("guaranteed", both("400m"))], static=False),
    Question(
        "three patches, one right after the other",
        [
            _asked("plain", requests("110m"), at_once=True),
            _asked("plain", requests("120m"), at_once=True),
            _asked("plain", requests("130m")),
        ],
    ),
    Question(
        "a raise that is taken back right away",
        [_asked("plain", requests("200m"), at_once=True), _asked("plain", SMALL)],
    ),
    Question(
        "several containers of a pod",
        [Ask("many", {"proxy": requests("60m"), "app": requests("110m", "40Mi"), "second": requests("40m")})],
    ),
    _asks("an init container that has ended", "many", requests("60m", "24Mi"), "init"),
    _asks("CPU of a container that restarts for memory", "prior", requests("150m")),
    _asks("a memory limit for which a container restarts", "prior", limits(None, "192Mi")),
    _asks("a memory request for which a container restarts", "prior", requests(None, "40Mi")),
    _asks("a pod that still waits for its init container", "waiting", requests("150m", "40Mi")),
    _asks("a pod that has succeeded", "succeeded", requests("150m", "40Mi")),
)

DEFERRED = (
    _asks("more CPU than is free", "plain", requests("free+200m")),
    _asks("more memory than is free", "plain", requests(None, "free+64Mi")),
    _asks("more of both than is free", "plain", requests("free+200m", "free+64Mi")),
    _asks("all of the node", "plain", requests("all", "all")),
    _asks("exactly what is free", "plain", requests("free+100m", "free+32Mi")),
    _asks("a millicore more than is free", "plain", requests("free+101m")),
    _asks("a byte more than is free", "plain", requests(None, "free+33554433")),
    _asks("less CPU, and more memory than is free", "plain", requests("50m", "free+64Mi")),
    _asks("more than is free, and a limit", "limited", requests("free+200m") | limits("all")),
    _asks("a sidecar too large, in a pod with overhead", "many", requests("free+200m"), "proxy"),
    _asks("an init container too large, that has ended", "many", requests("free+300m"), "init"),
    Question(
        "one container of a pod too large, the others smaller",
        [Ask("many", {"proxy": requests("40m"), "app": requests("free+200m"), "second": requests("40m")})],
    ),
    _asks("a pod too large that still waits for its init container", "waiting", requests("free+200m")),
    Question("a deferred raise that is taken back", [_asked("plain", requests("free+200m")), _asked("plain", SMALL)]),
    Question(
        "a deferred raise, then a smaller one",
        [_asked("plain", requests("free+200m")), _asked("plain", requests("150m"))],
    ),
    Question(
        "a deferred raise, then a larger one",
        [_asked("plain", requests("free+200m")), _asked("plain", requests("free+300m"))],
    ),
    Question(
        "room that a deferred raise asks for is taken by another pod",
        [_asked("limited", requests("free+200m") | limits("all")), _asked("plain", requests("free+100m"))],
    ),
    Question(
        "one container grows by what another gives, on a full node",
        [
            _asked("plain", requests("free+100m")),
            Ask("many", {"app": requests("130m"), "second": requests("20m")}),
        ],
    ),
)

ROOM = (
    _contest("a neighbour gives room", _asked("limited", requests("150m")), filler="plain", left="free+50m"),
    _contest(
        "the one of higher priority is first",
        _asked("limited", requests("150m")),
        _asked("prior", requests("150m")),
        filler="plain",
        left="free+50m",
    ),
    _contest(
        "the one that is Guaranteed is first",
        _asked("limited", requests("200m")),
        _asked("guaranteed", both("400m")),
        filler="plain",
        left="free",
        static=False,
    ),
    _contest(
        "the one that has waited longest is first",
        _asked("plain", requests("150m")),
        _asked("limited", requests("150m")),
        filler="many",
        left="free+50m",
    ),
    _contest(
        "one that asks again keeps its place",
        _asked("plain", requests("160m")),
        _asked("limited", requests("150m")),
        _asked("plain", requests("150m")),
        filler="many",
        left="free+50m",
    ),
    _contest(
        "one that is first and too large is not waited for",
        _asked("prior", requests("300m")),
        _asked("limited", requests("150m")),
        filler="plain",
        left="free+50m",
    ),
)

INFEASIBLE = (
    Question("CPU that a static manager has given", [_asked("guaranteed", both("400m"))], static=True),
    Question(
        "an infeasible raise that is taken back",
        [_asked("guaranteed", both("400m")), _asked("guaranteed", both("300m", "64Mi"))],
        static=True,
    ),
    Question(
        "room that an infeasible raise asks for is taken by another pod",
        [_asked("guaranteed", both("400m")), _asked("plain", requests("free+100m"))],
        static=True,
    ),
)

ERRORS = (
    Question(
        "less memory than is in use, until it is in use no more; others have its room before",
        [
            Hold("limited", 100),
            _asked("limited", requests("150m", "48Mi") | limits(None, "64Mi")),
            _asked("plain", requests(None, "free+112Mi")),
            Hold("limited", 0),
        ],
    ),
    Question(
        "less memory than is in use, taken back",
        [
            Hold("limited", 100),
            _asked("limited", requests(None, "48Mi") | limits(None, "64Mi")),
            _asked("limited", LIMITED),
            Hold("limited", 0),
        ],
    ),
    Question(
        "less memory than is in use, in a container that restarts for it",
        [Hold("prior", 100), _asked("prior", limits(None, "64Mi")), Hold("prior", 0)],
    ),
)

LAST = (
    Question(
        "a neighbour goes, and takes its time",
        [_asked("limited", requests("free+200m") | limits("all")), Delete("plain")],
    ),
)

QUESTIONS = (*REFUSED, *QUANTITIES, *ACCEPTED, *DEFERRED, *ROOM, *INFEASIBLE, *ERRORS, *LAST)
