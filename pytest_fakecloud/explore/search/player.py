"""Trials of the explored code, each from the baseline of the fakes: played, and judged."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...cloud.base import context_of
from ..judge.evidence import Evidence
from ..judge.judge import Judge
from ..subject.clients import Inputs, with_inputs
from ..subject.options import Subject
from ..values.learned import Learned
from ..values.plan import Plan
from ..values.trial import Trial
from ..world.world import World
from .capture import TrialCapture
from .in_one_piece import SerialPlayer


@dataclass(eq=False)
class Player:
    """Plays and judges trials of the subject with one of its inputs. From ``play_undisturbed()`` on, it
    compares others with the undisturbed trial. Its ``SerialPlayer`` keeps the trials in one piece, which
    nobody judges.
    """

    world: World
    subject: Subject
    judge: Judge
    learned: Learned
    _capture: TrialCapture
    _serial_player: SerialPlayer
    _undisturbed: Evidence | None = None
    """The evidence of the undisturbed trial."""

    @classmethod
    def of(cls, world: World, subject: Subject, judge: Judge, learned: Learned) -> Player:
        capture = TrialCapture(context_of(world.cloud).recorder)
        return cls(world, subject, judge, learned, capture, SerialPlayer(world, subject, capture))

    def with_inputs(self, inputs: Inputs) -> Player:
        """Return a player of the same code, with the same judge and these inputs."""
        programs = with_inputs(self.subject.programs, inputs)
        subject = replace(self.subject, programs=programs, inputs=inputs)
        return Player.of(self.world, subject, self.judge, self.learned)

    def counting_doubtful(self) -> Player:
        """Return a player for which doubtful patterns of anomalies count, too."""
        return replace(self, judge=replace(self.judge, counts_doubtful=True))

    def play(self, plan: Plan) -> Trial:
        """Play a trial, and judge it unless its strategy ends it."""
        return self._with_anomalies(self._play_checked(plan))

    def play_undisturbed(self, plan: Plan) -> Trial:
        """Play an undisturbed trial, with which it and later ones are compared."""
        trial = self._play_checked(plan)
        self._undisturbed = Evidence(trial, None, self.subject.workers)
        return self._with_anomalies(trial)

    def _play_checked(self, plan: Plan) -> Trial:
        with self._capture.discarding(plan):
            trial, history = self.world.play_unjudged(self.subject, plan, self.learned)
            if "redundant" not in trial.flags:
                trial = replace(trial, verdict=self.judge.checked(trial, history, plan))
            return trial

    def _with_anomalies(self, trial: Trial) -> Trial:
        """Look for anomalies if the checks of a trial hold, and there is an undisturbed one: compare it
        with trials in one piece, which are played now, then with the undisturbed one.
        """
        has_result = "redundant" not in trial.flags
        if has_result and trial.broken is None and self._undisturbed is not None:
            differences = self._serial_player.unserial_differences(trial)
            workers = self.subject.workers
            evidence = Evidence(trial, self._undisturbed, workers, differences)
            trial = replace(trial, verdict=self.judge.with_anomalies(evidence))
        self.learned.add(trial.verdict)
        return trial
