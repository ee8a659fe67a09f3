"""The verdict of a trial: whether it broke the promise, and the anomalies that it shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...cloud.base import context_of
from ...core.calls import Call
from ...core.errors import breaks_a_check, broken_promise, ends_the_test
from ...core.field_types import check_returned
from ..simulation.operations import TrialHistory
from ..simulation.stacks import without_library_frames
from ..subject.subject import Subject
from ..values.plan import Plan
from ..values.schedule import Schedule, add_schedule
from ..values.trial import Anomaly, History, Line, Trial, Verdict
from ..world.world import World
from .anomalies import LAST, Allowed, AnomalyError, find_anomalies
from .evidence import Evidence
from .serial import Serial


@dataclass
class Judge:
    """Judges trials: calls the checks at their end, and looks for anomalies."""

    world: World
    subject: Subject
    allowed: Allowed
    has_promise: bool
    """Whether anything is asserted; without a promise, an anomaly breaks a trial."""
    serial: Serial | None = None
    """The trials in one piece, with which those of other orders are compared, if any."""
    counts_last: bool = False
    """Whether the patterns that are reported ``LAST`` count, because nothing else was found."""
    first: Evidence | None = None
    """The evidence of the first trial, which is undisturbed unless the caller gave a schedule."""

    def verdict(self, trial: Trial, history: TrialHistory, plan: Plan) -> Verdict:
        """Judge a trial that has just ended, while the fakes have the data that it left. Later ones are
        compared with the first; ``serial`` plays others meanwhile, and restores the data.
        """
        self.first = self.first or self._evidence(trial)
        recorder = context_of(self.world.cloud).recorder
        promises, broken, number = self.subject.promises, trial.broken, recorder.reserve()
        applied = Schedule(trial.fired) if plan.orders is not None else plan.schedule
        history.schedule = str(applied)
        is_disturbed = bool(trial.fired)
        for check in promises.at_end:
            broken = broken or self._broken_promise(
                check, history, applied, is_disturbed=is_disturbed
            )
        promises.reads_order |= history.shows_order
        lines = [
            Line(entry.at_us, "check", call=entry)
            for entry in (recorder.entries if plan.explains else ())
            if isinstance(entry, Call) and entry.number > number
        ]
        # A search that has found a broken promise shows no anomalies.
        anomalies = self._anomalies(trial) if broken is None else []
        reported = [
            anomaly for anomaly in anomalies if self.counts_last or anomaly.name not in LAST
        ]
        if broken is None and reported and not self.has_promise:
            broken = AnomalyError(reported[0])
        return Verdict(broken, anomalies, lines)

    def _broken_promise(
        self,
        check: Callable[[History], object],
        history: History,
        schedule: Schedule,
        *,
        is_disturbed: bool,
    ) -> BaseException | None:
        """Call a check; return the failed assertion or, after a disturbance, any exception that it
        raised.

        A check that calls the application may get an exception of the application.
        """
        try:
            check_returned(self.world.awaited(check(history)))
        except BaseException as error:
            ending = ends_the_test(error) or error
            broken = broken_promise(ending)
            if broken is not None:
                return broken
            if is_disturbed and breaks_a_check(error):
                return without_library_frames(error)
            add_schedule(ending, "after", schedule)
            if ending is error:
                raise
            raise ending from error
        return None

    def _anomalies(self, trial: Trial) -> list[Anomaly]:
        """Return the anomalies that a comparison with the first trial shows, if that was undisturbed."""
        evidence = self._evidence(trial)
        is_first_disturbed = bool(evidence.undisturbed_trial.fired)
        return [] if is_first_disturbed else find_anomalies(evidence, self.allowed)

    def _evidence(self, trial: Trial) -> Evidence:
        if self.first is not None and trial is self.first.trial:
            return self.first
        workers = frozenset(program.name for program in self.subject.programs if program.is_worker)
        return Evidence(trial, self.first, workers, self.serial)
