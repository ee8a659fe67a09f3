"""What the fakes of one cloud share, and what is left of its closed fakes for reports."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal

from ..core.clock import Clock, Mode, Timekeeper
from ..core.errors import ContractError, shown
from ..core.ids import Ids
from ..core.journal import Journal
from ..core.problems import Problems
from ..core.recorder import Recorder
from ..core.timers import Instant, Registry
from ..http.hub import default_hub

if TYPE_CHECKING:
    from ..http.hub import Hub
    from ..http.mount import Mount
    from .handle import Handle

Delivery = Literal["driven", "background"]
Interceptor = Callable[["Handle", str], AbstractContextManager[object]]
_recent_tokens: deque[str] = deque(maxlen=1000)
"""The first tokens of the latest fakes of this process."""
SECRETS = (
    "token", "read_only_token", "password", "_password", "current_signing_key", "next_signing_key",
)  # fmt: skip
"""Names of the properties with credentials, which no report may show."""


class Context:
    """The objects that the fakes of one cloud share.

    ``clock`` (for tests ``public_clock``), ``ids`` and ``journal`` are the cloud's, ``problems``
    collects strict-mode violations, ``delivery`` determines how the queue's messages are delivered,
    ``interceptor`` answers requests for hard-coded origins, ``handles`` are the open fakes, and
    ``closed_fakes`` has records of the closed ones.
    """

    def __init__(
        self, clock: Timekeeper, ids: Ids, journal: Journal, delivery: Delivery = "driven"
    ) -> None:
        self.clock = clock
        self.public_clock = Clock(clock)
        self.ids = ids
        self.journal = journal
        self.problems = Problems()
        self.delivery = delivery
        self.hub: Hub | None = None
        self.tls: Any = None
        self.interceptor: Interceptor | None = None
        self.entered = Registry["Handle"]()
        self.closed_fakes = ClosedFakes()
        self._numbers: dict[str, itertools.count[int]] = {}

    @classmethod
    def alone(
        cls, *, now: Instant | None = None, clock: Mode | None = None, seed: int | str = 0
    ) -> Context:
        """Return a context without a cloud, for a single fake."""
        time = Timekeeper(now, clock)
        return cls(time, Ids(seed), Journal(Recorder(time.now_us)))

    @property
    def handles(self) -> Sequence[Handle]:
        return self.entered.items

    def name_for(self, fixture: str, given: str | None) -> str:
        """Return the fake's name: the given one, the fixture's, or the fixture's with a number.

        Raises ``ContractError`` if an open fake has the given name.
        """
        taken = {handle.name for handle in self.handles}
        if given is not None:
            if given in taken:
                raise ContractError(
                    f"a fake named {shown(given)} is open already: pass another name"
                )
            return given
        for number in self._numbers.setdefault(fixture, itertools.count(1)):
            name = fixture if number == 1 else f"{fixture}_{number}"
            if name not in taken:
                break
        return name

    def mount(self, app: Any, **options: Any) -> Mount:
        if self.hub is None:
            self.hub = default_hub()
        if self.tls is not None:
            options.setdefault("tls", self.tls)
        return self.hub.mount(app, **options)


class ClosedFakes:
    """Names, addresses and credentials of closed fakes, for reports.

    ``last`` are the fakes that were open when the whole cloud closed. Their strings are read only
    when a report is made. Of a fake that closes before its cloud, only the strings are kept.
    """

    def __init__(self) -> None:
        self.last: Sequence[Handle] = ()
        self._addresses: dict[str, tuple[str, str]] = {}
        self._secrets: set[str] = set()

    def add(self, handle: Handle) -> None:
        self._addresses[handle.name] = handle.fixture, handle.url
        self.add_secrets(handle)

    def add_secrets(self, handle: Handle) -> None:
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


def note_token(token: str) -> None:
    """Record the token with which a fake of this process starts."""
    _recent_tokens.append(token)


def was_given(token: str) -> bool:
    """Return whether a recent fake of this process, maybe of another test, started with a token."""
    return token in _recent_tokens


def secrets_of(handle: Handle) -> set[str]:
    """Return the credentials that a fake currently accepts."""
    return {value for name in SECRETS if isinstance(value := getattr(handle, name, None), str)}
