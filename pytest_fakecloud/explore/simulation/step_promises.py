"""Promises that are checked after every step of a run."""

from __future__ import annotations

from ..schedule import Schedule
from .state import RunState, add_schedule


class StepPromises:
    """Checks the promises of a run that must hold after every step."""

    def __init__(self, state: RunState) -> None:
        self._promises = state.choice.always
        self._record = state.record
        self._turns = state.turns

    def check(self) -> None:
        """Check the promises; if one is broken, store its error in the run."""
        if not self._promises or self._record.run.broken is not None:
            return
        with self._record.aside():
            for promise in self._promises:
                try:
                    promise(self._record.history)
                except AssertionError as error:
                    self._record.run.broken = error
                    self._record.say("the promise", "breaks here")
                    self._record.run.lines[-1].breaks = True
                    return
                except Exception as error:
                    add_schedule(error, "during", Schedule(self._record.run.fired))
                    # End the run here, because the explored code could catch the exception.
                    self._turns.fail(error)
