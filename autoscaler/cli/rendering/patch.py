"""Lines of `kubectl` for bash that do by hand what the plan would do."""

from __future__ import annotations

import json
import shlex
from typing import Any

from autoscaler.cli.document import SURGE_ENDS, ContainerPart, Document, Item, MovePart
from autoscaler.cli.rendering.words import migration, one_line, prediction, sides
from autoscaler.core.model import ContainerKind


def render_patch(document: Document) -> str:
    """One line for each pod with a change, also where the policy only recommends; comments say what and why.

    The pod's uid is part of each patch: the server refuses it (422) once another pod has taken the name. A step of a
    migration is one line, for the very version that the plan is about (409 otherwise), and nothing follows it: plan
    again for the next. Only where an eviction ends a surge, the Deployment is scaled right after it.
    """
    lines = [comment(f"problem: {p.source}: {p.reason}: {p.detail}") for p in document.problems]
    for item in document.items:
        if item.changes:
            lines.append(comment(f"{item.namespace}/{item.pod}: {item.reason}; {_expected(item)}"))
            # a policy that only recommends may mean a move, of which the comment tells: there is nothing to patch
            lines += [line(item)] if item.move or item.proposes else []
            if item.move is not None and item.move.replicas is None and item.reason in SURGE_ENDS:
                lines.append(_scale_back(item, item.move.then_replicas))
    return "".join(f"{text}\n" for text in lines)


def _expected(item: Item) -> str:
    if item.move is None and item.proposes:
        return f"predicted {prediction(item)}"
    return "; ".join(filter(None, (item.detail, migration(item))))


def line(item: Item) -> str:
    """A line for bash that resizes one pod, or does the step of its migration that is due."""
    if item.move is None:
        return _patch(item)
    return _eviction(item, item.move) if item.move.replicas is None else _scale(item, item.move, item.move.replicas)


def _eviction(item: Item, move: MovePart) -> str:
    """The Eviction API, which asks disruption budgets; kubectl has no command of its own for one pod."""
    pod = move.object.removeprefix("Pod/")  # of a surge that ends it is another one than the item's
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": item.namespace},
        "deleteOptions": {"preconditions": {"uid": move.uid, "resourceVersion": move.resource_version}},
    }
    path = f"/api/v1/namespaces/{item.namespace}/pods/{pod}/eviction"
    return shlex.join(["kubectl", "create", "--raw", path, "-f", "-"]) + " <<< " + shlex.quote(_json(body))


def _scale(item: Item, move: MovePart, replicas: int) -> str:
    words = ["kubectl", "scale", move.object.lower(), "-n", item.namespace]
    return shlex.join([*words, f"--replicas={replicas}", f"--resource-version={move.resource_version}"])


def _scale_back(item: Item, replicas: int | None) -> str:
    """What follows the eviction at once, while the successor of the evicted pod is not ready. The eviction may change
    the Deployment's version, so its number of replicas stands for it."""
    if replicas is None or item.workload is None:
        return comment(f"then, at once: scale {item.workload} back by one")
    words = ["kubectl", "scale", item.workload.lower(), "-n", item.namespace]
    return shlex.join([*words, f"--replicas={replicas}", f"--current-replicas={replicas + 1}"])


def _patch(item: Item) -> str:
    body: dict[str, Any] = {"metadata": {"uid": item.uid}, "spec": {}}
    for container in item.containers:
        if container.changed:
            # sidecars live in initContainers
            key = "containers" if container.kind is ContainerKind.CONTAINER else "initContainers"
            entry = {"name": container.name, "resources": _resources(container)}
            body["spec"].setdefault(key, []).append(entry)
    words = ["kubectl", "patch", "pod", item.pod, "-n", item.namespace, "--subresource", "resize"]
    words += ["--type", "strategic", "-p", _json(body)]
    return shlex.join(words)


def _json(body: dict[str, Any]) -> str:
    return json.dumps(body, separators=(",", ":"))


def comment(text: str) -> str:
    """A shell comment of one line, whatever line breaks a server's message may hold."""
    return "# " + " ".join(one_line(text).split())


def _resources(container: ContainerPart) -> dict[str, dict[str, str]]:
    changes: dict[str, dict[str, str]] = {}
    for resource, both in sides(container):
        for field, amounts in (("requests", both.request), ("limits", both.limit)):
            if amounts.proposed is not None and amounts.proposed != amounts.spec:
                changes.setdefault(field, {})[resource.value] = amounts.proposed
    return changes
