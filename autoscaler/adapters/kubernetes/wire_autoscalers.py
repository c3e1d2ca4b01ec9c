"""JSON of other people's autoscalers to the core's values. Pure."""

from __future__ import annotations

import msgspec

from autoscaler.adapters.kubernetes import schema, schema_extras
from autoscaler.adapters.kubernetes.decoded import Decoded, Owned, read
from autoscaler.core.model import Autoscaler, Resource, ScaledResource

HORIZONTAL, VERTICAL = "HorizontalPodAutoscaler", "VerticalPodAutoscaler"

_horizontals = msgspec.json.Decoder(schema_extras.Horizontal)
_verticals = msgspec.json.Decoder(schema_extras.Vertical)
_RESOURCES = {str(word): word for word in Resource}


def decode_horizontal(raw: msgspec.Raw | bytes) -> Decoded[Owned, Autoscaler]:
    """A HorizontalPodAutoscaler. Only targets of type Utilization divide by the request."""
    return read(HORIZONTAL, raw, _horizontals, _horizontal)


def decode_vertical(raw: msgspec.Raw | bytes) -> Decoded[Owned, Autoscaler]:
    """A VerticalPodAutoscaler. Without an update mode it acts (its API's default)."""
    return read(VERTICAL, raw, _verticals, _vertical)


def _horizontal(wire: schema_extras.Horizontal) -> Autoscaler:
    metrics = (one.resource or one.container_resource for one in wire.spec.metrics or ())
    scaled = frozenset(
        ScaledResource(_RESOURCES[one.name], one.container)
        for one in metrics
        if one is not None and one.name in _RESOURCES and one.target.type == "Utilization"
    )
    return _autoscaler(HORIZONTAL, wire.metadata, wire.spec.scale_target_ref, scaled)


def _vertical(wire: schema_extras.Vertical) -> Autoscaler:
    policy = wire.spec.update_policy
    mode = (policy.update_mode if policy else None) or "Auto"
    return _autoscaler(VERTICAL, wire.metadata, wire.spec.target_ref, mode=mode)


def _autoscaler(
    kind: str,
    meta: schema.Meta,
    target: schema_extras.TargetRef | None,
    scaled: frozenset[ScaledResource] = frozenset(),
    mode: str = "",
) -> Autoscaler:
    words = f"{target.kind}/{target.name}" if target else ""
    return Autoscaler(kind, meta.namespace, meta.name, words, scaled, mode)
