"""Builds the parts behind the ports from settings. The only place that knows all of them."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import click

from autoscaler.adapters.clock import RealClock
from autoscaler.adapters.kubernetes.cluster import KubernetesCluster
from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.credentials import Credentials, InCluster, find_credentials
from autoscaler.adapters.kubernetes.errors import KubernetesError
from autoscaler.adapters.kubernetes.lease import Election, own_identity
from autoscaler.adapters.prometheus.access import Access
from autoscaler.adapters.prometheus.answers import MetricsError
from autoscaler.adapters.prometheus.session import PrometheusApi
from autoscaler.adapters.prometheus.source import PrometheusMetrics
from autoscaler.adapters.prometheus.traffic import Traffic
from autoscaler.adapters.sessions.notices import Told
from autoscaler.adapters.sessions.query import NOT_SAID, says_cluster
from autoscaler.adapters.sessions.source import PodSessions
from autoscaler.adapters.telemetry.server import CannotListen
from autoscaler.cli.access import access_of
from autoscaler.cli.progress import MeasuringLog
from autoscaler.core.history import Measurements
from autoscaler.core.policy import Config
from autoscaler.loop import Alone
from autoscaler.plugins import Catalog, discover
from autoscaler.policystore import PolicyStore
from autoscaler.ports import Clock, Cluster, Leadership, Metrics, Sessions, Unavailable
from autoscaler.settings import Settings, load_settings
from autoscaler.strictyaml import Fault, Refused

if TYPE_CHECKING:
    from autoscaler.adapters.kubernetes.events import EventJournal
    from autoscaler.core.model import Problem

LEASE_NAMESPACE = "bridge-autoscaler"
"""Where manifests/ puts the controller: a `run` elsewhere meets it there."""


class Measuring(Metrics, Protocol):
    """Metrics that can be told to measure."""

    @property
    def busy_since(self) -> float | None:
        """Monotonic seconds at which the oldest running fold began, None if none is running."""

    async def measure_once(self, progress: Callable[[int, int, int], None] | None = None) -> Measurements:
        """Measure everything that is missing now."""

    async def run(self) -> None:
        """Measure for ever."""


class Looking(Sessions, Protocol):
    """Sessions that can be told to look."""

    async def look_once(self) -> None:
        """Look at every pod that is followed, now."""

    async def run(self) -> None:
        """Look for ever."""


class Stoppable(Clock, Protocol):
    """A clock that can be told to stop, and to wake."""

    def tick(self) -> None:
        """Ask for a full turn at once."""

    def stop(self) -> None:
        """From now on every wait ends at once with STOP."""


class Contending(Leadership, Protocol):
    """Leadership that has to be striven for."""

    async def run(self) -> None:
        """Strive for ever."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a command works with, open and ready."""

    settings: Settings
    catalog: Catalog
    policies: PolicyStore
    cluster: Cluster
    metrics: Measuring
    sessions: Looking
    clock: Stoppable
    events: EventJournal | None = None  # only where something may be written
    traffic: Traffic = field(default_factory=Traffic)  # of metrics and sessions with Prometheus

    def config(self) -> Config:
        """What decisions depend on, by the policies in force."""
        return Config(
            policies=self.policies.current.policies,
            namespaces=frozenset(self.settings.namespaces),
            budgets=self.settings.budgets.core(),
        )

    def warnings(self) -> list[str]:
        """What in the policies has no effect, and plug-ins that cannot be used."""
        broken = [f"{p.source}: {p.reason}: {p.detail}" for p in self.catalog.problems]
        return [*map(str, self.policies.current.warnings), *self._of_no_cluster(), *broken]

    def _of_no_cluster(self) -> Iterator[str]:
        """Queries of policies that pods of other clusters would answer, where there are some."""
        chosen = self.settings.prometheus.layout.layout().cluster
        for policy in self.policies.current.policies:
            drain = policy.fallback.migration.drain
            asked = {f"metrics.signals.{name}.query": query for name, query in policy.signals.items()}
            if drain is not None and drain.query is not None:
                asked["fallback.drain.query"] = drain.query
            for key, query in asked.items():
                if not says_cluster(query, chosen):
                    yield f"{policy.source}: spec.{key}: {NOT_SAID}"


class Wiring(Protocol):
    """Where commands get their parts from. Tests put others behind it."""

    def settings(self, flags: Mapping[str, Any]) -> Settings:
        """Settings from the flags that were given, the environment and the settings file. Raises `Refused`."""

    def open(self, settings: Settings, *, watching: bool, acting: bool) -> AbstractAsyncContextManager[Parts]:
        """Connect and read everything once. Raises what `explained` explains.

        `watching`: keep the state of the cluster current. `acting`: what is performed is done; otherwise it goes to
        the API server with dryRun=All, which stores nothing.
        """

    def electing(
        self, settings: Settings, changed: Callable[[bool, str], None], failed: Callable[[str], None]
    ) -> AbstractAsyncContextManager[Contending]:
        """Who acts. `changed` hears whether this replica does, at the start and at each change, and `failed` why it
        cannot be told. Given up at the end. Raises what `explained` explains.
        """


def relax_garbage_collection() -> None:
    """Collect cycles less often. What lives here is many small values without cycles, which each collection would walk
    through in vain: most of the cost of decoding 5,000 pods, and a tenth of a decision about 10,000."""
    gc.set_threshold(200_000, 50, 100)


class RealWiring:
    """A Kubernetes API server, a Prometheus, and policy files."""

    def settings(self, flags: Mapping[str, Any]) -> Settings:
        values = dict(flags)
        return load_settings(values, values.pop("config", None))

    @asynccontextmanager
    async def open(self, settings: Settings, *, watching: bool, acting: bool) -> AsyncIterator[Parts]:
        relax_garbage_collection()
        catalog = discover()
        policies = PolicyStore(settings.policies, catalog)
        policies.load()
        prometheus = _usable(access_of(settings.prometheus))
        connection = await Connection.open(credentials_of(settings))
        try:
            clock = RealClock(settings.interval, connection.now)
            cluster = KubernetesCluster(connection, changed=clock.changed, server_dry_run=not acting)
            try:
                await cluster.start(watch=watching)
                traffic, layout = Traffic(), settings.prometheus.layout.layout()
                metrics = PrometheusMetrics(
                    prometheus,
                    layout,
                    now=connection.now,
                    first_known=clock.tick,
                    progress=measuring_log(),
                    traffic=traffic,
                    most_past=settings.prometheus.backfill_samples,
                )
                sessions = PodSessions(
                    prometheus,
                    cluster,
                    now=connection.now,
                    of_cluster=lambda: metrics.cluster,
                    changed=clock.changed,
                    warn=_warn,
                    told=_told,
                    chosen=layout.cluster,
                    traffic=traffic,
                )
                events = _events_of(connection) if acting else None
                try:
                    if events is not None:
                        events.start()
                    yield Parts(settings, catalog, policies, cluster, metrics, sessions, clock, events, traffic)
                finally:
                    metrics.close()
                    await sessions.close()
                    if events is not None:
                        await events.close()
            finally:
                await cluster.close()
        finally:
            await connection.close()

    @asynccontextmanager
    async def electing(
        self, settings: Settings, changed: Callable[[bool, str], None], failed: Callable[[str], None]
    ) -> AsyncIterator[Contending]:
        if not settings.leader_elect:
            yield Unchallenged()
            return
        credentials = credentials_of(settings)
        namespace = lease_namespace_of(settings, credentials)
        # a connection of its own: a list of 5,000 pods must not delay a renewal
        connection = await Connection.open(credentials)
        try:
            election = Election(connection, namespace, own_identity(), changed=changed, failed=failed)
            try:
                await election.start()
                yield election
            finally:
                await election.release()
        finally:
            await connection.close()


class Unchallenged(Alone):
    """`Contending` where no other is expected."""

    async def run(self) -> None:
        await asyncio.Event().wait()


def _usable(access: Access) -> Access:
    """Refused now rather than in each turn if a file of it cannot be used."""
    api = PrometheusApi(access)
    try:
        api.check()
    except MetricsError as error:
        raise Refused([Fault(api.address, 0, "", error.text)]) from None
    finally:
        api.close()
    return access


def credentials_of(settings: Settings) -> Credentials:
    """As whom to talk to which API server. Raises `BadConfiguration`."""
    return find_credentials(None if settings.kubeconfig is None else str(settings.kubeconfig), settings.context)


def lease_namespace_of(settings: Settings, credentials: Credentials) -> str:
    """Where the leader's Lease is. Raises `BadConfiguration`."""
    if settings.lease_namespace is not None:
        return settings.lease_namespace
    return credentials.namespace() if isinstance(credentials, InCluster) else LEASE_NAMESPACE


def _events_of(connection: Connection) -> EventJournal:
    # imported here: a plan writes none, and should not wait for what they need
    from autoscaler.adapters.kubernetes.events import EventJournal

    return EventJournal(connection, _warn)


def _warn(problem: Problem) -> None:
    from autoscaler.adapters.telemetry.logs import logger

    logger().warning("problem", source=problem.source, reason=problem.reason, detail=problem.detail)


def measuring_log() -> MeasuringLog:
    """Progress of measuring as log lines, for a controller."""
    from autoscaler.adapters.telemetry.logs import logger

    return MeasuringLog(lambda done, of, samples: logger().info("measuring", done=done, of=of, samples=samples))


def _told(notice: Told) -> None:
    from autoscaler.adapters.telemetry.logs import logger

    pod = notice.pod
    logger().info("drain", namespace=pod.namespace, pod=pod.name, telling=notice.telling, answered=notice.answered)


@contextmanager
def explained() -> Iterator[None]:
    """Errors whose text is ready to be shown end the command with that text and exit status 1.

    What plug-ins print meanwhile goes to stderr: stdout carries the document only.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (Refused, KubernetesError, Unavailable, CannotListen) as error:
        raise click.ClickException(str(error)) from error
