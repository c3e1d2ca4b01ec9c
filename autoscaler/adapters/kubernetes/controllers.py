"""What controls the pods: who owns whom, up to the topmost, and what each would make next.

Kept current by watches of the cluster adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime

from autoscaler.adapters.kubernetes.cache import Cache
from autoscaler.adapters.kubernetes.decoded import Owned
from autoscaler.adapters.kubernetes.watch import Kind
from autoscaler.adapters.kubernetes.wire_workloads import (
    DEPLOYMENT,
    JOB,
    REPLICASET,
    STATEFULSET,
    Controller,
    decode_deployment,
    decode_job,
    decode_replica_set,
    decode_stateful_set,
)
from autoscaler.core.actions import Scale
from autoscaler.core.model import Ask, Workload, WorkloadRef

_KINDS = {
    DEPLOYMENT: Kind("/apis/apps/v1/deployments", "deployments", decode_deployment),
    STATEFULSET: Kind("/apis/apps/v1/statefulsets", "statefulsets", decode_stateful_set),
    REPLICASET: Kind("/apis/apps/v1/replicasets", "replicasets", decode_replica_set),
    JOB: Kind("/apis/batch/v1/jobs", "jobs", decode_job, metadata_only=True),
}
_FOLLOWED = frozenset({REPLICASET, JOB})  # whose owner is named as the workload of a pod
_MAX_DEPTH = 5  # owners above owners; two levels occur, a bound guards against a ring


class Controllers:
    """`owned` hears of an object and its topmost owner, when that becomes known; `scaled` of a workload whose number of
    pods was set."""

    def __init__(self, owned: Callable[[Owned, str], None], scaled: Callable[[WorkloadRef], None]) -> None:
        self.workloads: dict[WorkloadRef, Workload] = {}
        self._owned = owned
        self._scaled = scaled
        self._caches = {kind: Cache(self._accept) for kind in _KINDS}

    def watched(self) -> Iterator[tuple[Kind[Owned, Controller], Cache[Owned, Controller]]]:
        """What is to be watched, and where it is kept."""
        return ((_KINDS[kind], cache) for kind, cache in self._caches.items())

    def topmost(self, namespace: str, owner: str) -> str:
        """The topmost owner above and including one."""
        for _ in range(_MAX_DEPTH):
            kind = owner.partition("/")[0]
            found = self._caches[kind].items.get(Owned(namespace, owner)) if kind in _FOLLOWED else None
            if found is None or found.above is None:
                break
            owner = found.above
        return owner

    def learn(self, body: bytes) -> None:
        """Put a Deployment that was read into the cache, unless it has gone in the meantime."""
        one, cache = decode_deployment(body), self._caches[DEPLOYMENT]
        if one.value is not None and one.key in cache.items:
            cache.put(one)

    def mark(self, scale: Scale, at: datetime) -> None:
        """Let a Deployment that was scaled at this time count as such until the watch says so: without it nothing would
        show that its surge has begun, and the next one would not be counted against the budgets."""
        owned, cache = Owned(*scale.workload), self._caches[DEPLOYMENT]
        known = cache.items.get(owned)
        # a newer state shows the scale itself, and that it may have been followed since
        if known is None or known.workload is None or known.workload.resource_version != scale.resource_version:
            return
        by = Ask(scale.kind, at)
        marked = replace(known, workload=replace(known.workload, replicas=scale.replicas, scaled=by, settled=False))
        cache.items[owned] = marked
        self._accept(owned, known, marked)

    def _accept(self, owned: Owned, old: Controller | None, new: Controller | None) -> Controller | None:
        before, now = (one.workload if one is not None else None for one in (old, new))
        ref = WorkloadRef(*owned)
        if now is None:
            self.workloads.pop(ref, None)
        else:
            self.workloads[ref] = now
        if new is not None and new.above is not None and (old is None or old.above != new.above):
            self._owned(owned, self.topmost(owned.namespace, new.above))
        if before is not None and now is not None and (before.replicas, before.scaled) != (now.replicas, now.scaled):
            self._scaled(ref)
        return new
