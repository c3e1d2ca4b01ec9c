"""HTML and SVG as text in which nothing is forgotten to be escaped. Pure."""

from __future__ import annotations

from html import escape


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def element(name: str, *content: str | Html, **attributes: str | float | None) -> Html:
    """An element. Content that is not `Html` is escaped, and so is the value of each attribute.

    Of an attribute's name `_` is `-`, and is dropped at the end (`class_`); one that is None is left out. Numbers are
    written with two decimals at most.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value if isinstance(value, str) else number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{given}>{joined(*content)}</{name}>")


def joined(*parts: str | Html) -> Html:
    """One after the other."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


def number(value: float) -> str:
    """As short as two decimals allow."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
