"""A kubelet behind an API server is asked: a real one, or the one that the rig plays."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoscaler.adapters.kubernetes.wire import decode_node, decode_pod
from autoscaler.core.kubelet import FINISHED_PHASES, counted, holds_room
from autoscaler.core.model import RESOURCES, ContainerKind, Pod, ResourceList
from tests.kubelet.asking import (
    Actor,
    Ask,
    Delete,
    Hold,
    Part,
    Question,
    Seen,
    Site,
    Step,
    at_rest,
    refused,
    room,
    state_of,
    written,
)
from tests.kubelet.cluster import PORT, STRATEGIC_MERGE, Cluster, Json, Refusal, condition, eventually
from tests.kubelet.diary import Diary
from tests.kubelet.model_kubelet import PRIORITY
from tests.kubelet.pods import pod_spec

Asked = tuple[Question, Sequence[Seen]]  # and what the model says to it

_QUIET_S = 8.0  # after which nothing more is expected of one that will not do as the model does
_LINGERS_S = 5


@dataclass
class _Answer:
    question: Question
    expected: Sequence[Seen]
    first: Mapping[str, Pod]
    seen: list[Seen] = field(default_factory=list)


class RealKubelet:
    """These pods on one node, made in a namespace of their own. Use it as a context manager.

    `hold`: has a pod's container use memory, in MiB. `within_s`: until when an answer must be there; a real one tells
    of what it could not apply after some 13 s, and tries again as often.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        node: str,
        actors: Sequence[Actor],
        *,
        static: bool,
        hold: Callable[[str, int], None],
        within_s: float = 60.0,
    ) -> None:
        self._within_s = within_s
        self._cluster, self._namespace, self._node, self._hold = cluster, namespace, node, hold
        self._actors = {actor.name: actor for actor in actors}
        self._generations: dict[str, int] = {}  # of the newest spec that was asked for
        self._make(static)
        self._diary = Diary(cluster, namespace)
        self._room = room(self.site, [at_rest(actor, PRIORITY) for actor in actors])

    def __enter__(self) -> RealKubelet:
        return self

    def __exit__(self, *_: object) -> None:
        self._diary.__exit__()
        for kind, name in self._of_cluster:
            self._cluster.kubectl("delete", kind, name, "--wait=false")

    # ---- the pods

    def _make(self, static: bool) -> None:
        self._of_cluster: list[tuple[str, str]] = []
        if any(actor.prior for actor in self._actors.values()):
            self._create_class("PriorityClass", "scheduling.k8s.io/v1", value=PRIORITY, preemptionPolicy="Never")
        for overhead in {actor.name: actor.overhead for actor in self._actors.values() if actor.overhead}.values():
            self._create_class("RuntimeClass", "node.k8s.io/v1", handler="runc", overhead={"podFixed": dict(overhead)})
        self._cluster.create(*map(self._manifest, self._actors.values()))
        eventually("all pods are as they are to be", self._as_they_are_to_be, 240, 1)
        self.site = self._measure(static)

    def _create_class(self, kind: str, version: str, **body: Any) -> None:
        self._of_cluster.append((kind.lower(), self._namespace))
        self._cluster.create({"apiVersion": version, "kind": kind, "metadata": {"name": self._namespace}, **body})

    def _manifest(self, actor: Actor) -> Json:
        spec = pod_spec(self._cluster, {}, node=self._node, arguments=[])
        image = spec.pop("containers")[0]
        parts = {kind: [one for one in actor.parts if one.kind is kind] for kind in ContainerKind}
        spec["containers"] = [self._container(image, actor, part) for part in parts[ContainerKind.CONTAINER]]
        inits = [part for part in actor.parts if part.kind is not ContainerKind.CONTAINER]
        if inits:
            spec["initContainers"] = [self._container(image, actor, part) for part in inits]
        if actor.prior:
            spec["priorityClassName"] = self._namespace
        if actor.overhead is not None:
            spec["runtimeClassName"] = self._namespace
        if actor.phase in ("Succeeded", "Failed"):
            spec["restartPolicy"] = "Never"
        if actor.lingers:
            spec["terminationGracePeriodSeconds"] = 2 * _LINGERS_S
        meta = {"name": actor.name, "namespace": self._namespace}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    def _container(self, image: Json, actor: Actor, part: Part) -> Json:
        made: Json = {
            "name": part.name,
            "image": image["image"],
            "imagePullPolicy": image["imagePullPolicy"],
            "args": _arguments(actor, part),
            "resources": part.resources,
        }
        if part.kind is ContainerKind.SIDECAR:
            made["restartPolicy"] = "Always"
        if part.restarts:
            made["resizePolicy"] = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
        if actor.lingers:
            made["lifecycle"] = {"preStop": {"sleep": {"seconds": _LINGERS_S}}}
        return made

    def _as_they_are_to_be(self) -> bool:
        pods = {pod["metadata"]["name"]: pod for pod in self._cluster.pods(self._namespace)}
        return all(_is(pods.get(actor.name), actor) for actor in self._actors.values())

    def _measure(self, static: bool) -> Site:
        node = decode_node(json.dumps(self._cluster.node(self._node)).encode()).value
        listed = self._cluster.call("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={self._node}")["items"]
        pods = [_decoded(pod) for pod in listed if pod["metadata"]["namespace"] != self._namespace]
        taken = [counted(pod) for pod in pods if holds_room(pod)]
        assert node is not None
        others = {resource: sum(one.get(resource) or 0 for one in taken) for resource in RESOURCES}
        return Site(ResourceList(node.allocatable.cpu, node.allocatable.memory), ResourceList.of(others), static)

    # ---- questions

    def answer(self, asked: Sequence[Asked], *, restore: bool = True) -> list[list[Seen]]:
        """What comes of each step of questions that can be asked together, as soon as each pod has come to be what is
        expected, or has had the time for it. `restore`: as all was before, for other questions."""
        answers = [_Answer(question, expected, self._first(question)) for question, expected in asked]
        for number in range(max(len(answer.question.steps) for answer in answers)):
            waiting = [answer for answer in answers if number < len(answer.question.steps)]
            marks = {name: len(self._diary.versions(name)) - 1 for answer in waiting for name in answer.first}
            said = [self._do(answer.question.steps[number]) for answer in waiting]
            self._await(waiting, number)
            for answer, words in zip(waiting, said, strict=True):
                states = {name: self._states(name, marks[name], before) for name, before in answer.first.items()}
                answer.seen.append(Seen(words, states))
        if restore:
            self._restore(answers)
        return [answer.seen for answer in answers]

    def _first(self, question: Question) -> dict[str, Pod]:
        first = {name: self._now(name) for name in question.pods}
        return {name: pod for name, pod in first.items() if pod is not None}

    def _await(self, answers: Sequence[_Answer], number: int) -> None:
        waiting = [answer for answer in answers if not answer.question.steps[number].at_once]
        unsure = any(answer.question.differs for answer in waiting)
        self._diary.wait(
            lambda: all(self._has_come_to(answer, number) for answer in waiting),
            self._within_s,
            _QUIET_S if unsure else None,
        )

    def _has_come_to(self, answer: _Answer, number: int) -> bool:
        ends = {name: states[-1] for name, states in answer.expected[number].states.items()}
        return all(
            self._is_heard(name) and state_of(self._now(name), answer.first[name]) == ends[name] for name in ends
        )

    def _is_heard(self, name: str) -> bool:
        """Whether the kubelet has told of the newest spec. It says no more of a pod that has finished."""
        pod = self._now(name)
        if pod is None or pod.phase in FINISHED_PHASES:
            return True
        return pod.observed_generation == pod.generation >= self._generations.get(name, 0)

    def _states(self, name: str, mark: int, before: Pod) -> list[str]:
        states: list[str] = []
        for version in self._diary.versions(name)[mark:]:
            state = state_of(None if version is None else _decoded(version), before)
            if not states or state != states[-1]:
                states.append(state)
        return states

    def _now(self, name: str) -> Pod | None:
        version = self._diary.versions(name)[-1]
        return None if version is None else _decoded(version)

    def _do(self, step: Step) -> str:
        if isinstance(step, Delete):
            self._cluster.call("DELETE", f"/api/v1/namespaces/{self._namespace}/pods/{step.pod}")
            return "deleted"
        if isinstance(step, Hold):
            self._hold(step.pod, step.mib)
            return "held"
        return self._ask(step)

    def _ask(self, step: Ask) -> str:
        before = self._cluster.pod(self._namespace, step.pod)
        inits = {one["name"] for one in before["spec"].get("initContainers", [])}
        spec: Json = {}
        for name, resources in written(step.resources, self._room).items():
            side = "initContainers" if name in inits else "containers"
            spec.setdefault(side, []).append({"name": name, "resources": resources})
        try:
            after = self._patch(step.pod, spec)
        except Refusal as refusal:
            return _refused(refusal)
        return f"generation +{after['metadata']['generation'] - before['metadata']['generation']}"

    def _patch(self, pod: str, spec: Json) -> Json:
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod}/resize"
        answer: Json = self._cluster.call("PATCH", path, {"spec": spec}, STRATEGIC_MERGE)
        self._generations[pod] = answer["metadata"]["generation"]
        return answer

    def _restore(self, answers: Sequence[_Answer]) -> None:
        first = {name: pod for answer in answers for name, pod in answer.first.items()}
        steps = [step for answer in answers for step in answer.question.steps]
        for name in sorted({step.pod for step in steps if isinstance(step, Ask)}):
            spec: Json = {}
            for part in self._actors[name].parts:
                side = "containers" if part.kind is ContainerKind.CONTAINER else "initContainers"
                spec.setdefault(side, []).append({"name": part.name, "resources": part.resources})
            self._patch(name, spec)
        rested = self._diary.wait(lambda: all(self._at_rest(name, pod) for name, pod in first.items()), self._within_s)
        assert rested, f"not as before: {[(name, state_of(self._now(name), pod)) for name, pod in first.items()]}"

    def _at_rest(self, name: str, before: Pod) -> bool:
        pod = self._now(name)
        sizes = [[(one.spec, one.allocated, one.actual) for one in each.containers] for each in (pod or before, before)]
        return self._is_heard(name) and pod is not None and not pod.conditions and sizes[0] == sizes[1]


def _arguments(actor: Actor, part: Part) -> list[str]:
    if actor.phase == "Failed":
        return []
    ends = part.kind is ContainerKind.INIT and actor.phase != "Pending"
    if ends or actor.phase == "Succeeded":
        return ["serve", "-h"]
    return ["serve"] if part.serves else ["sessions", f"--http=:{PORT + actor.parts.index(part)}"]


def _is(pod: Json | None, actor: Actor) -> bool:
    if pod is None or pod["status"].get("phase") != actor.phase:
        return False
    if actor.phase == "Running":
        return condition(pod, "Ready").get("status") == "True"
    return actor.phase != "Pending" or any(
        "running" in one["state"] for one in pod["status"].get("initContainerStatuses", [])
    )


def _decoded(raw: Json) -> Pod:
    pod = decode_pod(json.dumps(raw).encode())
    assert pod.value is not None, pod.problem
    return pod.value


def _refused(refusal: Refusal) -> str:
    status = refusal.document
    message = status["message"].partition(" is forbidden: " if refusal.status == 403 else " is invalid: ")[2]
    causes = [] if refusal.status == 422 else [cause.get("reason", "") for cause in status["details"]["causes"]]
    return refused(refusal.status, causes, message)
