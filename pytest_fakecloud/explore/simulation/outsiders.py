"""Threads of the application that began before the exploration, which it does not control."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType

from ...core.errors import ContractError
from ...core.frames import stack_of
from ...process.clocks import INFRASTRUCTURE, module_of
from ..fakes.gate import Gate, nap
from ..values.limits import CHECKS_AT_START, CHECKS_OF_OUTSIDERS
from .current_thread import OF_FAKES
from .part import Part
from .pool import is_of_a_strand
from .stacks import application_frame
from .watchdog import wakings

_OF_STRANDS = ("explore", "abandoned")
"""How the names of the threads begin that run strands, or have run them."""
_OWN = (OF_FAKES, *_OF_STRANDS)
"""How the names of this package's own threads begin."""


class Outsiders:
    """The threads that are alive now, without this one and those of the package. ``explore()`` does not
    control threads of the application that began before it.

    A thread is idle while it waits at the place at which it is now, such as a pool's thread for work.
    """

    def __init__(self, portals: tuple[str, ...] = ()) -> None:
        """``portals`` begin the names of threads with the event loop of a running TestClient."""
        self._portals = portals
        self._idle: dict[threading.Thread, tuple[CodeType, ...]] = {}
        self._wakings: dict[threading.Thread, int | None] = {}
        """How many times each thread had woken up when all were idle last."""
        self._users: set[threading.Thread] = set()
        """The threads that have used the fakes."""
        self._helpers: dict[threading.Thread, bool] = {threading.current_thread(): False}
        """Other threads, and whether each may work for these threads: those of the fakes, and those
        that have begun since, such as the pool of a running TestClient for plain functions.
        """
        self.sleeping: set[int] = set()
        """The threads that sleep in fake time, by their identifiers."""
        for thread in threading.enumerate():
            is_own = thread is threading.current_thread() or thread.name.startswith(_OWN)
            # Python also lists a thread that has failed before it began.
            if thread.is_alive() and not is_own and not _is_of_infrastructure(thread):
                self._idle[thread] = ()
        for _ in range(CHECKS_AT_START if self._idle else 0):
            # A thread may still be on the way to the place where it is idle.
            self._idle = {thread: _stack(thread) for thread in self._idle}
            nap()

    def __bool__(self) -> bool:
        return bool(self._idle)

    def error_of_sharing(self) -> ContractError:
        """Return the error for several clients that use the fakes through these threads."""
        if any(thread.name.startswith(self._portals) for thread in self._idle):
            place = "the event loop of a running TestClient"
            advice = (
                "open a TestClient within each explored function (`with TestClient(app) as client:`), "
                "or use one without `with`: its requests run in an event loop of the explored client"
            )
        else:
            place = "a thread or an event loop"
            advice = (
                "start the thread, or the pool or the event loop that it belongs to, within each "
                "explored function"
            )
        return ContractError(
            f"several clients or threads use the fakes, through {place} that began before explore(), "
            "which cannot decide the order of their calls there, so that two runs could differ: "
            f"{advice}"
        )

    def __contains__(self, thread: object) -> bool:
        return thread in self._idle

    def note_use(self, thread: threading.Thread) -> str:
        """Note that one of these threads uses the fakes; return its description."""
        self._users.add(thread)
        if thread.name.startswith(self._portals):
            return "the order of calls in the event loop of a running TestClient"
        return f"the thread {thread.name}"

    def await_idle(self, is_over: Callable[[], bool]) -> None:
        """Wait, in wall-clock time, until the threads are idle or ``is_over()`` returns True.

        Raises ``ContractError`` for a thread that has used the fakes and works for too long. Another
        one counts as idle from then on, wherever it waits.
        """
        last = self._wakings
        # Most threads have not woken up since the last trial. Where that is unknown, the
        # count is 0.
        threads = self._all_threads()
        if all(last.get(thread) and self._is_idle(thread, last[thread]) for thread in threads):
            return
        for _ in range(CHECKS_OF_OUTSIDERS):
            # A thread may start another one at any time.
            before = {thread: wakings(thread) for thread in self._all_threads()}
            nap()
            # A thread that waits for the interpreter's own lock wakes up once in this time.
            Gate().acquire(sys.getswitchinterval())
            busy = [thread for thread, count in before.items() if not self._is_idle(thread, count)]
            if not busy:
                self._wakings = before
            if not busy or is_over():
                return
        for thread in busy:
            if thread in self._idle:
                self._idle[thread] = _stack(thread)
            if thread in self._users:
                raise ContractError(
                    f"the thread {thread.name}, which began before explore(), makes calls for the code "
                    "and goes on working, in real time, so that its calls would be part of a later "
                    "trial: start it, or the pool that it belongs to, within the explored function"
                )

    def _is_idle(self, thread: threading.Thread, count: int | None) -> bool:
        """Return whether a thread has not woken up since a count, and is where it is idle."""
        is_asleep = count is not None and count == wakings(thread)
        if is_asleep and thread.ident in self.sleeping:
            return True
        if is_asleep and thread in self._helpers:
            return application_frame(sys._current_frames().get(thread.ident or 0)) is None
        return is_asleep and _stack(thread) == self._idle[thread]

    def _all_threads(self) -> list[threading.Thread]:
        """Return those of these threads that are alive, and those that may work for them."""
        for thread in threading.enumerate():
            if thread not in self._idle and thread not in self._helpers:
                is_explored = is_of_a_strand(thread) or thread.name.startswith(_OF_STRANDS)
                self._helpers[thread] = not is_explored and not _is_of_infrastructure(thread)
        helpers = [thread for thread, helps in self._helpers.items() if helps]
        return [thread for thread in [*self._idle, *helpers] if thread.is_alive()]


def _is_of_infrastructure(thread: threading.Thread) -> bool:
    """Return whether a test runner or the like runs a thread, which makes no calls for the code."""
    frame = sys._current_frames().get(thread.ident or 0)
    return any(module_of(caller).partition(".")[0] in INFRASTRUCTURE for caller in stack_of(frame))


def _stack(thread: threading.Thread) -> tuple[CodeType, ...]:
    frame = sys._current_frames().get(thread.ident or 0)
    return tuple(caller.f_code for caller in stack_of(frame))


@dataclass(eq=False)
class OutsideCalls(Part):
    """The calls of one trial that threads make which are not explored, such as an application's pool."""

    def await_idle(self) -> None:
        """Wait until threads from before are idle, because their speed would decide what runs next.
        End the trial with an error if one goes on.
        """
        try:
            if self._world.outsiders:
                self._world.outsiders.await_idle(lambda: self._turns.has_ended)
        except ContractError as error:
            self._turns.fail_trial(error)  # The explored code could catch the exception.
