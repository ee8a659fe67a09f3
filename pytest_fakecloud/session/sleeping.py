"""Measurement of the time that the code of a test sleeps."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from threading import get_native_id
from time import process_time

try:
    import resource
except ImportError:  # Windows has no ``resource`` module.
    resource = None  # type: ignore[assignment]

_A_SLEEP_S = 0.04
"""Minimum average wait in seconds that counts as sleep. Shorter waits are waits for the CPU."""


_pread = getattr(os, "pread", None)


@cache
def _schedstat_file(thread: int) -> int | None:
    """Open the file in which Linux counts how long this thread waited for the CPU; return None
    elsewhere.

    The argument is the native ID of this thread. It keeps the files of threads and of forked
    processes apart.
    """
    try:
        return os.open("/proc/thread-self/schedstat", os.O_RDONLY) if _pread else None
    except OSError:
        return None


def _turns() -> tuple[int, float]:
    """Return how often this thread or process was given the CPU, and how many seconds it waited for
    it.

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


class SleepMeter:
    """Measures how long the code of a test sleeps."""

    def __init__(self) -> None:
        self._busy_s = self._began_s = self._queued_s = 0.0
        self._times = 0
        self._clock: Callable[[], float] = lambda: 0.0

    def start(self) -> None:
        """Start measuring."""
        # Imported on first use. It returns real seconds even if tools change the process's time.
        from ..core.timeparse import monotonic

        self._clock = monotonic
        self._busy_s, self._began_s = process_time(), monotonic()
        self._times, self._queued_s = _turns()

    def seconds(self) -> float:
        """Return the seconds slept since the start; 0 if unknown.

        On a busy machine a process also waits for the CPU. Linux measures those waits. On other
        systems they are frequent and short, so only a long average wait counts as sleep.
        """
        times, queued_s = _turns()
        times, queued_s = times - self._times, queued_s - self._queued_s
        idle_s = self._clock() - self._began_s - (process_time() - self._busy_s) - queued_s
        return idle_s if times > 0 and idle_s / times >= _A_SLEEP_S else 0.0
