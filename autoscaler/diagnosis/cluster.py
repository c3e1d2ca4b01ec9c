"""The API server, what it lets this user do, and its nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from autoscaler.core.actions import Outcome, OutcomeKind
from autoscaler.core.model import PodRef
from autoscaler.core.policy import Policy, Strategy
from autoscaler.diagnosis.findings import Check, Finding, Status, failed, listed
from autoscaler.diagnosis.rights import AUTOSCALERS, BASE, EVENTS, LEADER, MIGRATE, ROLES, SURGE, Right, Role

RESIZES_SINCE = 33  # pods/resize; KEP-1287
SHRINKS_SINCE = 34  # memory limits fall without a restart
_SHIPPED = "system:serviceaccount:bridge-autoscaler:bridge-autoscaler"  # whom rbac/ and manifests/ are for
_RESIZING = "InPlacePod"  # what node features about resizing are named


@dataclass(frozen=True, slots=True)
class Server:
    """An API server that answers. `version` as it says, `minor` 37 of 1.37; None: not told.

    `resizes`: whether it serves pods/resize; None: not told. `user`: whom it takes this for, empty if not told.
    """

    address: str
    version: str
    minor: int | None
    resizes: bool | None
    user: str


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node, as far as it matters for what its kubelet can do. `kubelet`: its version, like `v1.37.2`."""

    name: str
    kubelet: str
    minor: int | None
    os: str
    features: frozenset[str] = frozenset()


def server(found: Server) -> Iterator[Finding]:
    """Whether this API server is new enough."""
    who = f", as {found.user}" if found.user else ""
    yield Finding(Check.SERVER, Status.OK, f"Kubernetes {found.version or '(no version)'} at {found.address}{who}")
    if found.minor is None:
        yield Finding(Check.SERVER, Status.UNKNOWN, "its version is not one that can be read", _NEWER)
    elif found.minor < RESIZES_SINCE:
        yield Finding(Check.SERVER, Status.ERROR, f"1.{found.minor} cannot resize pods in place", _NEWER)
    elif found.minor < SHRINKS_SINCE:
        yield Finding(Check.SERVER, Status.WARNING, f"1.{found.minor} lowers no memory limit", _SHRINKS)
    if found.resizes is False:
        yield Finding(Check.SERVER, Status.ERROR, "pods/resize is not served: no pod can be resized in place", _NEWER)


_NEWER = "use Kubernetes 1.33 or newer, better 1.34"
_SHRINKS = "use Kubernetes 1.34 or newer to lower memory limits"


def permissions(
    answers: Mapping[Right, bool | None], policies: Collection[Policy], *, user: str, leader_elect: bool
) -> Iterator[Finding]:
    """What may be done, by capability. `answers`: None where the API server did not tell."""
    for role in ROLES:
        lacking = [right for right in role.rights if answers.get(right) is False]
        untold = [right for right in role.rights if answers.get(right) is None]
        if lacking:
            status, why = _LACKS[role](policies, leader_elect)
            detail = f"{user or 'this user'} may not {_grouped(lacking)}: {role.without}{why}"
            yield Finding(Check.PERMISSIONS, status, detail, _granting(role, user, status), role.folder)
        elif untold:
            text = f"the API server does not tell whether this is allowed: {_grouped(untold)}"
            yield Finding(Check.PERMISSIONS, Status.UNKNOWN, text, subject=role.folder)
        else:
            yield Finding(Check.PERMISSIONS, Status.OK, "granted", subject=role.folder)


def _grouped(rights: Iterable[Right]) -> str:
    """`get, list and watch pods; list and watch nodes, jobs; patch pods/resize`."""
    verbs: dict[str, list[str]] = defaultdict(list)
    for right in rights:
        verbs[right.kind].append(right.verb)
    kinds: dict[str, list[str]] = defaultdict(list)
    for kind, of in verbs.items():
        kinds[" and ".join(filter(None, (", ".join(of[:-1]), of[-1])))].append(kind)
    return "; ".join(f"{of} {', '.join(group)}" for of, group in kinds.items())


def _granting(role: Role, user: str, status: Status) -> str:
    text = f"kubectl apply -k {role.folder}"
    if status is Status.NOTE:
        return f"{text}, if it is wanted"
    if user not in ("", _SHIPPED):
        name = role.folder.replace("rbac/", "bridge-autoscaler-")
        return f"{text} (it binds the service account bridge-autoscaler; bind {name} to {user} as well)"
    return text


_Judge = Callable[[Collection[Policy], bool], tuple[Status, str]]


def _needed_by(policies: Iterable[Policy], optional: str) -> tuple[Status, str]:
    names = [policy.name for policy in policies]
    if not names:
        return Status.NOTE, f"; {optional}"
    return Status.ERROR, f", which policy {listed(names)} wants"


_LACKS: Mapping[Role, _Judge] = {
    BASE: lambda _, __: (Status.ERROR, ""),
    LEADER: lambda _, elects: (Status.ERROR, "") if elects else (Status.NOTE, ", as it is"),
    EVENTS: lambda _, __: (Status.WARNING, ""),
    AUTOSCALERS: lambda _, __: (Status.WARNING, ""),
    MIGRATE: lambda policies, _: _needed_by((p for p in policies if p.moves), "no policy wants any to be"),
    SURGE: lambda policies, _: _needed_by(
        (p for p in policies if p.moves and p.fallback.migration.strategy is Strategy.SURGE), "no policy wants that"
    ),
}


def resize(pod: PodRef, outcome: Outcome) -> Finding:
    """What came of asking for the size that a pod has, with dryRun=All."""
    asked = f"dry run of {pod}'s present size"
    if outcome.kind is OutcomeKind.ACCEPTED:
        return Finding(Check.RESIZE, Status.OK, f"{asked}: accepted")
    if outcome.kind is OutcomeKind.ALTERED:
        remedy = "see the LimitRange and the admission webhooks of its namespace: resizes there are altered or refused"
        return Finding(Check.RESIZE, Status.WARNING, f"{asked}: {outcome.detail}", remedy)
    if outcome.kind in _PASSING:
        return Finding(Check.RESIZE, Status.UNKNOWN, f"{asked}: {outcome.detail}", "run doctor again")
    return failed(Check.RESIZE, f"{asked}: {outcome.detail}", "see docs/reasons.md for what the API server says")


_PASSING = frozenset({OutcomeKind.UNKNOWN, OutcomeKind.CONFLICT, OutcomeKind.GONE, OutcomeKind.THROTTLED})


def nodes(found: Collection[NodeFacts], used: Collection[str]) -> Iterator[Finding]:
    """What kubelets cannot do. `used`: the nodes of pods that policies select."""
    if not found:
        yield Finding(
            Check.NODES, Status.WARNING, "there are no nodes", "check the cluster of the kubeconfig's context"
        )
        return
    groups: dict[str, list[NodeFacts]] = defaultdict(list)
    for node in found:
        groups[_shortfall(node)].append(node)
    for shortfall in (_UNREADABLE, _NO_RESIZE, _FOREIGN, _NO_SHRINK):
        if group := groups.pop(shortfall, []):
            yield _lacking(shortfall, group, used)
    able = groups.pop("", [])
    if able:
        versions = listed(sorted({node.kubelet for node in able}), 3)
        yield Finding(Check.NODES, Status.OK, f"{len(able)} of {len(found)} with kubelet {versions} can do everything")
    yield from _features(found)


_NO_RESIZE, _NO_SHRINK = "cannot resize pods in place (kubelet before 1.33)", "lower no memory limit (kubelet 1.33)"
_FOREIGN, _UNREADABLE = "do not run Linux: their pods are not resized", "have a kubelet version that cannot be read"


def _shortfall(node: NodeFacts) -> str:
    if node.os != "linux":
        return _FOREIGN
    if node.minor is None:
        return _UNREADABLE
    if node.minor < RESIZES_SINCE:
        return _NO_RESIZE
    return _NO_SHRINK if node.minor < SHRINKS_SINCE else ""


def _lacking(shortfall: str, group: list[NodeFacts], used: Collection[str]) -> Finding:
    needed = [node.name for node in group if node.name in used]
    names = listed(needed or (node.name for node in group))
    status = {
        _UNREADABLE: Status.UNKNOWN,
        _NO_SHRINK: Status.WARNING,
    }.get(shortfall, Status.ERROR if needed else Status.NOTE)
    remedy = {
        _NO_RESIZE: "upgrade these kubelets to 1.34 or newer",
        _NO_SHRINK: "upgrade these kubelets to 1.34 or newer",
        _FOREIGN: "keep the pods that policies select on Linux nodes",
    }.get(shortfall, "")
    where = "with selected pods" if needed else "without selected pods"
    count = len(needed) or len(group)
    return Finding(Check.NODES, status, f"{count} {where} {shortfall}: {names}", remedy)


def _features(found: Collection[NodeFacts]) -> Iterator[Finding]:
    declared: dict[str, int] = defaultdict(int)
    for node in found:
        for feature in node.features:
            if feature.startswith(_RESIZING):
                declared[feature] += 1
    if declared:
        words = ", ".join(f"{name} ({count} of {len(found)})" for name, count in sorted(declared.items()))
        yield Finding(Check.NODES, Status.NOTE, f"declared features on resizing: {words}")
