"""How much may be going on at once: resizes that wait for room, resizes of one workload, restarts and moves.

What is going on is counted in the snapshot, never remembered. What this plan adds is counted on top, in the order in
which it is decided, so that no two pods spend the same budget.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from autoscaler.core import kubelet
from autoscaler.core.guards import Hold
from autoscaler.core.model import RESOURCES, ClusterSnapshot, Pod, PodRef, Resources, Workload, WorkloadRef
from autoscaler.core.plan import Check, PredictedOutcome, Prediction
from autoscaler.core.policy import Config
from autoscaler.core.preconditions import unavailable
from autoscaler.core.reasons import Reason
from autoscaler.core.resize import Phase, phase_of
from autoscaler.core.restarts import disrupted
from autoscaler.core.rooms import Rooms
from autoscaler.core.siblings import Siblings
from autoscaler.core.surge import Surges

_NAMED = 3  # names in one detail
_OVER = frozenset({Phase.SETTLED, Phase.DELETING})


class _Absence(NamedTuple):
    """A pod that does not serve, or is missing and has no name yet. `until`: when it is over, if that is known."""

    name: str
    namespace: str
    workload: str | None
    until: datetime | None = None


class Ledger:
    """The budgets of one turn and what is left of them."""

    def __init__(
        self, snapshot: ClusterSnapshot, rooms: Rooms, siblings: Siblings, surges: Surges, config: Config
    ) -> None:
        self._snapshot = snapshot
        self._rooms = rooms
        self._siblings = siblings
        self._surges = surges
        self._config = config
        self._budgets = config.budgets
        self._waiting: defaultdict[str, list[PodRef]] = defaultdict(list)
        self._asked: defaultdict[tuple[str, str], list[PodRef]] = defaultdict(list)
        self._disrupting: list[_Absence] = []  # by this plan
        self._known: list[_Absence] | None = None

    def spend(self, pod: Pod, proposed: Mapping[str, Resources], prediction: Prediction) -> Hold | None:
        """Take room and budgets for an ask; the hold, and nothing is taken, if one of them does not suffice."""
        waits = prediction.outcome is PredictedOutcome.DEFERRED and _raises(pod, proposed)
        restarts = prediction.outcome is not PredictedOutcome.IN_PLACE and bool(kubelet.restarted_by(pod, proposed))
        if waits and (hold := self._no_room(pod, prediction)) is not None:
            return hold
        if (hold := self._too_many(pod)) is not None:
            return hold
        if restarts and (hold := self._too_disruptive(pod)) is not None:
            return hold._replace(detail=f"it would restart containers; {hold.detail}")
        if waits:
            self._waiting[pod.node or ""].append(pod.ref)
        elif prediction.outcome is not PredictedOutcome.DEFERRED:
            self._rooms.grant(pod, proposed)
        if pod.workload is not None:
            self._asked[pod.namespace, pod.workload].append(pod.ref)
        if restarts:
            self.disrupt(pod)
        return None

    def check_move(self, pod: Pod) -> Check:
        """Whether the budgets let one more pod be moved now."""
        hold = self._too_disruptive(pod)
        if hold is None:
            return Check("budgets", Reason.DISRUPTION_BUDGET, True)
        return Check("budgets", hold.reason, False, hold.detail, hold.due_at)

    def disrupt(self, pod: Pod) -> None:
        """Count a pod that this plan restarts or evicts."""
        self._disrupting.append(_absence(pod))

    def _no_room(self, pod: Pod, prediction: Prediction) -> Hold | None:
        node, most = pod.node or "", self._budgets.max_in_flight_per_node
        others = [*self._rooms.unaccepted(node), *self._waiting[node]]
        if len(others) < most:
            return None
        whose = f"room has been asked for by {named(others)}" if others else "maxInFlightPerNode is 0"
        return Hold(Reason.NODE_FULL, f"{whose}. {prediction.detail}")

    def _too_many(self, pod: Pod) -> Hold | None:
        most = self._budgets.max_in_flight_per_workload
        if most is None or pod.workload is None:
            return None
        unfinished = [one.ref for one in self._siblings.beside(pod) if phase_of(one).phase not in _OVER]
        others = [*unfinished, *self._asked[pod.namespace, pod.workload]]
        if len(others) < most:
            return None
        return Hold(Reason.WORKLOAD_BUSY, f"{pod.workload}: {named(others)} of at most {most}")

    def _too_disruptive(self, pod: Pod) -> Hold | None:
        """By workload any pod counts that is not available, beyond that only what this controller has to do with."""
        budgets, own = self._budgets, {str(pod.ref), _surge_of(WorkloadRef(pod.namespace, pod.workload or ""))}
        ours = [one for one in self._absences() if one.name not in own]
        in_namespace = [one for one in ours if one.namespace == pod.namespace]
        scopes: list[tuple[str, int, list[_Absence]]] = [
            (f"namespace {pod.namespace}", budgets.max_disruptions_per_namespace, in_namespace),
            ("the cluster", budgets.max_disruptions_cluster, ours),
        ]
        if pod.workload is not None:
            here = [one for one in in_namespace if one.workload == pod.workload]
            known = {one.name for one in here}
            here += [_absence(p) for p in self._siblings.beside(pod) if unavailable(p) and str(p.ref) not in known]
            scopes.insert(0, (pod.workload, budgets.max_disruptions_per_workload, here))
        for where, most, absent in scopes:
            if len(absent) >= most:
                names = named(one.name for one in absent) or "none"
                due_at = min((one.until for one in absent if one.until is not None), default=None)
                return Hold(Reason.DISRUPTION_BUDGET, f"{where}: {names} of at most {most}", due_at)
        return None

    def _absences(self) -> list[_Absence]:
        if self._known is None:
            now = self._snapshot.taken_at
            found = ((pod, disrupted(pod, now)) for pod in self._snapshot.pods.values())
            self._known = [_absence(pod, one.until) for pod, one in found if one is not None]
            if any(policy.moves for policy in self._config.policies):
                known = {one.name for one in self._known}
                self._known += [one for one in self._moving() if one.name not in known]
        decided = {one.name for one in self._disrupting}
        return [*(one for one in self._known if one.name not in decided), *self._disrupting]

    def _moving(self) -> Iterator[_Absence]:
        """Of the workloads whose pods may be moved: pods that are not available, as whoever is being evicted, or takes
        the place of one that was, cannot be told from others; pods that are missing; and surges."""
        for pod in self._snapshot.pods.values():
            if unavailable(pod) and self._config.moves(pod):
                yield _absence(pod)
        budgets = self._budgets
        # more than fit into the largest budget say nothing new, and a Deployment may want a billion pods
        most = max(
            budgets.max_disruptions_per_workload, budgets.max_disruptions_per_namespace, budgets.max_disruptions_cluster
        )
        for workload, missing in self.missing():
            for number in range(min(missing, most)):
                name = f"pod {number + 1} of {missing} missing of {workload.ref}"
                yield _Absence(name, workload.ref.namespace, workload.ref.object)
        for workload in self._surges.going:
            yield _Absence(_surge_of(workload.ref), workload.ref.namespace, workload.ref.object)

    def missing(self) -> Iterator[tuple[Workload, int]]:
        """Workloads whose pods may be moved, with how many of them are missing."""
        for workload in self._snapshot.workloads.values():
            if workload.owned or not (missing := self._siblings.missing(workload)):
                continue
            if self._config.moves_pods_of(workload):
                yield workload, missing


def _surge_of(workload: WorkloadRef) -> str:
    return f"surge of {workload.namespace}/{workload.object}"


def _absence(pod: Pod, until: datetime | None = None) -> _Absence:
    return _Absence(str(pod.ref), pod.namespace, pod.workload, until)


def _raises(pod: Pod, proposed: Mapping[str, Resources]) -> bool:
    has, wants = kubelet.footprint(pod, kubelet.allocated), kubelet.proposed_footprint(pod, proposed)
    return any((wants.get(resource) or 0) > (has.get(resource) or 0) for resource in RESOURCES)


def named(refs: Iterable[PodRef | str]) -> str:
    """The first names of a list, and how many more there are."""
    names = [str(ref) for ref in refs]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
