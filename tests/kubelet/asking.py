"""How a kubelet is asked: pods at rest, what is done to them, and what is seen of them. Data, and no I/O.

An amount may name what the node has: `free`, what no pod requests while all are at rest, and `all`, its allocatable;
`free+1m` is more than fits, and `all+1` can never fit. Any other amount is sent as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from autoscaler.core.kubelet import FINISHED_PHASES, counted
from autoscaler.core.model import (
    RESOURCES,
    Container,
    ContainerKind,
    Pod,
    Resource,
    ResourceList,
    Resources,
)
from autoscaler.core.pairing import qos_class
from autoscaler.core.resize import IN_PROGRESS, PENDING
from autoscaler.core.units import parse_cpu, parse_memory

Json = dict[str, Any]
NAMESPACE = "questions"
_ROOM = re.compile(r"(?P<what>free|all)(?P<more>[+-]\w+)?")
_USAGE = re.compile(r"current usage \(\d+\)")


@dataclass(frozen=True)
class Part:
    """A container. `resources`: as in a pod's spec. `restarts`: its resizePolicy for memory is RestartContainer.
    `serves`: it can be told to hold memory."""

    resources: Json
    name: str = "app"
    kind: ContainerKind = ContainerKind.CONTAINER
    restarts: bool = False
    serves: bool = False


@dataclass(frozen=True)
class Actor:
    """A pod. `prior`: of a priority class of its own. `overhead`: by a runtime class. `phase`: what it comes to; one
    that is Pending waits for an init container that does not end. `lingers`: it takes some seconds to stop."""

    name: str
    parts: tuple[Part, ...]
    prior: bool = False
    overhead: Mapping[str, str] | None = None
    phase: str = "Running"
    lingers: bool = False


@dataclass(frozen=True)
class Ask:
    """A patch to `pods/resize`, with resources by container. `at_once`: the next step does not wait for its answer."""

    pod: str
    resources: Mapping[str, Json]
    at_once: bool = False


@dataclass(frozen=True)
class Delete:
    """A pod is deleted."""

    pod: str
    at_once: ClassVar[bool] = False


@dataclass(frozen=True)
class Hold:
    """A pod's container `app` uses so much memory from now on."""

    pod: str
    mib: int
    at_once: ClassVar[bool] = False


Step = Ask | Delete | Hold


@dataclass(frozen=True)
class Question:
    """Steps, one after the other; all pods are at rest before. `static`: whether the node's CPU manager must be static,
    or must not be; None: no matter. `differs`: why a kubelet's answer is not the model's."""

    name: str
    steps: Sequence[Step]
    static: bool | None = None
    differs: str = ""

    @property
    def hasty(self) -> bool:
        """Whether a step does not wait: what a kubelet has seen of it by the next one is left to it."""
        return any(step.at_once for step in self.steps)

    @property
    def aside(self) -> bool:
        """Whether the answer has nothing to do with other pods and the room on the node, so that it may be asked
        together with others."""
        asks = [step for step in self.steps if isinstance(step, Ask)]
        texts = [
            text
            for ask in asks
            for sides in ask.resources.values()
            for side in sides.values()
            for text in side.values()
        ]
        return len(asks) == len(self.steps) and len(self.pods) == 1 and not any(map(_ROOM.fullmatch, texts))

    @property
    def pods(self) -> list[str]:
        """The pods that it is about."""
        return sorted({step.pod for step in self.steps})


@dataclass(frozen=True)
class Site:
    """A node: its allocatable, and Σ requests of the pods that the questions are not about."""

    allocatable: ResourceList
    others: ResourceList
    static: bool


@dataclass(frozen=True)
class Seen:
    """What came of a step: the API server's words, and by pod each state that it went through, the one before first."""

    said: str
    states: Mapping[str, Sequence[str]]


def rounds(questions: Sequence[Question]) -> list[list[Question]]:
    """The questions in groups that can be asked together. Those that have to be asked alone come last, in order."""
    together: list[list[Question]] = []
    for question in questions:
        if question.aside:
            free = (one for one in together if all(other.pods != question.pods for other in one))
            if (group := next(free, None)) is None:
                together.append(group := [])
            group.append(question)
    return together + [[question] for question in questions if not question.aside]


def cores(cpu: str | None = None, memory: str | None = None) -> Json:
    """These keys alone."""
    return {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value is not None}


def requests(cpu: str | None = None, memory: str | None = None) -> Json:
    return {"requests": cores(cpu, memory)}


def limits(cpu: str | None = None, memory: str | None = None) -> Json:
    return {"limits": cores(cpu, memory)}


def both(cpu: str | None = None, memory: str | None = None) -> Json:
    """Request = limit."""
    return requests(cpu, memory) | limits(cpu, memory)


def written(resources: Mapping[str, Json], room: Mapping[str, ResourceList]) -> dict[str, Json]:
    """Resources by container with amounts that any API server understands. `room`: what `free` and `all` are."""
    return {
        name: {
            side: {key: _written(Resource(key), text, room) for key, text in amounts.items()}
            for side, amounts in sides.items()
        }
        for name, sides in resources.items()
    }


def _written(resource: Resource, text: str, room: Mapping[str, ResourceList]) -> str:
    found = _ROOM.fullmatch(text)
    if found is None:
        return text
    amount = room[found["what"]].get(resource) or 0
    if (more := found["more"]) is not None:
        change = parse_cpu(more[1:]) if resource is Resource.CPU else parse_memory(more[1:])
        amount += change if more[0] == "+" else -change
    return resource.quantity(amount)


def parsed(resources: Json) -> Resources:
    """The same as the core has it."""
    return Resources(*(_amounts(resources.get(side, {})) for side in ("requests", "limits")))


def _amounts(side: Mapping[str, str]) -> ResourceList:
    cpu, memory = side.get("cpu"), side.get("memory")
    return ResourceList(None if cpu is None else parse_cpu(cpu), None if memory is None else parse_memory(memory))


def at_rest(actor: Actor, priority: int) -> Pod:
    """The pod as it is before each question. `priority`: of those that are prior."""
    containers = tuple(
        Container(
            part.name,
            part.kind,
            parsed(part.resources),
            restart_on=frozenset({Resource.MEMORY}) if part.restarts else frozenset(),
        )
        for part in actor.parts
    )
    made = Pod(
        NAMESPACE,
        actor.name,
        f"uid-{actor.name}",
        node="node",
        phase=actor.phase,
        priority=priority if actor.prior else 0,
        overhead=_amounts(actor.overhead or {}),
        sums_reported=True,
        containers=containers,
    )
    return replace(made, qos_class=qos_class(made, {}))


def room(site: Site, pods: Sequence[Pod]) -> dict[str, ResourceList]:
    """What `free` and `all` are on a node with these pods at rest."""
    taken = [site.others, *(counted(pod) for pod in pods if pod.phase not in FINISHED_PHASES)]
    free = {
        resource: (site.allocatable.get(resource) or 0) - sum(one.get(resource) or 0 for one in taken)
        for resource in RESOURCES
    }
    return {"free": ResourceList.of(free), "all": site.allocatable}


def state_of(pod: Pod | None, before: Pod) -> str:
    """What is to be compared of a pod: its conditions, and of each container what is allocated and in force, and how
    often it has been restarted. Generations and restarts count from `before`; the phase of a pod that is being deleted
    is no matter. None: it is gone."""
    if pod is None:
        return "gone"
    parts = [] if pod.deleting or pod.phase == before.phase else [pod.phase]
    for kind, name in ((PENDING, "pending"), (IN_PROGRESS, "in progress")):
        if (condition := pod.condition(kind)) is not None:
            words = " ".join(filter(None, (condition.reason, _USAGE.sub("current usage (…)", condition.message))))
            parts.append(f"{name}@{condition.observed_generation - before.generation} {words}".strip())
    restarts = {one.name: one.restart_count for one in before.containers}
    for one in pod.containers:
        force = "?" if one.actual is None else f"{_text(one.actual.requests)} / {_text(one.actual.limits)}"
        allocation = "?" if one.allocated is None else _text(one.allocated)
        again = one.restart_count - restarts[one.name]
        parts.append(f"{one.name} {allocation} : {force}" + (f" restarted {again}" if again else ""))
    return "; ".join(parts)


def refused(status: int, causes: Sequence[str], message: str) -> str:
    """What the API server said. It lists several errors in any order."""
    if message.startswith("[") and message.endswith("]"):
        message = f"[{', '.join(sorted(re.split(', (?=spec)', message[1:-1])))}]"
    return f"{' '.join([str(status), *causes])}: {message}"


def _text(amounts: ResourceList) -> str:
    return " ".join(
        "-" if (amount := amounts.get(resource)) is None else resource.quantity(amount) for resource in RESOURCES
    )
