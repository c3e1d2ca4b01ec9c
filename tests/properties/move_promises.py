"""What must have held at the moment of each move, read from the cluster without asking the code that decided on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from autoscaler.core import kubelet
from autoscaler.core.actions import Evict, Move, Outcome, OutcomeKind, Scale, ScaleKind
from autoscaler.core.model import ClusterSnapshot, Node, Pod, QoSClass, Resources, Workload, WorkloadRef
from autoscaler.core.policy import Config, Landing, Strategy
from autoscaler.simulator import disruptions
from tests.properties import moving
from tests.properties.storm import Storm, workload_of

_BELIEVED = 30  # seconds for which a pod is believed that had no sessions and does not answer
_OWN = "ReplicaSet"
_TO_THE_SECOND = timedelta(seconds=1)  # in which creation is dated

Amounts = tuple[int, int]


@dataclass
class Moves:
    """(g) nothing is moved unless everything held that a move needs; (h) no workload twice in a short time."""

    config: Config
    broken: list[str] = field(default_factory=list)
    evicted_at: dict[WorkloadRef, datetime] = field(default_factory=dict)

    def moved(self, storm: Storm, snapshot: ClusterSnapshot, move: Move, outcome: Outcome) -> None:
        """A move that reached the API server."""
        if outcome.kind is not OutcomeKind.ACCEPTED:
            # nothing happens between what was decided and what is done
            self.broken.append(f"(g) {move} is answered {outcome.kind}: {outcome.detail}")
            return
        words = self._of_eviction(storm, snapshot, move) if isinstance(move, Evict) else self._of_scale(snapshot, move)
        self.broken += [f"(g) {storm.now:%H:%M:%S} {_name(move)}: {one}" for one in words]

    def _of_eviction(self, storm: Storm, snapshot: ClusterSnapshot, move: Evict) -> Iterator[str]:
        pod = snapshot.pods[move.pod]
        ref, now = WorkloadRef(pod.namespace, pod.workload or ""), snapshot.taken_at
        workload = snapshot.workloads[ref]
        if _ends_surge(snapshot, move):
            yield from self._of_end(storm, snapshot, pod, workload)
            return
        if (last := self.evicted_at.get(ref)) is not None and now - last < moving.MIN_POD_AGE - _TO_THE_SECOND:
            yield f"(h) it was evicted from {last:%H:%M:%S} on"
        self.evicted_at[ref] = now
        yield from self._common(storm, snapshot, pod, workload)
        due_at = _due_at(pod, self.config)
        how = self.config.policies[0].fallback.migration
        if how.strategy is Strategy.SURGE:
            target = {container.name: container.spec for container in pod.containers}
            newer = [one for one in _pods(snapshot, workload) if _since(one, workload) and _serves(one)]
            if not any(_has(one, target) for one in newer):
                yield "no new pod is ready at its size"
        else:
            yield from _lands(snapshot, pod, workload, how.landing, stays=False)
        yield from self._of_sessions(storm, pod, due_at)

    def _of_end(self, storm: Storm, snapshot: ClusterSnapshot, pod: Pod, workload: Workload) -> Iterator[str]:
        """A surge is called off: its newest pod goes, where all serve, so that no other does."""
        began_at, pods = _surging(workload), [one for one in _pods(snapshot, workload) if not one.deleting]
        if len(pods) != workload.replicas or not all(map(_serves, pods)):
            yield "not all of its workload serve"
        if any((one.created_at, one.name) > (pod.created_at, pod.name) for one in pods if one.created_at is not None):
            yield "it is not the newest"
        old = [one for one in pods if not _since(one, workload)]
        waiting = [one for one in old if (due := _due_at(one, self.config)) is not None and snapshot.taken_at >= due]
        if waiting and began_at is not None and snapshot.taken_at < began_at + moving.READY_WITHIN:
            yield f"{waiting[0].name} still waits for it"
        yield from self._of_sessions(storm, pod, began_at)

    def _of_sessions(self, storm: Storm, pod: Pod, since: datetime | None) -> Iterator[str]:
        how = self.config.policies[0].fallback.migration
        if how.drain is not None and not _silent(storm, workload_of(pod)):
            if how.drain.notify is not None:
                since = storm.sessions.told_since(pod.uid)
            over = since is not None and storm.now >= since + moving.MAX_WAIT
            if not (how.drain.then_force and over):
                yield "it has sessions"

    def _of_scale(self, snapshot: ClusterSnapshot, move: Scale) -> Iterator[str]:
        workload = snapshot.workloads[move.workload]
        if move.kind is ScaleKind.BACK:
            if move.replicas != workload.replicas - 1 or not _surging(workload):
                yield f"back to {move.replicas} from {workload.replicas}"
            return
        if move.replicas != workload.replicas + 1 or _surging(workload):
            yield f"up to {move.replicas} from {workload.replicas}"
        pod = snapshot.pods[move.pod]
        yield from self._common(None, snapshot, pod, workload)
        yield from _lands(snapshot, pod, workload, self.config.policies[0].fallback.migration.landing, stays=True)

    def _common(self, storm: Storm | None, snapshot: ClusterSnapshot, pod: Pod, workload: Workload) -> Iterator[str]:
        now = snapshot.taken_at
        due_at = _due_at(pod, self.config)
        if due_at is None:
            if storm is None or not _beyond(storm, pod, snapshot.nodes[pod.node or ""]):
                yield "it waits for nothing"
        elif now < due_at:
            yield f"its deadline is {due_at:%H:%M:%S}"
        if pod.deleting or (pod.owner or "").partition("/")[0] not in ("StatefulSet", "ReplicaSet"):
            yield "nobody would make another one"
        others = [one for one in _pods(snapshot, workload) if one.ref != pod.ref and not _since(one, workload)]
        for one in (pod, *others):
            if one.created_at is None or now - one.created_at < moving.MIN_POD_AGE:
                yield f"{one.name} is too young"
        serving = [one for one in others if _serves(one)]
        if len(serving) < _wanted(workload) - 1 or len(serving) < len(others):
            yield f"of {_wanted(workload) - 1} others {len(serving)} serve"
        absent = [name for ref in snapshot.workloads for name in _absent(snapshot, ref, pod)]
        if len(absent) + 1 > self.config.budgets.max_disruptions_per_namespace:
            yield f"{', '.join(absent)} are away"


def left_behind(storm: Storm, config: Config) -> Iterator[str]:
    """(i) in the end no Deployment has one replica more for long, and no pod was told to drain for nothing.

    But for a surge whose new pod must stay: for its users' sessions, or for a budget.
    """
    longest = moving.READY_WITHIN + moving.MAX_WAIT + timedelta(seconds=60)
    kept: set[str] = set()
    for workload in storm.state.workloads.values():
        if (since := _surging(workload)) is None or storm.now - since <= longest:
            continue
        pods = [one for one in storm.pods() if one.workload == workload.ref.object]
        how = config.policies[0].fallback.migration.drain
        # who is told anew each time that a restart or something else was in the way is waited for anew as well
        endless = how is not None and (not how.then_force or how.notify is not None)
        waits = endless and not _silent(storm, workload.ref.name)
        if waits or any(disruptions.objection(one, storm.budgets(), storm.pods()) for one in pods):
            kept.add(workload.ref.object)
        else:
            yield f"(i) {workload.ref.name} has one replica more since {since:%H:%M:%S}"
    last = {told.uid: told for told in storm.sessions.told}
    for pod in storm.pods():
        told = last.get(pod.uid)
        stays = pod.deleting or pod.workload in kept
        if told is not None and told.draining and not stays and storm.now - told.at > longest:
            yield f"(i) {pod.name} takes no sessions since {told.at:%H:%M:%S}"


def _name(move: Move) -> str:
    return move.pod.name if isinstance(move, Evict) else f"{move.kind} {move.workload.name}"


def _due_at(pod: Pod, config: Config) -> datetime | None:
    """When the resize has waited for long enough; None if it does not wait for room."""
    pending, ask, fallback = pod.condition("PodResizePending"), pod.newest_ask, config.policies[0].fallback
    if pending is None or ask is None or pending.observed_generation != pod.generation:
        return None
    return ask.at + {"Deferred": fallback.after, "Infeasible": fallback.infeasible_after}[pending.reason]


def _beyond(storm: Storm, pod: Pod, node: Node) -> bool:
    """Whether the pod has been wanted larger than its node is, or can never be resized there."""
    if node.name in storm.kubelets.static_cpu and pod.qos_class is QoSClass.GUARANTEED:
        return True
    wanted = [e for e in storm.history.events if e.kind == "target" and e.who == workload_of(pod)]
    return any(
        e.cpu > (node.allocatable.cpu or 0) - 100 or e.memory << 20 > (node.allocatable.memory or 0) for e in wanted
    )


def _surging(workload: Workload) -> datetime | None:
    scaled = workload.scaled
    return scaled.at if scaled is not None and scaled.manager == ScaleKind.SURGE else None


def _wanted(workload: Workload) -> int:
    """How many pods it has when it is left alone."""
    return workload.replicas - (_surging(workload) is not None)


def _since(pod: Pod, workload: Workload) -> bool:
    """Whether a pod was made for a surge that is going on."""
    began_at = _surging(workload)
    return began_at is not None and pod.created_at is not None and pod.created_at >= began_at


def _ends_surge(snapshot: ClusterSnapshot, move: Evict) -> bool:
    """Whether an eviction is of a pod that was made for a surge."""
    pod = snapshot.pods[move.pod]
    return _since(pod, snapshot.workloads[WorkloadRef(pod.namespace, pod.workload or "")])


def _pods(snapshot: ClusterSnapshot, workload: Workload) -> list[Pod]:
    return [one for one in snapshot.pods.values() if (one.namespace, one.workload) == workload.ref]


def _serves(pod: Pod) -> bool:
    running = all(container.running or container.ended for container in pod.containers)
    return pod.ready and running and pod.phase == "Running" and not pod.deleting


def _absent(snapshot: ClusterSnapshot, ref: WorkloadRef, mover: Pod) -> Iterator[str]:
    """The pods of a workload that do not serve, and those that it has for a move, but for the mover's own."""
    workload = snapshot.workloads[ref]
    if ref.kind == _OWN:
        return
    mine = (mover.namespace, mover.workload) == ref
    serving = sum(_serves(one) and one.ref != mover.ref for one in _pods(snapshot, workload))
    for number in range(_wanted(workload) - mine - serving):
        yield f"{ref.name} {number}"
    if _surging(workload) is not None and not mine:
        yield f"surge of {ref.name}"


def _has(pod: Pod, target: dict[str, Resources]) -> bool:
    """Whether a pod has at least these requests, wanted, set aside and in force."""
    for container in pod.containers:
        for amounts in (kubelet.desired(container), kubelet.allocated(container), kubelet.actual(container)):
            wanted = target[container.name].requests
            if (amounts.cpu or 0) < (wanted.cpu or 0) or (amounts.memory or 0) < (wanted.memory or 0):
                return False
    return True


def _silent(storm: Storm, name: str) -> bool:
    """Whether the pods of a workload have no sessions, as far as they have been heard of in the last half minute."""
    if storm.sessions_at(name, storm.now) is not None:
        return storm.sessions_at(name, storm.now) == 0
    return any(storm.sessions_at(name, storm.now - timedelta(seconds=back)) == 0 for back in range(_BELIEVED + 1))


# ---- room


def _sum(pod: Pod, specs: dict[str, Resources]) -> Amounts:
    requests = [specs.get(container.name, container.spec).requests for container in pod.containers]
    return sum(one.cpu or 0 for one in requests), sum(one.memory or 0 for one in requests)


def _taken(pod: Pod) -> Amounts:
    has = kubelet.reserved(pod)
    return has.cpu or 0, has.memory or 0


def _free(snapshot: ClusterSnapshot, node: Node, without: Pod | None = None) -> Amounts:
    here = [_taken(one) for one in snapshot.pods.values() if one.node == node.name and one is not without]
    return (
        (node.allocatable.cpu or 0) - sum(cpu for cpu, _ in here),
        (node.allocatable.memory or 0) - sum(memory for _, memory in here),
    )


def _fits(wanted: Amounts, free: Amounts) -> bool:
    return wanted[0] <= free[0] and wanted[1] <= free[1]


def _lands(snapshot: ClusterSnapshot, pod: Pod, workload: Workload, landing: Landing, *, stays: bool) -> Iterator[str]:
    """What speaks against a landing: no other node with room for the pod's size, or, where every one must have it, one
    that would take the next pod at its first size and no more. Pods that wait for a node may take the room first."""
    target = _sum(pod, {})
    if _due_at_none(pod):
        return
    created = _sum(pod, dict(workload.template))
    open_to_pods = [node for node in snapshot.nodes.values() if node.ready and not node.unschedulable]
    waiting = [_taken(one) for one in snapshot.pods.values() if one.node is None and one.phase == "Pending"]

    def free(node: Node) -> Amounts:
        cpu, memory = _free(snapshot, node, None if stays else pod)
        rivals = [one for one in waiting if _fits(one, (cpu, memory))]
        return cpu - sum(one[0] for one in rivals), memory - sum(one[1] for one in rivals)

    most = max(target[0], created[0]), max(target[1], created[1])
    if not any(_fits(most, free(node)) for node in open_to_pods if node.name != pod.node):
        yield f"no other node has room for {most}"
    grows = target[0] > created[0] or target[1] > created[1]
    if grows and not stays and landing is Landing.EVERY:
        for node in open_to_pods:
            if _fits(created, _free(snapshot, node, pod)) and not _fits(target, free(node)):
                yield f"it may land on {node.name} at {created}, where there is no room for {target}"


def _due_at_none(pod: Pod) -> bool:
    """Whether the pod's own size is not the one that it is moved for, as it could never be asked for."""
    return pod.condition("PodResizePending") is None
