"""Short texts that several renderings share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from autoscaler.cli.document import Amounts, ContainerPart, Document, Item, Sides
from autoscaler.core.model import Resource
from autoscaler.core.reasons import Reason
from autoscaler.core.units import parse_cpu, parse_memory


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
    return ": ".join([*words, item.detail or item.reason.meaning])


def prediction(item: Item) -> str:
    """The predicted outcome with its arithmetic."""
    return ": ".join(filter(None, (item.prediction.outcome.value, item.prediction.detail)))


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
    if document.problems:
        texts.append(f"{len(document.problems)} problem{'s' if len(document.problems) > 1 else ''}")
    return ", ".join(texts if document.items else ["no pod is selected", *texts])


_GROUPS = ("to resize", "proposed only", "held", "at target")


def _group(item: Item) -> str:
    if item.action != "None":
        return "to resize"
    return {Reason.RECOMMEND_ONLY: "proposed only", Reason.AT_TARGET: "at target"}.get(item.reason, "held")
