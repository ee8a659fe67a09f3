"""Trials of the explored code, each from the baseline of the fakes: played, judged, and counted."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from dataclasses import replace

from ...cloud.base import context_of
from ...core.errors import ContractError
from ..judge.anomalies import Allowed
from ..judge.judge import Judge
from ..judge.serial import Serial
from ..subject.clients import Inputs, with_inputs
from ..subject.promises import Promises
from ..subject.subject import Subject
from ..values.plan import Plan
from ..values.schedule import Schedule
from ..values.trial import Trial
from ..world.world import World
from .observers import Observers
from .tally import Tally


class Player:
    """Plays, judges and counts trials of the subject, each from the baseline of the fakes."""

    def __init__(
        self,
        world: World,
        subject: Subject,
        allowed: Allowed,
        *,
        has_promise: bool,
        inputs: int = 0,
    ) -> None:
        self.world = world
        self.subject = subject
        self.tally = Tally(has_promise=has_promise, inputs=inputs)
        self.outcomes: dict[Schedule, Schedule | None] = {}
        """For each schedule so far, the applied disturbances, or None if the promise held."""
        serial = Serial(self._play_in_one_piece, subject.programs)
        self.judge = Judge(world, subject, allowed, has_promise, serial)
        self._observers = Observers(context_of(world.cloud).recorder)

    def with_inputs(self, inputs: Inputs) -> Player:
        """Return a player of the same code with these drawn inputs and a tally of its own."""
        programs = with_inputs(self.subject.programs, inputs)
        subject = replace(self.subject, programs=programs, inputs=inputs)
        has_promise, number = self.judge.has_promise, 1 if inputs else 0
        return Player(
            self.world, subject, self.judge.allowed, has_promise=has_promise, inputs=number
        )

    def judged_by(self, judge: Judge) -> Player:
        """Return a player with the same tally, and another judge."""
        player = copy(self)
        player.judge, player.outcomes = judge, {}
        return player

    def play(self, plan: Plan, *, records: bool = True) -> Trial:
        """Play a trial, judge it unless its strategy ends it, and, with ``records``, record it."""
        with self._observers.of_trial(plan):
            trial, history = self.world.play(self.subject, plan)
            if "redundant" in trial.flags:
                return trial
            trial = replace(trial, verdict=self.judge.verdict(trial, history, plan))
        if records:
            self.record(trial, plan)
        return trial

    def record(self, trial: Trial, plan: Plan) -> None:
        """Add a judged trial to the tally, and remember what its schedule led to."""
        if "redundant" in trial.flags:  # which another process has played
            return
        self.tally.record(trial, self.subject.inputs)
        if plan.orders is None:
            is_broken = trial.broken is not None
            self.outcomes[plan.schedule] = Schedule(trial.fired) if is_broken else None

    def _play_in_one_piece(self, plan: Plan, absent: Collection[str]) -> Trial | None:
        """Play a trial without some programs, while another is judged; return None if that fails."""
        programs = [program for program in self.subject.programs if program.name not in absent]
        subject = replace(self.subject, programs=programs, promises=Promises(None))
        # What looks for the cause of a failure reads the data that the judged trial has left.
        left = self.world.cloud.snapshot()
        with self._observers.of_trial(plan):
            try:
                return self.world.play(subject, plan)[0]
            except ContractError:
                return None
            finally:
                self.world.cloud.restore(left)
