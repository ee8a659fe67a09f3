"""The threads that began before the exploration, which it does not control."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType

from ...core.errors import ContractError
from ...core.frames import is_own, stack_of, thread_frame
from ...process.clocks import INFRASTRUCTURE, module_of
from ..fakes.gate import Gate, nap
from ..values.limits import CHECKS_AT_START, CHECKS_OF_OUTSIDERS
from .current_thread import OF_FAKES
from .pool import is_of_a_strand
from .stacks import application_frame
from .thread_states import wakings


class Outsiders:
    """The threads that are alive now, without this one and those of the package. ``explore()`` does not
    control threads of the application that began before it.

    A thread is idle while it waits at the place at which it is now, such as a pool's thread for work.
    """

    def __init__(self, portals: tuple[str, ...]) -> None:
        """``portals`` begin the names of threads with the event loop of a running TestClient."""
        self._portals = portals
        self._idle: dict[threading.Thread, tuple[CodeType, ...]] = {}
        self._wakings: dict[threading.Thread, int | None] = {}
        """How many times each thread had woken up when all were idle last."""
        self._users: set[threading.Thread] = set()
        """The threads that have used the fakes."""
        self._restless: set[threading.Thread] = set()
        """Other threads for which a trial has waited in vain, and which have not been idle since."""
        self._helpers: dict[threading.Thread, bool] = {threading.current_thread(): False}
        """Other threads, and whether each may work for these threads: those of the fakes, and those
        that have begun since, such as the pool of a running TestClient for plain functions.
        """
        self.sleeping: set[int] = set()
        """The threads that sleep in fake time, by their identifiers."""
        for thread in threading.enumerate():
            is_excluded = thread is threading.current_thread() or _is_excluded(thread)
            # Python also lists a thread that has failed before it began.
            if thread.is_alive() and not is_excluded:
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
        self._restless.discard(thread)
        if thread.name.startswith(self._portals):
            return "the order of calls in the event loop of a running TestClient"
        return f"the thread {thread.name}"

    def await_idle(self, is_over: Callable[[], bool]) -> None:
        """Wait, in wall-clock time, until the threads are idle or ``is_over()`` returns True.

        Raises ``ContractError`` for a thread that has used the fakes and works for too long. For another
        one, no trial waits again before it has been idle, wherever it waits.
        """
        last = self._wakings
        # Most threads have not woken up since the last trial. Where that is unknown, the
        # count is 0.
        threads = self._all_threads()
        if all(last.get(thread) and self._is_idle(thread, last[thread]) for thread in threads):
            return
        for _ in range(CHECKS_OF_OUTSIDERS):
            self._idle.update(
                {thread: _stack(thread) for thread in self._restless & self._idle.keys()}
            )
            # A thread may start another one at any time.
            before = {thread: wakings(thread) for thread in self._all_threads()}
            nap()
            # A thread that waits for the interpreter's own lock wakes up once in this time.
            Gate().acquire(sys.getswitchinterval())
            busy = [thread for thread, count in before.items() if not self._is_idle(thread, count)]
            if not busy:
                self._wakings = before
            self._restless.intersection_update(busy)
            if self._restless.issuperset(busy) or is_over():
                return
        for thread in busy:
            if thread in self._users:
                raise ContractError(
                    f"the thread {thread.name}, which began before explore(), makes calls for the code "
                    "and goes on working, in real time, so that its calls would be part of a later "
                    "trial: start it, or the pool that it belongs to, within the explored function"
                )
            self._restless.add(thread)

    def _is_idle(self, thread: threading.Thread, count: int | None) -> bool:
        """Return whether a thread has not woken up since a count, and is where it is idle."""
        is_asleep = count is not None and count == wakings(thread)
        if is_asleep and thread.ident in self.sleeping:
            return True
        if is_asleep and thread in self._helpers:
            return application_frame(thread_frame(thread.ident)) is None
        return is_asleep and _stack(thread) == self._idle[thread]

    def _all_threads(self) -> list[threading.Thread]:
        """Return those of these threads that are alive, and those that may work for them."""
        for thread in threading.enumerate():
            if thread not in self._idle and thread not in self._helpers:
                self._helpers[thread] = not _is_excluded(thread)
        helpers = [thread for thread, helps in self._helpers.items() if helps]
        return [thread for thread in [*self._idle, *helpers] if thread.is_alive()]


def _is_excluded(thread: threading.Thread) -> bool:
    """Return whether a thread makes no calls for the code: one of the fakes, of a strand, of a test
    runner or the like. One that executes a function of this package may be the code's, such as the
    thread of an event loop that awaits ``AioCloud.explore()``.
    """
    return (
        thread.name.startswith(OF_FAKES)
        or is_of_a_strand(thread)
        or any(
            module_of(caller).partition(".")[0] in INFRASTRUCTURE and not is_own(caller)
            for caller in stack_of(thread_frame(thread.ident))
        )
    )


def _stack(thread: threading.Thread) -> tuple[CodeType, ...]:
    return tuple(caller.f_code for caller in stack_of(thread_frame(thread.ident)))
