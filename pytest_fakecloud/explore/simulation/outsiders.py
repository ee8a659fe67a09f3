"""Threads of the application that began before the exploration, which ``explore()`` does not control."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType

from ...core.errors import ContractError
from ...outside.clocks import INFRASTRUCTURE, module_of
from .strands import pause, stack_of
from .turns import wakings

_CHECK = 0.001
"""Wall-clock seconds between two checks of whether a thread rests."""
_CHECKS = 500
"""Number of these checks for which a run waits for threads that work."""
_CHECKS_AT_START = 5
"""Number of these checks before the exploration."""
_OWN = ("fakecloud", "explore", "abandoned")
"""How the names of this package's own threads begin."""


class Outsiders:
    """The threads that are alive now, without this one and those of the package.

    A thread rests while it waits at the place at which it is now, such as a pool's thread for work.
    """

    def __init__(self) -> None:
        self._resting: dict[threading.Thread, tuple[CodeType, ...]] = {}
        self._users: set[threading.Thread] = set()
        """The threads that have used the fakes."""
        for thread in threading.enumerate():
            is_own = thread is threading.current_thread() or thread.name.startswith(_OWN)
            if not is_own and not _is_of_infrastructure(thread):
                self._resting[thread] = ()
        for _ in range(_CHECKS_AT_START if self._resting else 0):
            # A thread may still be on the way to the place where it rests.
            self._resting = {thread: _stack(thread) for thread in self._resting}
            pause(_CHECK)

    def notes(self, thread: threading.Thread) -> bool:
        """Note that a thread uses the fakes; return whether it is one of these threads."""
        is_known = thread in self._resting
        if is_known:
            self._users.add(thread)
        return is_known

    def await_rest(self, is_over: Callable[[], bool]) -> None:
        """Wait, in wall-clock time, until the threads rest or ``is_over()`` returns True.

        Raises ``ContractError`` for a thread that has used the fakes and works for too long. Another
        one counts as resting from then on, wherever it waits.
        """
        if not self._resting:
            return
        for _ in range(_CHECKS):
            before = {thread: wakings(thread.ident or 0) for thread in self._resting}
            pause(_CHECK)
            busy = [one for one, count in before.items() if not self._rests(one, count)]
            if not busy or is_over():
                return
        for thread in busy:
            self._resting[thread] = _stack(thread)
            if thread in self._users:
                raise ContractError(
                    f"the thread {thread.name}, which began before explore(), makes calls for the code "
                    "and goes on working, in real time, so that its calls would be part of a later "
                    "run: start it, or the pool that it belongs to, within the explored function"
                )

    def _rests(self, thread: threading.Thread, count: int | None) -> bool:
        """Return whether a thread has not woken up since a count, and is where it rests."""
        if not thread.is_alive():
            return True
        is_asleep = count is not None and count == wakings(thread.ident or 0)
        return is_asleep and _stack(thread) == self._resting[thread]


def _is_of_infrastructure(thread: threading.Thread) -> bool:
    """Return whether a test runner or the like runs a thread, which makes no calls for the code."""
    frame = sys._current_frames().get(thread.ident or 0)
    return any(module_of(one).partition(".")[0] in INFRASTRUCTURE for one in stack_of(frame))


def _stack(thread: threading.Thread) -> tuple[CodeType, ...]:
    frame = sys._current_frames().get(thread.ident or 0)
    return tuple(one.f_code for one in stack_of(frame))
