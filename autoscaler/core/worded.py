"""Words that are explained."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Wording(NamedTuple):
    """A word with its meaning, as a member of an enumeration is made from it where the enumeration is long."""

    word: str
    meaning: str
    remedy: str = ""
    notify: bool = False


class Worded(StrEnum):
    """Base of an enumeration of words, each with its meaning and, where there is one, a remedy.

    `notify`: a person should know about it; it becomes a Kubernetes event on the pod.
    """

    meaning: str
    remedy: str
    notify: bool

    def __new__(cls, word: str, meaning: str, remedy: str = "", notify: bool = False) -> Worded:
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        member.remedy = remedy
        member.notify = notify
        return member
