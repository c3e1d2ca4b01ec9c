"""What copies of a series say of a container, and by which label they are told apart. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from autoscaler.adapters.prometheus import queries
from autoscaler.adapters.prometheus.answers import Series, foreign
from autoscaler.adapters.prometheus.layout import Layout
from autoscaler.core.history import ContainerRef, Gap
from autoscaler.core.reasons import Reason

SOURCES = ("job", "metrics_path")
"""Labels that say who scraped what."""

_MOST_NAMED = 4
_MOST_LETTERS = 100  # of a name: longer ones are none of Kubernetes


def disputes_in(answer: Iterable[Series], layout: Layout, shown: Callable[[float], str]) -> Mapping[ContainerRef, Gap]:
    """Why containers with different copies of a series may not be acted on.

    Names the labels that tell the copies apart, and the one of them to choose: what most of these containers have.
    """
    copies: dict[ContainerRef, list[Series]] = defaultdict(list)
    for series in answer:
        copies[ContainerRef(*(series.labels.get(name, "") for name in layout.names))].append(series)
    differing = {container: _told_apart_by(of_one) for container, of_one in copies.items()}
    votes = Counter(matcher(one, differing[whose]) for whose, of_one in copies.items() for one in of_one)
    found = {}
    for container, of_one in copies.items():
        label = differing[container]
        # the most usual first; the alphabet decides between equals, so that it is the same one each time
        of_one.sort(key=lambda one: (-votes[matcher(one, label)], matcher(one, label)))
        says = " and ".join(
            f"{matcher(one, label)} says {shown(float(one.values[-1]))}" for one in of_one[:_MOST_NAMED]
        )
        reason = Reason.AMBIGUOUS_SOURCE if label in SOURCES else Reason.DUPLICATE_SERIES
        found[container] = Gap(
            reason, f"{says}; choose in prometheus.layout.matchers, like matchers: '{matcher(of_one[0], label)}'"
        )
    return found


def _told_apart_by(copies: Sequence[Series]) -> str:
    """The label to name: of those by which copies differ a usual one, else the first of the alphabet."""
    labels = sorted({name for one in copies for name in one.labels})
    differing = [name for name in labels if len({one.labels.get(name) for one in copies}) > 1]
    return next((name for name in SOURCES if name in differing), differing[0] if differing else "instance")


def matcher(series: Series, label: str) -> str:
    """What selects a series by a label, for a person."""
    return said(label, series.labels.get(label, ""))


def said(label: str, value: str) -> str:
    """A matcher, for a person: what servers call things may be anything, of any length."""
    return f"{foreign(label, _MOST_LETTERS)}={queries.quoted(foreign(value, _MOST_LETTERS))}"


def cores(value: float) -> str:
    """An amount of CPU, for a person."""
    return f"{value:.2f} cores"


def mebibytes(value: float) -> str:
    """An amount of memory, for a person."""
    return f"{value / 2**20:.0f} MiB"
