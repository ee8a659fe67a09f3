"""Measurement of the time that the code of a test sleeps."""

from __future__ import annotations

import os
from functools import cache
from threading import get_native_id
from time import process_time
from typing import NamedTuple

try:
    import resource
except ImportError:  # Windows has no ``resource`` module.
    resource = None  # type: ignore[assignment]

MINIMUM_WAIT_SECONDS = 0.04
"""Minimum average wait that counts as sleep. Shorter waits are waits for the CPU."""
_pread = getattr(os, "pread", None)


@cache
def _schedstat_file(thread: int) -> int | None:
    """Open the file in which Linux counts how long this thread waited for the CPU; None elsewhere.

    The argument is the native ID of this thread. It keeps the files of threads and of forked
    processes apart. The file stays open, because opening it takes 25 us.
    """
    try:
        return os.open("/proc/thread-self/schedstat", os.O_RDONLY) if _pread else None
    except OSError:
        return None


def _turns() -> tuple[int, float]:
    """Return how often this thread or process was given the CPU, and the seconds it waited for it.

    The system may lack one or both figures; a missing figure is 0.
    """
    file = _schedstat_file(get_native_id())
    if file is not None and _pread is not None:
        try:
            _, queued_ns, times = _pread(file, 100, 0).split()
            return int(times), int(queued_ns) / 1e9
        except (OSError, ValueError):
            pass
    if resource is None:
        return 0, 0.0
    usage = resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF))
    return usage.ru_nvcsw + usage.ru_nivcsw, 0.0


class _Figures(NamedTuple):
    """Seconds of real time, CPU time and waits for the CPU, and how often the CPU was given."""

    real_s: float
    busy_s: float
    queued_s: float
    turns: int


def _figures() -> _Figures:
    # Imported on first use. It returns real seconds even if tools change the process's time.
    from ..core.timeparse import monotonic

    turns, queued_s = _turns()
    return _Figures(monotonic(), process_time(), queued_s, turns)


class SleepMeter:
    """Measures how long the code of a test sleeps."""

    def __init__(self) -> None:
        self._began: _Figures | None = None

    def start(self) -> None:
        """Start measuring."""
        self._began = _figures()

    def seconds(self) -> float:
        """Return the seconds slept since the start; 0 if unknown.

        On a busy machine a process also waits for the CPU. Linux measures those waits. On other
        systems they are frequent and short, so only a long average wait counts as sleep.
        """
        if self._began is None:
            return 0.0
        now, began = _figures(), self._began
        turns = now.turns - began.turns
        busy_or_queued_s = (now.queued_s - began.queued_s) + (now.busy_s - began.busy_s)
        idle_s = now.real_s - began.real_s - busy_or_queued_s
        return idle_s if turns > 0 and idle_s / turns >= MINIMUM_WAIT_SECONDS else 0.0
