"""Who is replayed: a recommender with its parameters, as they are given on a command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autoscaler.core.foreign import told
from autoscaler.core.model import Container
from autoscaler.core.policy import Policy
from autoscaler.core.recommender import Recommender
from autoscaler.plugins import Catalog, UnknownRecommender
from autoscaler.policystore import read_policies
from autoscaler.strictyaml import Document, Fault, Refused, load_documents

RECOMMENDER, PARAMETERS = "--recommender", "--parameters"


@dataclass(frozen=True, slots=True)
class Entrant:
    """A recommender by name, with parameters as a policy has them. Plain data, so that other processes can have it.

    `flag`: by which they were given.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    flag: str = RECOMMENDER

    def recommender(self, catalog: Catalog) -> Recommender[Any]:
        """The recommender itself. Raises `Refused`."""
        try:
            factory = catalog.named(self.name)
        except UnknownRecommender as error:
            raise Refused([Fault(RECOMMENDER, 0, "", str(error))]) from None
        document = Document(self.flag, dict(self.parameters), {(): (0, 0)})
        params = document.validated(factory.Parameters)
        try:
            return factory(params)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # foreign code: it may refuse its parameters in any way it likes
            text = f"recommender {self.name} refuses them: {told(error)}"
            raise Refused([Fault(self.flag, 0, "", text)]) from None


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """One policy of a file, by name. `container`: which of its entries counts; not said: the first with a name."""

    path: Path
    name: str
    container: str = ""

    @property
    def label(self) -> str:
        return f"policy {self.name}"

    def policy(self, catalog: Catalog) -> Policy:
        """The policy itself. Raises `Refused`."""
        policy = next(one for one in read_policies((self.path,), catalog).policies if one.name == self.name)
        if not self.container:
            return policy
        entry = policy.container_policy(Container(self.container))
        return replace(policy, containers=() if entry is None else (replace(entry, name=self.container),))


def policies_of(path: Path, catalog: Catalog) -> tuple[PolicyFile, ...]:
    """All policies of a file or folder. Raises `Refused`."""
    return tuple(PolicyFile(path, one.name) for one in read_policies((path,), catalog).policies)


def parse_entrant(text: str, parameters: str = "") -> Entrant:
    """`bridge`, or `percentile:cpu.target=p95,cpu.margin=15%`; `parameters`: more of them. Raises `Refused`."""
    name, colon, behind = text.partition(":")
    both = {RECOMMENDER: behind, PARAMETERS: parameters}
    flag = " and ".join(each for each, part in both.items() if part) or RECOMMENDER
    given = parse_parameters(",".join(filter(None, both.values())), flag)
    return Entrant(name, given, f"{name}:{parameters}" if parameters and not colon else text, flag)


def parse_parameters(text: str, flag: str) -> dict[str, Any]:
    """`cpu.target=p95,cpu.margin=15%` as nested keys; a value is read as in a policy. Raises `Refused`."""
    found: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        path, equals, value = item.partition("=")
        path = path.strip()
        keys = path.split(".")
        if not equals or not all(keys):
            remedy = "write key=value, like cpu.margin=15%,cpu.target=p95"
            raise Refused([Fault(flag, 0, "", f"{item!r} is no parameter; {remedy}")])
        part = found
        for key in keys[:-1]:
            part = part.setdefault(key, {})
            if not isinstance(part, dict):
                raise Refused([Fault(flag, 0, path, "has a value, and keys below it; leave one of them out")])
        if keys[-1] in part:
            raise Refused([Fault(flag, 0, path, "is given twice; leave one of them out")])
        part[keys[-1]] = _value(path, value.strip(), flag)
    return found


def _value(path: str, text: str, flag: str) -> Any:
    try:
        documents = load_documents(text.encode(), flag)
    except Refused as refused:
        raise Refused([Fault(flag, 0, path, fault.message) for fault in refused.faults]) from None
    return documents[0].data if documents else None
