"""Whose each call of a fake is, and how it is served."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from ...cloud.fake import Fake
from ...core.errors import Crash
from ...http.messages import Request
from ...kv.command_fields import only_prepares
from ...kv.report.calls import command_of
from .call_disturbances import session_of
from .current_thread import Origin
from .outsiders import Outsiders
from .part import Common, Part
from .strand import Strand

Way: TypeAlias = Literal[
    "no point",  # as without a trial: no strand makes it, or it only prepares others
    "dropped",  # not at all: it is of an earlier trial, or of this one after its end
    "unexplored",  # without a turn, for the only strand: a thread makes it that is not explored
    "awaited",  # within ``Calls.exchange()``, which takes the turns before and after it
    "in turn",  # between two points, at which other strands can run
    "without turn",  # at once, because the strand has no turn that it could give up
]


class Caller(NamedTuple):
    """Whose a call is, and how it is served."""

    way: Way
    strand: Strand | None = None
    is_in_strand_thread: bool = False
    """Whether the strand's thread handles the call, instead of one of the fakes."""
    point: int = 0
    """The point of an awaited call."""


class Callers(Part):
    """Says for each call of a trial whose it is, from its thread and its connection."""

    def __init__(self, common: Common, *, outsiders: Outsiders) -> None:
        super().__init__(common)
        self._outsiders = outsiders
        self._by_port: dict[int, Strand] = {}
        """The strand that uses each connection, by the client's port."""
        self._senders: dict[int, Origin] = {}
        """The origin of the thread that sends over each connection, by the client's port, if it is not
        explored.
        """
        self._awaited: dict[Strand, int] = {}
        """The point of the call that each task makes now, within ``awaiting()``."""
        self._unexplored: set[Strand] = set()
        """The strands for which threads make calls that are not explored."""

    # -- connections

    def note_sender(self, strand: Strand, port: int) -> None:
        """Note that the thread of a strand sends over a connection."""
        self._by_port[port] = strand
        if self._senders.get(port) == "carried":
            del self._senders[port]

    def note_other_sender(self, strand: Strand | None, port: int) -> None:
        """Note that this thread sends there. It is not explored, or uses a connection that leads to no
        fake or began before the exploration.
        """
        origin = self._note_origin()
        if strand is not None:
            self._by_port[port] = strand
        if self._senders.get(port, "carried") == "carried":
            self._senders[port] = origin

    def at_port(self, port: int) -> Strand | None:
        """Return the strand that uses a connection."""
        return self._by_port.get(port)

    # -- calls

    def caller_of(self, fake: Fake, request: Request) -> Caller:
        """Return whose a call is that this thread handles, and how it is served. Raises ``Crash`` in
        the thread of a strand of an earlier trial.
        """
        if self._current_thread.is_checking_promise():
            return Caller("no point")
        port = -1 if request.client is None else request.client[1]
        # The origins of the thread that handles the call, and of the thread that has sent it.
        origins = self._note_origin(), self._senders.get(port, "")
        if "left over" in origins:
            self._log.note("not explored: late calls for a request of an earlier trial")
            return Caller("dropped")
        strand, is_in_strand_thread = self._strand_of(request)
        if strand is None:
            return Caller("dropped" if self._turns.has_ended else "no point")
        if _has_no_point(fake, request):
            return Caller("no point", strand, is_in_strand_thread)
        if _is_unexplored(strand, origins, is_in_strand_thread):
            return Caller("unexplored", strand, is_in_strand_thread)
        if is_in_strand_thread and strand in self._awaited:
            return Caller("awaited", strand, is_in_strand_thread, self._awaited[strand])
        # Another call of hers may be in progress: ann awaits a BLPOP, for example, and a thread that
        # works for her makes a call beside it.
        is_second = not is_in_strand_thread and self._current_thread.is_served(strand)
        has_turn = strand.state == "running" and not is_second
        return Caller("in turn" if has_turn else "without turn", strand, is_in_strand_thread)

    def _strand_of(self, request: Request) -> tuple[Strand | None, bool]:
        """Return the strand that makes a call, and whether its own thread handles the call.

        A fake's thread handles the call of the strand that uses the connection or, if that is unknown,
        of the one for which it works.
        """
        strand = self._current_thread.strand()
        if strand is not None:
            return strand, True
        if request.client is not None:
            user = self._by_port.get(request.client[1])
            if user is not None and user.state != "ended":
                return user, False
        return self._current_thread.working_for(), False

    def of_rejected(self, request: Request) -> Strand | None:
        """Return the strand that makes a call without valid credentials, which no fake serves."""
        strand, _ = self._strand_of(request)
        return strand if self._current_thread.is_live() else None

    @contextlib.contextmanager
    def awaiting(self, strand: Strand, point: int) -> Iterator[None]:
        """Make a call of a task in the block, between its turns before and after the call."""
        self._awaited[strand] = point
        try:
            yield
        finally:
            del self._awaited[strand]

    # -- threads that are not explored

    def _note_origin(self) -> Origin:
        """Return where this thread comes from, and note the use of one from before. Raises ``Crash`` in
        the thread of a strand of an earlier trial.
        """
        origin = self._current_thread.origin()
        if origin == "outsider":
            description = self._outsiders.note_use(threading.current_thread())
            self._log.note(f"not explored: {description}, which began before explore()")
        if origin == "former":
            raise Crash
        return origin

    def admit_unexplored(self, strand: Strand, now_us: int) -> None:
        """Let a call be made for a strand by a thread that is not explored. End the trial with an error
        if another strand could make calls at the same time, as with several programs: real time would
        decide their order.
        """
        self._unexplored = {
            user for user in self._unexplored if user not in self._strands.ended_earlier
        }
        self._unexplored.add(strand)
        could_run = any(other is not strand and other.is_ready(now_us) for other in self._strands)
        if could_run or len(self._unexplored) > 1 or len(self._script.subject.programs) > 1:
            self._turns.fail_trial(self._outsiders.error_of_sharing())


def _is_unexplored(strand: Strand, origins: Sequence[Origin], is_in_strand_thread: bool) -> bool:
    """Return whether a thread that is not explored makes a call, and the strand does not wait for it in
    its turn: ann has called ``pool.submit(redis.get, "k")`` and goes on, for example. If she waits for a
    running TestClient, a thread of its pool makes the call in her turn.
    """
    is_beside = "carried" in origins and not is_in_strand_thread and not strand.thread.real_waits
    return "outsider" in origins or is_beside


def _has_no_point(fake: Fake, request: Request) -> bool:
    """Return whether a Redis command only sets up its connection, or is queued for EXEC."""
    if request.call.route != "database-port":
        return False
    if only_prepares(request.call):
        return True
    session = session_of(fake, request)
    is_queued = session is not None and session.is_queuing
    return is_queued and command_of(request.call) != "EXEC"
