"""The PromQL that a policy may write, and what is asked for of a drain gate. Pure text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_PAIRS = {")": "(", "]": "[", "}": "{"}
_STRING = re.compile(r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`[^`]*`""")
_REGEX = re.compile(rf"=~\s*(?P<text>{_STRING.pattern})")
_COMMENT = re.compile(r"#[^\n]*")
_PLACEHOLDER = re.compile(r"\$(?:\{[A-Za-z_]\w*\}?|[A-Za-z_]\w*)")  # not $1 of label_replace
_PLACEHOLDERS = ("$pod", "$namespace")


def checked_query(query: str, placeholders: Sequence[str] = _PLACEHOLDERS) -> str:
    """A query that can be asked for many pods at once: it selects them by `$pod`, and by the other placeholders if it
    likes. Raises `ValueError`. Of PromQL's grammar only quotes and brackets are looked at: servers have dialects, and
    `doctor` asks the one that it is for."""
    rest = _COMMENT.sub("", _STRING.sub('""', query))
    if re.search("[\"'`]", rest.replace('""', "")):
        raise ValueError("a quote is not closed")
    for found in _PLACEHOLDER.findall(query):
        if found not in placeholders:
            raise ValueError(f"{found[:40]!r} is not known; there are {' and '.join(placeholders)}")
    if not any("$pod" in found["text"] for found in _REGEX.finditer(query)):
        raise ValueError(
            'does not select pods; write pod=~"$pod", like sum by (namespace, pod) (bridge_sessions{pod=~"$pod"})'
        )
    opened: list[str] = []
    for letter in rest:
        if letter in _PAIRS.values():
            opened.append(letter)
        elif letter in _PAIRS and (not opened or opened.pop() != _PAIRS[letter]):
            raise ValueError(f"{letter!r} closes no bracket")
    if opened:
        raise ValueError(f"{opened[-1]!r} is not closed")
    return query


def asked(query: str, namespace: str, pods: Iterable[str]) -> str:
    """The query for these pods of a namespace."""
    return query.replace("$pod", _one_of(pods)).replace("$namespace", _one_of([namespace]))


def names_namespace(query: str) -> bool:
    """Whether the query itself is for one namespace, so that its answer need not say which."""
    return "$namespace" in query


def _one_of(names: Iterable[str]) -> str:
    # of RE2's special characters names of pods have the dot alone; a class is read the same in all kinds of quotes
    return f"(?:{'|'.join(name.replace('.', '[.]') for name in sorted(names))})"
