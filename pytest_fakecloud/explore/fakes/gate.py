"""Waiting in wall-clock time, while the locks of the process are replaced."""

from __future__ import annotations

import _thread
from collections.abc import Callable

from ..values.limits import ASIDE_WAIT, MOST_ASIDE_WAITS, POLL


class Gate:
    """A binary semaphore that works even while the locks of ``threading`` are replaced."""

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


class Aside:
    """A thread aside that handles a request, and the thread of the event loop that has sent it. One of
    them waits while the other one runs, like a coroutine and what awaits it.
    """

    def __init__(self) -> None:
        self._runs = False
        self._went_back = Gate()

    def resume(self, go: Callable[[], object]) -> None:
        """Let the thread aside go on by ``go()``, and wait until it steps back."""
        self._went_back.acquire(0)  # Forget the end of a wait in real time.
        self._runs = True
        go()
        for _ in range(MOST_ASIDE_WAITS):
            # At the end of a trial, two threads may wait for one step of the thread aside.
            if not self._runs or self._went_back.acquire(ASIDE_WAIT):
                break

    def step_back(self) -> None:
        """Let the event loop go on: called in the thread aside, before it waits and at its end."""
        self._runs = False
        self._went_back.release()


def nap() -> None:
    """Wait for a moment, before a condition is checked again."""
    Gate().acquire(POLL)


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
