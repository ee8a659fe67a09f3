"""The clock of a cloud, as tests use it: to read, stop and move it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from .concurrency.aio import AioClock
    from .timekeeper import Mode, Timekeeper
    from .timeparse import Duration, Instant
    from .timers import Fired


class Clock(ABC):
    """The time that all fakes of a cloud share.

    A *running* clock is the process's ``time.time()`` plus an offset, so it follows tools that
    change the process's time. A *frozen* clock moves only when the test moves it. Moving it
    triggers every event that is due on the way, in order and each at its own due time, including
    events that are planned on the way.

    The clock ends with the year 9999, as datetimes do (decided here): a running clock stops there,
    a move beyond it raises an error, and later events never happen.
    """

    @property
    @abstractmethod
    def mode(self) -> Mode:
        """``"running"`` or ``"frozen"``."""

    @abstractmethod
    def now(self) -> datetime:
        """Return the current time as an aware UTC datetime."""

    @abstractmethod
    def now_ms(self) -> int:
        """Return the current time in milliseconds since the Unix epoch."""

    @abstractmethod
    def now_us(self) -> int:
        """Return the current time in microseconds since the Unix epoch."""

    @abstractmethod
    def next_due(self) -> datetime | None:
        """Return the time at which the next event is due, or None if nothing is planned."""

    @abstractmethod
    def freeze(self) -> None:
        """Stop the clock at its current time."""

    @abstractmethod
    def resume(self) -> None:
        """Let the clock run from its current time.

        Raises ``ContractError`` if the process's time follows the clock (``process_time=True``).
        """

    @abstractmethod
    def advance(self, duration: Duration) -> list[Fired]:
        """Move the clock forward by a duration; return what happened on the way.

        If another move is in progress (this call comes from a handler or a second thread), both
        calls raise ``ContractError``.
        """

    @abstractmethod
    def move_to(self, instant: Instant) -> list[Fired]:
        """Move the clock forward to a time; return what happened on the way.

        Raises ``ContractError`` for a time earlier than the clock's.
        """

    @abstractmethod
    def advance_to_next(self) -> list[Fired]:
        """Move the clock to the time of the next event and return what happened; ``[]`` if nothing
        is planned.
        """

    @abstractmethod
    def run_due(self) -> list[Fired]:
        """Trigger every event that is due now, without moving the clock."""

    @property
    @abstractmethod
    def wait_cap(self) -> float:
        """Maximum real seconds that a client's blocking call waits while the clock is frozen. Can
        be set.
        """

    @wait_cap.setter
    @abstractmethod
    def wait_cap(self, seconds: float) -> None: ...

    @property
    def aio(self) -> AioClock:
        """Awaitable versions of the methods that move the clock, for asyncio and trio."""
        from .concurrency.aio import AioClock

        return AioClock(timekeeper_of(self))


def timekeeper_of(clock: Clock) -> Timekeeper:
    """Return a cloud's clock with the methods that only the fakes use."""
    return cast("Timekeeper", clock)
