"""The cause of a broken promise: the first disturbance of its schedule with which it is broken, or the
order of two calls that access the same data.

The three calls in the docstrings below are those of the example in ``conflicts``: ann's GET n, bob's
INCR n and ann's SET n.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...core.touches import Touch
from ..values.disturbances import Disturbance
from ..values.names import StrandName
from ..values.schedule import Schedule
from ..values.trial import Line, Trial
from .changes import Change
from .conflicts import Conflict, completed, find_conflicts, positions_of_disturbances

_MOST_CONFLICTS = 8
"""Maximum number of conflicts that are examined, each with a few trials."""


@dataclass(frozen=True, slots=True)
class LastDisturbance:
    """The last of some disturbances, which broke the promise after the others."""

    disturbances: tuple[Disturbance, ...]
    decisive: Line | None
    """The line of the last one, if the trial has one."""
    data: Touch | None
    """If the schedule has several disturbances, the first data on which the trials with and without the
    last one conflict.
    """


Cause: TypeAlias = Conflict | LastDisturbance
"""What broke a promise."""


def find_cause(
    trial: Trial,
    undisturbed: Trial | None,
    changes: Sequence[Change],
    play_and_read: Callable[[Schedule, Touch], tuple[Trial, object]],
) -> Cause | None:
    """Return what broke the promise in a failing trial; None if no disturbance did, because it is broken
    without any. ``play_and_read()`` returns the trial of a schedule, and the data that it has left.

    The order of two or three calls is only a cause if trials under other schedules confirm that it
    decides; a lost update is one even if its order alone does not break the promise. A disturbance is
    only a cause if the promise holds in the trial of those before it. A stuck trial has no undisturbed
    one beside it: then the cause is its last disturbance.
    """
    if not trial.applied:
        return None
    if undisturbed is None:
        return _of_disturbance(trial, len(trial.applied), None)
    number = next((number for number, change in enumerate(changes, 1) if change.breaks), 0)
    if not number:
        return None
    experiments = _Experiments(trial, play_and_read)
    conflicts = list(itertools.islice(find_conflicts(trial, undisturbed), _MOST_CONFLICTS))
    for conflict in conflicts:
        if experiments.holds_if_later(conflict):
            return completed(conflict, trial)
        if experiments.holds_if_earlier(conflict):
            return _first_decisive(conflict, conflicts, experiments)
    data = changes[number - 1].data if len(changes) > 1 else None
    return _of_disturbance(trial, number, data)


def _of_disturbance(trial: Trial, number: int, data: Touch | None) -> LastDisturbance:
    """Return a disturbance as the cause, such as ``ann.2 crash``, by its number from 1."""
    at = [*positions_of_disturbances(trial)][number - 1]
    line = None if at is None else trial.lines[at]
    return LastDisturbance(trial.applied[:number], line, data)


def _first_decisive(
    conflict: Conflict, conflicts: Sequence[Conflict], experiments: _Experiments
) -> Conflict:
    """Return the conflict of the first call that decides between the same two others: if bob also calls
    DECR n after his INCR n, both came between ann's calls, and one of them may be all that matters.
    """
    for other in reversed(conflicts):
        same = other.before is conflict.before and other.after is conflict.after
        if same and experiments.holds_if_earlier(other, alone=True):
            return other
    return conflict


@dataclass(frozen=True, slots=True)
class _Experiments:
    """Trials under other schedules, which show whether the order of two calls decides."""

    trial: Trial
    play_and_read: Callable[[Schedule, Touch], tuple[Trial, object]]

    def holds_if_later(self, conflict: Conflict) -> bool:
        """Return whether the order of the two calls decides: the promise holds if bob's INCR n runs
        after ann's SET n. If the schedule also lets time pass, the order alone must break the promise,
        or be a lost update.
        """
        switch_to_decisive = _switch(conflict.decisive, conflict.after)
        switch_to_after = _switch(conflict.after, conflict.decisive)
        if switch_to_decisive is None or switch_to_after is None:
            return False
        disturbances = [*self.trial.applied]
        if not self.trial.applied.has_only_orders:
            # The schedule also lets time pass. If the order alone does not break the promise, accept
            # only a lost update, which is wrong however much time has passed.
            disturbances = [switch_to_decisive]
            alone, _ = self.play_and_read(Schedule(disturbances), conflict.data)
            if alone.broken is None:
                return _is_lost_update(conflict)
        return self._holds([*disturbances, switch_to_after], conflict.data)

    def holds_if_earlier(self, conflict: Conflict, *, alone: bool = False) -> bool:
        """Return whether the promise holds if bob's INCR n runs before ann's GET n, after the earlier
        calls of his. If ``alone``, his later ones run where they ran.
        """
        if conflict.before is None or _switch(conflict.after, conflict.decisive) is None:
            return False
        switch_to_decisive = _switch(conflict.decisive, conflict.before)
        if switch_to_decisive is None:
            return False
        disturbances = [switch_to_decisive]
        if alone and (following := self._call_after(conflict.decisive)) is not None:
            switch_back = _switch(conflict.before, following)
            if switch_back is None:
                return False
            disturbances = [switch_to_decisive, switch_back, *self.trial.applied]
        return self._holds(disturbances, conflict.data)

    def _call_after(self, line: Line) -> Line | None:
        """Return the next call of a call's strand, if there is one."""
        _, *following = itertools.dropwhile(lambda other: other is not line, self.trial.lines)
        calls = (other for other in following if other.call is not None)
        return next((call for call in calls if call.strand == line.strand), None)

    def _holds(self, disturbances: Sequence[Disturbance], touch: Touch) -> bool:
        """Return whether the promise holds in a trial with these disturbances, the last of which
        happened, and the fakes saw something else than in the failing trial.

        If they did not, the code races over something else, such as the process's memory.
        """
        trial, data = self.play_and_read(Schedule(disturbances), touch)
        if trial.broken is not None or disturbances[-1] not in trial.applied:
            return False
        if any(line.breaks for line in self.trial.lines):
            return True  # The promise is about data between two calls.
        failing, failing_data = self.play_and_read(self.trial.applied, touch)
        return data != failing_data or _seen(trial) != _seen(failing)


def _seen(trial: Trial) -> object:
    """Return the requests, the answers to reads, and the results."""
    requests: dict[str, list[object]] = {}
    for line in trial.lines:
        if (call := line.call) is not None:
            answer = b"" if line.writes else bytes(call.response_body)
            request = call.fake, call.target, bytes(call.request_body), answer
            requests.setdefault(line.strand, []).append(request)
    return requests, {name: strand.result for name, strand in trial.strands.items()}


def _is_lost_update(conflict: Conflict) -> bool:
    """Return whether another strand wrote data between a strand's read and write, as bob wrote n."""
    if conflict.before is None:
        return False
    writing = conflict.data._replace(writes=True)
    is_update = writing not in conflict.before.data and writing in conflict.after.data
    return conflict.data.writes and is_update


def _switch(first: Line, second: Line) -> Disturbance | None:
    """Return the disturbance that lets the strand of one call run before another call, or the client
    that starts the strand later: ``ann.2 switch bob`` lets bob run before ann's SET n.
    """
    step = second.step
    if step is None or step.strand != second.strand:
        return None
    roots = (name for name in step.options if StrandName.of(first.strand).is_part_of(name))
    other = first.strand if first.strand in step.options else next(roots, first.strand)
    return Disturbance(second.strand, step.point, "switch", other)
