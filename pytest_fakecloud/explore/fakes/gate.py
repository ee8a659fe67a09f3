"""Waiting in wall-clock time, while the locks of the process are replaced."""

from __future__ import annotations

import _thread
from collections.abc import Callable

from ..values.limits import CHECK


class Gate:
    """A binary semaphore that works even while the locks of ``threading`` are replaced.

    The replacement locks use it themselves to let other strands run while they wait.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def release(self) -> None:
        try:  # noqa: SIM105 - called at every turn
            self._lock.release()
        except RuntimeError:
            pass

    def acquire(self, timeout: float = -1) -> bool:
        """Wait for ``release()``; return False after ``timeout`` wall-clock seconds."""
        return self._lock.acquire(True, timeout)


def nap() -> None:
    """Wait for a moment, before a condition is checked again."""
    Gate().acquire(CHECK)


def wait_really(is_over: Callable[[], bool], checks: int | None) -> bool:
    """Wait, in wall-clock time, for other threads until ``is_over()``; return False if they need longer.

    ``checks`` is a limit in ``values.limits``, which says what is waited for, or None for no limit.
    """
    done = 0
    while not is_over():
        if done == checks:
            return False
        done += 1
        nap()
    return True
