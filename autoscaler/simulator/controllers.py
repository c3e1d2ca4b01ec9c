"""The workload controllers of a simulated cluster: a StatefulSet makes its pods again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial

from autoscaler.core.model import Pod, PodRef
from autoscaler.simulator.scheduler import Scheduler
from autoscaler.simulator.state import State


class Controllers:
    """What replaces pods that are gone."""

    def __init__(self, state: State, scheduler: Scheduler) -> None:
        self._state, self._scheduler = state, scheduler
        self._templates: dict[PodRef, Pod] = {}

    def adopt(self, pod: Pod) -> None:
        """Whenever this pod is gone, it comes back as it is now, if it belongs to a StatefulSet."""
        self._templates[pod.ref] = pod

    def watch(self, pod: Pod | None) -> None:
        """Replace what is gone."""
        if pod is not None and pod.ref not in self._state.pods:
            self._state.later(timedelta(0), partial(self._replace, pod))

    def _replace(self, gone: Pod) -> None:
        template = self._templates[gone.ref]
        if gone.ref in self._state.pods or not (template.workload or "").startswith("StatefulSet/"):
            return
        name, _, incarnation = gone.uid.partition("#")
        again = replace(template, uid=f"{name}#{int(incarnation or 1) + 1}", node=None, phase="Pending")
        self._state.put(replace(again, containers=tuple(replace(c, running=False) for c in again.containers)))
        self._scheduler.place(again.ref, again.uid, gone.node)
