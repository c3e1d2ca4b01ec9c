"""What real kubelets answered, and how answers differ. Recorded by `test_model.py` where E2E_RECORD names a folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscaler.core.model import RESOURCES, Resource, ResourceList
from autoscaler.core.units import parse_cpu, parse_memory
from tests.kubelet.asking import Json, Question, Seen, Site

_PASSING = re.compile(r"(?<=used: )\d+|(?<=cannot decrease memory limits: )[^;]*")
RECORDED = Path(__file__).parents[1] / "captures" / "kubelets"


@dataclass(frozen=True)
class Interview:
    """A kubelet's answers, by question. `kubelet`: its version."""

    kubelet: str
    site: Site
    answers: Mapping[str, Sequence[Seen]]


def applies(question: Question, site: Site) -> bool:
    """Whether this is a question for that node."""
    return question.static in (None, site.static)


def differences(question: Question, model: Sequence[Seen], kubelet: Sequence[Seen]) -> list[str]:
    """In what a kubelet's answer is not the model's, in words.

    It comes to the same end, by way of no other states. It writes its statuses now and then, so it may skip one, and
    now and then shows sizes without the condition that belongs to them. How much it found used on the way depends on
    when it looked, and so does which of several limits it found too low. Of a hasty question, only the words and the
    end are compared.
    """
    found: list[str] = []
    for step, ours, theirs in zip(question.steps, model, kubelet, strict=True):
        if ours.said != theirs.said:
            found.append(f"the model says {ours.said!r}, the API server {theirs.said!r}")
        if not step.at_once:
            found += _differing(ours, theirs, end_only=question.hasty)
    return found


def _differing(ours: Seen, theirs: Seen, *, end_only: bool) -> Iterator[str]:
    for pod, states in theirs.states.items():
        model = ours.states[pod]
        if model[-1] != states[-1]:
            yield f"{pod} ends as {model[-1]!r} in the model, and as {states[-1]!r} really"
        elif not end_only:
            yield from (f"{pod} goes by way of {state!r} really" for state in _odd(model, states))


def _odd(model: Sequence[str], states: Sequence[str]) -> Iterator[str]:
    """States on the way that are not the model's, or come too late."""
    left = [_on_the_way(state) for state in model]
    for state in map(_on_the_way, states):
        if state in left:
            left = left[left.index(state) :]
        elif state not in map(_bare, left):
            yield state


def _on_the_way(state: str) -> str:
    return _PASSING.sub("…", state)


def _bare(state: str) -> str:
    parts = state.split("; ")
    return "; ".join(part for part in parts if not part.startswith(("pending@", "in progress@")))


def write(path: Path, interview: Interview) -> None:
    """Write what was answered, for people and `read`: of each step but the first only what it has changed."""
    site = interview.site
    document = {
        "kubelet": interview.kubelet,
        "static": site.static,
        "allocatable": _amounts(site.allocatable),
        "others": _amounts(site.others),
        "answers": {name: list(_shortened(seen)) for name, seen in interview.answers.items()},
    }
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def read(path: Path) -> Interview:
    """What `write` wrote."""
    document: dict[str, Any] = json.loads(path.read_text())
    answers = {name: list(_whole(steps)) for name, steps in document["answers"].items()}
    site = Site(_read(document["allocatable"]), _read(document["others"]), document["static"])
    return Interview(document["kubelet"], site, answers)


def _shortened(seen: Sequence[Seen]) -> Iterator[Json]:
    for number, one in enumerate(seen):
        states = {pod: list(states)[1 if number else 0 :] for pod, states in one.states.items()}
        yield {"said": one.said} | {pod: changes for pod, changes in states.items() if changes}


def _whole(steps: Sequence[Json]) -> Iterator[Seen]:
    last: dict[str, list[str]] = {}
    for step in steps:
        changes = {pod: states for pod, states in step.items() if pod != "said"}
        states = {pod: [*last.get(pod, []), *changes.get(pod, [])] for pod in last | changes}
        yield Seen(step["said"], states)
        last = {pod: states[-1:] for pod, states in states.items()}


def _amounts(amounts: ResourceList) -> dict[str, str]:
    return {str(resource): resource.quantity(amounts.get(resource) or 0) for resource in RESOURCES}


def _read(amounts: Mapping[str, str]) -> ResourceList:
    return ResourceList(parse_cpu(amounts[Resource.CPU]), parse_memory(amounts[Resource.MEMORY]))
