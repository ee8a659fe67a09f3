"""Durations and times, the timers that a clock fires, and how a clock waits for its deliveries.

``monotonic()`` is a clock that tools for the process's time do not move.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
import sys
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from time import time as _imported_time
from typing import Any, Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar

from .errors import ContractError, counted, shown
from .signals import Signal

Duration: TypeAlias = timedelta | float | str
"""A duration: a ``timedelta``, a number of seconds, or a string such as ``"1d2h"`` or ``"200ms"``."""

Instant: TypeAlias = datetime | str
"""A time: an aware ``datetime`` or an ISO 8601 string with an offset (or ``Z``)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_US, LAST_US = (
    (limit.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND for limit in (datetime.min, datetime.max)
)
_UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_UNIT = "|".join(_UNITS)
_PART = rf"(\d+(?:\.\d+)?) *({_UNIT})"
# Possessive quantifiers prevent backtracking, which would restart at each digit of a long number.
_TEXT = rf" *+(-?) *+((?:\d++(?:\.\d++)? *+(?:{_UNIT}) *+)++)"
# A hundred years exceeds any realistic schedule, and so far from today is a valid datetime.
_LONGEST_US = 36_525 * 86_400_000_000


def duration_us(value: Duration) -> int:
    """Return a duration in microseconds.

    Accepts a ``timedelta``, a number of seconds, or a string of numbers with the units ``us ms s m
    h d w`` (``"24h"``, ``"1d2h"``, ``"200ms"``). Raises ``ContractError`` for other values,
    negative durations, and durations above a hundred years.
    """
    if isinstance(value, timedelta):
        microseconds = value // _MICROSECOND
    elif isinstance(value, str) and (match := re.fullmatch(_TEXT, value)):
        spans = (float(count) * _UNITS[unit] for count, unit in re.findall(_PART, match[2]))
        microseconds = sum(round(min(span, 1e21)) for span in spans)
        microseconds = -microseconds if match[1] else microseconds
    elif (
        type(value) is not bool and isinstance(value, int | float) and -math.inf < value < math.inf
    ):
        # Clamp the number first: a large float times a million would be infinity.
        microseconds = round(min(max(value, -1e15), 1e15) * 1_000_000)
    else:
        raise ContractError(
            f"{shown(value)} is not a duration: pass a timedelta, a number of seconds, "
            "or a string such as '24h', '1d2h' or '200ms'"
        )
    if microseconds < 0:
        raise ContractError(f"a duration cannot be negative: {shown(value)}")
    if microseconds > _LONGEST_US:
        raise ContractError(f"a duration must not exceed 100 years: {shown(value)}")
    return microseconds


def instant_us(value: Instant) -> int:
    """Return a time in microseconds since the Unix epoch; raise ``ContractError`` for no time."""
    moment: object = value
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            moment = datetime.fromisoformat(value)
    if not isinstance(moment, datetime):
        raise ContractError(
            f"{shown(value)} is not a time: pass an aware datetime or an ISO string with an offset, "
            "such as '2026-01-01T00:00:00Z'"
        )
    try:
        offset = moment.utcoffset()
    except Exception as error:  # the test's tzinfo can raise any exception
        raise ContractError(f"the time zone of {shown(value)} is invalid: {error}") from error
    if offset is None:
        raise ContractError(
            f"{shown(value)} has no time zone: pass an aware datetime (tzinfo=UTC) or a string with an "
            "offset, such as '2026-01-01T00:00:00Z'"
        )
    microseconds = (moment - _EPOCH) // _MICROSECOND
    if not _FIRST_US <= microseconds <= LAST_US:
        # The first hours of year 1 in an eastern time zone, or the last of 9999 in a western one.
        raise ContractError(f"{shown(value)} is outside the years 1 to 9999 in UTC")
    return microseconds


def to_datetime(microseconds: int) -> datetime:
    """Convert microseconds since the epoch to an aware UTC datetime, or to the nearest one."""
    if not _FIRST_US <= microseconds <= LAST_US:
        microseconds = _FIRST_US if microseconds < 0 else LAST_US
    return _EPOCH + timedelta(microseconds=microseconds)


def clock_time(at_us: int, like_us: int | None = None) -> str:
    """Return a time in UTC, with its date unless ``like_us`` is on the same day."""
    at = to_datetime(at_us)
    part = f".{at.microsecond // 1000:03}".removesuffix(".000")
    same_day = like_us is not None and to_datetime(like_us).date() == at.date()
    day = "" if same_day else f"{at:%Y-%m-%d} "
    return f"{day}{at:%H:%M:%S}{part}Z"


def _true_monotonic() -> Callable[[], float]:
    # Find a monotonic clock that freezegun does not replace. It replaces attributes that *are*
    # time.monotonic, in this module too, but not Linux's coarse monotonic clock. On other systems a
    # partial object hides the function from its search. time-machine moves only wall clocks.
    if sys.platform.startswith("linux") and hasattr(time, "clock_gettime"):
        coarse = 6  # CLOCK_MONOTONIC_COARSE: 1-4 ms resolution, enough for timeouts
        with contextlib.suppress(OSError):  # a kernel without the coarse clock
            time.clock_gettime(coarse)
            return functools.partial(time.clock_gettime, coarse)
    return functools.partial(time.monotonic)


_MOST_SECONDS = 1e12
"""More than any time in the years 1 to 9999."""


def process_seconds(report: Callable[[str], object] = lambda text: None) -> float:
    """Return this process's Unix time, ``time.time()``, which tests and tools replace.

    If a replacement returns no time or raises an exception, pass ``report`` a description,
    and return the time that this module imported.
    """
    try:
        seconds = time.time()
        if isinstance(seconds, int | float) and abs(seconds) < _MOST_SECONDS:
            return seconds
        text = f"time.time() returned {shown(seconds)}"
    except Exception as error:
        text = f"time.time() raised {shown(error)}"
    report(f"{text}, because a test has replaced it")
    return _imported_time()


monotonic = _true_monotonic()
"""Return the seconds of a monotonic clock that freezegun and time-machine do not move."""


def give_way(seconds: float = 0, sleep: Callable[[float], None] = time.sleep) -> None:
    """Let other threads run, for real seconds even if a tool has replaced ``time.sleep``."""
    sleep(seconds)


class TimeLimit:
    """A limit of this thread's processor time, which other threads and processes do not use up."""

    __slots__ = ("_check_at", "_ends")

    def __init__(self, seconds: float) -> None:
        self._ends = time.thread_time() + seconds
        self._check_at = monotonic() + seconds

    def is_over(self, now: float | None = None) -> bool:
        """Return whether the time is used up; ``now`` is the result of ``monotonic()``."""
        # Reading the processor time takes several times longer than reading the wall clock.
        now = monotonic() if now is None else now
        if now < self._check_at:
            return False
        remaining = self._ends - time.thread_time()
        self._check_at = now + max(remaining, 0)
        return remaining <= 0


P = ParamSpec("P")
T = TypeVar("T")
Owner = TypeVar("Owner")
Lane = Literal["state", "driven", "background"]
LANES: tuple[Lane, ...] = ("state", "driven", "background")

Begin = Callable[[int], Callable[[], object] | None]
"""Does the part of a timer's work that needs the order; returns a function for the rest."""


class Timer:
    """A callback that is due at a time of the clock.

    ``due_us`` is the time in microseconds, ``label`` the name in reports, ``subject`` the id of the
    message, schedule or key that it is about, ``sequence`` the number of the timer among the timers of
    its clock. ``cancel()`` is final and may be called repeatedly.
    """

    __slots__ = (
        "async_callback", "begin", "callback", "cancelled", "due_us", "label", "lane", "sequence",
        "subject",
    )  # fmt: skip

    def __init__(
        self,
        due_us: int,
        callback: Callable[[int], object],
        lane: Lane,
        label: str,
        async_callback: Callable[[int], Awaitable[object]] | None,
        begin: Begin | None,
        subject: str = "",
    ) -> None:
        self.due_us = due_us
        self.subject = subject
        self.callback = callback
        self.lane: Lane = lane
        self.label = label
        self.async_callback = async_callback
        self.begin = begin
        self.sequence = 0
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        # The clock still refers to this timer, but must not keep the callback's objects in memory.
        self.callback = lambda due_us: None

    def __repr__(self) -> str:
        return f"<Timer {self.label or self.callback!r} due {to_datetime(self.due_us).isoformat()}>"


Planned: TypeAlias = tuple[int, int, Timer]
"""An entry of a heap: the due time and the sequence number of a timer, and the timer."""


def weakly(method: Callable[P, T]) -> Callable[P, T]:
    """Return a function that calls a bound method without keeping its object in memory.

    A part that is given a function of its owner then forms no circle of references with it.
    """
    bound: Any = method
    # Not a WeakMethod, whose callback the garbage collector would run when it frees the object.
    function, reference = bound.__func__, weakref.ref(bound.__self__)

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        result: T = function(reference(), *args, **kwargs)
        return result

    return call


def finished(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that waits for nothing, without an event loop."""
    __tracebackhide__ = True
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("unreachable: nothing is awaited")


class Fired(NamedTuple):
    """A timer that fired: its time, its label, what its callback returned, and the id of its subject."""

    at_us: int
    label: str
    result: Any
    subject: str = ""

    @property
    def at(self) -> datetime:
        """The time at which it fired, as an aware UTC datetime."""
        return to_datetime(self.at_us)


_PATIENCE = 10.0  # real seconds that an advance and a delivery wait for each other
_YIELDING_PATIENCE = 0.01  # real seconds that a yielding advance waits for a delivery
_LOOK_SECONDS = 0.05
"""Real seconds after which a waiting thread looks again, in case that nobody has woken it."""
_current_job: ContextVar[object] = ContextVar("current_job", default=None)
"""The handed-over function that this thread or task is running, as an object of ``ClockTurns._jobs``."""


class Occupied(Exception):
    """Raised when another thread is advancing this clock and does not finish in time."""


class ClockTurns:
    """Lets one thread at a time move a clock: by an advance, or by a background delivery.

    An advance waits for a background delivery, and for the functions that a delivery has handed
    over to other threads. If a second advance begins during the first, both raise an error.

    A turn ends by one call of a method of a set or dict. A signal's handler can raise an exception
    in every function written in Python, also in one that a ``finally`` calls, but not in those.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = Signal()
        self.moves: set[object] = set()
        """The advance in progress, if there is one."""
        self.breach: ContractError | None = None
        """The error of an advance attempted during this one."""
        self._dispatches: dict[object, int] = {}
        """The ID of the thread that makes a background delivery, by an object for the delivery."""
        self._jobs: set[object] = set()
        """One object for each handed-over function that has not returned."""
        self._waiting: set[object] = set()
        """The advances that wait for background deliveries."""

    @property
    def moving(self) -> bool:
        """Whether an advance is in progress."""
        return bool(self.moves)

    def begin(self, move: object, yielding: bool = False) -> None:
        """Take the turn for an advance, or raise ``ContractError`` (``Occupied`` if yielding).

        ``move`` is a new object. The caller discards it from ``moves``, also after an exception,
        and then calls ``changed()``.
        """
        until = monotonic() + (_YIELDING_PATIENCE if yielding else _PATIENCE)
        inside = _current_job.get() in self._jobs
        dispatchers = list(self._dispatches.values())
        is_own = threading.get_ident() in dispatchers
        may_wait = not inside and ((dispatchers and not is_own) or self._jobs)
        try:
            while True:
                version = self._changed.version
                with self._lock:
                    if self._is_free() and not self._jobs:
                        self.breach = None
                        self.moves.add(move)
                        return
                    remaining = until - monotonic()
                    if not may_wait or remaining <= 0:
                        raise Occupied if yielding else self._refusal(inside)
                    self._waiting.add(move)
                self._changed.sleep(version, min(remaining, _LOOK_SECONDS))
        finally:
            self._waiting.discard(move)

    def changed(self) -> None:
        """Wake the threads that wait for a turn."""
        self._changed.notify()

    def _refusal(self, inside: bool) -> ContractError:
        """Return the error of an advance that cannot begin, which also fails one in progress."""
        if self._is_free() and not inside:
            return ContractError(
                f"the clock cannot be moved, because within {_PATIENCE:g} s of real time"
                f" {counted(len(self._jobs), 'attempt')} in the background did not end,"
                " and their effects belong before the move. Let their destinations answer, or"
                " end them sooner with a lower attempt_cap="
            )
        breach = ContractError(
            "the clock is already being advanced: it cannot be advanced again from inside "
            "a handler or from a second thread. Let the outer call return first; to make "
            "an answer take time, give the destination a duration instead"
        )
        if self.moving:
            self.breach = breach
        return breach

    @contextmanager
    def dispatch(self) -> Iterator[bool]:
        """Take the turn for a background delivery; yield False if an advance does not end in time."""
        delivery = object()
        try:
            yield self._begin_dispatch(delivery)
        finally:
            self._dispatches.pop(delivery, None)
            self.changed()

    def _begin_dispatch(self, delivery: object) -> bool:
        until = monotonic() + _PATIENCE
        while True:
            version = self._changed.version
            with self._lock:
                if self._is_free() and not self._waiting:
                    self._dispatches[delivery] = threading.get_ident()
                    return True
            remaining = until - monotonic()
            if remaining <= 0:
                return False
            self._changed.sleep(version, min(remaining, _LOOK_SECONDS))

    def hand_over(self, function: Callable[[], object]) -> Callable[[], None]:
        """Return a function that calls ``function`` in any thread. Advances wait until it returns."""
        job = object()  # An object of its own: the same function can be handed over twice.
        with self._lock:
            self._jobs.add(job)

        def run() -> None:
            _current_job.set(job)  # not reset, because a job that has returned is not in ``_jobs``
            try:
                function()
            finally:
                self._jobs.discard(job)
                self.changed()

        return run

    def _is_free(self) -> bool:
        return not self.moves and not self._dispatches
