"""Controls the wall clock of the process with time-machine, or with an active freezegun.

Detects loops that wait for a frozen time to change.
"""

from __future__ import annotations

import datetime
import os
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from ..core.errors import ContractError
from ..core.timekeeper import Timekeeper
from ..core.timeparse import monotonic
from .callers import is_infrastructure, module_of

_TOLERANCE_US = 1_000_000
"""Maximum difference between the clock and a time that freezegun has set."""
_OF_REQUESTS = frozenset({"http.cookiejar", "pytest_fakecloud.http.encoding"})
"""Modules that read the time once per HTTP request. Such a read is not part of a waiting loop."""
POLLS = 20
"""Number of consecutive reads of an unchanged time by one source line, after which a read checks
whether the code waits for the time to change.
"""
STANDING_SECONDS = 20.0
"""Real seconds of consecutive reads at one line after which a read raises an error."""


class _FrozenReads:
    """Counts the consecutive reads of an unchanged time at one source line, for each thread."""

    def __init__(self) -> None:
        self._runs: dict[int, tuple[object, int, float]] = {}
        """The line, the number of reads, and the real time of the first, by thread."""

    def check(self, frame: FrameType | None) -> None:
        """Count a read; raise ``ContractError`` if the code seems to wait for the time to change."""
        while frame is not None and is_infrastructure(frame):
            frame = frame.f_back
        if frame is None:
            return
        line, thread = (frame.f_code, frame.f_lineno), threading.get_ident()
        before, reads, since = self._runs.get(thread, (None, 0, 0.0))
        reads, since = (reads + 1, since) if line == before else (1, monotonic())
        waited = monotonic() - since
        waits = reads >= POLLS and waited >= STANDING_SECONDS
        # Code that handles the error may go on reading, until the same time has passed again.
        self._runs[thread] = line, reads, monotonic() if waits else since
        if waits:
            raise ContractError(
                f"{frame.f_code.co_filename}:{frame.f_lineno} has read the time {reads} times "
                f"within {waited:.0f} s of real time, but it is frozen: with process_time it moves only "
                "with the clock, so a loop that waits for it never ends. Let sleeps move it "
                "(process_time='autojump'), move the clock from another thread, or omit "
                "process_time"
            )

    def forget(self) -> None:
        """Forget all reads, because the time has changed."""
        self._runs.clear()


class Wall:
    """Makes ``time.time()``, ``datetime.now()`` and similar functions follow a clock.

    A loop that only reads a frozen time would never end. After some real time, its next read raises
    ``ContractError`` with the source line and the reason.
    """

    def __init__(self, clock: Timekeeper) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._shown_us = 0
        self._travel: Any = None
        self._traveller: Any = None
        self._unlisten: Callable[[], None] = lambda: None
        self._reads = _FrozenReads()
        self.on_read: Callable[[], None] | None = None
        """A function that is called when code reads the time, but not for HTTP headers and logs."""

    def start(self) -> None:
        """Start controlling the wall clock. The cloud's clock must be frozen."""
        if datetime.datetime.__name__ == "FakeDatetime" and "freezegun" in sys.modules:
            self._check_same()
        else:
            try:
                import time_machine
            except ModuleNotFoundError as error:
                raise ContractError(
                    "process_time needs time-machine: pip install 'pytest-fakecloud[time]'"
                ) from error
            self._travel = time_machine.travel(self._clock.now(), tick=False)
            self._traveller = self._travel.start()
            self._observe_reads(self._traveller)
        self._shown_us = self._clock.now_us()
        self._unlisten = self._clock.on_move(self._follow)

    def _check_same(self) -> None:
        shown = datetime.datetime.now(datetime.UTC).timestamp() * 1e6
        if abs(shown - self._clock.now_us()) > _TOLERANCE_US:
            raise ContractError(
                "freezegun has set this process's time, which differs from this clock's time: omit "
                "now=, or freezegun, because process_time controls the process's time itself"
            )

    def _observe_reads(self, traveller: Any) -> None:
        read = traveller.time_ns

        def time_ns() -> int:
            reader: FrameType | None = sys._getframe(1)
            while reader is not None and (name := module_of(reader)) == "time_machine":
                reader = reader.f_back
            if reader is not None and name not in _OF_REQUESTS:
                if self.on_read is not None and name != "logging":
                    self.on_read()
                self._reads.check(reader)
            instant: int = read()
            return instant

        traveller.time_ns = time_ns

    def forget_reads(self) -> None:
        """Reset the counts of consecutive reads at one line."""
        self._reads.forget()

    def _follow(self) -> None:
        with self._lock:
            now_us = self._clock.now_us()
            moved = datetime.timedelta(microseconds=now_us - self._shown_us)
            self._shown_us = now_us
            self._reads.forget()
            if not moved:
                return
            if self._traveller is not None:
                # Unlike move_to(), shift() does not set the time zone again.
                self._traveller.shift(moved)
            _move_others(self._traveller, moved)

    def stop(self) -> None:
        """Restore the wall clock, even if another tool controls it now."""
        self._unlisten()
        with self._lock:
            traveller, self._traveller = self._traveller, None
            if traveller is None:
                return
            stack = _travellers()
            if stack[-1:] == [traveller]:
                self._travel.stop()
            elif traveller in stack:
                # A travel that was started later is still active. When it ends, it must restore the
                # time zone that was set before this travel.
                above = stack[stack.index(traveller) + 1]
                if hasattr(above, "_orig_tz") and hasattr(traveller, "_orig_tz"):
                    above._orig_tz = traveller._orig_tz
                elif hasattr(traveller, "_orig_tz"):
                    _set_zone(traveller._orig_tz)
                stack.remove(traveller)


def _set_zone(name: str | None) -> None:
    if name is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = name
    if sys.platform != "win32":
        import time

        time.tzset()


def _travellers() -> list[Any]:
    """Return the active travels of time-machine, innermost last.

    The name of time-machine's list depends on its version.
    """
    import time_machine

    for name in ("traveller_stack", "coordinates_stack"):
        found = getattr(time_machine, name, None)
        if found is not None:
            stack: list[Any] = found
            return stack
    return []


def _move_others(own: Any, span: datetime.timedelta) -> None:
    """Move the time that another tool has set since ``start()`` by the same duration."""
    if own is not None:
        top = _travellers()[-1:]
        if top and top[0] is not own:
            top[0].shift(span)
    freezegun = sys.modules.get("freezegun.api")
    if freezegun is not None and freezegun.freeze_factories:
        freezegun.freeze_factories[-1].tick(span)
