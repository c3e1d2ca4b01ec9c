"""What the stories share in which a bridge asks for more than its full node has."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.kubelet.cluster import Json, eventually
from tests.kubelet.observing import WINDOW, measured
from tests.kubelet.pods import Bridge, Lookout
from tests.kubelet.stage import Stage

TEMPLATE, WANTED, ROOM, FITTED = "300m", "600m", "200m", "500m"
RESOURCES: Json = {"requests": {"cpu": TEMPLATE, "memory": "64Mi"}, "limits": {"cpu": TEMPLATE, "memory": "128Mi"}}
"""Of a bridge that is Burstable by its memory: a static CPU manager lets it be resized."""

PATIENCE_S = 150
"""For what a kubelet does in seconds, and an emulated one on a busy machine later."""

_LIMITS = {TEMPLATE: "30000 100000", FITTED: "50000 100000", WANTED: "60000 100000"}  # cpu.max
_BUSY, _ENOUGH = 0.1, 0.07  # cores that it uses, and that call, once seen, for all that the policy allows
_SETTLED = "15s"  # two scrapes and a step of the policy
_MARGIN = "900%"  # it wants ten times what it uses: a bridge at its limit would be slow to answer while it waits


def policy(stage: Stage, *, mode: str, **fallback: Any) -> None:
    """One that sizes bridges by what they use, between `TEMPLATE` and `WANTED`."""
    stage.policy(
        mode=mode,
        recommender={
            "name": "percentile",
            "parameters": {"cpu": {"target": "max", "margin": _MARGIN, "halfLife": "1m"}, "minHistory": "5s"},
        },
        containers=[
            {
                "name": "*",
                "controlledResources": ["cpu"],
                "minAllowed": {"cpu": TEMPLATE},
                "maxAllowed": {"cpu": WANTED},
            }
        ],
        metrics=measured("1m"),
        stability={"cooldown": {"increase": "1s"}, "maxStep": {"increase": "900%"}},
        fallback=fallback,
    )


def busy(stage: Stage, bridge: Bridge) -> None:
    """It comes to use so much that it wants all that the policy allows, and the newest settled sample shows it: a
    controller that is started then asks for all at once, and not first for what a rising rate calls for."""
    bridge.load(cpu=_BUSY)
    labels = f'namespace="{stage.namespace}", pod="{bridge.name}", container="app"'
    query = f"rate(container_cpu_usage_seconds_total{{{labels}}}[{WINDOW}] offset {_SETTLED}) > {_ENOUGH}"
    eventually("Prometheus sees its load", lambda: stage.prometheus.query(query), PATIENCE_S)


def asks_since(pod: Json) -> list[tuple[str, datetime]]:
    """Who asked for sizes of the pod that it still has, by field manager, and when, oldest first."""
    entries = (entry for entry in pod["metadata"]["managedFields"] if entry.get("subresource") == "resize")
    found = ((entry["manager"], datetime.fromisoformat(entry["time"])) for entry in entries)
    return sorted(found, key=lambda ask: ask[1])


def requested(pod: Json) -> str:
    """The CPU that its container asks for."""
    found: str = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    return found


def has(lookout: Lookout, pod: Json, cpu: str) -> bool:
    """Whether so much CPU is in force: by what the kubelet says, and by the cgroups of the container and the pod."""
    said = pod["status"]["containerStatuses"][0]["resources"]["requests"]["cpu"]
    if said != cpu:
        return False
    cgroup = lookout.cgroup(pod)
    return all(cgroup[of]["cpu.max"] == _LIMITS[cpu] for of in ("container", "pod"))


def uncut(report: Json, each: int) -> None:
    """So many sessions of each protocol are open, none was cut, and no message was lost. Raises AssertionError."""
    assert report["open"] == {"websocket": each, "grpc": each}
    assert [report[key] for key in ("closed_by_server", "failed", "lost", "reconnects")] == [0, 0, 0, 0]
    assert report["errors"] == []


def heartbeats(report: Json) -> str:
    """How they fared, in words."""
    beats = report["heartbeats"]
    shown = ", ".join(f"{name} {beats[f'{name}_ms']:.0f} ms" for name in ("p50", "p99", "max"))
    return f"{beats['count']} heartbeats: {shown}"
