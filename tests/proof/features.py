"""What a subject may ask of a node, and the ways in which a node fails to give it. One class a predicate."""

from __future__ import annotations

from typing import ClassVar

from tests.proof.cases import HOSTNAME, MIB, Json, size
from tests.proof.draft import Draft, Spot


class Feature:
    """A predicate at work in one case. `asked`: it needs something in the subject's spec."""

    name: ClassVar[str]
    asked: ClassVar[bool] = True

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.random = draft.random

    def demand(self) -> None:
        """Put it into the subject."""

    def please(self, spot: Spot) -> None:
        """Make a node give it."""

    def spoil(self, spot: Spot) -> None:
        """Make a node fail to give it."""

    def own_zone(self, spot: Spot) -> None:
        """Take a node out of the zones of the others."""
        spot.zone = f"zone-{spot.name}"


class Ready(Feature):
    name = "ready"
    asked = False

    def spoil(self, spot: Spot) -> None:
        spot.ready = self.random.choice(("False", "Unknown"))


class Cordon(Feature):
    name = "cordon"
    asked = False

    def spoil(self, spot: Spot) -> None:
        spot.cordoned = True


class Taints(Feature):
    name = "taints"
    asked = False

    def demand(self) -> None:
        tolerations: list[Json] = [
            {"key": "dedicated", "operator": "Equal", "value": "bridges", "effect": "NoSchedule"},
            {"key": "dedicated", "operator": "Exists"},
            {"key": "dedicated", "value": "bridges"},
            {"operator": "Exists", "effect": "PreferNoSchedule"},
        ]
        self.tolerations = self.random.sample(tolerations, self.random.choice((0, 1, 1, 2)))
        self.everything = self.draft.chance(0.05)
        if self.everything:
            self.tolerations = [{"operator": "Exists"}]
        if self.tolerations:
            self.draft.spec["tolerations"] = self.tolerations
        self.any_value = tolerations[1] in self.tolerations
        self.own_value = self.any_value or tolerations[0] in self.tolerations or tolerations[2] in self.tolerations

    def please(self, spot: Spot) -> None:
        harmless: list[Json] = [{"key": "noisy", "effect": "PreferNoSchedule"}]
        if self.own_value:
            harmless.append({"key": "dedicated", "value": "bridges", "effect": "NoSchedule"})
        if self.any_value:
            harmless.append({"key": "dedicated", "value": "others", "effect": "NoExecute"})
        if self.draft.chance(0.4):
            spot.taints.append(self.random.choice(harmless))

    def spoil(self, spot: Spot) -> None:
        effect = self.random.choice(("NoSchedule", "NoExecute"))
        spot.taints.append({"key": self.random.choice(("spot", "maintenance")), "value": "x", "effect": effect})
        if not self.any_value and self.draft.chance(0.4):
            spot.taints[-1] = {"key": "dedicated", "value": "others", "effect": effect}


class PodCount(Feature):
    name = "pods per node"
    asked = False

    def please(self, spot: Spot) -> None:
        spot.spare_pods = self.random.choice((1, 1, 2, 9))

    def spoil(self, spot: Spot) -> None:
        spot.spare_pods = 0


class Cpu(Feature):
    name = "cpu"
    asked = False

    def spoil(self, spot: Spot) -> None:
        lacks = _below(self.draft, self.draft.need.cpu or 0, self.draft.created_need.cpu or 0)
        spot.room = size(lacks, spot.room.memory or 0)


class Memory(Feature):
    name = "memory"
    asked = False

    def spoil(self, spot: Spot) -> None:
        lacks = _below(self.draft, self.draft.need.memory or 0, self.draft.created_need.memory or 0)
        spot.room = size(spot.room.cpu or 0, lacks)


def _below(draft: Draft, target: int, created: int) -> int:
    """Too little for the target, often by 1, and often too little for the created size as well."""
    under = created if draft.chance(0.6) else target
    return under - 1 if draft.chance(0.5) else int(under * draft.random.uniform(0.1, 0.95))


class Competition(Feature):
    """Pods that come at the same time as the replacement, and take the room if they are first."""

    name = "competition"
    asked = False

    def spoil(self, spot: Spot) -> None:
        need, room = self.draft.need, spot.room
        left = size(max((room.cpu or 0) - (need.cpu or 0), 0), max((room.memory or 0) - (need.memory or 0), 0))
        by_cpu = self.draft.chance(0.5)
        wish = size((left.cpu or 0) + 1, 16 * MIB) if by_cpu else size(10, (left.memory or 0) + 1)
        one = self.draft.pod(None, of=wish)
        one.late = True
        one.manifest["spec"]["tolerations"] = [{"operator": "Exists"}]
        if self.draft.chance(0.9):
            one.manifest["spec"]["nodeSelector"] = {HOSTNAME: spot.name}


class NodeSelector(Feature):
    name = "node selector"

    def demand(self) -> None:
        self.draft.spec.setdefault("nodeSelector", {})["pool"] = "bridges"

    def please(self, spot: Spot) -> None:
        spot.labels["pool"] = "bridges"

    def spoil(self, spot: Spot) -> None:
        if self.draft.chance(0.5):
            spot.labels["pool"] = "others"


class NodeAffinity(Feature):
    name = "node affinity"

    # a requirement, and the label of nodes that meet it and of nodes that do not; None: without the label
    KINDS: ClassVar[tuple[tuple[Json, str | None, str | None], ...]] = (
        ({"key": "tier", "operator": "In", "values": ["gold", "silver"]}, "silver", "bronze"),
        ({"key": "tier", "operator": "In", "values": ["gold"]}, "gold", None),
        ({"key": "tier", "operator": "NotIn", "values": ["bronze"]}, None, "bronze"),
        ({"key": "old", "operator": "DoesNotExist"}, None, "yes"),
        ({"key": "fast", "operator": "Exists"}, "yes", None),
        ({"key": "generation", "operator": "Gt", "values": ["4"]}, "5", "4"),
        ({"key": "generation", "operator": "Lt", "values": ["4"]}, "3", None),
        ({"key": "generation", "operator": "Gt", "values": ["4"]}, "17", "many"),
    )

    def demand(self) -> None:
        self.key, self.good, self.bad = "", None, None
        self.fields: list[Json] = []
        term: Json
        if self.draft.chance(0.2):
            self.fields = [{"key": "metadata.name", "operator": "NotIn", "values": ["nowhere"]}]
            term = {"matchFields": self.fields}
        else:
            requirement, self.good, self.bad = self.random.choice(self.KINDS)
            self.key = requirement["key"]
            term = {"matchExpressions": [requirement, {"key": HOSTNAME, "operator": "Exists"}]}
        terms = [term]
        if self.draft.chance(0.4):  # another way, that no node goes
            terms.insert(self.random.randrange(2), {"matchExpressions": [{"key": "moon", "operator": "Exists"}]})
        self.draft.spec.setdefault("affinity", {})["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }

    def please(self, spot: Spot) -> None:
        if self.good is not None:
            spot.labels[self.key] = self.good

    def spoil(self, spot: Spot) -> None:
        if self.bad is not None:
            spot.labels[self.key] = self.bad
        if self.fields:
            self.fields.append({"key": "metadata.name", "operator": "NotIn", "values": [spot.name]})
