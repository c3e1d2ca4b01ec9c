"""The demo's live table for a terminal of 80 columns or more."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from autoscaler.cli.demo_story import Account, Story
from autoscaler.core.model import ContainerKind, Pod, QoSClass, Resource
from autoscaler.core.resize import Phase, phase_of
from autoscaler.ports import Turn

_REDRAW_S = 0.1
_EVENTS = 8
_STYLES = {Phase.SETTLED: "green", Phase.DEFERRED: "yellow", Phase.INFEASIBLE: "red", Phase.ERROR: "red"}
_SHORT = {QoSClass.GUARANTEED: "Guar.", QoSClass.BURSTABLE: "Burst.", QoSClass.BEST_EFFORT: "BestEff."}

UsageOf = Callable[[Pod], tuple[float, float]]
"""A pod's usage at this moment: cores and bytes."""


class LiveTable:
    """`ports.Journal` that draws. Use it as a context manager around the loop."""

    def __init__(self, story: Story, console: Console, usage_of: UsageOf) -> None:
        self._story = story
        self._usage_of = usage_of
        self._events: deque[str] = deque(maxlen=_EVENTS)
        self._drawn_at = 0.0
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.update(self._drawing())
        self._live.stop()

    def record(self, turn: Turn) -> None:
        """Take note of a turn, and draw it unless that was done a moment ago."""
        self._events.extend(self._story.tell(turn))
        if time.monotonic() - self._drawn_at >= _REDRAW_S:
            self._drawn_at = time.monotonic()
            self._live.update(self._drawing(), refresh=True)

    def _drawing(self) -> Group:
        now = self._story.now
        title = Text(f"virtual time {now:%H:%M}" if now is not None else "starting", style="bold")
        events = [Text(event, style="dim", no_wrap=True, overflow="ellipsis") for event in self._events]
        return Group(title, _table(self._story.accounts.values(), self._usage_of), *events)


def _table(accounts: Iterable[Account], usage_of: UsageOf) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="underline", expand=True)
    for name in ("pod", "qos"):
        table.add_column(name, no_wrap=True)
    for name in ("cpu r/l", "memory r/l", "in use"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("phase", no_wrap=True)
    table.add_column("reason", no_wrap=True, overflow="ellipsis", ratio=1)
    for account in sorted(accounts, key=lambda account: account.pod.ref):
        pod, phase = account.pod, phase_of(account.pod).phase
        cpu, memory = usage_of(pod)
        table.add_row(
            pod.name,
            _SHORT[pod.qos_class],
            _sides(pod, Resource.CPU),
            _sides(pod, Resource.MEMORY),
            f"{cpu:.2f} {_short(Resource.MEMORY, memory)}",
            Text(phase, style=_STYLES.get(phase, "cyan")),
            account.decision.reason.value,
        )
    return table


def _sides(pod: Pod, resource: Resource) -> str:
    """Requests and limits in force of all that runs in the pod."""
    running = [c.in_force for c in pod.containers if c.kind is not ContainerKind.INIT]
    request = sum(resources.requests.get(resource) or 0 for resources in running)
    limit = sum(resources.limits.get(resource) or 0 for resources in running)
    if not request and not limit:
        return "-"
    unit = 1000 if resource is Resource.CPU else 1
    return f"{_short(resource, request / unit)}/{_short(resource, limit / unit)}"


def _short(resource: Resource, amount: float) -> str:
    """Cores with two decimals, bytes in GiB with one."""
    return f"{amount:.2f}" if resource is Resource.CPU else f"{amount / (1 << 30):.1f}Gi"
