"""YAML that says exactly what it seems to say, with a line for every key. Policies and settings are read with it.

Scalars are read by the YAML 1.2 core schema, so that `Off`, `yes` and `1:30` stay text. Duplicate keys, keys that are
not text, anchors, tags and numbers that are not finite are refused. Every problem of a file is reported at once, as a
`Fault` that names file, line, key path and remedy.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from autoscaler.core.foreign import shown

Model = TypeVar("Model", bound=BaseModel)
KeyPath = tuple[str | int, ...]

MAX_BYTES = 256 * 1024  # a ConfigMap holds 1 MiB in all; one policy takes 1 or 2 KiB
_MAX_DEPTH = 30
_MAX_SCALAR = 16 * 1024
_MAX_DIGITS = 40
_TAG = "tag:yaml.org,2002:"
_SCALARS = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
)  # .inf and .nan stay text: nothing here may be either
_ANCHORS = 'anchors (&) and aliases (*) are not accepted; put text that starts with them in quotes, like "*"'
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """What is wrong with one value: its place (a file, flag or variable; line 0: none), its key path, the remedy."""

    source: str
    line: int
    path: str
    message: str

    def __str__(self) -> str:
        where = f"{self.source}:{self.line}" if self.line else self.source
        return ": ".join(part for part in (where, self.path, self.message) if part)


class Refused(Exception):
    """What was read cannot be used. `faults` has every reason, each a line of its own in the text."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """One document of a file as plain data, with the line and column (from 1) of each key and list item."""

    source: str
    data: Any
    marks: Mapping[KeyPath, tuple[int, int]]

    def fault(self, path: KeyPath, message: str) -> Fault:
        """A fault at a key path; at the nearest key above it if that key is not there."""
        present = path
        while present and present not in self.marks:
            present = present[:-1]
        return Fault(self.source, self.marks[present][0], format_path(path), message)

    def require_kind(self, api_version: str, kind: str) -> None:
        """Raises `Refused` unless this document is of that kind."""
        if not isinstance(self.data, dict):
            raise Refused([self.fault((), f"this is {describe(self.data)}; expected a mapping with kind: {kind}")])
        for key, expected in (("kind", kind), ("apiVersion", api_version)):
            if self.data.get(key) != expected:
                said = f"found {shown(self.data[key])}" if key in self.data else "is missing"
                raise Refused([self.fault((key,), f"{said}; expected {expected}")])

    def validated(self, model: type[Model], at: KeyPath = (), data: object = None) -> Model:
        """The document as a model; or `data`, the part of it `at` a path. Raises `Refused`."""
        try:
            return validate(model, self.data if not at else data)
        except ValidationError as error:
            schema = model.model_json_schema()
            faults = []
            for details in error.errors(include_url=False):
                path = details["loc"][:-1] if details["loc"][-1:] == ("[key]",) else details["loc"]
                faults.append(self.fault((*at, *path), message(details, schema)))
            raise Refused(faults) from None


def validate(model: type[Model], data: object) -> Model:
    """Validate plain data by the keys that users write. Raises pydantic's `ValidationError`.

    It goes through JSON because strict models take lists for tuples and text for enums only from there.
    """
    return model.model_validate_json(json.dumps(data), by_alias=True, by_name=False)


def format_path(path: KeyPath) -> str:
    """`spec.containers[0].name`; keys that are no plain words are quoted: `matchLabels["a/b"]`."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        elif _PLAIN_KEY.fullmatch(key):
            text += f".{key}" if text else key
        else:
            text += f"[{json.dumps(key)}]"
    return text


def describe(value: object) -> str:
    """What a value is, in the words of YAML."""
    match value:
        case None:
            return "empty"
        case bool():
            return f"the truth value {str(value).lower()}"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {shown(value)}"
        case list():
            return "a list"
        case _:
            return "a mapping"


def did_you_mean(word: object, choices: Iterable[str], likeness: float = 0.6) -> str:
    """` (did you mean x?)`, or nothing if no choice is at least this similar (0 to 1)."""
    by_lower = {choice.lower(): choice for choice in choices}
    near = difflib.get_close_matches(str(word).lower(), by_lower, n=1, cutoff=likeness)
    return f" (did you mean {by_lower[near[0]]}?)" if near else ""


def message(error: ErrorDetails, schema: Mapping[str, Any]) -> str:
    """One of pydantic's errors in the words of this program. `schema` is the model's JSON Schema."""
    value, kind = error["input"], error["type"]
    context = error.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "missing":
        return "is missing, and has no default"
    if kind == "extra_forbidden":
        allowed = list(_at(schema, error["loc"][:-1]).get("properties", ()))
        return f"unknown key{did_you_mean(error['loc'][-1], allowed)}; allowed: {', '.join(allowed) or 'none'}"
    if kind in ("enum", "literal_error"):
        choices = _at(schema, error["loc"]).get("enum") or [str(context["expected"])]
        return f"{shown(value)} is not allowed{did_you_mean(value, choices)}; allowed: {', '.join(choices)}"
    if value is None:
        return "has no value; give it one, or leave the key out"
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        return f"is {describe(value)}; expected a mapping (key: value)"
    if kind in ("tuple_type", "list_type", "set_type", "frozen_set_type"):
        return f"is {describe(value)}; expected a list"
    if kind == "string_type":
        remedy = "; put it in quotes" if isinstance(value, int | float) else ""
        return f"is {describe(value)}; expected text{remedy}"
    return f"{shown(value)}: {error['msg'][:1].lower()}{error['msg'][1:]}"


def _at(schema: Mapping[str, Any], path: Iterable[str | int]) -> Mapping[str, Any]:
    """The part of a JSON Schema that describes the value at a key path; empty if it says nothing."""
    part: Mapping[str, Any] = schema
    for key in (*path, None):
        while "$ref" in part or "anyOf" in part:
            if "$ref" in part:
                part = schema["$defs"][part["$ref"].rpartition("/")[2]]
            else:
                part = next((choice for choice in part["anyOf"] if choice.get("type") != "null"), {})
        if key is None:
            break
        named = part.get("properties", {}).get(key) or part.get("additionalProperties")  # or any name, as of a mapping
        part = part.get("items", {}) if isinstance(key, int) else named if isinstance(named, Mapping) else {}
    return part


def load_documents(content: bytes, source: str) -> list[Document]:
    """All documents of a file that are not empty. `source` names the file in messages. Raises `Refused`."""
    if len(content) > MAX_BYTES:
        raise Refused([Fault(source, 0, "", f"is larger than {MAX_BYTES // 1024} KiB; leave out what is not needed")])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Refused([Fault(source, line, "", "is not UTF-8 text")]) from None
    faults: list[Fault] = []
    documents = []
    try:
        for root in _roots(text):
            builder = _Builder(source)
            data = builder.value(root, ())
            faults += builder.faults
            if data is not None:
                documents.append(Document(source, data, builder.marks))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        faults.append(Fault(source, mark.line + 1 if mark else 0, "", _syntax(error)))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        faults.append(Fault(source, line, "", f"contains the control character U+{error.character:04X}"))
    if faults:
        raise Refused(faults)
    return documents


class _NotAcceptedError(yaml.MarkedYAMLError):
    """YAML that is valid and not accepted here."""


def _syntax(error: yaml.MarkedYAMLError) -> str:
    if isinstance(error, _NotAcceptedError):
        return str(error.problem)
    if error.context in ("while scanning an alias", "while scanning an anchor"):
        return _ANCHORS
    return "is not valid YAML: " + ", ".join(part for part in (error.context, error.problem) if part)


class _Loader(yaml.SafeLoader):
    """Composes nodes only; nothing is constructed by PyYAML."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (PyYAML's own name)
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        problem = None
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            problem = _ANCHORS
        elif event.tag is not None:
            problem = f"the tag {shown(event.tag)} is not accepted; leave tags out"
        elif self.depth == _MAX_DEPTH:
            problem = "nested too deeply"
        if problem is not None:
            raise _NotAcceptedError(problem=problem, problem_mark=event.start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


for _name, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), _first)


def _roots(text: str) -> Iterator[yaml.Node]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                yield node
    finally:
        loader.dispose()


class _Builder:
    """Turns the nodes of one document into plain data, noting marks and faults."""

    def __init__(self, source: str) -> None:
        self.faults: list[Fault] = []
        self.marks: dict[KeyPath, tuple[int, int]] = {}
        self._source = source

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        self.marks.setdefault(path, (node.start_mark.line + 1, node.start_mark.column + 1))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != _TAG + "str":
                what = describe(self._scalar(key_node, path)) if isinstance(key_node, yaml.ScalarNode) else "no text"
                self._fault(key_node, path, f"a key is {what}; keys are text: put it in quotes")
                continue
            key = key_node.value
            inner = (*path, key)
            if key in mapping:
                self._fault(key_node, inner, f"appears twice; first in line {self.marks[inner][0]}")
                continue
            self.marks[inner] = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            mapping[key] = self.value(value_node, inner)
        return mapping

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:
        text: str = node.value
        if len(text) > _MAX_SCALAR:
            return self._fault(node, path, f"is longer than {_MAX_SCALAR} characters")
        kind = node.tag.removeprefix(_TAG)
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        if kind == "str":
            if any("\ud800" <= letter <= "\udfff" for letter in text):
                return self._fault(node, path, "contains half a character (a lone surrogate)")
            return text
        number = None
        if len(text) <= _MAX_DIGITS:
            number = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10)) if kind == "int" else float(text)
        return number if number is not None and math.isfinite(number) else self._fault(node, path, "is out of range")

    def _fault(self, node: yaml.Node, path: KeyPath, text: str) -> None:
        self.faults.append(Fault(self._source, node.start_mark.line + 1, format_path(path), text))
