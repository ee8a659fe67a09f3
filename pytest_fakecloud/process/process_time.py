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
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..core.clock import Timekeeper
from ..core.errors import ContractError, importing
from ..core.exits import Exits, exiting
from ..core.frames import stack_of
from ..core.timers import monotonic
from .clocks import is_infrastructure, module_of
from .surroundings import restore_variable

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

    Uses private names of time-machine: the stack of active travels, and the zone that one restores;
    and the functions of ``uuid`` that time-machine replaces.
    """

    def __init__(self, now: datetime.datetime, on_read: Callable[[FrameType], object]) -> None:
        with importing("process_time", extra="time"):
            import time_machine
        self._travel = time_machine.travel(now, tick=False)
        self._on_read = on_read
        self._environ = os.environ
        """The mapping in which time-machine sets the zone. Code can assign a copy to ``os.environ``."""
        self._traveller: Any = None
        self._is_over = False
        self._of_uuid = {name: vars(uuid)[name] for name in _OF_UUID if name in vars(uuid)}

    def start(self) -> None:
        """Start the travel. ``stop()`` also undoes a start that a signal's handler interrupted."""
        earlier = [*_travellers()]
        try:
            self._traveller = self._travel.start()
        except BaseException:
            if [*_travellers()] == earlier and not earlier:
                # It may have replaced the time, and only a travel that has begun undoes that.
                self._travel.start()
            new = [traveller for traveller in _travellers() if traveller not in earlier]
            self._traveller = new[-1] if new else None
            raise
        read, on_read = self._traveller.time_ns, self._on_read

        def time_ns() -> int:
            reader: FrameType | None = sys._getframe(1)
            while reader is not None and module_of(reader) == "time_machine":
                reader = reader.f_back
            if reader is not None:
                on_read(reader)
            instant: int = read()
            return instant

        self._traveller.time_ns = time_ns

    def show(self, now_us: int) -> None:
        """Move the time of this travel to a time in microseconds, and that of the innermost travel that
        another tool started by as much.
        """
        # Not by the distance from the time shown last, because a move may have been interrupted. Unlike
        # move_to(), shift() does not set the time zone again.
        shown_us = self._traveller._destination_timestamp_ns // 1000
        span = datetime.timedelta(microseconds=now_us - shown_us)
        if span:
            top = _travellers()[-1:]
            if top and top[0] is not self._traveller:
                top[0].shift(span)
            self._traveller.shift(span)

    def stop(self) -> None:
        """Stop the travel. Can be repeated, also after an exception at any place in it."""
        traveller, stack = self._traveller, _travellers()
        if traveller is None or self._is_over:
            return
        if traveller in stack[:-1]:
            # A later travel is still active. It must restore the zone that was set before this one.
            above = stack[stack.index(traveller) + 1]
            if hasattr(above, "_orig_tz") and hasattr(traveller, "_orig_tz"):
                above._orig_tz = traveller._orig_tz
            elif hasattr(traveller, "_orig_tz"):
                self._restore_zone(traveller._orig_tz)
            stack.remove(traveller)
        else:
            if hasattr(traveller, "_orig_tz"):
                self._restore_zone(traveller._orig_tz)
            # The zone is restored, and time-machine would fail to restore it a second time.
            traveller._destination_tzname = None
            if traveller not in stack:
                stack.append(traveller)  # An exception interrupted the stop behind its first step.
            self._travel.stop()
            if not stack:
                vars(uuid).update(self._of_uuid)
        self._is_over = True

    def _restore_zone(self, name: str | None) -> None:
        for environ in (self._environ, os.environ):
            if environ is self._environ or "TZ" in environ:
                restore_variable(environ, "TZ", name)
        if sys.platform != "win32":
            time.tzset()


_OF_UUID = ("_generate_time_safe", "_UuidCreate")
"""The functions that ``uuid1()`` uses instead of the time, which time-machine replaces by None."""


def has_other_travels() -> bool:
    """Return whether a travel of time-machine is active that no cloud has started."""
    return any("time_ns" not in vars(traveller) for traveller in _travellers())


def _travellers() -> list[Any]:
    """Return the active travels of time-machine, innermost last."""
    import time_machine

    stack: list[Any] = getattr(time_machine, "traveller_stack", [])
    return stack


ProcessTimeMode: TypeAlias = bool | Literal["autojump"]
"""True: the process's time follows the clock. ``"autojump"``: in addition, sleeps move the clock."""
AUTOJUMP: Literal["autojump"] = "autojump"
_lock = threading.Lock()
_sleeping: list[weakref.ref[ProcessTime]] = []
"""The instance that controls the sleeps of this process, if any."""


class ProcessTime:
    """Makes ``time.time()``, ``datetime.now()`` and similar functions of this process follow a clock.

    The clock is frozen between ``start()`` and ``stop()``, because it cannot follow the process's
    time at the same time. Both change only when the clock is moved or, with ``autojump``, when the
    process sleeps (see ``sleepers``). Raises ``ContractError`` without time-machine, or if the
    sleeps of this process already move another cloud's clock.

    A loop that only reads a frozen time would never end. After some real time, its next read raises
    ``ContractError`` with the source line and the reason.

    What is replaced in the process refers to this object and the clock only weakly. So a cloud that
    nobody closes is collected and closed as others are, which ends the control.
    """

    def __init__(self, clock: Timekeeper, mode: ProcessTimeMode = True) -> None:
        self.clock = clock
        self._autojump = mode == AUTOJUMP
        self._exits = Exits()
        self._unanchor: Callable[[], None] = lambda: None
        # A bound method is a new object each time, and listeners are removed by identity.
        self._listener = self._follow
        self._sleepers: Sleepers | None = None
        self._lock = threading.Lock()
        self._shown_us = 0
        self._travel: _Travel | None = None
        self.reads: dict[int, _Reads] = {}
        """The reads since the time was last moved, for each thread."""
        self.on_read: Callable[[], None] | None = None
        """A function that is called when code reads the time, but not for HTTP headers and logs."""

    @contextmanager
    def controlled(self) -> Iterator[None]:
        """Control the process's time in the block."""
        with exiting() as exits:
            exits.callback(self.stop)
            self.start()
            yield

    def start(self) -> None:
        """Start controlling the process's time. The caller calls ``stop()``, also after an exception."""
        exits = self._exits
        exits.callback(self._release)
        if self._autojump and not self._claim():
            return
        exits.callback(self._end_anchor)
        self._unanchor = self.clock.anchor()
        exits.callback(self._end_travel)
        self._begin_travel()
        exits.callback(self.clock.listeners.remove, self._listener)
        self.clock.listeners.add(self._listener)
        if self._autojump:
            from .loops import Autojump
            from .sleepers import Sleepers

            self._sleepers = Sleepers(weakref.proxy(self.clock))
            exits.callback(self._sleepers.stop)
            self._sleepers.start()
            jumps = Autojump(self._sleepers)
            exits.callback(jumps.stop)
            jumps.start()

    def _claim(self) -> bool:
        """Take control of the sleeps of this process; return False if they already move this clock."""
        with _lock:
            other = _sleeping[0]() if _sleeping else None
            if other is not None and other.clock is self.clock:
                return False
            if other is not None:
                raise ContractError(
                    "the sleeps of this process already move the clock of another cloud, and they "
                    "can move only one: end its autojump first"
                )
            _sleeping[:] = [weakref.ref(self)]
            return True

    def _release(self) -> None:
        with _lock:
            if _sleeping and _sleeping[0]() in (self, None):
                _sleeping.clear()

    def stop(self) -> None:
        """Stop controlling the process's time. A clock that ran before continues from its time.
        Raises the exception of a handler that failed while the clock moved to a loop's timeout.
        """
        if self._sleepers is not None:
            self._sleepers.clock = self.clock  # Garbage collection may have cleared the reference.
        self._exits.close()
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
            # Garbage collection may clear the reference before this object has stopped.
            reference = weakref.WeakMethod(self._note_read)

            def on_read(reader: FrameType) -> None:
                if (note_read := reference()) is not None:
                    note_read(reader)

            self._travel = _Travel(self.clock.now(), on_read)
            self._travel.start()
        self._shown_us = self.clock.now_us()

    def _end_travel(self) -> None:
        """Restore the wall clock, even if another tool controls it now."""
        with self._lock:
            if self._travel is not None:
                self._travel.stop()
            self._travel = None

    def _end_anchor(self) -> None:
        self._unanchor()
        self._unanchor = lambda: None

    def _follow(self) -> None:
        with self._lock:
            now_us = self.clock.now_us()
            if self._travel is not None:
                self._travel.show(now_us)
            moved = datetime.timedelta(microseconds=now_us - self._shown_us)
            self._shown_us = now_us
            self.reads.clear()
            if not moved:
                return
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
