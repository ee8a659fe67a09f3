"""Trials of the explored code, each from the baseline of the fakes: played, judged, and recorded."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace

from ...cloud.base import context_of
from ..judge.evidence import Evidence
from ..judge.judge import Judge
from ..subject.clients import Inputs, with_inputs
from ..subject.subject import Subject
from ..values.plan import Plan
from ..values.schedule import Schedule
from ..values.trial import Outline, Trial
from ..world.world import World
from .capture import TrialCapture
from .pieces import PiecePlayer
from .tally import Tally


class Player:
    """Plays, judges and records trials of the subject. Its users count those that use the budget."""

    def __init__(
        self, world: World, subject: Subject, judge: Judge, *, input_count: int = 0
    ) -> None:
        self.world = world
        self.subject = subject
        self.tally = Tally(anomalies_break=judge.anomalies_break, input_count=input_count)
        self.outcomes: dict[Schedule, Schedule | None] = {}
        """For each schedule so far, the applied disturbances, or None if the promise held."""
        self.judge = judge
        self._capture = TrialCapture(context_of(world.cloud).recorder)
        self._pieces = PiecePlayer(world, subject, self._capture)
        self._workers = frozenset(program.name for program in subject.programs if program.is_worker)
        self._reference: Evidence | None = None
        """The evidence of the undisturbed trial with which this player compares its trials."""

    def with_inputs(self, inputs: Inputs) -> Player:
        """Return a player of the same code, with the same judge, these inputs and a tally of its own."""
        programs = with_inputs(self.subject.programs, inputs)
        subject = replace(self.subject, programs=programs, inputs=inputs)
        return Player(self.world, subject, self.judge, input_count=1 if inputs else 0)

    def counting_last(self) -> Player:
        """Return a player with the same tally, for which the patterns reported ``LAST`` count."""
        player = copy(self)
        player.judge, player.outcomes = replace(self.judge, counts_last=True), {}
        return player

    def play(self, plan: Plan, *, records: bool = True) -> Trial:
        """Play a trial, judge it unless its strategy ends it, and, with ``records``, record it.

        If its checks hold, it is compared with the *reference* of this player, an undisturbed trial, and
        with trials in one piece, which are played then. Without a reference, it shows no anomalies.
        """
        return self._play(plan, records=records)[0]

    def play_reference(self, plan: Plan, *, records: bool = True) -> tuple[Player, Trial]:
        """Play an undisturbed trial, which is compared with itself. Return it, after a player with the
        same tally that has it as its reference.
        """
        player = copy(self)
        trial, player._reference = self._play(plan, records=records, is_reference=True)
        return player, trial

    def _play(
        self, plan: Plan, *, records: bool, is_reference: bool = False
    ) -> tuple[Trial, Evidence | None]:
        """Play a trial, and return it with its evidence."""
        with self._capture.discarding(plan):
            reads_order = self.judge.reads_order
            trial, history = self.world.play(self.subject, plan, reads_order=reads_order)
            if "redundant" in trial.flags:
                return trial, None
            evidence = Evidence(trial, None if is_reference else self._reference, self._workers)
            verdict = self.judge.checked(trial, history, plan)
            # A search that has found a broken promise shows no anomalies.
            if verdict.broken is None and (is_reference or self._reference is not None):
                evidence.differences = self._pieces.differences(trial)
                verdict = self.judge.with_anomalies(verdict, evidence)
            trial = replace(trial, verdict=verdict)
        if records:
            self.record(trial, plan)
        return trial, evidence

    def record(self, trial: Outline, plan: Plan) -> None:
        """Add a judged trial to the tally, and remember what its schedule led to."""
        if "redundant" in trial.flags:  # which another process has played
            return
        self.tally.record(trial, self.subject.inputs)
        if plan.strategy_factory is None:
            is_broken = trial.broken is not None
            self.outcomes[plan.schedule] = Schedule(trial.fired) if is_broken else None


class PlanRunner:
    """Runs the plans of a search. A subclass may run some of those that will probably follow."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def offer(self, upcoming: Iterator[Plan]) -> None:
        """Let a subclass play some of the plans that a source will probably return next."""

    def play(self, plan: Plan) -> Outline:
        """Return the trial of a plan, which the player has recorded. A subclass may return the outline
        of a trial that holds.
        """
        return self._player.play(plan)

    def close(self) -> None:
        """End what a subclass has started."""
