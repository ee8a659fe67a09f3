"""Parse durations and times into microseconds; a monotonic clock that tools do not move."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias, TypeGuard

from .errors import ContractError, shown

Duration: TypeAlias = timedelta | float | str
"""A duration: a ``timedelta``, a number of seconds, or a string such as ``"1d2h"`` or ``"200ms"``."""

Instant: TypeAlias = datetime | str
"""A time: an aware ``datetime`` or an ISO 8601 string with an offset (or ``Z``)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_US, LAST_US = (
    (one.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND for one in (datetime.min, datetime.max)
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
    elif isinstance(value, str) and (found := re.fullmatch(_TEXT, value)):
        spans = (float(count) * _UNITS[unit] for count, unit in re.findall(_PART, found[2]))
        microseconds = sum(round(min(span, 1e21)) for span in spans)
        microseconds = -microseconds if found[1] else microseconds
    elif _is_number(value) and -math.inf < value < math.inf:
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


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


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


monotonic = _true_monotonic()
"""Return the seconds of a monotonic clock that freezegun and time-machine do not move."""


def give_way(seconds: float = 0, sleep: Callable[[float], None] = time.sleep) -> None:
    """Let other threads run, for real seconds even if a tool has replaced ``time.sleep``."""
    sleep(seconds)
