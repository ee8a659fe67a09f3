"""The credentials of fakes, which no report may show."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .handle import Handle

_recent_tokens: deque[str] = deque(maxlen=1000)
"""The first tokens of the latest fakes of this process."""
SECRETS = (
    "token", "read_only_token", "password", "_password", "current_signing_key", "next_signing_key",
)  # fmt: skip
"""Names of the properties with credentials, which no report may show."""


def note_token(token: str) -> None:
    """Record the token with which a fake of this process starts."""
    _recent_tokens.append(token)


def was_given(token: str) -> bool:
    """Return whether a recent fake of this process started with this token.

    A report uses this to recognize a client of another test's fake.
    """
    return token in _recent_tokens


def secrets_of(handle: Handle) -> set[str]:
    """Return the credentials that a fake currently accepts."""
    return {value for name in SECRETS if isinstance(value := getattr(handle, name, None), str)}
