"""A cluster that is looked at and left alone."""

from __future__ import annotations

from autoscaler.core.actions import Outcome, OutcomeKind, Resize
from autoscaler.core.model import ClusterSnapshot
from autoscaler.ports import Cluster


class DryRunCluster:
    """Observes through another cluster; `perform` reports and sends nothing."""

    def __init__(self, inner: Cluster) -> None:
        self._inner = inner

    async def observe(self) -> ClusterSnapshot:
        return await self._inner.observe()

    async def perform(self, action: Resize) -> Outcome:
        return Outcome(OutcomeKind.REPORTED, f"dry run: the resize of {action.pod} was not sent")
