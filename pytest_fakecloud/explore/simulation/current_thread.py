"""The thread that asks: its role in a trial, and the strand for which it works.

``CurrentThread`` answers both questions for all of ``explore()``: ``ThreadInTrial`` while a trial is
played, and ``ThreadBetweenTrials`` for checks and ``setup=``. The map, "Whose thread is this?", says
what each thread does.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from .pool import is_of_a_strand

if TYPE_CHECKING:
    from .strand import Strand, Strands
    from .turns import Turns

OF_FAKES = "fakecloud"
"""How the names of the fakes' threads begin."""
carried_strand: ContextVar[Strand | None] = ContextVar("carried_strand", default=None)
"""The strand on whose behalf a thread works, such as that of a running TestClient."""


class Role(NamedTuple):
    """What a thread runs now, and what follows from that."""

    name: str
    is_explored: bool = False
    """Whether it runs the code of a strand: its calls are points, and what it touches is noted."""
    has_fake_time: bool = True
    """Whether its clocks show the fake time, and its clients get sockets in memory."""
    moves_clock: bool = False
    """Whether its waits move the clock from event to event."""


STRAND = Role("strand", is_explored=True)
"""The code of a strand, or an event loop with its tasks. It may let other strands run."""
KEEPING = Role("keeping its turn", is_explored=True)
"""The same, while it waits for a thread that is not explored, or for another process."""
ENDED = Role("ended", is_explored=True)
"""The same, after the end of the trial."""
PROMISE = Role("promise")
"""A promise that is checked after a step."""
HALTED = Role("halted")
"""The code of a strand, which goes on although another thread checks a promise."""
IN_CHECK = Role("check", moves_clock=True)
"""A check, between trials."""
SETUP = Role("setup", moves_clock=True)
"""``setup=``: the locks that this thread creates are for explored code."""
PLAYER = Role("player")
"""Hooks and handlers of signals, in the thread that plays the trial."""
UNEXPLORED = Role("unexplored", has_fake_time=False)
"""Code that is not explored. ``origin()`` says where it comes from."""

Origin: TypeAlias = Literal[
    "",  # the role of the thread is not ``UNEXPLORED``
    "left over",  # its context names a strand of an earlier trial
    "outsider",  # it began before the exploration
    "former",  # it was a strand's in an earlier trial
    "carried",  # its context names the strand for which it works, as in the pool of an application
    "fake",  # it is one of the fakes
    "other",
]


class CurrentThread(ABC):
    """Answers two questions about the thread that asks: ``role()``, and for which strand it works. The
    second has several meanings, which ``ThreadInTrial`` lists.
    """

    @abstractmethod
    def role(self) -> Role:
        """Return what this thread runs."""

    def strand(self) -> Strand | None:
        return None

    def cooperating(self) -> Strand | None:
        return None

    def served(self) -> Strand | None:
        return None

    def carried(self) -> Strand | None:
        return None

    def drawing_for(self) -> Strand | None:
        return None


class ThreadBetweenTrials(CurrentThread):
    """The thread that asks while no trial is played, such as in a check. It works for no strand."""

    def __init__(self) -> None:
        self._player = threading.get_ident()
        self._roles = {self._player: IN_CHECK}
        """The roles of threads, by their identifiers."""

    def role(self) -> Role:
        return self._roles.get(threading.get_ident(), UNEXPLORED)

    @contextlib.contextmanager
    def setting_up(self) -> Iterator[None]:
        """Prepare a trial in the block, in the player's thread."""
        self._roles[self._player] = SETUP
        try:
            yield
        finally:
            self._roles[self._player] = IN_CHECK

    def run_in_check(self, run: Callable[[], object]) -> None:
        """Run the code of a thread that a check or ``setup=`` has started."""
        me = threading.get_ident()
        self._roles[me] = IN_CHECK
        try:
            run()
        finally:
            self._roles.pop(me, None)


class ThreadInTrial(CurrentThread):
    """The thread that asks while a trial is played, and the strand for which it works:

    ============== ===================================================================================
    strand         its own one: the thread runs the code of the strand, or an event loop with its task
    cooperating    its own one, if the thread may let other strands run
    executing      its own one, or the one whose call it handles: what a command does belongs to it
    served         the one whose call it handles
    carried        the one that its context names
    working_for    the first that there is: its own, that of its context, the running or a waiting one
    drawing_for    the same, for random numbers: none in a promise and in the player's thread
    ============== ===================================================================================

    Its own one, in an event loop, is the current task, which is registered as a strand at the first
    question: tasks that do nothing here are no part of the trial.
    """

    def __init__(
        self, turns: Turns, strands: Strands, outsiders: Container[threading.Thread]
    ) -> None:
        self._turns = turns
        self._strands = strands
        self._outsiders = outsiders
        self._player = threading.get_ident()
        self._promise: int | None = None
        """The thread that checks a promise after a step, by its identifier."""
        self._served: dict[int, Strand] = {}
        """The strand whose call each thread handles: its own thread, or one of the fakes."""

    # -- the role

    def role(self) -> Role:
        me, turns = threading.get_ident(), self._turns
        if self._promise == me:
            return PROMISE
        host = turns.by_thread.get(me)
        if host is None:
            return PLAYER if me == self._player else UNEXPLORED
        if turns.has_ended:
            return ENDED
        if self._promise is not None:
            return HALTED
        return KEEPING if host.thread.real_waits else STRAND

    def origin(self) -> Origin:
        """Return where a thread comes from that is ``UNEXPLORED``. Do not ask in a thread that is just
        beginning, which has no ``Thread`` yet.
        """
        if self.role() is not UNEXPLORED:
            return ""
        named, thread = carried_strand.get(), threading.current_thread()
        if named is not None and named not in self._strands:
            return "left over"
        if thread in self._outsiders:
            return "outsider"
        if is_of_a_strand(thread):
            return "former"
        if self.carried() is not None:
            return "carried"
        return "fake" if thread.name.startswith(OF_FAKES) else "other"

    def is_checking_promise(self) -> bool:
        """Return whether a promise is being checked after a step, in whatever thread: what any thread
        does meanwhile is no part of the trial.
        """
        return self._promise is not None

    def is_live(self) -> bool:
        """Return whether what threads do is part of the trial: it has not ended, and no promise is being
        checked.
        """
        return not (self._turns.has_ended or self.is_checking_promise())

    # -- the strand

    def strand(self) -> Strand | None:
        host = self._turns.host() if self.role().is_explored else None
        if host is None or host.loop is None:
            return host
        task = host.loop.current_task()
        return host if task is None else self._strands.registered(host, host.loop, task)

    def cooperating(self) -> Strand | None:
        return self.strand() if self.role() is STRAND else None

    def executing(self) -> Strand | None:
        return self.served() or self.strand() if self.is_live() else None

    def served(self) -> Strand | None:
        return None if self.is_checking_promise() else self._served.get(threading.get_ident())

    def carried(self) -> Strand | None:
        strand = carried_strand.get()
        if strand is None or strand not in self._strands or strand.state == "ended":
            return None
        return strand

    def working_for(self) -> Strand | None:
        waiting = (strand for strand in self._strands if strand.is_waiting_for_other_thread())
        return self.strand() or self.carried() or self._turns.holder or next(waiting, None)

    def drawing_for(self) -> Strand | None:
        is_player = threading.get_ident() == self._player
        return self.working_for() if self.is_live() and not is_player else None

    # -- what the thread begins and ends

    @contextlib.contextmanager
    def checking_promise(self) -> Iterator[None]:
        """Check a promise in the block, after a step."""
        self._promise = threading.get_ident()
        try:
            yield
        finally:
            self._promise = None

    @contextlib.contextmanager
    def serving(self, strand: Strand) -> Iterator[None]:
        """Handle a call of a strand in the block."""
        ident = threading.get_ident()
        self._served[ident] = strand
        try:
            yield
        finally:
            self._served.pop(ident, None)

    def is_served(self, strand: Strand) -> bool:
        """Return whether any thread handles a call of a strand."""
        return strand in self._served.values()
