"""What the API server's answer to a resize means: HTTP status and body to an `Outcome`, by table. Pure.

Of evictions and scales: evictions.py.

Texts and causes: read off API servers 1.35 to 1.37. Causes that the server names itself (`details.causes[].reason`)
keep its word; where there is only text, the cause is a word of this table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from autoscaler.adapters.kubernetes import schema
from autoscaler.core.actions import Outcome, OutcomeKind, Resize
from autoscaler.core.model import Pod, Resource, ResourceList, Resources

_MAX_TEXT = 600  # an admission webhook or a proxy may answer with a whole page


class _Cause(msgspec.Struct, gc=False):
    reason: str = ""
    field: str = ""
    message: str = ""


class Details(msgspec.Struct, gc=False, rename="camel"):
    """`meta/v1.StatusDetails`."""

    causes: list[_Cause] | None = None
    retry_after_seconds: float | None = None
    name: str = ""


class Status(msgspec.Struct, gc=False):
    """`meta/v1.Status`: how the API server explains a refusal."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: Details | None = None


_statuses = msgspec.json.Decoder(Status)


@dataclass(frozen=True, slots=True)
class _Row:
    """Answers with this code whose text or cause matches the pattern. `wait_s`: it passes, ask again after that."""

    code: int
    pattern: re.Pattern[str]
    kind: OutcomeKind
    cause: str
    remedy: str = ""
    wait_s: float | None = None


def _row(code: int, pattern: str, kind: OutcomeKind, cause: str, remedy: str = "", wait_s: float | None = None) -> _Row:
    return _Row(code, re.compile(pattern), kind, cause, remedy, wait_s)


_REFUSED = OutcomeKind.REFUSED
_TABLE = (
    # causes that the server names
    _row(403, r"^NodeCapacity$", _REFUSED, "NodeCapacity", "lower maxAllowed, or run the pod on a larger node"),
    _row(403, r"^UnsupportedPlatform$", _REFUSED, "UnsupportedPlatform", "only pods on Linux nodes can be resized"),
    # texts
    _row(403, r"pod update requires features .* not available on node", _REFUSED, "NodeFeatures", "upgrade the node"),
    _row(403, r"exceeded quota: |must specify (requests|limits)\.", _REFUSED, "ResourceQuota", "raise the quota"),
    _row(
        403,
        r"(minimum|maximum) (cpu|memory) usage per |limit to request ratio per ",
        _REFUSED,
        "LimitRange",
        "fit minAllowed and maxAllowed to the namespace's LimitRange; it is checked for every container of the pod",
    ),
    _row(403, r"not yet ready to handle request|node \S+ not found|failed to get node", _REFUSED, "NotReady", "", 10.0),
    # a request above its limit also changes the class: the first of the two says what is wrong
    _row(422, r"must be less than or equal to (cpu|memory) limit", _REFUSED, "RequestAboveLimit"),
    _row(422, r"Pod QOS Class may not change", _REFUSED, "QoSClass"),
    _row(
        422,
        r"node without support for resize",
        _REFUSED,
        "ResizeUnsupported",
        "upgrade the node's kubelet to Kubernetes 1.33 or newer",
    ),
    _row(422, r"static pods cannot be resized", _REFUSED, "StaticPod"),
    _row(422, r"windows pods cannot be resized", _REFUSED, "UnsupportedPlatform"),
    _row(
        422,
        r"(memory limits cannot be (decreased|added) unless|only cpu and memory resources|non-sidecar init containers)",
        _REFUSED,
        "Unsupported",
        "the API server's version does not allow this change; newer ones may",
    ),
    _row(422, r"resource (requests|limits) cannot be removed", _REFUSED, "Removed"),
)
_ANY_CODE = (  # a site may choose the code of its policies
    _row(0, r"ValidatingAdmissionPolicy '", _REFUSED, "AdmissionPolicy"),
    _row(0, r"admission webhook \"[^\"]*\" denied the request", _REFUSED, "AdmissionWebhook"),
)
_BY_CODE = {
    400: (_REFUSED, "BadRequest"),
    401: (OutcomeKind.FORBIDDEN, "Unauthorized"),
    403: (_REFUSED, "Forbidden"),
    404: (OutcomeKind.GONE, ""),
    409: (OutcomeKind.CONFLICT, ""),
    422: (_REFUSED, "Invalid"),
    429: (OutcomeKind.THROTTLED, ""),
}
_CANNOT = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
)


GONE = Outcome(OutcomeKind.GONE, "the pod is no longer there")


def replaced(pod: Pod) -> Outcome:
    """The outcome where the name belongs to this pod by now."""
    return Outcome(OutcomeKind.GONE, f"the pod was replaced by another of the same name (uid {pod.uid})")


def read_status(body: bytes) -> Status:
    """The Status in a body; for anything else one whose message is the beginning of the text, on one line."""
    try:
        status = _statuses.decode(body)
        if status.kind == "Status":
            return status
    except schema.UNREADABLE:
        pass
    return Status(message=_cut(" ".join(body.decode(errors="replace").split())))


def missing_rule(message: str, folder: str = "rbac/base") -> str | None:
    """The rule that a 403 says is missing, as one would write it in a role; None if it is another kind of 403.

    `folder`: which capability has it.
    """
    match = _CANNOT.search(message)
    if match is None:
        return None
    rule = f'apiGroups: ["{match["group"]}"], resources: [{match["resource"]}], verbs: [{match["verb"]}]'
    return f"{match['user']} lacks the rule {{{rule}}}; the folder {folder} has it: kubectl apply -k {folder}"


def refusal(code: int, body: bytes, retry_after: str | None = None) -> Outcome:
    """The outcome of a resize that was answered with anything but 2xx. `retry_after`: the header, if there is one."""
    status = read_status(body)
    details = status.details or Details()
    if code == 422 and any(cause.field == "metadata.uid" for cause in details.causes or ()):
        return Outcome(OutcomeKind.GONE, "the pod was replaced by another of the same name")
    if code == 404 and not details.name:
        message = _cut(status.message) or "HTTP 404"
        return Outcome(_REFUSED, f"{message}: pods/resize needs a Kubernetes 1.33 or newer API server", "NoResize")
    return explained(code, status, retry_after, folder="rbac/base", table=_TABLE)


def explained(
    code: int, status: Status, retry_after: str | None, *, folder: str, table: tuple[_Row, ...] = ()
) -> Outcome:
    """What every call has in common. `folder`: which capability has the rule that may be missing."""
    message = _cut(status.message) or f"HTTP {code}"
    details = status.details or Details()
    if code >= 500 or code == 408:
        return Outcome(OutcomeKind.UNKNOWN, f"HTTP {code}: {message}", status.reason or f"HTTP {code}")
    if code == 403 and not details.causes and (rule := missing_rule(status.message, folder)):
        return Outcome(OutcomeKind.FORBIDDEN, rule, "MissingRule")
    for row in (*table, *_ANY_CODE):
        if row.code in (0, code) and any(row.pattern.search(text) for text in _texts(status, details)):
            return Outcome(row.kind, f"{message}; {row.remedy}" if row.remedy else message, row.cause, row.wait_s)
    kind, cause = _BY_CODE.get(code, (_REFUSED, status.reason))
    wait_s = seconds(retry_after, details) if kind is OutcomeKind.THROTTLED else None
    return Outcome(kind, message, cause, wait_s)


def _texts(status: Status, details: Details) -> Iterator[str]:
    for cause in details.causes or ():
        yield cause.reason
        yield cause.message
    yield status.message


def seconds(header: str | None, details: Details) -> float | None:
    """After how many seconds to ask again: the header Retry-After, or else `details.retryAfterSeconds`."""
    if header is not None and header.isdecimal():
        return float(header)
    return details.retry_after_seconds


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + " …"


def differences(before: Pod, resize: Resize, after: Pod) -> tuple[str, ...]:
    """Where the stored spec is not `before` with the resize applied, field by field. By value: 2 equals 2000m.

    Admission may add fields that nobody asked for, on containers that nobody named (LimitRange defaults).
    """
    stored = {container.name: container.spec for container in after.containers}
    asked = {container.name: container.change for container in resize.containers}
    found: list[str] = []
    for container in before.containers:
        spec = stored.get(container.name)
        if spec is None:
            found.append(f"{container.name}: no longer in the pod")
            continue
        change = asked.get(container.name, Resources())
        sides = (
            ("requests", container.spec.requests, change.requests, spec.requests),
            ("limits", container.spec.limits, change.limits, spec.limits),
        )
        for side, old, wanted, new in sides:
            found.extend(f"{container.name}.{side}.{text}" for text in _amounts(old, wanted, new))
    return tuple(found)


def changes(before: Pod, resize: Resize) -> bool:
    """Whether the resize asks for anything that the pod's spec does not have."""
    return bool(differences(before, resize, before))


def _amounts(old: ResourceList, wanted: ResourceList, new: ResourceList) -> Iterator[str]:
    for resource in Resource:
        asked = wanted.get(resource)
        expected = old.get(resource) if asked is None else asked
        if new.get(resource) != expected:
            had = "before" if asked is None else "asked"
            yield f"{resource}: {_text(resource, new.get(resource))} stored, {_text(resource, expected)} {had}"


def _text(resource: Resource, amount: int | None) -> str:
    return "none" if amount is None else resource.quantity(amount)
