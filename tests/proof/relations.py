"""Predicates that look at other pods, at volumes and at what nodes have to give besides CPU and memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.proof.cases import CLASS, DRIVER, GPU, HOSTNAME, NAMESPACE, OTHER, WAITING_CLASS, ZONE, Json
from tests.proof.draft import Draft, Spot
from tests.proof.features import Feature

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class _PodRelation(Feature):
    """What pod affinity and anti-affinity share: a selector, and where the pods may be that it looks for."""

    app = ""

    def demand(self) -> None:
        self.key = self.random.choice((HOSTNAME, HOSTNAME, ZONE))
        selector: Json = {"matchLabels": {"app": self.app}}
        if self.draft.chance(0.3):
            selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": [self.app, "none"]}]}
        self.term: Json = {"topologyKey": self.key, "labelSelector": selector}
        self.namespace = NAMESPACE
        where = self.random.random()
        if where < 0.2:
            self.namespace, self.term["namespaces"] = OTHER, [OTHER]
        elif where < 0.22:
            self.namespace, self.term["namespaceSelector"] = OTHER, {"matchLabels": {"team": "other"}}

    def put(self, spot: Spot, labels: Mapping[str, str], **spec: Any) -> None:
        self.draft.pod(spot, labels, namespace=self.namespace, **spec).leaving = self.draft.chance(0.15)


class PodAffinity(_PodRelation):
    name = "pod affinity"
    app = "store"

    def demand(self) -> None:
        super().demand()
        self.itself = self.namespace == NAMESPACE and self.draft.chance(0.12)
        if self.itself:  # no other pod matches: then it may go anywhere where the key is
            self.draft.labels["app"] = self.app
        self.draft.spec.setdefault("affinity", {})["podAffinity"] = {_REQUIRED: [self.term]}
        self.zones: set[str] = set()

    def please(self, spot: Spot) -> None:
        if self.itself or (self.key == ZONE and spot.zone in self.zones):
            return
        self.zones.add(spot.zone)
        self.put(spot, {"app": self.app})

    def spoil(self, spot: Spot) -> None:
        if self.itself:
            spot.labels[self.key] = ""  # without the label that names the domain
        elif self.key == ZONE:
            self.own_zone(spot)
        elif self.draft.chance(0.3):
            self.draft.pod(spot, {"app": self.app}, namespace=OTHER if self.namespace == NAMESPACE else NAMESPACE)


class AntiAffinity(_PodRelation):
    name = "anti-affinity"
    app = "noisy"

    def demand(self) -> None:
        super().demand()
        self.reverse = self.draft.chance(0.4)  # the others do not want the subject
        if not self.reverse:
            self.draft.spec.setdefault("affinity", {})["podAntiAffinity"] = {_REQUIRED: [self.term]}

    def please(self, spot: Spot) -> None:
        if self.draft.chance(0.2):  # others of the name, where nobody looks for them
            self.draft.pod(spot, {"app": self.app}, namespace=OTHER if self.namespace == NAMESPACE else NAMESPACE)

    def spoil(self, spot: Spot) -> None:
        if self.key == ZONE:
            self.own_zone(spot)
        if not self.reverse:
            self.put(spot, {"app": self.app})
            return
        term: Json = {"topologyKey": self.key, "labelSelector": {"matchLabels": dict(self.draft.labels)}}
        if self.namespace != NAMESPACE:
            term["namespaces"] = [NAMESPACE]
        self.put(spot, {}, affinity={"podAntiAffinity": {_REQUIRED: [term]}})


class Spread(Feature):
    name = "topology spread"

    def demand(self) -> None:
        self.key = self.random.choice((HOSTNAME, HOSTNAME, ZONE))
        self.skew = self.random.choice((1, 1, 2))
        labels = {"app": self.draft.labels["app"]}
        term: Json = {
            "maxSkew": self.skew,
            "topologyKey": self.key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": labels},
        }
        self.peers = dict(labels)
        if self.draft.chance(0.2):
            term["nodeTaintsPolicy"] = "Honor"
        if self.draft.chance(0.2):
            term["nodeAffinityPolicy"] = "Ignore"
        if self.draft.chance(0.15):
            term["minDomains"] = self.random.choice((1, 2, 6))
        if self.draft.chance(0.2):
            term["matchLabelKeys"] = ["release"]
            self.draft.labels["release"] = self.peers["release"] = "r1"
        constraints = [term]
        if self.draft.chance(0.3):  # only a wish
            constraints.append({**term, "whenUnsatisfiable": "ScheduleAnyway", "topologyKey": "rack"})
            constraints[1].pop("minDomains", None)
        self.draft.spec["topologySpreadConstraints"] = constraints
        self.zones: set[str] = set()

    def please(self, spot: Spot) -> None:
        if spot.zone in self.zones and self.key == ZONE:
            return
        self.zones.add(spot.zone)
        if not spot.old or self.draft.chance(0.85):
            self.draft.pod(spot, self.peers)
        if self.draft.chance(0.2):  # do not count: another release, another namespace, leaving, ended
            self.draft.pod(spot, {**self.peers, "release": "r0"} if "release" in self.peers else {"app": "else"})
            self.draft.pod(spot, self.peers, namespace=OTHER)
            self.draft.pod(spot, self.peers).leaving = True
            self.draft.pod(spot, self.peers).phase = "Succeeded"

    def spoil(self, spot: Spot) -> None:
        if self.draft.chance(0.15):
            spot.labels[self.key] = ""
            return
        if self.key == ZONE:
            self.own_zone(spot)
        for _ in range(self.skew + 1):
            self.draft.pod(spot, self.peers)


class Volumes(Feature):
    name = "volumes"

    def demand(self) -> None:
        self.kind = self.random.choice(("zone", "host", "label", "limit") * 4 + ("single", "shared"))
        self.zones: set[str] = set()
        self.places = ["none"]  # hosts that can use the volume, or zones that cannot
        self.volume = self.claim(self.draft)
        if self.kind == "single":
            self.volume["spec"]["accessModes"] = self.draft.case.claims[-1]["spec"]["accessModes"] = [
                "ReadWriteOncePod"
            ]
        claim = self.draft.case.claims[-1]["metadata"]["name"]
        self.draft.spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
        if self.kind == "host":
            requirement: Json = {"key": HOSTNAME, "operator": "In", "values": self.places}
        elif self.kind == "zone":
            requirement = {"key": ZONE, "operator": "NotIn", "values": self.places}
        else:
            return
        self.volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}

    def claim(self, draft: Draft) -> Json:
        """A claim bound to a volume of its own; both go into the case."""
        name = draft.name("data")
        size, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
        which = self.random.choice((CLASS, WAITING_CLASS))
        common = {"accessModes": modes, "storageClassName": which}
        draft.case.claims.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {**common, "volumeName": name, "resources": {"requests": size}},
            }
        )
        volume: Json = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": {}},
            "spec": {
                **common,
                "capacity": size,
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": NAMESPACE, "name": name},
                "csi": {"driver": DRIVER, "volumeHandle": name},
            },
        }
        draft.case.volumes.append(volume)
        return volume

    def please(self, spot: Spot) -> None:
        if self.kind == "host":
            self.places.append(spot.name)
        elif self.kind == "label":
            self.zones.add(spot.zone)
            self.volume["metadata"]["labels"][ZONE] = "__".join(sorted(self.zones))
        elif self.kind == "limit":
            spot.attachable = self.random.choice((1, 2, 8))
            if spot.attachable > 1:
                self.attach(spot)

    def spoil(self, spot: Spot) -> None:
        if self.kind in ("zone", "label"):
            self.own_zone(spot)
        if self.kind == "zone":
            self.places.append(spot.zone)
        elif self.kind == "limit":
            spot.attachable = self.random.choice((1, 2))
            for _ in range(spot.attachable):
                self.attach(spot)
        elif self.kind == "single":  # no other pod may use it, wherever
            self.draft.pod(spot, volumes=self.draft.spec["volumes"])
        elif self.kind == "shared":  # no other node may use it
            self.draft.pod(next(one for one in self.draft.spots if one.old), volumes=self.draft.spec["volumes"])

    def attach(self, spot: Spot) -> None:
        self.claim(self.draft)
        claim = self.draft.case.claims[-1]["metadata"]["name"]
        self.draft.pod(spot, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claim}}])


class HostPorts(Feature):
    name = "host ports"

    def demand(self) -> None:
        self.port: Json = {"containerPort": 7000, "hostPort": 7000, "protocol": self.random.choice(("TCP", "UDP"))}
        if self.draft.chance(0.4):
            self.port["hostIP"] = "10.0.0.1"
        self.draft.main["ports"] = [self.port]

    def please(self, spot: Spot) -> None:
        if not self.draft.chance(0.4):
            return
        other = {"TCP": "UDP", "UDP": "TCP"}[self.port["protocol"]]
        free: list[Json] = [{**self.port, "protocol": other}, {**self.port, "hostPort": 7001}, {"containerPort": 7000}]
        if "hostIP" in self.port:
            free.append({**self.port, "hostIP": "10.0.0.2"})
        self.draft.pod(spot, container={"ports": [self.random.choice(free)]})

    def spoil(self, spot: Spot) -> None:
        taken = dict(self.port)
        if self.draft.chance(0.5):
            taken["hostIP"] = "0.0.0.0" if "hostIP" in taken else "10.0.0.9"
        self.draft.pod(spot, container={"ports": [taken]}).leaving = self.draft.chance(0.2)


class Extended(Feature):
    name = "extended resources"

    def demand(self) -> None:
        self.resource = self.random.choice((GPU, GPU, "ephemeral-storage"))
        self.count = self.random.choice((1, 2)) if self.resource == GPU else 5000
        of = self.draft.main.setdefault("resources", {})
        of["requests"] = {self.resource: str(self.count)}
        of["limits"] = {self.resource: str(self.count)}

    def please(self, spot: Spot) -> None:
        spot.free[self.resource] = self.count + self.random.choice((0, 0, 2))

    def spoil(self, spot: Spot) -> None:
        spot.free[self.resource] = self.count - 1
        if self.draft.chance(0.4):
            one = self.draft.pod(spot)
            of = one.manifest["spec"]["containers"][0]["resources"]
            of["requests"][self.resource] = str(self.count)
            of["limits"] = {self.resource: str(self.count)}
        elif self.draft.chance(0.3):
            del spot.free[self.resource]
