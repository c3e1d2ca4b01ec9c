"""Who scaled a Deployment, and when: both in the name of the field manager, as `bridge-autoscaler-surge@<time>`. Pure.

An entry of `managedFields` with subresource `scale` carries no time: the API server loses it on the way from the scale
to its Deployment (k8s.io/apimachinery, managedfields.ScaleHandler.ToParent; seen on 1.37). And it carries
nothing at all where nobody owns `spec.replicas` before, see `is_noted`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from autoscaler.adapters.kubernetes.schema import ManagedFields, Wire
from autoscaler.core.actions import ScaleKind
from autoscaler.core.model import Ask

_TIME = "%Y-%m-%dT%H:%M:%SZ"
_FAR = 9000  # durations can be added to every year before
_KINDS = frozenset(map(str, ScaleKind))
_VERSIONS = frozenset({"apps/v1", "apps/v1beta1", "apps/v1beta2"})


class SpecFields(Wire):
    """`f:spec` of the fields that somebody owns."""

    replicas: dict[str, Any] | None = msgspec.field(default=None, name="f:replicas")


class Fields(Wire):
    """`fieldsV1`, as far as it tells who owns the number of replicas."""

    spec: SpecFields | None = msgspec.field(default=None, name="f:spec")


class Entry(Wire):
    """An entry of `managedFields` with the fields that it is about."""

    manager: str = ""
    operation: str = ""
    api_version: str = ""
    subresource: str = ""
    fields_v1: Fields | None = None

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """By which the API server tells entries apart; of two with the same one it reads the last."""
        return self.manager, self.operation, self.api_version, self.subresource

    @property
    def owns_replicas(self) -> bool:
        """Whether it is about `spec.replicas`."""
        fields = self.fields_v1
        return (
            self.api_version in _VERSIONS
            and fields is not None
            and fields.spec is not None
            and fields.spec.replicas is not None
        )


def manager_at(kind: ScaleKind, at: datetime) -> str:
    """The field manager of a patch that is sent at this moment (aware UTC, whole seconds are kept)."""
    return f"{kind}@{at.astimezone(UTC):{_TIME}}"


def last_scaled(entries: Iterable[ManagedFields | Entry]) -> Ask | None:
    """Whether this program scaled a Deployment last, with the kind of scale as manager, and when.

    An entry goes when somebody else sets the number, in whatever way.
    """
    return next((ask for one in entries if one.subresource == "scale" and (ask := _ask(one.manager))), None)


def _ask(manager: str) -> Ask | None:
    kind, _, at = manager.partition("@")
    if kind not in _KINDS:
        return None
    try:
        moment = datetime.strptime(at, _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
    return Ask(kind, moment) if moment.year < _FAR else None


def is_noted(entries: Iterable[Entry]) -> bool:
    """Whether the API server will note who scales this Deployment.

    It does not if nobody owns `spec.replicas`: after a server-side apply without it, or after a scale to the number
    that it already had (managedfields.skipNonAppliedManager).
    """
    return any(entry.owns_replicas for entry in {entry.identity: entry for entry in entries}.values())
