"""`run`: the controller."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from autoscaler import __version__
from autoscaler.cli.options import common, flag, given

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from autoscaler.cli.wiring import Parts, Wiring
    from autoscaler.core.policy import Config
    from autoscaler.loop import Loop
    from autoscaler.ports import Journal, Leadership
    from autoscaler.settings import Settings


@click.command(
    epilog="Exit status: 0 after SIGTERM, or after the turn of --once; 130 after SIGINT; 1 if it cannot start, or if "
    "--once could not read the cluster or Prometheus. "
    "A second signal ends it at once."
)
@common
@flag("--interval", metavar="DURATION", text="Time between two full turns. Default: 60s.")
@click.option("--once", is_flag=True, help="Measure, take one turn, and exit.")
@flag("--metrics-address", metavar="HOST:PORT", text="Where /metrics, /healthz, /readyz are. Default: 127.0.0.1:8080.")
@flag(
    "--leader-elect",
    is_flag=False,
    flag_value="true",
    metavar="BOOL",
    text="Act only while holding the Lease. Default: true; not with --once.",
)
@flag("--lease-namespace", metavar="NAME", text="Namespace of the Lease. Default: the pod's, else bridge-autoscaler.")
@click.pass_obj
def run(wiring: Wiring | None, /, once: bool, **flags: Any) -> int:
    """Run the controller: resize pods as the policies say, until SIGTERM.

    Policies are in mode Recommend unless they say otherwise: then this changes nothing.
    Of several that run against one cluster, one acts, and the others stand by.

    \b
    Examples:
      bridge-autoscaler run --policies /etc/bridge-autoscaler/policies
      bridge-autoscaler run --kubeconfig ~/.kube/config --prometheus-url http://localhost:9090 \\
          --policies policies/ --once
      BRIDGE_AUTOSCALER_INTERVAL=10s bridge-autoscaler run --policies policies/
    """
    # the imports take a moment, and the first process of a container is not ended by a signal that it does not handle
    signal.signal(signal.SIGTERM, _leave)
    from autoscaler.adapters.telemetry import logs
    from autoscaler.cli.wiring import RealWiring, explained

    debug = flags["debug"]
    wiring = wiring or RealWiring()
    with explained():
        settings = wiring.settings(given(flags))
        logs.configure(settings.log_format, sys.stderr, debug=debug)
        return asyncio.run(_Controller(wiring, settings).run(once=once))


def _leave(number: int, frame: object) -> None:
    sys.exit(0)


class _Controller:
    """One run of the controller, from the first signal handler to the exit status."""

    def __init__(self, wiring: Wiring, settings: Settings) -> None:
        from autoscaler.adapters.telemetry.health import Readiness
        from autoscaler.adapters.telemetry.logs import logger

        self._wiring = wiring
        self._settings = settings
        self._logger = logger()
        self._readiness = Readiness()
        self._loop: Loop | None = None
        self._parts: Parts | None = None
        self._end: Callable[[], object] = lambda: None
        self._signal: signal.Signals | None = None

    async def run(self, *, once: bool) -> int:
        task = asyncio.current_task()
        assert task is not None
        self._end = task.cancel  # until there is a loop that can end after the action in hand
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)
        try:
            return await (self._once() if once else self._forever())
        except asyncio.CancelledError:
            if self._signal is None:
                raise
            return self._status()

    def _on_signal(self, number: signal.Signals) -> None:
        self._signal = number
        running = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            running.remove_signal_handler(each)
            # a plug-in that never returns could not be ended otherwise
            signal.signal(each, signal.SIG_DFL)
        self._end()

    def _status(self) -> int:
        from autoscaler.cli import INTERRUPTED

        return INTERRUPTED if self._signal is signal.SIGINT else 0

    async def _once(self) -> int:
        from autoscaler.cli.survey import look_at_sessions
        from autoscaler.cli.wiring import measuring_log
        from autoscaler.core.decide import decide, select
        from autoscaler.core.reasons import Reason
        from autoscaler.ports import Wake, WakeKind

        async with self._wiring.open(self._settings, watching=True, acting=True) as parts:
            config = parts.config()
            parts.metrics.follow(select(await parts.cluster.observe(), config))
            measurements = await parts.metrics.measure_once(measuring_log())
            if any(policy.fallback.migration.drain is not None for policy in config.policies):
                # whose sessions matter is known once it is decided: they are looked at before the turn that counts
                await look_at_sessions(parts, decide(await parts.cluster.observe(), measurements, config), telling=True)
            loop = self._make_loop(parts, self._registry())
            self._end = loop.stop
            turn = await loop.turn(Wake(WakeKind.TICK))
        # a job that could decide nothing has failed
        blind = turn.plan is None or any(p.reason == Reason.METRICS_UNAVAILABLE for p in turn.plan.problems)
        return self._status() or int(blind)

    async def _forever(self) -> int:
        from autoscaler.adapters.telemetry.server import serving

        registry = self._registry()
        async with (
            serving(*self._settings.metrics_address, registry, self._unhealthy, self._readiness.unready) as port,
            self._wiring.open(self._settings, watching=True, acting=True) as parts,
            self._wiring.electing(self._settings, self._on_leader, self._on_election_failure) as leadership,
        ):
            loop = self._make_loop(parts, registry, leadership)
            names = [policy.name for policy in parts.config().policies]
            self._logger.info("start", version=__version__, metrics_port=port, policies=names)

            def end() -> None:
                loop.stop()
                parts.clock.stop()

            self._end = end
            try:
                async with asyncio.TaskGroup() as tasks:
                    beside = [tasks.create_task(one.run()) for one in (parts.metrics, parts.sessions, leadership)]
                    await loop.run()
                    for task in beside:
                        task.cancel()
            except ExceptionGroup as group:
                # nobody is there to start it again with --debug
                self._logger.error("crash", exc_info=group)
                raise group.exceptions[0] from None
        self._logger.info("stop", signal=self._signal.name if self._signal else None)
        return self._status()

    def _on_leader(self, leading: bool, detail: str) -> None:
        self._logger.info("leader", leading=leading, detail=detail)
        if leading and self._parts is not None:  # else the first turn is still to come
            self._parts.clock.tick()

    def _on_election_failure(self, detail: str) -> None:
        self._logger.warning("election", detail=detail)

    def _registry(self) -> CollectorRegistry:
        from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

        registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        return registry

    def _make_loop(self, parts: Parts, registry: CollectorRegistry, leadership: Leadership | None = None) -> Loop:
        from autoscaler.adapters.telemetry.journal import Journals, LogJournal, MetricsJournal
        from autoscaler.adapters.telemetry.migrations import Migrations
        from autoscaler.adapters.telemetry.traffic import TrafficMetrics
        from autoscaler.adapters.telemetry.unfinished import UnfinishedResizes
        from autoscaler.loop import ALONE, Loop

        leadership = leadership or ALONE
        metrics = MetricsJournal(registry, leadership.leading)
        unfinished, migrations = UnfinishedResizes(), Migrations()
        registry.register(unfinished)
        registry.register(migrations)
        registry.register(TrafficMetrics(parts.traffic))
        journals: list[Journal] = [LogJournal(self._logger), metrics, unfinished, migrations, self._readiness]
        if parts.events is not None:
            registry.register(parts.events)
            journals.append(parts.events)
        self._warn(parts)
        self._parts = parts
        self._loop = Loop(
            parts.cluster,
            parts.metrics,
            parts.clock,
            Journals(*journals),
            lambda: self._reloaded(parts),
            leadership,
            parts.sessions,
        )
        return self._loop

    def _reloaded(self, parts: Parts) -> Config:
        """The policies as the files have them now; the last good ones where the files are bad."""
        if (reload := parts.policies.reload_if_changed()) is not None:
            if reload.faults:
                self._logger.error("policies", result=str(reload), faults=[str(fault) for fault in reload.faults])
            else:
                self._logger.info("policies", result=str(reload))
                self._warn(parts)
        return parts.config()

    def _warn(self, parts: Parts) -> None:
        for warning in parts.warnings():
            self._logger.warning("policy", detail=warning)

    def _unhealthy(self) -> str | None:
        from autoscaler.adapters.telemetry.health import stuck

        if self._loop is None or self._parts is None:
            return None
        now_s = time.monotonic()
        return stuck("turn", self._loop.busy_since, now_s) or stuck("fold", self._parts.metrics.busy_since, now_s)
