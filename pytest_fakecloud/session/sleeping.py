"""Measurement of the time that the code of a test sleeps."""

from __future__ import annotations

from time import process_time

from ..core.timeparse import monotonic

try:
    import resource
except ImportError:  # Windows has no ``resource`` module.
    resource = None  # type: ignore[assignment]

MINIMUM_WAIT_SECONDS = 0.04
"""Minimum average wait that counts as sleep. Shorter waits are waits for the CPU."""
_OF_THREAD = getattr(resource, "RUSAGE_THREAD", getattr(resource, "RUSAGE_SELF", 0))


def _figures() -> tuple[float, float, int]:
    """Return real seconds, CPU seconds, and how often this thread was given the CPU (0 if unknown).

    The seconds are real even if tools change the process's time.
    """
    turns = 0
    if resource is not None:
        usage = resource.getrusage(_OF_THREAD)
        turns = usage.ru_nvcsw + usage.ru_nivcsw
    return monotonic(), process_time(), turns


class SleepMeter:
    """Measures how long the code of a test sleeps."""

    def __init__(self) -> None:
        self._began: tuple[float, float, int] | None = None

    def start(self) -> None:
        """Start measuring."""
        self._began = _figures()

    def seconds(self) -> float:
        """Return the seconds slept since the start; 0 if unknown.

        On a busy machine a process also waits for the CPU. Those waits are frequent and short, so
        only a long average wait counts as sleep.
        """
        if self._began is None:
            return 0.0
        real_s, busy_s, turns = (
            now - began for now, began in zip(_figures(), self._began, strict=True)
        )
        idle_s = real_s - busy_s
        return idle_s if turns > 0 and idle_s / turns >= MINIMUM_WAIT_SECONDS else 0.0
