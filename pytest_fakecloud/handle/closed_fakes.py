"""The closed fakes of a cloud, and the credentials of fakes, for reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..any_cloud import AnyCloud
    from .handle import Handle

_recent_tokens: deque[str] = deque(maxlen=1000)
"""The first tokens of the latest fakes of this process."""
SECRETS = (
    "token", "read_only_token", "password", "_password", "current_signing_key", "next_signing_key",
)  # fmt: skip
"""Names of the properties with credentials, which no report may show."""


class ClosedFakes:
    """Names, addresses and credentials of closed fakes, for reports.

    ``last`` are the fakes that were open when the whole cloud closed. Their strings are read only
    when a report is made, because most tests have no report. Of a fake that closes before its
    cloud, only the strings are kept.
    """

    def __init__(self) -> None:
        self.last: Sequence[Handle] = ()
        self._addresses: dict[str, tuple[str, str]] = {}
        self._secrets: set[str] = set()

    def add(self, handle: Handle) -> None:
        """Record a fake's address and credentials."""
        self._addresses[handle.name] = handle.fixture, handle.url
        self.add_secrets(handle)

    def add_secrets(self, handle: Handle) -> None:
        """Record a fake's credentials."""
        self._secrets.update(secrets_of(handle))

    @property
    def addresses(self) -> dict[str, tuple[str, str]]:
        """The fixture and the address of each closed fake, by name."""
        return self._addresses | {each.name: (each.fixture, each.url) for each in self.last}

    @property
    def secrets(self) -> set[str]:
        """The credentials of all closed fakes."""
        return self._secrets.union(*map(secrets_of, self.last))

    def clear(self) -> None:
        """Forget all closed fakes; called when the journal is cleared."""
        self.last = ()
        self._addresses.clear()
        self._secrets.clear()


def closed_fakes_of(cloud: AnyCloud) -> ClosedFakes:
    """Return the closed fakes of a cloud. For reports, not for tests."""
    return cloud._closed_fakes


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
