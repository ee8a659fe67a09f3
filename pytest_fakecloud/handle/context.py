"""The objects that the fakes of one cloud share."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal

from ..core.clock import Mode
from ..core.errors import ContractError, shown
from ..core.ids import Ids
from ..core.journal import Journal
from ..core.problems import Problems
from ..core.recording.recorder import Recorder
from ..core.timekeeper import Timekeeper
from ..core.timeparse import Instant
from ..http.hub import default_hub
from .closed_fakes import ClosedFakes

if TYPE_CHECKING:
    from ..http.hub import Hub
    from ..http.mount import Mount
    from .handle import Handle

Delivery = Literal["driven", "background"]
Interceptor = Callable[["Handle", str], AbstractContextManager[object]]
_changing_handles = threading.Lock()


class Context:
    """The objects that the fakes of one cloud share.

    ``clock``, ``ids`` and ``journal`` are the cloud's, ``problems`` collects strict-mode
    violations, ``delivery`` determines how the queue's messages are delivered, ``interceptor``
    answers requests for hard-coded origins, ``handles`` are the open fakes, and ``closed_fakes``
    has records of the closed ones.
    """

    def __init__(
        self,
        clock: Timekeeper,
        ids: Ids,
        journal: Journal,
        problems: Problems | None = None,
        delivery: Delivery = "driven",
    ) -> None:
        self.clock = clock
        self.ids = ids
        self.journal = journal
        self.problems = Problems() if problems is None else problems
        self.delivery = delivery
        self.hub: Hub | None = None
        self.tls: Any = None
        self.interceptor: Interceptor | None = None
        self.handles: list[Handle] = []
        self.closed_fakes = ClosedFakes()
        self._numbers: dict[str, itertools.count[int]] = {}

    @classmethod
    def alone(
        cls,
        *,
        now: Instant | None = None,
        clock: Mode | None = None,
        seed: int | str = 0,
        delivery: Delivery = "driven",
    ) -> Context:
        """Return a context without a cloud, for a single fake."""
        time = Timekeeper(now, clock)
        return cls(time, Ids(seed), Journal(Recorder(time.now_us)), delivery=delivery)

    def enter(self, handle: Handle) -> None:
        """Add an open fake."""
        # Create a new list each time, because other threads may be iterating over the old one.
        with _changing_handles:
            self.handles = [*self.handles, handle]

    def leave(self, handle: Handle) -> None:
        """Remove a fake. Can be called repeatedly."""
        with _changing_handles:
            self.handles = [each for each in self.handles if each is not handle]

    def name_for(self, fixture: str, given: str | None) -> str:
        """Return the fake's name: the given one, the fixture's, or the fixture's with a number.

        Raises ``ContractError`` if an open fake has the given name.
        """
        taken = [handle.name for handle in self.handles] if self.handles else ()
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
        """Serve an app at its own address."""
        if self.hub is None:
            self.hub = default_hub()
        if self.tls is not None:
            options.setdefault("tls", self.tls)
        return self.hub.mount(app, held=False, **options)
