"""Controls the wall clock of the process with time-machine, or with an active freezegun."""

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
from .callers import module_of
from .frozen_reads import FrozenReads

_TOLERANCE_US = 1_000_000
"""Maximum difference between the clock and a time that freezegun has set."""
_OF_REQUESTS = frozenset({"http.cookiejar", "pytest_fakecloud.http.encoding"})
"""Modules that read the time once per HTTP request. Such a read is not part of a waiting loop."""


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
        self._reads = FrozenReads()
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
    """If another tool has set the process's time since ``start()``, move its time by the same
    duration.
    """
    if own is not None:
        top = _travellers()[-1:]
        if top and top[0] is not own:
            top[0].shift(span)
    freezegun = sys.modules.get("freezegun.api")
    if freezegun is not None and freezegun.freeze_factories:
        freezegun.freeze_factories[-1].tick(span)
