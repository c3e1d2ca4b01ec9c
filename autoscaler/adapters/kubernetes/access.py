"""Questions about permissions, which everyone who has logged in may ask (ClusterRole system:basic-user)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from autoscaler.adapters.kubernetes import schema_extras
from autoscaler.adapters.kubernetes.connection import Connection
from autoscaler.adapters.kubernetes.errors import KubernetesError
from autoscaler.adapters.kubernetes.schema import UNREADABLE

_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"  # Kubernetes 1.28 or newer
_reviews = msgspec.json.Decoder(schema_extras.AccessReview)
_subjects = msgspec.json.Decoder(schema_extras.SubjectReview)


async def may(connection: Connection, right: Mapping[str, str], *, within_s: float = 10.0) -> bool | None:
    """Whether this user may do that (SelfSubjectAccessReview); None if there is no answer.

    `right`: `resourceAttributes` of the review; without `namespace` in all of them.
    """
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": right},
    }
    try:
        answer = await connection.request("POST", _REVIEW, body=body, within_s=within_s)
        return _reviews.decode(answer.body).status.allowed if answer.status == 201 else None
    except (KubernetesError, *UNREADABLE):
        return None


async def whoami(connection: Connection, *, within_s: float = 10.0) -> str:
    """The name of this user as the API server has it; empty if it does not tell."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await connection.request("POST", _WHOAMI, body=body, within_s=within_s)
        return _subjects.decode(answer.body).status.user_info.username if answer.status == 201 else ""
    except (KubernetesError, *UNREADABLE):
        return ""
