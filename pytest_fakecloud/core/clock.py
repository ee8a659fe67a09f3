"""The clock of a cloud, as tests use it: to read, stop and move it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from .timekeeper import Mode, Timekeeper
from .timeparse import Duration, Instant
from .timers import Fired

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

    __slots__ = ("_timekeeper",)

    def __init__(self, timekeeper: Timekeeper) -> None:
        self._timekeeper = timekeeper

    @property
    def mode(self) -> Mode:
        """``"running"`` or ``"frozen"``."""
        return self._timekeeper.mode

    def now(self) -> datetime:
        """Return the current time as an aware UTC datetime."""
        return self._timekeeper.now()

    def now_ms(self) -> int:
        """Return the current time in milliseconds since the Unix epoch."""
        return self._timekeeper.now_ms()

    def now_us(self) -> int:
        """Return the current time in microseconds since the Unix epoch."""
        return self._timekeeper.now_us()

    def next_due(self) -> datetime | None:
        """Return the time at which the next event is due, or None if nothing is planned."""
        return self._timekeeper.next_due()

    def freeze(self) -> None:
        """Stop the clock at its current time."""
        self._timekeeper.freeze()

    def resume(self) -> None:
        """Let the clock run from its current time; ``ContractError`` with ``process_time=True``."""
        self._timekeeper.resume()

    def advance(self, duration: Duration) -> list[Fired]:
        """Move the clock forward by a duration; return what happened on the way.

        If another move is in progress (this call comes from a handler or a second thread), both
        calls raise ``ContractError``.
        """
        __tracebackhide__ = True
        return self._timekeeper.advance(duration)

    def move_to(self, instant: Instant) -> list[Fired]:
        """Move the clock forward to a time, which must not be past; return what happened."""
        __tracebackhide__ = True
        return self._timekeeper.move_to(instant)

    def advance_to_next(self) -> list[Fired]:
        """Move the clock to the next event and return what happened; ``[]`` if none is planned."""
        __tracebackhide__ = True
        return self._timekeeper.advance_to_next()

    @property
    def aio(self) -> AioClock:
        """Awaitable versions of the methods that move the clock, for asyncio and trio."""
        from .concurrency.aio import AioClock

        return AioClock(self._timekeeper)

    def __repr__(self) -> str:
        return f"<Clock {self.mode} {self.now().isoformat()}>"
