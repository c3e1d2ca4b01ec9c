"""The checks of `doctor` that look at the API server, and at the policies."""

from __future__ import annotations

from collections.abc import Iterable

from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.credentials import Credentials
from autoscaler.adapters.kubernetes.probe import Probe
from autoscaler.adapters.prometheus.thread import in_thread
from autoscaler.cli.checkup import ANSWER_S, Blocked, Known, Step, need
from autoscaler.cli.wiring import credentials_of, lease_namespace_of
from autoscaler.core.policy import Config
from autoscaler.diagnosis import cluster, selection
from autoscaler.diagnosis.findings import Check, Finding, Status
from autoscaler.diagnosis.rights import ROLES
from autoscaler.plugins import Catalog, discover
from autoscaler.policystore import PolicySet, read_policies
from autoscaler.settings import Settings


class KubernetesChecks:
    """Fills in `known` as far as the cluster and the policies tell."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._credentials: Credentials | None = None

    def steps(self) -> tuple[Step, ...]:
        """In the order in which they need each other."""
        return (
            Step(Check.CREDENTIALS, self._identity),
            Step(Check.SERVER, self._server),
            Step(Check.POLICIES, self._policies),
            Step(Check.PERMISSIONS, self._permissions),
            Step(Check.PODS, self._pods),
            Step(Check.RESIZE, self._resize),
            Step(Check.NODES, self._nodes),
        )

    def _probe(self) -> Probe:
        need(self._known.user, Check.SERVER)
        return Probe(need(self._known.connection, Check.CREDENTIALS), ANSWER_S)

    async def _identity(self) -> Iterable[Finding]:
        self._credentials = credentials_of(self._known.settings)
        connection = await Connection.open(self._credentials)
        self._known.closing.push_async_callback(connection.close)
        self._known.connection = connection
        return [Finding(Check.CREDENTIALS, Status.OK, self._credentials.source)]

    async def _server(self) -> Iterable[Finding]:
        found = await Probe(need(self._known.connection, Check.CREDENTIALS), ANSWER_S).server()
        self._known.user = found.user
        return cluster.server(found)

    async def _policies(self) -> Iterable[Finding]:
        settings = self._known.settings
        catalog, read = await in_thread(_read, settings)
        self._known.config = Config(read.policies, frozenset(settings.namespaces))
        return selection.policies(read.policies, map(str, read.warnings), catalog.problems)

    async def _permissions(self) -> Iterable[Finding]:
        probe, settings = self._probe(), self._known.settings
        namespace = lease_namespace_of(settings, need(self._credentials, Check.CREDENTIALS))
        answers = await probe.may((right for role in ROLES for right in role.rights), namespace)
        config = self._known.config
        return cluster.permissions(
            answers,
            () if config is None else config.policies,
            user=self._known.user or "",
            leader_elect=settings.leader_elect,
        )

    async def _pods(self) -> Iterable[Finding]:
        config = need(self._known.config, Check.POLICIES)
        found = await self._probe().pods()
        chosen = self._known.selection = selection.select(found.pods.values(), config)
        return selection.pods(chosen, config.policies, found.problems)

    async def _resize(self) -> Iterable[Finding]:
        probe = self._probe()
        config = need(self._known.config, Check.POLICIES)
        pod = selection.trial(need(self._known.selection, Check.PODS), config.policies)
        if pod is None:
            raise Blocked("no policy selects a running pod that could be sized now")
        return [cluster.resize(pod.ref, await probe.try_resize(pod))]

    async def _nodes(self) -> Iterable[Finding]:
        found = self._known.nodes = await self._probe().nodes()
        chosen = self._known.selection
        return cluster.nodes(found, frozenset() if chosen is None else chosen.nodes)


def _read(settings: Settings) -> tuple[Catalog, PolicySet]:
    catalog = discover()
    return catalog, read_policies(settings.policies, catalog)
