"""The tables of parameters in docs/recommenders.md, made from the code.

`python -m tests.parameters_page` renews them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import AfterValidator, BaseModel
from pydantic.fields import FieldInfo

from autoscaler.plugins import discover
from autoscaler.recommenders.parameters import Within

PAGE = Path(__file__).parents[1] / "docs" / "recommenders.md"
_TABLE = re.compile(r"(<!-- parameters of (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def page(text: str) -> str:
    """The page with its tables as they should be."""
    shipped = discover().usable
    return _TABLE.sub(lambda match: match[1] + _table(shipped[match[2]].Parameters()) + match[3], text)


def names(text: str) -> set[str]:
    """The recommenders that have a table."""
    return {name for _, name, _ in _TABLE.findall(text)}


def _table(defaults: BaseModel) -> str:
    rows = "".join(f"| `{key}` | {value} | {bounds} | {what} |\n" for key, value, bounds, what in _rows(defaults))
    return "| key | default | bounds | meaning |\n|---|---|---|---|\n" + rows


def _rows(defaults: BaseModel, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    written: dict[str, Any] = defaults.model_dump(mode="json")
    for name, field in type(defaults).model_fields.items():
        key, value = prefix + (field.alias or name), getattr(defaults, name)
        if isinstance(value, BaseModel):
            yield from _rows(value, f"{key}.")
        else:
            yield key, _shown(written[name]), _bounds(field), field.description or ""


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return f"`{100 * value:g}%`" if isinstance(value, float) else f"`{value}`"


def _bounds(field: FieldInfo) -> str:
    within = [one.func for one in field.metadata if isinstance(one, AfterValidator) and isinstance(one.func, Within)]
    if within:
        return str(within[0])
    least, most = (
        next((getattr(one, end) for one in field.metadata if hasattr(one, end)), None) for end in ("ge", "le")
    )
    return "" if least is None or most is None else f"{least} to {most}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
