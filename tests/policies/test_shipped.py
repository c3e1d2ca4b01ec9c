"""What ships agrees with itself: policies, their schema for editors, and docs/policies.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from autoscaler.core.policy import Mode
from autoscaler.policyschema import policy_schema
from autoscaler.policystore import read_policies
from autoscaler.strictyaml import load_documents
from tests.policies.documents import CATALOG

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(path for path in (ROOT / "policies").rglob("*.yaml") if path.name != "kustomization.yaml")
DOCUMENTED = (ROOT / "docs" / "policies.md").read_text()
SCHEMA = policy_schema(CATALOG)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_each_shipped_policy_can_be_loaded_alone_and_passes_the_schema(path: Path) -> None:
    assert read_policies([path], CATALOG).warnings == ()
    for document in load_documents(path.read_bytes(), path.name):
        jsonschema.Draft202012Validator(SCHEMA).validate(document.data)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_other_readers_of_yaml_see_the_same_in_shipped_policies(path: Path) -> None:
    assert list(yaml.safe_load_all(path.read_text())) == [
        document.data for document in load_documents(path.read_bytes(), path.name)
    ]


def test_the_folder_as_shipped_changes_nothing() -> None:
    (policy,) = read_policies([ROOT / "policies"], CATALOG).policies
    assert policy.mode is Mode.RECOMMEND


def test_kustomize_puts_every_policy_of_the_folder_into_the_config_map() -> None:
    kustomization = yaml.safe_load((ROOT / "policies" / "kustomization.yaml").read_text())
    (generator,) = kustomization["configMapGenerator"]
    assert generator["name"] == "bridge-autoscaler-policies"
    assert sorted(generator["files"]) == [path.name for path in SHIPPED if path.parent.name == "policies"]


def test_the_schema_is_one_and_knows_parameters_of_recommenders() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    document = yaml.safe_load(SHIPPED[0].read_text())
    for bad in (
        "{parameters: {cpus: {}}}",
        "{name: percentile, parameters: {cpu: {target: 95}}}",
        "{name: unheard-of}",
    ):
        document["spec"]["recommender"] = yaml.safe_load(bad)
        assert not validator.is_valid(document)


def test_the_documented_policies_are_valid(tmp_path: Path) -> None:
    whole, *specs = re.findall(r"^```yaml\n(.*?)^```$", DOCUMENTED, re.DOTALL | re.MULTILINE)
    head = whole.partition("metadata:")[0]
    assert len(specs) == 2
    for number, text in enumerate([whole, *(f"{head}metadata: {{name: p-{i}}}\n{s}" for i, s in enumerate(specs))]):
        (tmp_path / f"{number}.yaml").write_text(text)
        assert read_policies([tmp_path / f"{number}.yaml"], CATALOG).warnings == ()


def keys(part: dict[str, Any], path: str, required: bool) -> Iterator[tuple[str, str]]:
    """Every key of a schema that holds no further keys, or must be given, or is a list; with its default as written."""
    default, optional, part = part.get("default"), "anyOf" in part, resolved(part)
    written = "required" if required else as_written(path, default)
    if (
        part.get("type") != "object"
        or optional
        or path in ("spec.selector", "spec.recommender.parameters")
        or free(part)
    ):
        yield path, written
    if part.get("type") == "array" and "properties" in resolved(part["items"]):
        yield from keys(part["items"], f"{path}[]", False)
    each = part.get("additionalProperties")
    if isinstance(each, dict) and "properties" in resolved(each):
        yield from keys(each, f"{path}.*", False)
    for key, inner in part.get("properties", {}).items():
        yield from keys(inner, f"{path}.{key}".lstrip("."), key in part.get("required", ()))


def free(part: dict[str, Any]) -> bool:
    return isinstance(part.get("additionalProperties"), dict) or part.get("additionalProperties") is True


def resolved(part: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in part or ("anyOf" in part and {"type": "null"} in part["anyOf"]):
        if "$ref" in part:
            part = SCHEMA["$defs"][part["$ref"].rpartition("/")[2]]
        else:
            (part,) = (choice for choice in part["anyOf"] if choice != {"type": "null"})
    return part


def as_written(path: str, default: object) -> str:
    match default:
        case None:
            return {"spec.fallback.infeasibleAfter": "as after", "spec.fallback.action": "by mode"}.get(path, "none")
        case bool():
            return str(default).lower()
        case float():
            return f"{100 * default:g}%"
        case list() if path == "spec.containers":
            return "one entry named *"
        case list():
            return f"[{', '.join(default)}]"
        case _:
            return str(default)


def test_the_documentation_has_every_key_with_its_default() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| [^|]{8,} \|$", DOCUMENTED, re.MULTILINE)
    documented = {key: default.replace("`", "").strip() for key, default in rows}
    expected = dict(keys(SCHEMA, "", False))
    assert documented == expected
