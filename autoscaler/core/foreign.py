"""What plug-ins hand over, as text: short, and never an error itself, whatever they made of `str` and `repr`."""

from __future__ import annotations

from collections.abc import Callable

_VALUE = 80
_WORDS = 300  # a detail is shown in tables, log lines and the plan's JSON, in each turn anew


def shown(value: object) -> str:
    """A value, quoted as Python does."""
    return _cut(_text(repr, value), _VALUE)


def told(error: BaseException) -> str:
    """An error: `ZeroDivisionError: division by zero`."""
    return _cut(f"{type(error).__name__}: {_text(str, error)}", _WORDS)


def words(text: str) -> str:
    """A text of any length."""
    return _cut(text, _WORDS)


def _text(make: Callable[[object], str], value: object) -> str:
    try:
        return make(value)
    except Exception:  # an int of 10,000 digits cannot be printed, and __str__ is foreign code
        return f"an unprintable {type(value).__name__}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
