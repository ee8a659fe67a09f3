"""The clock of a cloud, as tests use it: to read, stop and move it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from .timekeeper import Fired, Mode, Timekeeper
from .timeparse import Duration, Instant, to_datetime

if TYPE_CHECKING:
    from .concurrency.aio import AioClock


class Clock:
    """The time that all fakes of a cloud share.

    A *running* clock is the process's ``time.time()`` plus an offset, so it follows tools that
    change the process's time. A *frozen* clock moves only when the test moves it. Moving it
    triggers every event that is due on the way, in order and each at its own due time, including
    events that are planned on the way.

    The clock ends with the year 9999, as datetimes do (decided here): a running clock stops there,
    a move beyond it raises an error, and later events never happen.
    """

    def __init__(self, time: Timekeeper) -> None:
        self._time = time

    @property
    def mode(self) -> Mode:
        """``"running"`` or ``"frozen"``."""
        return self._time.mode

    def now(self) -> datetime:
        """Return the current time as an aware UTC datetime."""
        return self._time.now()

    def now_ms(self) -> int:
        """Return the current time in milliseconds since the Unix epoch."""
        return self._time.now_ms()

    def now_us(self) -> int:
        """Return the current time in microseconds since the Unix epoch."""
        return self._time.now_us()

    def next_due(self) -> datetime | None:
        """Return the time at which the next event is due, or None if nothing is planned."""
        due = self._time.next_due_us()
        return None if due is None else to_datetime(due)

    def freeze(self) -> None:
        """Stop the clock at its current time."""
        self._time.freeze()

    def resume(self) -> None:
        """Let the clock run from its current time.

        Raises ``ContractError`` if the process's time follows the clock (``process_time=True``).
        """
        self._time.resume()

    def advance(self, duration: Duration) -> list[Fired]:
        """Move the clock forward by a duration; return what happened on the way.

        If another move is in progress (this call comes from a handler or a second thread), both
        calls raise ``ContractError``.
        """
        return self._time.advance(duration)

    def move_to(self, instant: Instant) -> list[Fired]:
        """Move the clock forward to a time; return what happened on the way.

        Raises ``ContractError`` for a time earlier than the clock's.
        """
        return self._time.move_to(instant)

    def advance_to_next(self) -> list[Fired]:
        """Move the clock to the time of the next event and return what happened; ``[]`` if nothing
        is planned.
        """
        return self._time.advance_to_next()

    def run_due(self) -> list[Fired]:
        """Trigger every event that is due now, without moving the clock."""
        return self._time.run_due()

    @property
    def wait_cap(self) -> float:
        """Maximum real seconds that a client's blocking call waits while the clock is frozen. Can
        be set.
        """
        return self._time.wait_cap

    @wait_cap.setter
    def wait_cap(self, seconds: float) -> None:
        self._time.wait_cap = seconds

    @property
    def aio(self) -> AioClock:
        """Awaitable versions of the methods that move the clock, for asyncio and trio."""
        from .concurrency.aio import AioClock

        return AioClock(self._time)


def timekeeper_of(clock: Clock) -> Timekeeper:
    """Return the ``Timekeeper`` behind a clock. For the fakes, not for tests."""
    return clock._time
