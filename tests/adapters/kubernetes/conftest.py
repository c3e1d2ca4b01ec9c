from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

import pytest_asyncio

from autoscaler.adapters.kubernetes.backoff import Backoff
from autoscaler.adapters.kubernetes.cluster import KubernetesCluster
from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.credentials import Kubeconfig
from autoscaler.adapters.kubernetes.watch import Timing
from autoscaler.core.model import PodRef
from tests.adapters.kubernetes.api_server import ApiServer

QUICK = Timing(silence_s=0.5, settled_s=0.05, backoff=Backoff(first_s=0.02, limit_s=0.1))


class Build(Protocol):
    async def __call__(
        self,
        *,
        changed: Callable[[PodRef], None] | None = None,
        server_dry_run: bool = False,
        watch: bool = True,
        max_silence_s: float = 60.0,
        timing: Timing = QUICK,
    ) -> KubernetesCluster: ...


def write_kubeconfig(folder: Path, server: str, user: str = "token: first", **cluster: str) -> Path:
    """A kubeconfig with one context, `here`."""
    path = folder / "kubeconfig"
    extra = "".join(f", {key}: {value}" for key, value in cluster.items())
    path.write_text(
        "current-context: here\n"
        "contexts: [{name: here, context: {cluster: c, user: u}}]\n"
        f"clusters: [{{name: c, cluster: {{server: '{server}'{extra}}}}}]\n"
        f"users: [{{name: u, user: {{{user}}}}}]\n"
    )
    return path


@pytest_asyncio.fixture
async def api() -> AsyncIterator[ApiServer]:
    server = ApiServer()
    await server.start()
    yield server
    await server.stop()


@pytest_asyncio.fixture
async def connection(api: ApiServer, tmp_path: Path) -> AsyncIterator[Connection]:
    opened = await Connection.open(Kubeconfig((write_kubeconfig(tmp_path, api.url),)))
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def build(connection: Connection) -> AsyncIterator[Build]:
    """Starts a cluster adapter against the API server; stopped at the end."""
    async with AsyncExitStack() as stack:

        async def start(
            *,
            changed: Callable[[PodRef], None] | None = None,
            server_dry_run: bool = False,
            watch: bool = True,
            max_silence_s: float = 60.0,
            timing: Timing = QUICK,
        ) -> KubernetesCluster:
            cluster = KubernetesCluster(
                connection,
                changed=changed,
                server_dry_run=server_dry_run,
                max_silence_s=max_silence_s,
                act_s=0.3,
                timing=timing,
            )
            stack.push_async_callback(cluster.close)
            await cluster.start(watch=watch)
            return cluster

        yield start
