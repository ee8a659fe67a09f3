"""The verdict of a trial: whether it broke the promise, and the anomalies that it shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ...cloud.base import context_of
from ...core.calls import Call
from ...core.errors import broken_by_check, ends_the_test
from ...core.field_types import check_returned
from ...core.libraries import without_library_frames
from ..subject.promises import Promises
from ..values.history import TrialHistory
from ..values.plan import Plan
from ..values.schedule import add_schedule
from ..values.trial import Line, Trial, Verdict
from ..world.world import World
from .anomalies import PATTERNS, Allowed, AnomalyError, find_anomalies
from .evidence import Evidence


@dataclass(frozen=True)
class Judge:
    """Judges trials: calls the checks at their end, and looks for anomalies. It plays no trial."""

    world: World
    promises: Promises
    allowed: Allowed
    anomalies_break: bool
    """Whether an anomaly breaks a trial: in ``explore()``, if there is no check, and the code asserts
    nothing.
    """
    counts_doubtful: bool = False
    """Whether doubtful patterns count, because nothing else was found."""

    def checked(self, trial: Trial, history: TrialHistory, plan: Plan) -> Verdict:
        """Return the verdict of a trial that has just ended. Call the checks, which read the data that
        it has left in the fakes, unless the promise was broken while it ran.
        """
        recorder = context_of(self.world.cloud).recorder
        broken, number = trial.broken_in_run, recorder.reserve()
        history.schedule = str(trial.applied)
        for check in self.promises.at_end:
            broken = broken or self._broken_promise(partial(check, history), trial)
        lines = [
            Line(entry.at_us, "check", call=entry)
            for entry in (recorder.entries if plan.has_details else ())
            if isinstance(entry, Call) and entry.number > number
        ]
        return Verdict(broken, lines=lines, reads_order=history.order_was_read)

    def with_anomalies(self, evidence: Evidence) -> Verdict:
        """Return the verdict of a trial whose checks hold, with its anomalies."""
        found_anomalies = find_anomalies(evidence)
        entries = {anomaly: self.allowed.entry_for(anomaly) for anomaly in found_anomalies}
        anomalies = [anomaly for anomaly, entry in entries.items() if entry is None]
        used_allowances = frozenset(entry for entry in entries.values() if entry is not None)
        reported = [
            a for a in anomalies if self.counts_doubtful or not PATTERNS[a.name].is_doubtful
        ]
        broken = AnomalyError(reported[0]) if reported and self.anomalies_break else None
        return replace(
            evidence.trial.verdict,
            broken=broken,
            anomalies=anomalies,
            used_allowances=used_allowances,
        )

    def _broken_promise(self, check: Callable[[], object], trial: Trial) -> BaseException | None:
        """Call a check; return the error by which it breaks the promise, or raise its error."""
        try:
            check_returned(self.world.awaited(check()))
        except BaseException as error:
            broken = broken_by_check(error, is_disturbed=bool(trial.applied))
            if broken is not None:
                is_failed = isinstance(broken, AssertionError)
                return broken if is_failed else without_library_frames(broken)
            ending = ends_the_test(error) or error
            add_schedule(ending, "after", trial.applied)
            if ending is error:
                raise
            raise ending from error
        return None
