"""Short texts that several renderings share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from autoscaler.cli.document import ActionWord, Amounts, CheckPart, ContainerPart, Document, Item, MigrationPart, Sides
from autoscaler.core.drift import Side
from autoscaler.core.model import Resource
from autoscaler.core.policy import Strategy
from autoscaler.core.problems import NOTES
from autoscaler.core.reasons import Reason
from autoscaler.core.units import parse_cpu, parse_memory


def one_line(text: str) -> str:
    """Text of others on one line, and without what would command a terminal: conditions and messages of a scheduler may
    hold anything."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in " ".join(text.splitlines())
    )


def sides(container: ContainerPart) -> Iterator[tuple[Resource, Sides]]:
    """CPU and memory of a container."""
    yield Resource.CPU, container.cpu
    yield Resource.MEMORY, container.memory


def cell(amounts: Amounts, resource: Resource) -> str:
    """`1 → 1500m (+50%)`, `4Gi unchanged` or `unset`; a pending ask is shown beside what is in force."""
    now = amounts.actual or amounts.spec
    if now is None:
        return "unset" if amounts.proposed is None else f"unset → {amounts.proposed}"
    pending = f", asked {amounts.spec}" if amounts.spec not in (None, now, amounts.proposed) else ""
    if amounts.proposed is None:
        return f"{now}{pending}"
    if amounts.proposed == amounts.spec:
        return f"{now} unchanged" if now == amounts.spec else f"{now}, asked {amounts.spec}"
    return f"{now} → {amounts.proposed}{change(now, amounts.proposed, resource)}{pending}"


def change(before: str, after: str, resource: Resource) -> str:
    """` (+50%)`, or nothing where there is no percentage (from zero) or no change."""
    parse = parse_cpu if resource is Resource.CPU else parse_memory
    old, new = parse(before), parse(after)
    if not old or old == new:
        return ""
    percent = 100 * (new - old) / old
    return f" ({percent:+.0f}%)" if abs(percent) >= 1 else f" ({percent:+.1f}%)"


def qos(item: Item) -> str:
    """`Burstable unchanged`, or before and after."""
    if item.qos_class == item.qos_class_after:
        return f"{item.qos_class} unchanged"
    return f"{item.qos_class} → {item.qos_class_after}"


def verdict(item: Item) -> str:
    """What is done, why, and the arithmetic of it: `Resize: Increase: …`; only the reason where nothing is done."""
    words = [item.reason.value] if item.action == "None" else [item.action.value, item.reason.value]
    # a revert or a move is its own reason
    return ": ".join([*dict.fromkeys(words), item.detail or item.reason.meaning])


def prediction(item: Item) -> str:
    """The predicted outcome with its arithmetic."""
    return ": ".join(filter(None, (item.prediction.outcome.value, item.prediction.detail)))


def drift(item: Item) -> str:
    """`app cpu template 2, live 3`, one after the other; with the side where request and limit differ in that."""
    texts = []
    for (container, resource), parts in groupby(item.drift, lambda one: (one.container, one.resource)):
        by_side = {one.side: f"template {one.template}, live {one.live or 'unset'}" for one in parts}
        if len(by_side) == len(Side) and len({*by_side.values()}) == 1:
            texts.append(f"{container} {resource} {by_side[Side.REQUEST]}")
        else:
            texts += [f"{container} {resource} {side} {text}" for side, text in by_side.items()]
    return "; ".join(texts)


def migration(item: Item) -> str:
    """When and how the pod is moved, and where to, or what it waits for: `in 12 s by Evict: to node-b or node-c`."""
    part = item.migration
    if part is None:
        return ""
    blocked, where = blocker(part), _names(part.landing)
    due = "due " if part.in_seconds < 0 or (part.in_seconds == 0 and blocked is not None) else ""
    when = due + countdown(part.in_seconds)
    if part.strategy is not Strategy.NONE:
        when += f" by {part.strategy}"
    if blocked is None:
        return f"{when}: to {where}" if where else when
    room = f"; there is room on {where}" if where else ""
    if part.strategy is Strategy.NONE:
        other = "" if blocked.reason in (Reason.MIGRATION_NOT_ENABLED, item.reason) else f"; {_without(blocked)}"
        return f"{when}, strategy None: nothing is moved{other}{room}"
    said = blocked.reason is item.reason  # in full, as what the pod is held for
    if blocked.reason is Reason.SURGING:
        return f"{when}: waits for the new pod" + ("" if said else f": {blocked.detail}")
    if blocked.reason in _WAITING or blocked.due_at is not None:
        why = f"{blocked.reason}: {blocked.detail.partition(';')[0]}" if said else _without(blocked)
        return f"{when}: waits: {why}" + (f"; then to {where}" if where else "")
    return f"{when}: not possible: {f'{blocked.name} fails' if said else _without(blocked)}{room}"


def blocker(part: MigrationPart) -> CheckPart | None:
    """The first precondition that does not hold."""
    return next((one for one in part.checks if not one.holds), None)


def check(part: CheckPart) -> str:
    """A precondition and what is known of it: `age: PodTooYoung: sim-1 is 12 min old (due in 18 min)`."""
    return ": ".join(filter(None, (part.name, part.detail if part.holds else _without(part))))


def _without(part: CheckPart) -> str:
    """A precondition that does not hold, and when it will, if only time is wanting."""
    wait = "" if part.in_seconds is None else f" (due {countdown(part.in_seconds)})"
    return ": ".join(filter(None, (part.reason.value, part.detail))) + wait


def mark(part: CheckPart) -> str:
    """`ok` or `FAILS`."""
    return "ok" if part.holds else "FAILS"


def countdown(seconds: int) -> str:
    """`in 12 s`, `now`, `4 min ago`: two units at most, and the smaller only as far as it matters."""
    if seconds == 0:
        return "now"
    left = abs(seconds)
    if left < 120:
        text = f"{left} s"
    elif left < 7200:
        minutes, rest = divmod(left, 60)
        text = f"{minutes} min {rest} s" if rest and minutes < 10 else f"{minutes} min"
    else:
        hours, rest = divmod(left // 60, 60)
        text = f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"in {text}" if seconds > 0 else f"{text} ago"


def _names(names: list[str]) -> str:
    if len(names) > _NAMED:
        return f"{', '.join(names[:_NAMED])} or {len(names) - _NAMED} more"
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def server(item: Item) -> str:
    """The server's answer to the dry run; empty if there was none."""
    if item.server is None:
        return ""
    cause = f" ({item.server.cause})" if item.server.cause else ""
    return ": ".join(filter(None, (item.server.outcome.value + cause, item.server.detail)))


def because(container: ContainerPart, resource: Resource) -> list[str]:
    """The steps of one resource, without its name in front."""
    prefix = f"{resource}: "
    return [step.removeprefix(prefix) for step in container.because if step.startswith(prefix)]


def summary(document: Document) -> str:
    """`3 to resize, 1 proposed only, 2 held, 1 at target`."""
    counts = Counter(_group(item) for item in document.items)
    texts = [f"{counts[group]} {group}" for group in _GROUPS if counts[group]]
    notes = sum(problem.reason in NOTES for problem in document.problems)
    for count, word in ((len(document.problems) - notes, "problem"), (notes, "note")):
        if count:
            texts.append(f"{count} {word}{'s' if count > 1 else ''}")
    return ", ".join(texts if document.items else ["no pod is selected", *texts])


_NAMED = 3  # nodes in one line
_WAITING = frozenset({Reason.DRAINING, Reason.GATE_UNKNOWN})
_GROUPS = ("to resize", "to migrate", "to scale back", "proposed only", "held", "at target")
_BY_ACTION = {
    ActionWord.RESIZE: "to resize",
    ActionWord.REVERT: "to resize",
    ActionWord.MIGRATE: "to migrate",
    ActionWord.SURGE: "to migrate",
    ActionWord.SURGE_BACK: "to scale back",
}


def _group(item: Item) -> str:
    if item.action in _BY_ACTION:
        return _BY_ACTION[item.action]
    return {Reason.RECOMMEND_ONLY: "proposed only", Reason.AT_TARGET: "at target"}.get(item.reason, "held")
