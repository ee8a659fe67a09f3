"""The clock of a cloud as a test holds it: read it, stop it, move it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from .timekeeper import Fired, Mode, Timekeeper
from .timeparse import Duration, Instant, to_datetime

if TYPE_CHECKING:
    from .aio import AioClock


class Clock:
    """Time as every fake of one cloud sees it.

    *Running* is the process's own ``time.time()`` plus an offset, so tools that steer process time
    steer it too; *frozen* moves only when told. What falls due on the way of a move happens in order,
    each at its own instant; work that it creates joins the same move.

    Time ends with the year 9999, as datetimes do (decided here): a running clock stands there, a move
    beyond is refused, and what would fall due later never does.
    """

    def __init__(self, time: Timekeeper) -> None:
        self._time = time

    @property
    def mode(self) -> Mode:
        """``"running"`` or ``"frozen"``."""
        return self._time.mode

    def now(self) -> datetime:
        """The present instant as an aware UTC datetime."""
        return self._time.now()

    def now_ms(self) -> int:
        """The present instant in milliseconds since the Unix epoch."""
        return self._time.now_ms()

    def now_us(self) -> int:
        """The present instant in microseconds since the Unix epoch."""
        return self._time.now_us()

    def next_due(self) -> datetime | None:
        """Return when the next event is due, or None when nothing is planned."""
        due = self._time.next_due_us()
        return None if due is None else to_datetime(due)

    def freeze(self) -> None:
        """Stop the clock where it is."""
        self._time.freeze()

    def resume(self) -> None:
        """Let the clock run on from where it is.

        Raises ``ContractError`` where the process's time follows it (``process_time=True``).
        """
        self._time.resume()

    def advance(self, duration: Duration) -> list[Fired]:
        """Move forward by a span; returns what fell due on the way.

        Raises ``ContractError`` when an advance is already under way (a handler that calls it, or
        another thread), in this call and in the outer one.
        """
        return self._time.advance(duration)

    def move_to(self, instant: Instant) -> list[Fired]:
        """Move forward to an instant; returns what fell due on the way.

        Raises ``ContractError`` for an instant in the past of this clock.
        """
        return self._time.move_to(instant)

    def advance_to_next(self) -> list[Fired]:
        """Move to the next instant at which anything is due; ``[]`` when nothing is planned."""
        return self._time.advance_to_next()

    def run_due(self) -> list[Fired]:
        """Make everything happen that is due now, without moving time."""
        return self._time.run_due()

    @property
    def wait_cap(self) -> float:
        """Real seconds a wait of a client may last while time is frozen; may be set."""
        return self._time.wait_cap

    @wait_cap.setter
    def wait_cap(self, seconds: float) -> None:
        self._time.wait_cap = seconds

    @property
    def aio(self) -> AioClock:
        """The driving calls, awaitable in asyncio and trio."""
        from .aio import AioClock

        return AioClock(self._time)


def timekeeper_of(clock: Clock) -> Timekeeper:
    """What a clock shows and moves: for the fakes, not for tests."""
    return clock._time
