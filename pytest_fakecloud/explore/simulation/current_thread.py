"""Whose thread the current one is, and for which strand it works."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Container, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, TypeAlias

from .pool import is_of_a_strand

if TYPE_CHECKING:
    from .strand import Strand
    from .strands import Strands
    from .turns import Turns

OF_FAKES = "fakecloud"
"""How the names of the fakes' threads begin."""
carried_strand: ContextVar[Strand | None] = ContextVar("carried_strand", default=None)
"""The strand on whose behalf a thread works, such as that of a running TestClient."""


Row: TypeAlias = Literal[
    "promise",  # it checks a promise after a step, or is that of a strand meanwhile
    "strand",  # it runs the code of a strand, or an event loop with its tasks: it is *explored*
    "ended",  # the same, after the end of the trial
    "left over",  # its context names a strand of an earlier trial
    "outsider",  # it began before the exploration
    "pool",  # it has run a strand of an earlier trial
    "carried",  # its context names the strand for which it works, as in the pool of an application
    "fake",  # it is one of the fakes
    "check",  # it runs a check or ``setup=``, between trials
    "other",  # such as the player's, while a trial is played
]
"""A row of "Whose thread is this?" in docs/contributing/map.md, which says what each thread does."""


class CurrentThread:
    """The thread that asks: ``whose()`` it is, and for which strand of the trial it works, if for any.

    A promise that is checked after every step runs in the *player's* thread, which plays the trials, or
    in that of a strand that has just given up its turn or ended; no thread is explored then, nor between
    trials.

    ``registered_strand()``, and what calls it, register the current task of an event loop as a strand.
    ``run_in_check()`` and the blocks note what a thread does. All else only asks.
    """

    def __init__(
        self,
        turns: Turns | None = None,
        strands: Strands | None = None,
        outsiders: Container[threading.Thread] = (),
    ) -> None:
        self._turns = turns
        self._strands = strands
        self._outsiders = outsiders
        self._of_player = threading.get_ident()
        self._of_checks = {self._of_player}
        """The threads of the checks and of ``setup=``, by their identifiers."""
        self._of_promise: int | None = None
        """The thread that checks a promise after a step, by its identifier."""
        self._is_setting_up = False

    def whose(self) -> tuple[Row, Strand | None]:
        """Return whose thread this is, and the strand that has it or that its context names. Do not ask
        in a thread that is just beginning: use the questions below, which need no ``Thread``.
        """
        host, named = self.host(), carried_strand.get()
        if self.is_in_promise() or (host is not None and self.is_checking_promise()):
            return "promise", host
        if host is not None:
            return "ended" if self.has_ended() else "strand", host
        if self._turns is None or self._strands is None:
            return "check" if self.is_of_check() else "other", None
        if named is not None and named not in self._strands:
            return "left over", named
        thread, strand = threading.current_thread(), self.carried()
        if thread in self._outsiders:
            return "outsider", strand
        if is_of_a_strand(thread):
            return "pool", None
        if strand is not None:
            return "carried", strand
        return "fake" if thread.name.startswith(OF_FAKES) else "other", None

    # -- explored code

    def host(self) -> Strand | None:
        """Return the strand that has this thread; for a task, the strand of its event loop."""
        return None if self._turns is None else self._turns.host()

    def is_explored(self) -> bool:
        return not self.is_checking_promise() and self.host() is not None

    def registered_strand(self) -> Strand | None:
        """Return the explored strand of this thread or, in an event loop, of its current task, which is
        registered as a strand if it is none yet: tasks that do nothing here are no part of the trial.
        """
        host = None if self.is_checking_promise() else self.host()
        loop = None if host is None else host.loop
        if host is None or self._strands is None or loop is None:
            return host
        task = loop.current_task()
        return host if task is None else self._strands.registered(host, loop, task)

    def cooperating(self) -> Strand | None:
        """Return the strand of this thread, unless it must not let other strands run: at the end of
        the trial, or while it waits for a thread that is not explored.
        """
        strand = None if self.has_ended() else self.registered_strand()
        return None if strand is None or strand.thread.real_waits else strand

    def has_ended(self) -> bool:
        """Return whether the trial has ended, although threads still run its code."""
        return self._turns is not None and self._turns.has_ended

    # -- threads that are not explored

    def carried(self) -> Strand | None:
        """Return the strand on whose behalf this thread works, if its context says so."""
        strand = carried_strand.get()
        is_of_trial = self._strands is not None and strand in self._strands
        return strand if strand is not None and is_of_trial and strand.state != "ended" else None

    def working_for(self) -> Strand | None:
        """Return the strand on whose behalf this thread works, also if the thread is not explored:
        the running strand, or one that waits, if the thread's context does not name it.
        """
        if self._turns is None or self._strands is None:
            return None
        waiting = (strand for strand in self._strands if strand.is_waiting_for_thread())
        return (
            self.registered_strand() or self.carried() or self._turns.current or next(waiting, None)
        )

    def drawing_for(self) -> Strand | None:
        """Return the strand whose random numbers this thread draws, on whatever thread or loop the
        strand's code runs; None outside of explored code.
        """
        is_player = threading.get_ident() == self._of_player
        is_outside = is_player or self.is_checking_promise() or self.has_ended()
        return None if is_outside else self.working_for()

    # -- promises, checks and setup=

    def is_of_check(self) -> bool:
        """Return whether the waits of this thread move the clock, because it runs a check."""
        return self._turns is None and threading.get_ident() in self._of_checks

    def run_in_check(self, run: Callable[[], object]) -> None:
        """Run the code of a thread that a check has started, whose waits move the clock, too."""
        me = threading.get_ident()
        self._of_checks.add(me)
        try:
            run()
        finally:
            self._of_checks.discard(me)

    def has_fake_time(self) -> bool:
        """Return whether this thread has the fake time, and its clients sockets in memory: it is the
        player's or explored, or runs a promise or a check.
        """
        is_player = threading.get_ident() == self._of_player
        return is_player or self.host() is not None or self.is_in_promise() or self.is_of_check()

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
        is_setup = self._is_setting_up and threading.get_ident() == self._of_player
        return is_setup or self.cooperating() is not None
