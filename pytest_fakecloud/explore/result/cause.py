"""The cause of a broken promise: the first disturbance of its schedule with which it is broken, or the
order of two calls that access the same data.

For example, three calls break the promise that ``n`` counts two increments:

    1. ann: GET n    ``before``: ann reads 0
    2. bob: INCR n   ``decisive``
    3. ann: SET n 1  ``after``: ann overwrites bob's increment

The promise holds in a trial in which bob's call is the last or the first, so the cause is: bob's
INCR n came between ann's GET n and ann's SET n 1, on key n. The docstrings below mean these calls.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...core.touches import Touch
from ...kv.report.calls import command_of
from ..values.disturbances import ONLY_TIMING, SWITCHES, Disturbance
from ..values.names import StrandName
from ..values.schedule import Schedule
from ..values.trial import Line, Trial
from .changes import Change, calls_by_id, request_of

_Key: TypeAlias = tuple[str, int, object]
"""A strand, the ordinal of one of its calls (``calls_by_id()``), and what that call is."""
_Places: TypeAlias = Mapping[Line, tuple[int, int]]
"""Where calls are in the undisturbed trial: ``(position, 0)``. A call that it does not make is at
``(position, 1)``, after the latest call of its strand that it makes; without such a call, it is missing.
"""
_MOST_CONFLICTS = 8
"""Maximum number of conflicts that are examined, each with a few trials."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two calls whose order may have broken the promise, perhaps beside a third, and their data."""

    decisive: Line
    after: Line
    before: Line | None
    """The call after which the decisive one came, if it came between two."""
    data: Touch


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
    conflicts = list(itertools.islice(_conflicts(trial, undisturbed), _MOST_CONFLICTS))
    for conflict in conflicts:
        if experiments.holds_if_later(conflict):
            return _between(conflict, trial)
        if experiments.holds_if_earlier(conflict):
            return _first_decisive(conflict, conflicts, experiments)
    data = changes[number - 1].data if len(changes) > 1 else None
    return _of_disturbance(trial, number, data)


def _of_disturbance(trial: Trial, number: int, data: Touch | None) -> LastDisturbance:
    """Return a disturbance as the cause, such as ``ann.2 crash``, by its number from 1."""
    at = [*_positions(trial)][number - 1]
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


def _between(conflict: Conflict, trial: Trial) -> Conflict:
    """Return a conflict of two calls as one of three, if the first call reads what its strand writes
    after the second one: ann's GET n before bob's INCR n, as her SET n follows.
    """
    early, middle = conflict.decisive, conflict.after
    if conflict.before is not None or early.writes:
        return conflict
    lines = itertools.dropwhile(lambda line: line is not middle, _calls(trial).values())
    own = (line for line in lines if line.strand == early.strand)
    late = next((line for line in own if _writes(line, conflict.data)), None)
    return conflict if late is None else Conflict(middle, late, early, conflict.data)


def _writes(line: Line, touch: Touch) -> bool:
    return any(own.writes and own.conflicts(touch) for own in line.data)


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
        if not self.trial.applied.kinds <= SWITCHES:
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
    roots = (name for name in step.options if _is_part_of(first.strand, name))
    other = first.strand if first.strand in step.options else next(roots, first.strand)
    return Disturbance(second.strand, step.point, "switch", other)


def _is_part_of(strand: str, root: str) -> bool:
    """Return whether a strand is a task or a thread of another, as ``ann:add`` of ``ann``."""
    name = StrandName.of(strand)
    return bool(name.part) and name.root == root


def _conflicts(trial: Trial, undisturbed: Trial) -> Iterator[Conflict]:
    """Yield the conflicts that may have broken the promise, the likeliest first.

    The schedule delayed one of the two calls or changed the order of their deliveries, and the
    undisturbed trial made the calls in the other order. Yields nothing if a disturbance did
    something else.
    """
    if not trial.applied or not trial.applied.kinds <= ONLY_TIMING:
        return
    calls = _calls(trial)
    places = _places_in(trial, undisturbed)
    for delayed, since in reversed(list(_delayed_strands(trial))):
        own = [
            at
            for at, call in calls.items()
            if call.strand == delayed or _is_part_of(call.strand, delayed)
        ]
        earlier = [calls[at] for at in own if at < since]
        later = [calls[at] for at in own if at > since]
        until = next((at for at in own if at > since), since)
        others = [call for at, call in calls.items() if since < at < until]
        yield from _conflicts_between(earlier, others, later, places)
        yield from _conflicts_before(others, later, places)
    # The conflicts between deliveries whose order the schedule changed, the last first.
    delivered = [call for call in calls.values() if StrandName.of(call.strand).is_delivery]
    while delivered:
        late = delivered.pop()
        others = [call for call in delivered if call.strand != late.strand]
        yield from _conflicts_before(others, [late], places)


def _calls(trial: Trial) -> dict[int, Line]:
    """Return the calls up to the step that broke the promise, without those of queues, by position."""
    lines = itertools.takewhile(lambda line: not line.breaks, trial.lines)
    return {at: line for at, line in enumerate(lines) if line.has_own_data}


def _conflict(call: Line, other: Line) -> Touch | None:
    """Return a call's access that conflicts with another call, as INCR n with GET n, or None."""
    pairs = itertools.product(call.data, other.data)
    return next((touch for touch, another in pairs if touch.conflicts(another)), None)


def _positions(trial: Trial) -> Iterator[int | None]:
    """Yield the position of each disturbance's line among the lines of its trial; None without one."""
    positions: defaultdict[Disturbance, deque[int]] = defaultdict(deque)
    for at, line in enumerate(trial.lines):
        # The line of a delivery with several disturbances explains the first; others explain themselves.
        for disturbance in line.disturbances[:1]:
            positions[disturbance].append(at)
    for disturbance in trial.applied:  # the same switch may happen twice
        yield positions[disturbance].popleft() if positions[disturbance] else None


def _delayed_strands(trial: Trial) -> Iterator[tuple[str, int]]:
    """Yield the strand that each disturbance delayed, and the position of the disturbance's line."""
    for disturbance, at in zip(trial.applied, _positions(trial), strict=True):
        if at is not None and trial.lines[at].call is None:
            yield disturbance.strand, at


def _conflicts_between(
    earlier: Sequence[Line], others: Sequence[Line], later: Sequence[Line], places: _Places
) -> Iterator[Conflict]:
    """Yield calls of others between two of the delayed strand, as INCR n between GET n and SET n."""
    for late, middle in itertools.product(later, reversed(others)):
        if _conflict(middle, late) is None:
            continue
        is_second_reversed = _is_reversed(middle, late, places)
        for early in reversed(earlier):
            touch = _conflict(middle, early)
            is_reversed = is_second_reversed or _is_reversed(early, middle, places)
            if touch is not None and touch.writes and is_reversed:
                yield Conflict(middle, late, early, touch)


def _conflicts_before(
    others: Sequence[Line], later: Sequence[Line], places: _Places
) -> Iterator[Conflict]:
    """Yield calls before a later one of the delayed strand: bob's GET n before ann's first SET n."""
    for late, early in itertools.product(later, reversed(others)):
        touch = _conflict(early, late)
        if touch is not None and _is_reversed(early, late, places):
            yield Conflict(early, late, None, touch)


def _places_in(trial: Trial, undisturbed: Trial) -> _Places:
    """Return the places of a trial's calls in the order of the undisturbed trial's calls."""
    positions: dict[_Key, int | None] = {}
    for at, (_, keys) in enumerate(_keyed(undisturbed)):
        for key in keys:
            # Several deliveries that make the same call are indistinguishable.
            positions[key] = None if key in positions else at
    places: dict[Line, tuple[int, int]] = {}
    latest: dict[str, int] = {}
    for line, keys in _keyed(trial):
        candidates = (positions.get(key) for key in keys)
        position = next((position for position in candidates if position is not None), None)
        if position is not None:
            latest[line.strand] = position
            places[line] = position, 0
        elif line.strand in latest:
            places[line] = latest[line.strand], 1
    return places


def _is_reversed(early: Line, late: Line, places: _Places) -> bool:
    """Return whether the undisturbed trial made two calls in the other order: SET n, then INCR n."""
    first, second = places.get(early), places.get(late)
    return first is not None and second is not None and first > second


def _keyed(trial: Trial) -> Iterator[tuple[Line, list[_Key]]]:
    """Yield each call with the keys that it may have in another trial, where deliveries differ."""
    for (strand, ordinal), line in calls_by_id(trial).items():
        assert line.call is not None
        if StrandName.of(strand).is_delivery:
            request = request_of(line.call)
            yield line, [(strand, ordinal, request), ("delivery", ordinal, request)]
        else:
            yield line, [(strand, ordinal, (line.call.route, command_of(line.call)))]
