"""For whom the current thread works: all questions that its code, its fakes and its clocks ask."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING

from .strand import Strand

if TYPE_CHECKING:
    from .strands import Strands
    from .turns import Turns

OF_FAKES = "fakecloud"
"""How the names of the fakes' threads begin."""
carried_strand: ContextVar[Strand | None] = ContextVar("carried_strand", default=None)
"""The strand on whose behalf a thread works, such as that of a running TestClient."""


class CurrentThread:
    """The thread that asks: for which strand of the trial it works, if for any.

    A thread is **explored** if it runs the code of a strand. Another one can *serve* a call, as those
    of the fakes do; it can be *carried* along by a context, as the pool of an ASGI application is; or
    be *left over* by an earlier trial. The *owner* runs the checks, and the trials. A promise that is
    checked after every step runs in the owner, or in the thread of a strand that has just given up its
    turn or ended; no thread is explored then. "Whose thread is this?" in docs/contributing/map.md says
    what a call, a wait, a lock and the clock do in each.

    Between trials, no thread is explored.
    """

    def __init__(self, turns: Turns | None = None, strands: Strands | None = None) -> None:
        self._turns = turns
        self._strands = strands
        self._owner = threading.get_ident()
        self._of_promise: int | None = None
        """The thread that checks a promise after a step, by its identifier."""
        self._is_setting_up = False

    # -- explored code

    def host(self) -> Strand | None:
        """Return the strand that has this thread; for a task, the strand of its event loop."""
        return None if self._turns is None else self._turns.here()

    def is_explored(self) -> bool:
        return not self.is_checking_promise() and self.host() is not None

    def strand(self) -> Strand | None:
        """Return the explored strand of this thread or, in an event loop, of its current task."""
        host = None if self.is_checking_promise() else self.host()
        if host is None or self._strands is None or host.loop.running is None:
            return host
        task = asyncio.current_task(host.loop.running)
        return host if task is None else self._strands.of_task(host, task)

    def cooperating(self) -> Strand | None:
        """Return the strand of this thread, unless it must not let other strands run: at the end of
        the trial, or while it waits for a thread that is not explored.
        """
        strand = None if self.has_ended() else self.strand()
        return None if strand is None or strand.host.thread.real_waits else strand

    def has_ended(self) -> bool:
        """Return whether the trial has ended, although threads still run its code."""
        return self._turns is not None and self._turns.has_ended

    # -- threads that are not explored

    def carried(self) -> Strand | None:
        """Return the strand on whose behalf this thread works, if its context says so."""
        strand = carried_strand.get()
        is_of_trial = self._strands is not None and strand in self._strands
        return strand if strand is not None and is_of_trial and strand.state != "ended" else None

    def is_left_over(self) -> bool:
        """Return whether this thread works for a strand of an earlier trial, which has ended."""
        strand, strands = carried_strand.get(), self._strands
        return strand is not None and strands is not None and strand not in strands

    def working_for(self) -> Strand | None:
        """Return the strand on whose behalf this thread works, also if the thread is not explored:
        the running strand, or one that waits, if the thread's context does not name it.
        """
        if self._turns is None or self._strands is None:
            return None
        waiting = (strand for strand in self._strands if strand.is_waiting_for_thread())
        return self.strand() or self.carried() or self._turns.current or next(waiting, None)

    def drawing_for(self) -> Strand | None:
        """Return the strand whose random numbers this thread draws, on whatever thread or loop the
        strand's code runs; None outside of explored code.
        """
        is_outside = (
            threading.get_ident() == self._owner or self.is_checking_promise() or self.has_ended()
        )
        return None if is_outside else self.working_for()

    # -- promises, checks and setup=

    def is_own(self) -> bool:
        """Return whether this thread runs explored code, promises, or the checks of the exploration."""
        is_owner = threading.get_ident() == self._owner
        return is_owner or self.host() is not None or self.is_in_promise()

    @contextlib.contextmanager
    def checking_promise(self) -> Iterator[None]:
        """Do not explore the calls within the block, which a promise makes."""
        self._of_promise = threading.get_ident()
        try:
            yield
        finally:
            self._of_promise = None

    def is_checking_promise(self) -> bool:
        """Return whether a promise is being checked after a step, in whatever thread."""
        return self._of_promise is not None

    def is_in_promise(self) -> bool:
        """Return whether this thread runs a promise that is checked after every step."""
        return self._of_promise == threading.get_ident()

    @contextlib.contextmanager
    def setting_up(self) -> Iterator[None]:
        """Prepare a trial in the block: locks that this thread creates are for explored code."""
        self._is_setting_up = True
        try:
            yield
        finally:
            self._is_setting_up = False

    def creates_explored_locks(self) -> bool:
        """Return whether the locks that this thread creates are for explored code."""
        is_setup = self._is_setting_up and threading.get_ident() == self._owner
        return is_setup or self.cooperating() is not None
