"""JSON and YAML: the document itself."""

from __future__ import annotations

import msgspec
import yaml

from autoscaler.cli.document import Document


def render_json(document: Document) -> str:
    """Indented JSON, ending in a line feed. The same document gives the same text."""
    return msgspec.json.format(msgspec.json.encode(document)).decode() + "\n"


def render_yaml(document: Document) -> str:
    """The same as YAML 1.1, keys in the order of the schema."""
    # libyaml is ten times as fast as the Python emitter, which matters for thousands of pods
    text: str = yaml.dump(
        msgspec.to_builtins(document), Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=10_000
    )
    return text
