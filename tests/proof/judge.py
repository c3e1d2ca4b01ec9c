"""Runs one case: what the proof says, which predicates decide, and what the real scheduler makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from autoscaler.core.landing import Landings, Proof
from autoscaler.core.model import ClusterSnapshot, Node, Pod, PodRef, ResourceList, Resources
from autoscaler.core.resize import PENDING
from autoscaler.core.scheduling import PodTerm, Scheduling
from tests.proof.cases import NAMESPACE, OTHER, Case, size
from tests.proof.stage import Stage

_CHANGES_ITS_MIND_S = 10.0
_PLENTY = 1 << 50
_STATE_TAINTS = {
    "ready": ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"),
    "cordon": ("node.kubernetes.io/unschedulable",),
}


class Answer(StrEnum):
    """What the proof comes to: no node; at least one; or all on which the replacement may land."""

    NO = "no"
    SOME = "some"
    EVERY = "every"


@dataclass(frozen=True)
class Judged:
    """A case and what came of it.

    `barred`: predicates but for which the subject could land on one node more. `turned`: those but for which the
    answer would be another. `placed`: where the scheduler put the replacement as it is created. `fits`: whether that
    node is Ready, and the scheduler puts one of the target size there when all others are closed; None where that was
    not asked. `placed_at_target`: after a "no", where it puts one of the target size if the old node is closed. `kind`:
    what a wrong "no" comes from.
    """

    seed: int
    old_node: str
    proof: Proof
    barred: frozenset[str]
    turned: frozenset[str]
    placed: str | None
    fits: bool | None = None
    placed_at_target: str | None = None
    kind: str | None = None

    @property
    def answer(self) -> Answer:
        return answer(self.proof)

    @property
    def wrong_no(self) -> bool:
        return self.answer is Answer.NO and self.placed_at_target is not None

    @property
    def exception(self) -> str | None:
        """What the proof promised and the scheduler did not keep."""
        if self.answer is Answer.NO:
            return None
        if self.placed is None:
            return "the replacement is not placed"
        if self.placed in {*self.proof.too_small, *self.proof.astray}:
            return None  # said so
        return None if self.fits else f"the target does not fit on {self.placed}, or it does not start there"


def answer(proof: Proof) -> Answer:
    """The proof under both rules of a policy's `landing`."""
    if not proof.nodes:
        return Answer.NO
    return Answer.SOME if proof.too_small or proof.astray else Answer.EVERY


async def judge(stage: Stage, case: Case) -> Judged:
    """Put the case on the stage, ask both, and clear the stage."""
    await stage.put(case)
    try:
        async with stage.eve(case) as snapshot:
            proof = prove(case, snapshot)
            await stage.replace(case, case.created)
        eased = {name: prove(case, ease(snapshot, case)) for name, ease in EASED.items()}
        found = Judged(
            seed=case.seed,
            old_node=case.old_node,
            proof=proof,
            barred=frozenset(name for name, one in eased.items() if set(one.nodes) - set(proof.nodes)),
            turned=frozenset(name for name, one in eased.items() if answer(one) is not answer(proof)),
            placed=await stage.placed(case, _CHANGES_ITS_MIND_S if proof.nodes else 0),
        )
        if found.answer is Answer.NO:
            await stage.close_nodes([case.old_node])
            await stage.replace(case, case.target)
            at = await stage.placed(case)
            return replace(found, placed_at_target=at, kind=None if at is None else _kind(case, snapshot, at))
        if found.placed is None or found.placed in {*proof.too_small, *proof.astray}:
            return found
        names = [node["metadata"]["name"] for node in case.nodes]
        await stage.close_nodes([name for name in names if name != found.placed])
        await stage.replace(case, case.target)
        fits = snapshot.nodes[found.placed].ready and await stage.placed(case, _CHANGES_ITS_MIND_S) is not None
        return replace(found, fits=fits)
    finally:
        await stage.clear(case)


def prove(case: Case, snapshot: ClusterSnapshot) -> Proof:
    """The landing proof of the case's subject."""
    subject = snapshot.pods[PodRef(NAMESPACE, case.subject["metadata"]["name"])]
    return Landings(snapshot, case.static).prove(subject, case.created, case.target, stays=case.stays)


def _kind(case: Case, snapshot: ClusterSnapshot, at: str) -> str:
    """But for what the proof would have seen the node on which the scheduler did put it."""
    if at in prove(replace(case, static={}), snapshot).nodes:
        return "static CPU manager"
    easing = {
        "namespace selector": _by_name,
        "infeasible raise of another pod": _given_up,
        "volume that another pod uses": _shared,
        "competition": _alone,
        **EASED,
    }
    return next((name for name, ease in easing.items() if at in prove(case, ease(snapshot, case)).nodes), "several")


Ease = Callable[[ClusterSnapshot, Case], ClusterSnapshot]


def _nodes(change: Callable[[Node], Node]) -> Ease:
    def ease(snapshot: ClusterSnapshot, _case: Case) -> ClusterSnapshot:
        return replace(snapshot, nodes={name: change(node) for name, node in snapshot.nodes.items()})

    return ease


def _pods(change: Callable[[Pod, bool], Pod]) -> Ease:
    """Change all pods; the second argument tells the subject."""

    def ease(snapshot: ClusterSnapshot, case: Case) -> ClusterSnapshot:
        subject = PodRef(NAMESPACE, case.subject["metadata"]["name"])
        return replace(snapshot, pods={ref: change(pod, ref == subject) for ref, pod in snapshot.pods.items()})

    return ease


def _subject(change: Callable[[Scheduling], Scheduling]) -> Ease:
    return _pods(lambda pod, is_subject: replace(pod, scheduling=change(pod.scheduling)) if is_subject else pod)


def _without(node: Node, state: str) -> Node:
    taints = tuple(taint for taint in node.taints if taint.key not in _STATE_TAINTS[state])
    return replace(node, taints=taints)


def _without_others(node: Node) -> Node:
    of_state = {key for keys in _STATE_TAINTS.values() for key in keys}
    return replace(node, taints=tuple(taint for taint in node.taints if taint.key in of_state))


def _unrepelled(pod: Pod, _is_subject: bool) -> Pod:
    return replace(pod, scheduling=replace(pod.scheduling, anti_affinity=()))


def _unclaimed(pod: Pod, is_subject: bool) -> Pod:
    return replace(pod, scheduling=replace(pod.scheduling, claims=())) if is_subject else pod


def _shared(snapshot: ClusterSnapshot, _case: Case) -> ClusterSnapshot:
    modes = frozenset({"ReadWriteMany"})
    claims = {key: replace(claim, access_modes=modes) for key, claim in snapshot.storage.claims.items()}
    return replace(snapshot, storage=replace(snapshot.storage, claims=claims))


def _roomy(node: Node, amounts: ResourceList) -> Node:
    of = node.allocatable
    return replace(node, allocatable=size(amounts.cpu or of.cpu or 0, amounts.memory or of.memory or 0))


def _named(term: PodTerm) -> PodTerm:
    if term.namespace_selector is None:
        return term
    return replace(term, namespaces=frozenset({OTHER}), namespace_selector=None)


def _by_name(snapshot: ClusterSnapshot, case: Case) -> ClusterSnapshot:
    """Every namespace selector of the cases selects one and the same namespace."""

    def change(pod: Pod, _is_subject: bool) -> Pod:
        asked = pod.scheduling
        affinity, anti = (tuple(map(_named, terms)) for terms in (asked.affinity, asked.anti_affinity))
        return replace(pod, scheduling=replace(asked, affinity=affinity, anti_affinity=anti))

    return _pods(change)(snapshot, case)


def _resigned(pod: Pod, is_subject: bool) -> Pod:
    pending = pod.condition(PENDING)
    if is_subject or pending is None or pending.reason != "Infeasible":
        return pod
    containers = (replace(one, spec=Resources(one.allocated or one.spec.requests)) for one in pod.containers)
    return replace(pod, conditions=(), containers=tuple(containers))


_given_up = _pods(_resigned)


def _alone(snapshot: ClusterSnapshot, _case: Case) -> ClusterSnapshot:
    return replace(snapshot, pods={ref: pod for ref, pod in snapshot.pods.items() if pod.node is not None})


EASED: Mapping[str, Ease] = {
    "ready": _nodes(lambda node: replace(_without(node, "ready"), ready=True)),
    "cordon": _nodes(lambda node: replace(_without(node, "cordon"), unschedulable=False)),
    "taints": _nodes(_without_others),
    "node selector": _subject(lambda asked: replace(asked, node_selector=())),
    "node affinity": _subject(lambda asked: replace(asked, node_terms=None)),
    "pod affinity": _subject(lambda asked: replace(asked, affinity=())),
    "anti-affinity": _pods(_unrepelled),
    "topology spread": _subject(lambda asked: replace(asked, spread=())),
    "volumes": _pods(_unclaimed),
    "pods per node": _nodes(lambda node: replace(node, pods=1 << 20)),
    "host ports": _subject(lambda asked: replace(asked, host_ports=())),
    "extended resources": _subject(lambda asked: replace(asked, extended={})),
    "cpu": _nodes(lambda node: _roomy(node, size(_PLENTY, 0))),
    "memory": _nodes(lambda node: _roomy(node, size(0, _PLENTY))),
    "competition": _alone,
}
"""What the cluster would be without one of the predicates, everything else being equal."""
