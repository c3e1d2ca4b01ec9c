"""Who is replayed: a recommender with its parameters, as they are given on a command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoscaler.core.foreign import told
from autoscaler.core.recommender import Recommender
from autoscaler.plugins import Catalog, UnknownRecommender
from autoscaler.strictyaml import Document, Fault, Refused, load_documents

NAME, PARAMETERS = "--recommender", "--parameters"


def recommender_of(name: str, parameters: Mapping[str, Any], catalog: Catalog) -> Recommender[Any]:
    """The installed recommender of that name with these parameters. Raises `Refused`."""
    try:
        factory = catalog.named(name)
    except UnknownRecommender as error:
        raise Refused([Fault(NAME, 0, "", str(error))]) from None
    document = Document(PARAMETERS, dict(parameters), {(): (0, 0)})
    params = document.validated(factory.Parameters)
    try:
        return factory(params)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # foreign code: it may refuse its parameters in any way it likes
        raise Refused([Fault(PARAMETERS, 0, "", f"recommender {name} refuses them: {told(error)}")]) from None


def parse_parameters(text: str) -> dict[str, Any]:
    """`cpu.target=p95,cpu.margin=15%` as nested keys; a value is read as in a policy. Raises `Refused`."""
    found: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        path, equals, value = item.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            raise Refused([Fault(PARAMETERS, 0, "", f"{item!r} is not key=value; write cpu.margin=15%,cpu.target=p95")])
        part = found
        for key in keys[:-1]:
            part = part.setdefault(key, {})
            if not isinstance(part, dict):
                raise Refused([Fault(PARAMETERS, 0, path, "is given a value and keys below it; leave one of them out")])
        if keys[-1] in part:
            raise Refused([Fault(PARAMETERS, 0, path, "is given twice; leave one of them out")])
        part[keys[-1]] = _value(path, value.strip())
    return found


def _value(path: str, text: str) -> Any:
    try:
        documents = load_documents(text.encode(), PARAMETERS)
    except Refused as refused:
        raise Refused([Fault(PARAMETERS, 0, path, fault.message) for fault in refused.faults]) from None
    return documents[0].data if documents else None
