"""The JSON Schema of the policy document (draft 2020-12), for editors: completion, hints and checks while typing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from autoscaler.plugins import Catalog
from autoscaler.policymodel import PolicyDocument
from autoscaler.recommenders.parameters import Percentile, format_duration

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _Generator(GenerateJsonSchema):
    """Writes defaults as users write them: `14d`, not ISO 8601; and nothing where the default is absence."""

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, timedelta):
            return format_duration(dft)
        if isinstance(dft, Percentile):
            return str(dft)
        if isinstance(dft, BaseModel):
            return dft.model_dump(mode="json", by_alias=True, exclude_none=True)
        return super().encode_default(dft)


def policy_schema(catalog: Catalog) -> dict[str, Any]:
    """The schema of a BridgePolicy, including the parameters of each usable recommender."""
    plugins = {name: catalog.usable[name].Parameters for name in sorted(catalog.usable)}
    models = [(model, "validation") for model in (PolicyDocument, *plugins.values())]
    references, definitions = models_json_schema(models, schema_generator=_Generator)  # type: ignore[arg-type]
    parts: dict[str, Any] = definitions["$defs"]
    section = parts["RecommenderSection"]
    section["properties"]["name"]["enum"] = list(plugins)
    default = section["properties"]["name"]["default"]
    section["allOf"] = [
        {
            "if": {"properties": {"name": {"const": name}}, "required": [] if name == default else ["name"]},
            "then": {"properties": {"parameters": references[model, "validation"]}},
        }
        for name, model in plugins.items()
    ]
    root = references[PolicyDocument, "validation"]
    return {"$schema": _DIALECT, "title": "BridgePolicy", **root, "$defs": parts}
