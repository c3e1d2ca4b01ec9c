"""Clusters for the landing proof, from a seed: nodes, what runs on them, and a pod that shall move.

Every other node either takes the subject or is spoilt for it in one way, sometimes in two, so that each predicate has
cases in which it alone decides, and cases in which it decides nothing. Amounts often fit exactly or lack by 1.
"""

from __future__ import annotations

from autoscaler.core.model import Container, ContainerKind, Resource, ResourceList, Resources
from tests.proof import features, relations
from tests.proof.cases import HOSTNAME, MAIN, MIB, NAMESPACE, OVERHEAD, RUNTIME, Case, Json, needs, resized, size
from tests.proof.draft import Draft, Spot
from tests.proof.features import Feature

FEATURES: tuple[type[Feature], ...] = (
    features.Ready,
    features.Cordon,
    features.Taints,
    features.NodeSelector,
    features.NodeAffinity,
    relations.PodAffinity,
    relations.AntiAffinity,
    relations.Spread,
    relations.Volumes,
    features.PodCount,
    relations.HostPorts,
    relations.Extended,
    features.Cpu,
    features.Memory,
    features.Competition,
)
PREDICATES = tuple(one.name for one in FEATURES)
"""What the proof looks at, in its order."""


def generate(seed: int) -> Case:
    """The case of a seed: always the same."""
    draft = Draft(seed)
    chosen, failing = _features(draft)
    _subject(draft)
    for feature in chosen:
        feature.demand()
    _spots(draft, failing)
    by_name = {feature.name: feature for feature in chosen}
    for spot in draft.spots:
        _room(draft, spot)
        for name in spot.lacks:
            by_name[name].spoil(spot)
        draft.crowd(spot)
    for feature in chosen:  # last, because zones may have changed
        for spot in draft.spots:
            if feature.name not in spot.lacks:
                feature.please(spot)
    if draft.chance(0.1):  # waits for a node that there is none of
        draft.pod(None, nodeSelector={HOSTNAME: "none"})
    if draft.chance(0.1):  # waits for someone to let it go
        draft.pod(None, schedulingGates=[{"name": "example.com/later"}])
    _complete(draft)
    return draft.finish()


def _features(draft: Draft) -> tuple[list[Feature], list[str]]:
    """Predicates at work, and the names of those that nodes may fail: the seed's own, and some others."""
    theme = FEATURES[draft.case.seed % len(FEATURES)]
    others = [one for one in FEATURES if one is not theme]
    failing = {theme, *draft.random.sample(others, draft.random.choice((1, 2, 2, 3)))}
    chosen = [one(draft) for one in FEATURES if one in failing or not one.asked]
    return chosen, [one.name for one in FEATURES if one in failing]


def _spots(draft: Draft, failing: list[str]) -> None:
    """The nodes, and what each is to fail; every other one nothing, in cases in which the pod shall find a node."""
    random, seed = draft.random, draft.case.seed
    zones = ("zone-a", "zone-b", "zone-c")[: random.choice((1, 2, 3))]
    draft.spots = [
        Spot(f"n{seed}-{number}", random.choice(zones), old=number == 0)
        for number in range(random.choice((3, 3, 4, 4, 5, 6)))
    ]
    old, *others = draft.spots
    theme, is_open = FEATURES[seed % len(FEATURES)].name, draft.chance(0.4)
    for spot in others:
        if is_open and draft.chance(0.5):
            continue
        lacks = {theme if draft.chance(0.5) else random.choice(failing)}
        if draft.chance(0.1):
            lacks.add(random.choice(failing))
        spot.lacks = sorted(lacks, key=failing.index)
    if is_open:
        random.choice(others).lacks = []
    own = [name for name in failing if name not in ("cpu", "memory", "competition")]
    if own and draft.chance(0.3):
        old.lacks = [random.choice(own)]
    random.shuffle(draft.spots)


def _subject(draft: Draft) -> None:
    """Its containers, and how big it is now, is created again, and shall be."""
    random = draft.random
    current = size(random.randrange(200, 1500, 50), random.randrange(256, 2048, 64) * MIB)
    target = size(
        int((current.cpu or 0) * random.choice((1, 1.3, 2, 3))), int((current.memory or 0) * random.choice((1, 1.5, 2)))
    )
    created = random.choice((current, target, target))
    limits = draft.chance(0.4)
    fixed = [
        Container(name, kind, _both(draft.small(), limits))
        for name, kind, often in (
            ("setup", ContainerKind.INIT, 0.2),
            ("proxy", ContainerKind.SIDECAR, 0.2),
            ("exporter", ContainerKind.CONTAINER, 0.3),
        )
        if draft.chance(often)
    ]
    if draft.chance(0.1):  # starting takes more than running
        most = size((target.cpu or 0) + 100, (current.memory or 0) + 64 * MIB)
        fixed.insert(0, Container("migrate", ContainerKind.INIT, _both(most, limits)))

    overhead = ResourceList()
    if draft.chance(0.12):
        draft.spec["runtimeClassName"], overhead = RUNTIME, OVERHEAD

    def need(main: ResourceList) -> ResourceList:
        return needs((*fixed, Container(MAIN, spec=Resources(main))), overhead)

    draft.current_need, draft.created_need, draft.need = need(current), need(created), need(target)
    draft.case.stays = draft.chance(0.15)
    draft.case.created, draft.case.target = {MAIN: _both(created, limits)}, {MAIN: _both(target, limits)}
    draft.main = {"name": MAIN, "image": "bridge"}
    draft.spec["containers"] = [draft.main]
    draft.spec["terminationGracePeriodSeconds"] = 600
    for one in fixed:
        manifest: Json = {"name": one.name, "image": "other", "resources": resized({}, one.spec)}
        if one.kind is ContainerKind.SIDECAR:
            manifest["restartPolicy"] = "Always"
        kind = "containers" if one.kind is ContainerKind.CONTAINER else "initContainers"
        draft.spec.setdefault(kind, []).append(manifest)
    draft.current = _both(current, limits)


def _both(requests: ResourceList, limits: bool) -> Resources:
    return Resources(requests, requests if limits else ResourceList())


def _room(draft: Draft, spot: Spot) -> None:
    """Free CPU and memory with which the subject fits at its target, often exactly; its own node is mostly too full."""
    need, random = draft.need, draft.random
    more = random.choice(((0, 0), (0, 500), (900, 0), (1500, 4096)))
    spot.room = size((need.cpu or 0) + more[0], (need.memory or 0) + more[1] * MIB)
    if spot.old and draft.chance(0.75):
        now = draft.current_need
        spot.room = size(now.cpu or 0, now.memory or 0)
        if draft.chance(0.3):
            spot.room = size((now.cpu or 0) + 50, need.memory or 0)


def _complete(draft: Draft) -> None:
    draft.main["resources"] = resized(draft.main.get("resources", {}), draft.current)
    old = next(spot for spot in draft.spots if spot.old)
    draft.case.subject = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": draft.name("subject"), "namespace": NAMESPACE, "labels": draft.labels},
        "spec": draft.spec | {"nodeName": old.name},
    }
    if draft.chance(0.04) and _guaranteed(draft):
        for spot in draft.random.sample(draft.spots, 2):
            draft.case.static[spot.name] = frozenset({Resource.CPU})


def _guaranteed(draft: Draft) -> bool:
    return all("limits" in one.get("resources", {}) for one in draft.spec["containers"])
