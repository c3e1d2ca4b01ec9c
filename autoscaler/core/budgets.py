"""How much may be going on at once: resizes that wait for room, resizes of one workload, restarts.

What is going on is counted in the snapshot, never remembered. What this plan adds is counted on top, in the order in
which it is decided, so that no two pods spend the same budget.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from autoscaler.core import kubelet
from autoscaler.core.guards import Hold
from autoscaler.core.model import RESOURCES, ClusterSnapshot, Pod, PodRef, Resources
from autoscaler.core.plan import PredictedOutcome, Prediction
from autoscaler.core.policy import Budgets
from autoscaler.core.reasons import Reason
from autoscaler.core.resize import Phase, phase_of
from autoscaler.core.restarts import Disruption, disrupted, unavailable
from autoscaler.core.rooms import Rooms

_NAMED = 3  # names in one detail
_OVER = frozenset({Phase.SETTLED, Phase.DELETING})


class Ledger:
    """The budgets of one turn and what is left of them."""

    def __init__(self, snapshot: ClusterSnapshot, rooms: Rooms, budgets: Budgets) -> None:
        self._snapshot = snapshot
        self._rooms = rooms
        self._budgets = budgets
        self._waiting: defaultdict[str, list[PodRef]] = defaultdict(list)
        self._asked: defaultdict[tuple[str, str], list[PodRef]] = defaultdict(list)
        self._restarting: list[Disruption] = []
        self._of_workload: defaultdict[tuple[str, str], list[Pod]] | None = None
        self._disrupted: list[Disruption] | None = None

    def spend(self, pod: Pod, proposed: Mapping[str, Resources], prediction: Prediction) -> Hold | None:
        """Take room and budgets for an ask; the hold, and nothing is taken, if one of them does not suffice."""
        waits = prediction.outcome is PredictedOutcome.DEFERRED and _raises(pod, proposed)
        restarts = prediction.outcome is not PredictedOutcome.IN_PLACE and bool(kubelet.restarted_by(pod, proposed))
        if waits and (hold := self._no_room(pod, prediction)) is not None:
            return hold
        if (hold := self._too_many(pod)) is not None:
            return hold
        if restarts and (hold := self._too_disruptive(pod)) is not None:
            return hold
        if waits:
            self._waiting[pod.node or ""].append(pod.ref)
        elif prediction.outcome is not PredictedOutcome.DEFERRED:
            self._rooms.grant(pod, proposed)
        if pod.workload is not None:
            self._asked[pod.namespace, pod.workload].append(pod.ref)
        if restarts:
            self._restarting.append(Disruption(pod))
        return None

    def _no_room(self, pod: Pod, prediction: Prediction) -> Hold | None:
        node, most = pod.node or "", self._budgets.max_in_flight_per_node
        others = [*self._rooms.unaccepted(node), *self._waiting[node]]
        if len(others) < most:
            return None
        whose = f"room has been asked for by {_names(others)}" if others else "maxInFlightPerNode is 0"
        return Hold(Reason.NODE_FULL, f"{whose}. {prediction.detail}")

    def _too_many(self, pod: Pod) -> Hold | None:
        most = self._budgets.max_in_flight_per_workload
        if most is None or pod.workload is None:
            return None
        unfinished = [one.ref for one in self._pods_beside(pod) if phase_of(one).phase not in _OVER]
        others = [*unfinished, *self._asked[pod.namespace, pod.workload]]
        if len(others) < most:
            return None
        return Hold(Reason.WORKLOAD_BUSY, f"{pod.workload}: {_names(others)} of at most {most}")

    def _too_disruptive(self, pod: Pod) -> Hold | None:
        """By workload any pod counts that is not available, beyond that only what this controller has restarted."""
        budgets, ours = self._budgets, [one for one in self._all_disrupted() if one.pod.ref != pod.ref]
        in_namespace = [one for one in ours if one.pod.namespace == pod.namespace]
        scopes: list[tuple[str, int, Sequence[Disruption]]] = [
            (f"namespace {pod.namespace}", budgets.max_disruptions_per_namespace, in_namespace),
            ("the cluster", budgets.max_disruptions_cluster, ours),
        ]
        if pod.workload is not None:
            here = [one for one in in_namespace if one.pod.workload == pod.workload]
            known = {one.pod.ref for one in here}
            here += [Disruption(p) for p in self._pods_beside(pod) if unavailable(p) and p.ref not in known]
            scopes.insert(0, (pod.workload, budgets.max_disruptions_per_workload, here))
        for where, most, disruptions in scopes:
            if len(disruptions) >= most:
                names = _names(one.pod.ref for one in disruptions) or "none"
                detail = f"it would restart containers; {where}: {names} of at most {most}"
                return Hold(Reason.DISRUPTION_BUDGET, detail, _due_at(disruptions))
        return None

    def _pods_beside(self, pod: Pod) -> list[Pod]:
        """The other pods of a pod's workload."""
        if self._of_workload is None:
            self._of_workload = defaultdict(list)
            for one in self._snapshot.pods.values():
                if one.workload is not None:
                    self._of_workload[one.namespace, one.workload].append(one)
        return [one for one in self._of_workload[pod.namespace, pod.workload or ""] if one.ref != pod.ref]

    def _all_disrupted(self) -> list[Disruption]:
        if self._disrupted is None:
            now = self._snapshot.taken_at
            found = (disrupted(pod, now) for pod in self._snapshot.pods.values())
            self._disrupted = [one for one in found if one is not None]
        asked = {one.pod.ref for one in self._restarting}
        return [*(one for one in self._disrupted if one.pod.ref not in asked), *self._restarting]


def _raises(pod: Pod, proposed: Mapping[str, Resources]) -> bool:
    has, wants = kubelet.footprint(pod, kubelet.allocated), kubelet.proposed_footprint(pod, proposed)
    return any((wants.get(resource) or 0) > (has.get(resource) or 0) for resource in RESOURCES)


def _names(refs: Iterable[PodRef]) -> str:
    names = [str(ref) for ref in refs]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _due_at(disruptions: Iterable[Disruption]) -> datetime | None:
    return min((one.until for one in disruptions if one.until is not None), default=None)
