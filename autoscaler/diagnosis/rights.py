"""What each folder of rbac/ grants, and what works without it. A test compares this with the folders."""

from __future__ import annotations

from typing import NamedTuple

LEASE = "bridge-autoscaler"


class Right(NamedTuple):
    """One verb on one resource. `name`: on this object alone; `namespaced`: in the controller's own namespace alone."""

    group: str
    resource: str
    verb: str
    subresource: str = ""
    name: str = ""
    namespaced: bool = False

    @property
    def kind(self) -> str:
        """`pods/resize`, as a role has it."""
        return "/".join(filter(None, (self.resource, self.subresource)))


class Role(NamedTuple):
    """A folder under rbac/. `without`: what happens when something of it is missing."""

    folder: str
    without: str
    rights: tuple[Right, ...]


def _read(group: str, *resources: str) -> tuple[Right, ...]:
    return tuple(Right(group, resource, verb) for resource in resources for verb in ("list", "watch"))


BASE = Role(
    "rbac/base",
    "nothing is sized",
    (
        Right("", "pods", "get"),
        *_read("", "pods", "nodes"),
        *_read("apps", "deployments", "replicasets", "statefulsets"),
        *_read("batch", "jobs"),
        Right("", "pods", "patch", "resize"),
    ),
)
LEADER = Role(
    "rbac/leader",
    "`run` ends with a message unless it is told --leader-elect=false",
    (
        Right("coordination.k8s.io", "leases", "get", name=LEASE, namespaced=True),
        Right("coordination.k8s.io", "leases", "update", name=LEASE, namespaced=True),
        Right("coordination.k8s.io", "leases", "create", namespaced=True),
    ),
)
EVENTS = Role("rbac/events", "no events are put on pods", (Right("events.k8s.io", "events", "create"),))
AUTOSCALERS = Role(
    "rbac/autoscalers",
    "pods are sized as if no HorizontalPodAutoscaler or VerticalPodAutoscaler were there",
    (
        *_read("autoscaling", "horizontalpodautoscalers"),
        *_read("autoscaling.k8s.io", "verticalpodautoscalers"),
    ),
)
MIGRATE = Role(
    "rbac/migrate",
    "no pod is ever evicted",
    (
        Right("", "pods", "create", "eviction"),
        *_read("policy", "poddisruptionbudgets"),
        *_read("", "persistentvolumeclaims", "persistentvolumes"),
        *_read("storage.k8s.io", "csinodes", "storageclasses"),
    ),
)
SURGE = Role(
    "rbac/surge", "no Deployment gets a pod more for a move", (Right("apps", "deployments", "patch", "scale"),)
)

ROLES = (BASE, LEADER, EVENTS, AUTOSCALERS, MIGRATE, SURGE)
