"""Makes the process's time follow a cloud's clock (extra ``time``), and lets sleeps move the clock.

Controls the wall clock of the process with time-machine, or with an active freezegun, and detects
loops that wait for a frozen time to change.
"""

from __future__ import annotations

import datetime
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..core.clock import Timekeeper
from ..core.errors import ContractError, importing
from ..core.recorder import stack_of
from ..core.timers import monotonic
from .clocks import is_infrastructure, module_of

if TYPE_CHECKING:
    from .sleepers import Sleepers


_TOLERANCE_US = 1_000_000
"""Maximum difference between the clock and a time that freezegun has set."""
_OF_REQUESTS = frozenset(
    {"http.cookiejar", "pytest_fakecloud.http.app", "pytest_fakecloud.http.server"}
)
"""Modules that read the time, directly or not, once per HTTP request. Such a read is not part of a
waiting loop.
"""
POLLS = 20
"""Number of consecutive reads of an unchanged time by one source line, after which a read checks
whether the code waits for the time to change.
"""
STANDING_SECONDS = 20.0
"""Real seconds of consecutive reads at one line after which a read raises an error."""


@dataclass
class _Reads:
    """Consecutive reads of an unchanged time at one source line; ``since`` is in real seconds."""

    line: object
    since: float
    count: int = 0


class _Travel:
    """A travel of time-machine, which stops at any time, also while later travels are active.

    Uses private names of time-machine: the stack of active travels, and the zone that one restores.
    """

    def __init__(self, now: datetime.datetime, on_read: Callable[[FrameType], object]) -> None:
        with importing("process_time", extra="time"):
            import time_machine
        self._travel = time_machine.travel(now, tick=False)
        self._traveller: Any = self._travel.start()
        read = self._traveller.time_ns

        def time_ns() -> int:
            reader: FrameType | None = sys._getframe(1)
            while reader is not None and module_of(reader) == "time_machine":
                reader = reader.f_back
            if reader is not None:
                on_read(reader)
            instant: int = read()
            return instant

        self._traveller.time_ns = time_ns  # type: ignore[method-assign]

    def shift(self, span: datetime.timedelta) -> None:
        """Move the time of this travel, and of the innermost travel that another tool started."""
        # Unlike move_to(), shift() does not set the time zone again.
        self._traveller.shift(span)
        top = _travellers()[-1:]
        if top and top[0] is not self._traveller:
            top[0].shift(span)

    def stop(self) -> None:
        traveller, stack = self._traveller, _travellers()
        if stack[-1:] == [traveller]:
            self._travel.stop()
        elif traveller in stack:
            # A later travel is still active. It must restore the zone that was set before this one.
            above = stack[stack.index(traveller) + 1]
            if hasattr(above, "_orig_tz") and hasattr(traveller, "_orig_tz"):
                above._orig_tz = traveller._orig_tz
            elif hasattr(traveller, "_orig_tz"):
                _set_zone(traveller._orig_tz)
            stack.remove(traveller)


def has_other_travels() -> bool:
    """Return whether a travel of time-machine is active that no cloud has started."""
    return any("time_ns" not in vars(traveller) for traveller in _travellers())


def _travellers() -> list[Any]:
    """Return the active travels of time-machine, innermost last."""
    import time_machine

    stack: list[Any] = getattr(time_machine, "traveller_stack", [])
    return stack


def _set_zone(name: str | None) -> None:
    if name is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = name
    if sys.platform != "win32":
        time.tzset()


ProcessTimeMode: TypeAlias = bool | Literal["autojump"]
"""True: the process's time follows the clock. ``"autojump"``: in addition, sleeps move the clock."""
AUTOJUMP: Literal["autojump"] = "autojump"
_lock = threading.Lock()
_sleeping: list[ProcessTime] = []
"""The instance that controls the sleeps of this process, if any."""


class ProcessTime:
    """Makes ``time.time()``, ``datetime.now()`` and similar functions of this process follow a clock.

    The clock is frozen between ``start()`` and ``stop()``, because it cannot follow the process's
    time at the same time. Both change only when the clock is moved or, with ``autojump``, when the
    process sleeps (see ``sleepers``). Raises ``ContractError`` without time-machine, or if the
    sleeps of this process already move another cloud's clock.

    A loop that only reads a frozen time would never end. After some real time, its next read raises
    ``ContractError`` with the source line and the reason.
    """

    def __init__(self, clock: Timekeeper, mode: ProcessTimeMode = True) -> None:
        self.clock = clock
        self._autojump = mode == AUTOJUMP
        self._ends = ExitStack()
        self._unanchor: Callable[[], None] = lambda: None
        self._sleepers: Sleepers | None = None
        self._lock = threading.Lock()
        self._shown_us = 0
        self._travel: _Travel | None = None
        self.reads: dict[int, _Reads] = {}
        """The reads since the time was last moved, for each thread."""
        self.on_read: Callable[[], None] | None = None
        """A function that is called when code reads the time, but not for HTTP headers and logs."""

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        with ExitStack() as ends:
            ends.callback(self._release)
            if self._autojump and not self._claim():
                return
            self._unanchor = self.clock.anchor()
            ends.callback(self._unanchor)
            self._begin_travel()
            ends.callback(self._end_travel)
            ends.callback(self.clock.listeners.add(self._follow))
            if self._autojump:
                from .loops import Autojump
                from .sleepers import Sleepers

                self._sleepers = Sleepers(self.clock)
                ends.callback(self._sleepers.stop)
                jumps = Autojump(self._sleepers)
                ends.callback(jumps.stop)
                jumps.start()
            self._ends = ends.pop_all()

    __enter__ = start

    def _claim(self) -> bool:
        """Take control of the sleeps of this process; return False if they already move this clock."""
        with _lock:
            if _sleeping and _sleeping[0].clock is self.clock:
                return False
            if _sleeping:
                raise ContractError(
                    "the sleeps of this process already move the clock of another cloud, and they "
                    "can move only one: end its autojump first"
                )
            _sleeping.append(self)
            return True

    def _release(self) -> None:
        with _lock:
            if self in _sleeping:
                _sleeping.remove(self)

    def stop(self) -> None:
        """Stop controlling the process's time. A clock that ran before continues from its time.
        Raises the exception of a handler that failed while the clock moved to a loop's timeout.
        """
        try:
            self._ends.close()
        except BaseException:
            # A signal's handler may have interrupted it, and the clock could not run again.
            self._unanchor()
            raise
        sleepers, self._sleepers = self._sleepers, None
        if sleepers is not None and sleepers.failure is not None:
            raise sleepers.failure

    # -- the wall clock --------------------------------------------------------------------------

    def _begin_travel(self) -> None:
        """Show the time of the clock, which must be frozen."""
        if datetime.datetime.__name__ == "FakeDatetime" and "freezegun" in sys.modules:
            shown_us = datetime.datetime.now(datetime.UTC).timestamp() * 1e6
            if abs(shown_us - self.clock.now_us()) > _TOLERANCE_US:
                raise ContractError(
                    "freezegun has set this process's time, which differs from this clock's time: "
                    "omit now=, or freezegun, because process_time controls the process's time"
                )
        else:
            self._travel = _Travel(self.clock.now(), self._note_read)
        self._shown_us = self.clock.now_us()

    def _end_travel(self) -> None:
        """Restore the wall clock, even if another tool controls it now."""
        with self._lock:
            travel, self._travel = self._travel, None
            if travel is not None:
                travel.stop()

    def _follow(self) -> None:
        with self._lock:
            now_us = self.clock.now_us()
            moved = datetime.timedelta(microseconds=now_us - self._shown_us)
            self._shown_us = now_us
            self.reads.clear()
            if not moved:
                return
            if self._travel is not None:
                self._travel.shift(moved)
            # Also move a time that freezegun has set, before or after start().
            freezegun = sys.modules.get("freezegun.api")
            if freezegun is not None and freezegun.freeze_factories:
                freezegun.freeze_factories[-1].tick(moved)

    def _note_read(self, reader: FrameType) -> None:
        name = module_of(reader)
        if name not in _OF_REQUESTS:
            if self.on_read is not None and name != "logging":
                self.on_read()
            self._count_read(reader)

    def _count_read(self, frame: FrameType) -> None:
        """Count a read; raise ``ContractError`` if the code seems to wait for the time to change."""
        for reader in stack_of(frame):
            if module_of(reader) in _OF_REQUESTS:
                return
            if not is_infrastructure(reader):
                break
        else:
            return
        line, thread = (reader.f_code, reader.f_lineno), threading.get_ident()
        reads = self.reads.get(thread)
        if reads is None or reads.line != line:
            reads = self.reads[thread] = _Reads(line, monotonic())
        reads.count += 1
        waited = monotonic() - reads.since
        if reads.count >= POLLS and waited >= STANDING_SECONDS:
            # Code that handles the error may go on reading, until the same time has passed again.
            reads.since = monotonic()
            raise ContractError(
                f"{reader.f_code.co_filename}:{reader.f_lineno} has read the time {reads.count} times "
                f"within {waited:.0f} s of real time, but it is frozen: with process_time it moves only "
                "with the clock, so a loop that waits for it never ends. Let sleeps move it "
                "(process_time='autojump'), move the clock from another thread, or omit "
                "process_time"
            )
