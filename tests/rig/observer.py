"""The product's own view of the rig's API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from autoscaler.adapters.kubernetes.cluster import KubernetesCluster
from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.credentials import Kubeconfig


@asynccontextmanager
async def cluster_of(kubeconfig: Path, *, watch: bool = True, **settings: Any) -> AsyncIterator[KubernetesCluster]:
    """A cluster as the identity in the file sees it. `settings`: of `KubernetesCluster`."""
    connection = await Connection.open(Kubeconfig((kubeconfig,)))
    cluster = KubernetesCluster(connection, **settings)
    try:
        await cluster.start(watch=watch)
        yield cluster
    finally:
        await cluster.close()
        await connection.close()
