"""Secrets: read when they are needed, and taken out of what is shown."""

from __future__ import annotations

from autoscaler.adapters.prometheus.access import Secret
from autoscaler.adapters.prometheus.answers import MetricsError

_MOST_BYTES = 64 << 10  # a header of 64 KiB is more than any server takes
_SHORTEST_HIDDEN = 4  # less than that occurs in any text
_HIDDEN = "(hidden)"


def read(secret: Secret) -> str:
    """The value, without the newline that a file ends with. Raises `MetricsError`, which names setting and file."""
    text = secret.value
    if secret.file is not None:
        try:
            with secret.file.open("rb") as file:
                text = file.read(_MOST_BYTES + 1).decode().strip()
        except OSError as error:
            raise _unusable(secret, f"cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise _unusable(secret, "is not UTF-8 text") from None
    if not text:
        raise _unusable(secret, "is empty")
    if len(text) > _MOST_BYTES:
        raise _unusable(secret, f"is larger than {_MOST_BYTES >> 10} KiB")
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
    """A server's text without secrets that were sent to it: some show what they do not accept."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_HIDDEN:
            text = text.replace(secret, _HIDDEN)
    return text


def _unusable(secret: Secret, why: str) -> MetricsError:
    where = "" if secret.file is None else f" {secret.file}"
    return MetricsError(None, "credentials", f"is not asked: {secret.setting}:{where} {why}")
