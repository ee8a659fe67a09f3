"""Waiting in wall-clock time, for threads that the turn does not control.

A wait ends with what it waits for, with the trial or, except for the first four and ``await_idle()``,
when a strand can run:

========================== ================================= =================== ====================
who waits                  for what                          at most             what happens then
========================== ================================= =================== ====================
``Watchdog.look``          the running strand moves on       BLOCKED_AFTER       another strand runs
… if none can run          the same                          STUCK_AFTER         the trial is stuck
… in ``waits_for_real()``  the same                          REAL_WAIT           one of these two
… in ``thread.start()``    the thread begins its code        LOST_AFTER          the trial fails
``await_threads()``        a blocked strand goes on          CHECKS_OF_BLOCKED   the trial is stuck
``await_release()``        a thread that is not explored     CHECKS_OF_WAITING   the trial is stuck
                           lets a waiting strand go on
``await_threads()``,       outsiders wait for work           CHECKS_OF_OUTSIDERS no trial awaits them, or
``await_idle()``                                                                 the trial fails
========================== ================================= =================== ====================

Elsewhere, sleepers wait for the code that they wake (``sleepers``), event loops for other servers
(``loops``), locks of checks for earlier threads (``world.waits``), and ``turns`` and ``pool`` for
threads to end. All limits are in ``values.limits``, except for those of guests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core.errors import ContractError
from ...core.frames import thread_frame
from ..fakes.gate import wait_really
from ..values.limits import CHECKS_OF_BLOCKED, CHECKS_OF_WAITING
from .outsiders import Outsiders
from .part import Common, Part
from .sleepers import Sleepers
from .stacks import application_frame, describe_stuck
from .strand import Strand


class RealWaits(Part):
    """The waits of a trial in which no strand can run, or in which outsiders have to be idle first."""

    def __init__(self, common: Common, *, outsiders: Outsiders, sleepers: Sleepers) -> None:
        super().__init__(common)
        self._outsiders = outsiders
        self._sleepers = sleepers

    def await_threads(self, has_options: Callable[[], bool]) -> bool:
        """Wait for blocked strands or, without any, for outsiders; return whether a strand or a delivery
        may run then.
        """
        if self._blocked():
            if all(strand.is_daemon or strand.state == "ended" for strand in self._strands):
                return False
            is_over = wait_really(
                lambda: not self._blocked() or self._turns.has_ended or has_options(),
                CHECKS_OF_BLOCKED,
            )
            return is_over and not self._turns.has_ended
        if not self._outsiders:
            return False
        self._outsiders.await_idle(lambda: self._turns.has_ended or has_options())
        return has_options()

    def await_release(self, has_options: Callable[[], bool]) -> bool:
        """Wait for a thread that is not explored and that may end the wait of a strand; return whether
        it has. Report the trial as stuck if strands should have ended, but wait or are blocked.
        """
        blocked = [strand for strand in self._blocked() if not strand.is_daemon]
        waiting = [] if blocked else self._waiting_in_vain()
        if waiting and wait_really(
            lambda: bool(self._sleepers) or self._turns.has_ended or has_options(),
            CHECKS_OF_WAITING,
        ):
            return True
        if blocked or waiting:
            self._report_stuck(blocked or waiting)
        for strand in self._strands:
            if not blocked and strand.is_daemon and strand.state not in ("ended", "new"):
                self._log.note(f"the daemon thread {strand.name} was still running at the end")
        return False

    def await_idle(self) -> None:
        """Wait until outsiders are idle, because their speed would decide what runs next. End the trial
        with an error if one goes on.
        """
        try:
            if self._outsiders:
                self._outsiders.await_idle(lambda: self._turns.has_ended)
        except ContractError as error:
            self._turns.fail_trial(error)  # The explored code could catch the exception.

    def end_stuck(self, strand: Strand) -> None:
        """End the trial because a strand is blocked, and stepping over it was impossible or in vain."""
        self._report_stuck(self._blocked() or [strand])
        self._turns.block(strand)
        self._turns.end(None)

    def _blocked(self) -> list[Strand]:
        return [strand for strand in self._strands if strand.state == "blocked"]

    def _waiting_in_vain(self) -> list[Strand]:
        """Return the strands that wait although nothing can end that, if they should have ended."""
        waiting = [
            strand
            for strand in self._strands
            if strand.state == "waiting"
            and not strand.is_daemon
            and strand.root.type != "worker"
            and not strand.root.crashed
        ]
        # Ignore idle threads of a pool, which wait in library code.
        # Keep no dictionary of frames: it would contain this one, which refers to all data of the trial.
        return [
            strand
            for strand in waiting
            if strand.type != "thread" or application_frame(thread_frame(strand.thread.ident))
        ]

    def _report_stuck(self, strands: Sequence[Strand]) -> None:
        text = describe_stuck(strands)
        self._log.flags.add("stuck")
        self._log.note_error(AssertionError(text))
