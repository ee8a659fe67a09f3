"""The promises that must hold after every step of a trial."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.errors import broken_by_check
from ..values.schedule import Schedule, add_schedule
from .operations import Operations
from .part import Part


@dataclass(eq=False)
class PromiseChecks(Part):
    """Checks the promises after a step, while no strand runs."""

    operations: Operations

    def check(self) -> None:
        """Call each promise, and record the error of one that is broken."""
        if not self._script.subject.promises.at_step or self._log.broken is not None:
            return
        # The clients of a promise have the old tokens, as those of the code do.
        with self._current_thread.checking_promise(), self._fakes.lasting_events.old_tokens():
            for promise in self._script.subject.promises.at_step:
                try:
                    promise(self.operations.history)
                except BaseException as error:
                    broken = broken_by_check(error, is_disturbed=bool(self._log.applied))
                    if broken is not None:
                        self._log.broken = broken
                        self._log.add_line("the promise", "breaks here").breaks = True
                        return
                    add_schedule(error, "during", Schedule(self._log.applied))
                    # End the trial here, because the explored code could catch the exception.
                    self._turns.fail_trial(error)
