"""How a Prometheus is reached: where it is, who asks, and which certificates count. Values only, without secrets in
their text; whoever has one can open as many connections as it likes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

ANSWER_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that is never shown: said by the environment, or read from a file each time that it is needed.

    `setting` names the variable or the key that it comes from, for messages.
    """

    setting: str
    file: Path | None = None
    value: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Basic:
    """A user name and a password. RFC 7617."""

    username: Secret
    password: Secret


@dataclass(frozen=True, slots=True)
class Bearer:
    """A token. RFC 6750."""

    token: Secret


Auth = Basic | Bearer


@dataclass(frozen=True, slots=True)
class Access:
    """One Prometheus and how to ask it.

    `url`: without the path of the API. `tenant`: sent as X-Scope-OrgID as it is. `timeout_s`: for one whole answer.
    """

    url: str
    auth: Auth | None = None
    tenant: str | None = None
    timeout_s: float = ANSWER_TIMEOUT_S
