"""Lines of `kubectl patch` that do by hand what the plan would do."""

from __future__ import annotations

import json
import shlex
from typing import Any

from autoscaler.cli.document import ContainerPart, Document, Item
from autoscaler.cli.rendering.words import prediction, sides
from autoscaler.core.model import ContainerKind


def render_patch(document: Document) -> str:
    """One line for each pod with a change, also where the policy only recommends; comments say what and why.

    The pod's uid is part of each patch: the server refuses it (422) once another pod has taken the name.
    """
    lines = [comment(f"problem: {p.source}: {p.reason}: {p.detail}") for p in document.problems]
    for item in document.items:
        if item.changes:
            lines += [comment(f"{item.namespace}/{item.pod}: {item.reason}; predicted {prediction(item)}"), line(item)]
    return "".join(f"{text}\n" for text in lines)


def line(item: Item) -> str:
    """A line for bash that resizes one pod."""
    body: dict[str, Any] = {"metadata": {"uid": item.uid}, "spec": {}}
    for container in item.containers:
        if container.changed:
            # sidecars live in initContainers
            key = "containers" if container.kind is ContainerKind.CONTAINER else "initContainers"
            entry = {"name": container.name, "resources": _resources(container)}
            body["spec"].setdefault(key, []).append(entry)
    words = ["kubectl", "patch", "pod", item.pod, "-n", item.namespace, "--subresource", "resize"]
    words += ["--type", "strategic", "-p", json.dumps(body, separators=(",", ":"))]
    return shlex.join(words)


def comment(text: str) -> str:
    """A shell comment of one line, whatever line breaks a server's message may hold."""
    return "# " + " ".join(text.split())


def _resources(container: ContainerPart) -> dict[str, dict[str, str]]:
    changes: dict[str, dict[str, str]] = {}
    for resource, both in sides(container):
        for field, amounts in (("requests", both.request), ("limits", both.limit)):
            if amounts.proposed is not None and amounts.proposed != amounts.spec:
                changes.setdefault(field, {})[resource.value] = amounts.proposed
    return changes
