"""Clocks of signatures: the Unix time in seconds at which a delivery is signed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from .settings import SignatureClock

_CLOCK_REALTIME_COARSE = 5
"""Linux's number of a clock (resolution 4 ms) that no time-freezing tool replaces."""


def signature_clock(kind: SignatureClock, now_us: Callable[[], int]) -> Callable[[], float]:
    """Return a function that returns the Unix time for signatures, in seconds.

    ``"receiver"`` is this process's ``time.time()``, frozen or not, which a receiver in this
    process uses. ``"real"`` is the wall-clock time even if freezegun or time-machine changes the
    process's time, for receivers in other processes. ``"virtual"`` is the queue's clock
    (``now_us``, microseconds).
    """
    if kind == "receiver":
        # Look up time.time at each call, because time-freezing tools replace it.
        return lambda: time.time()
    if kind == "real":
        return real_time
    return lambda: now_us() / 1_000_000


def real_time(_read: Callable[[], float] = time.time) -> float:
    """Return the real Unix time in seconds, even if freezegun or time-machine is active."""
    if sys.platform.startswith("linux"):
        return time.clock_gettime(_CLOCK_REALTIME_COARSE)
    machine = sys.modules.get("time_machine")
    if machine is not None:
        return float(machine.escape_hatch.time.time())
    # freezegun replaces module attributes, but not default arguments.
    return _read()
