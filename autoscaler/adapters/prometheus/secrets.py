"""Secrets: read when they are needed, and taken out of what is shown."""

from __future__ import annotations

import errno
import html
import json
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

from autoscaler.adapters.prometheus.access import Secret
from autoscaler.adapters.prometheus.answers import MetricsError

_MOST_BYTES = 64 << 10  # a header of 64 KiB is more than any server takes
_SHORTEST_HIDDEN = 4  # less than that occurs in any text
_SHORTEST_PART_HIDDEN = 8  # of one with several words: many of them are no secret
_HIDDEN = "(hidden)"
NOT_REGULAR = "is not a regular file, and can be read once only"


def read(secret: Secret) -> str:
    """The value, without the newline that a file ends with. Raises `MetricsError`, which names setting and file."""
    text = secret.value
    if secret.file is not None:
        try:
            if not is_regular(secret.file):
                raise _unusable(secret, NOT_REGULAR)
            with secret.file.open("rb") as file:
                text = file.read(_MOST_BYTES + 1).decode("utf-8-sig").strip()
        except OSError as error:
            raise _unusable(secret, f"cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise _unusable(secret, "is not UTF-8 text") from None
    if not text:
        raise _unusable(secret, "is empty")
    if len(text) > _MOST_BYTES:
        raise _unusable(secret, f"is larger than {_MOST_BYTES >> 10} KiB")
    return text


def is_regular(file: Path) -> bool:
    """Whether a file can be read again and again, without waiting for somebody to write. Raises `OSError`."""
    mode = file.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return stat.S_ISREG(mode)


def in_basic(secret: Secret, ends: str = "") -> str:
    """A value that can stand in a pair of Basic: RFC 7617 wants no control characters, and none that `ends` it."""
    text = read(secret)
    if any(unicodedata.category(letter) == "Cc" for letter in text):
        raise _unusable(secret, "holds a line break or another control character")
    if ends and ends in text:
        raise _unusable(secret, f"holds {ends!r}, which ends it (RFC 7617)")
    return text


def token(secret: Secret) -> str:
    """A value that can stand after Bearer. RFC 6750."""
    text = in_a_header(secret)
    if " " in text:
        raise _unusable(secret, "holds a space; write the token alone, without Bearer")
    return text


def in_a_header(secret: Secret) -> str:
    """A value that can stand in a header; of any other the libraries below would show it in their errors."""
    text = read(secret)
    if not sendable(text):
        raise _unusable(secret, "holds a line break or another character that cannot stand in a header")
    return text


def sendable(text: str) -> bool:
    """Whether text can stand in a header."""
    return text.isascii() and text.isprintable()


def hide(text: str, *secrets: str) -> str:
    """A server's text without secrets that were sent to it, and without their words: some show what they do not
    accept."""
    forms = {form for secret in secrets for part in _parts(secret) for form in _written(part)}
    if not forms:
        return text
    longest_first = sorted(forms, key=len, reverse=True)
    # names of hosts are in small letters, some pages in large ones
    return re.sub("|".join(map(re.escape, longest_first)), _HIDDEN, text, flags=re.IGNORECASE)


def _parts(secret: str) -> Iterator[str]:
    if len(secret) >= _SHORTEST_HIDDEN:
        yield secret
        # `Token abc`, `session=abc; path=/`
        yield from (part for part in re.split(r"[\s;,=]+", secret) if len(part) >= _SHORTEST_PART_HIDDEN)


def _written(secret: str) -> Iterator[str]:
    """As addresses, pages and JSON write it."""
    yield from (secret, quote(secret, safe=""), quote_plus(secret), html.escape(secret))
    in_json = json.dumps(secret)[1:-1]
    yield from (in_json, in_json.replace("/", "\\/"))
    for letter in "&<>":  # Go's
        in_json = in_json.replace(letter, f"\\u{ord(letter):04x}")
    yield in_json


def _unusable(secret: Secret, why: str) -> MetricsError:
    where = "" if secret.file is None else f" {secret.file}"
    return MetricsError(None, "credentials", f"is not asked: {secret.setting}:{where} {why}")
