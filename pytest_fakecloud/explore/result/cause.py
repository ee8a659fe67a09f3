"""The cause of a broken promise: a disturbance, or the order of two calls that access the same
data.

For example, three calls break the promise that ``n`` counts two increments:

    1. ann: GET n    ``before``: ann reads 0
    2. bob: INCR n   ``decisive``
    3. ann: SET n 1  ``after``: ann overwrites bob's increment

The promise holds in a trial in which bob's call is the last or the first, so the cause is: bob's
INCR n came between ann's GET n and ann's SET n 1, on key n.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...core.accesses import Touch
from ...reporting.calls import Lookups
from ..schedule import CLOCK, ORDERS, PAUSES, SWITCHES, Disturbance, Kind, Schedule
from ..trial import Conflict, Line, Trial
from .story import call_text, lookups_of_trial

Cause: TypeAlias = Conflict | Line | None
"""The conflict, or the line of the disturbance, that broke the promise; None if it is uncertain."""
_Key: TypeAlias = tuple[str, int, str]
"""A strand, the number of one of its calls, and the text of that call."""
_Places: TypeAlias = Mapping[Line, tuple[int, int]]
"""Where each call is in the undisturbed trial: ``(position, 0)`` or, for a call that it does not make,
``(position, 1)``, after the strand's previous call.
"""
_MOST_CONFLICTS = 8
"""Maximum number of conflicts that are examined, with up to two trials each."""


def find_cause(
    trial: Trial,
    undisturbed: Trial | None,
    play: Callable[[Schedule], Trial],
    state_of: Callable[[Touch], object],
) -> Cause:
    """Return the conflict, or the line of the disturbance, that broke the promise; None if it is
    uncertain.

    Two calls are only a cause if trials under other schedules confirm that their order decides. A
    disturbance is only a cause if the schedule contains no other.
    """
    if undisturbed is not None:
        experiments = _Experiments(trial, play, state_of)
        conflicts = list(itertools.islice(_conflicts(trial, undisturbed), _MOST_CONFLICTS))
        for conflict in conflicts:
            if experiments.holds_if_later(conflict):
                return _between(conflict, experiments)
            if experiments.holds_if_earlier(conflict):
                return _first_decisive(conflict, conflicts, experiments)
    if len(trial.fired) != 1 or trial.fired[0].kind in SWITCHES:
        return None
    return next((line for line in trial.lines if line.is_disturbance), None)


def _first_decisive(
    conflict: Conflict, conflicts: Sequence[Conflict], experiments: _Experiments
) -> Conflict:
    """Return the conflict of the first call that decides between the same two others. The whole strand
    of the call ran earlier, and another of its calls may be all that matters.
    """
    for other in reversed(conflicts):
        same = other.before is conflict.before and other.after is conflict.after
        if same and experiments.holds_if_earlier(other, alone=True):
            return other
    return conflict


def _between(conflict: Conflict, experiments: _Experiments) -> Conflict:
    """Return a conflict of two calls as one of three, if the promise also holds in a trial in which the
    second call comes after a third one: then the order of the first two does no harm by itself.
    """
    if conflict.before is not None:
        return conflict
    middle, trial = conflict.after, experiments.trial
    lines = itertools.dropwhile(lambda line: line is not middle, _calls(trial).values())
    others = (line for line in lines if line.strand != middle.strand)
    later = [(line, touch) for line in others if (touch := _conflict(middle, line)) is not None]
    groups = [
        [*group] for _, group in itertools.groupby(later, lambda candidate: candidate[0].at_us)
    ]
    # Most orders do harm however late the second call comes, which one trial shows.
    if not groups or not experiments.holds_if_delayed(middle, later[-1][0]):
        return conflict
    for group in groups[:_MOST_CONFLICTS]:
        if experiments.holds_if_delayed(middle, group[-1][0]):
            own = [pair for pair in group if pair[0].strand == conflict.decisive.strand]
            after, touch = (own or group)[0]
            return Conflict(middle, after, conflict.decisive, touch)
    return conflict


@dataclass(frozen=True, slots=True)
class _Experiments:
    """Trials under other schedules, which show whether the order of two calls decides."""

    trial: Trial
    play: Callable[[Schedule], Trial]
    state_of: Callable[[Touch], object]
    """Returns the data that an access of the last trial left."""

    def holds_if_later(self, conflict: Conflict) -> bool:
        """Return whether the promise holds if the decisive call runs after the other."""
        decisive_second = _switch(conflict.decisive, conflict.after)
        decisive_last = _switch(conflict.after, conflict.decisive)
        if decisive_second is None or decisive_last is None:
            return False
        disturbances = [*self.trial.fired]
        if not all(disturbance.kind in SWITCHES for disturbance in disturbances):
            # The schedule also lets time pass. If the order alone does not break the promise, accept
            # only a lost update, which is wrong however much time has passed.
            disturbances = [decisive_second]
            if self.play(Schedule(disturbances)).broken is None:
                return _is_lost_update(conflict)
        return self._holds([*disturbances, decisive_last], conflict.touch)

    def holds_if_delayed(self, line: Line, other: Line) -> bool:
        """Return whether the promise holds if a call runs later than another one did, and all else
        takes its course in the meantime.
        """
        step, touch = line.step, _conflict(line, other)
        if step is None or step.strand != line.strand or touch is None:
            return False
        seconds = (other.at_us - line.at_us) // 1_000_000 + 1
        return self._holds([Disturbance(line.strand, step.point, "delay", str(seconds))], touch)

    def holds_if_earlier(self, conflict: Conflict, *, alone: bool = False) -> bool:
        """Return whether the promise holds if the decisive call runs before both others, after the
        earlier calls of its strand. If ``alone``, the later ones run where they ran.
        """
        if conflict.before is None or _switch(conflict.after, conflict.decisive) is None:
            return False
        decisive_first = _switch(conflict.decisive, conflict.before)
        if decisive_first is None:
            return False
        disturbances = [decisive_first]
        if alone and (following := self._call_after(conflict.decisive)) is not None:
            back = _switch(conflict.before, following)
            if back is None:
                return False
            disturbances = [decisive_first, back, *self.trial.fired]
        return self._holds(disturbances, conflict.touch)

    def _call_after(self, line: Line) -> Line | None:
        """Return the next call of a call's strand, if there is one."""
        _, *following = itertools.dropwhile(lambda other: other is not line, self.trial.lines)
        own = (
            other for other in following if other.strand == line.strand and other.call is not None
        )
        return next(own, None)

    def _holds(self, disturbances: Sequence[Disturbance], touch: Touch) -> bool:
        """Return whether the promise holds in a trial with these disturbances, the last of which
        happened, and the fakes saw something else than in the failing trial.

        If they did not, the code races over something else, such as the process's memory.
        """
        trial = self.play(Schedule(disturbances))
        if trial.broken is not None or disturbances[-1] not in trial.fired:
            return False
        if any(line.breaks for line in self.trial.lines):
            return True  # The promise is about data between two calls.
        seen = self._seen(trial, touch)
        return seen != self._seen(self.play(self.trial.schedule), touch)

    def _seen(self, trial: Trial, touch: Touch) -> object:
        """Return requests, answers to reads, results, and the data that the last trial left."""
        requests: dict[str, list[object]] = {}
        for line in trial.lines:
            if (call := line.call) is not None:
                answer = b"" if line.writes else bytes(call.response_body)
                request = call.fake, call.target, bytes(call.request_body), answer
                requests.setdefault(line.strand, []).append(request)
        results = {name: strand.result for name, strand in trial.strands.items()}
        return requests, results, self.state_of(touch)


def _is_lost_update(conflict: Conflict) -> bool:
    """Return whether another strand wrote data between a strand's read and write of it."""
    if conflict.before is None:
        return False
    writing = conflict.touch._replace(writes=True)
    is_update = writing not in conflict.before.data and writing in conflict.after.data
    return conflict.touch.writes and is_update


def _switch(first: Line, second: Line) -> Disturbance | None:
    """Return the disturbance that lets the strand of one call run before another call, or the client
    that starts the strand later.
    """
    step = second.step
    if step is None or step.strand != second.strand:
        return None
    owners = (name for name in step.options if _is_part_of(first.strand, name))
    other = first.strand if first.strand in step.options else next(owners, first.strand)
    return Disturbance(second.strand, step.point, "switch", other)


def _is_part_of(strand: str, owner: str) -> bool:
    """Return whether a strand is a task or a thread of another."""
    return strand.startswith((f"{owner}:", f"{owner}+"))


def _conflicts(trial: Trial, undisturbed: Trial) -> Iterator[Conflict]:
    """Yield the conflicts that may have broken the promise, the likeliest first.

    The schedule delayed one of the two calls or changed the order of their deliveries, and the
    undisturbed trial made the calls in the other order. Yields nothing if a disturbance did
    something else.
    """
    if not trial.fired or not all(disturbance.kind in ORDERS for disturbance in trial.fired):
        return
    calls = _calls(trial)
    places = _usual_places(trial, undisturbed)
    for delayed, since in reversed(list(_delays(trial))):
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
    delivered = [call for call in calls.values() if call.strand.startswith("delivery")]
    while delivered:
        late = delivered.pop()
        others = [call for call in delivered if call.strand != late.strand]
        yield from _conflicts_before(others, [late], places)


def _calls(trial: Trial) -> dict[int, Line]:
    """Return the calls of a trial up to the step that broke the promise, by their positions among
    its lines, without those of queues.
    """
    lines = itertools.takewhile(lambda line: not line.breaks, trial.lines)
    return {
        at: line
        for at, line in enumerate(lines)
        if line.call is not None and line.call.service != "queue"
    }


def _conflict(call: Line, other: Line) -> Touch | None:
    """Return a call's access that conflicts with another call, or None."""
    pairs = itertools.product(call.data, other.data)
    return next((touch for touch, another in pairs if touch.conflicts(another)), None)


def _delays(trial: Trial) -> Iterator[tuple[str, int]]:
    """Yield the strand that each disturbance delayed, and the position of the disturbance's
    line.
    """
    begin = 0
    for disturbance in trial.fired:
        name = disturbance.detail if disturbance.kind in SWITCHES else disturbance.strand
        name = "clock" if name == CLOCK else name
        lines = enumerate(trial.lines[begin:], begin)
        disturbances = (at for at, line in lines if line.is_disturbance and line.call is None)
        at = next((at for at in disturbances if trial.lines[at].strand == name), None)
        if at is not None:
            yield disturbance.strand, at
            begin = at + 1


def _conflicts_between(
    earlier: Sequence[Line], others: Sequence[Line], later: Sequence[Line], places: _Places
) -> Iterator[Conflict]:
    """Yield calls of others between two of the delayed strand, as a write between a read and a write."""
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
    """Yield calls of another strand that conflict with a later call of the delayed strand."""
    for late, early in itertools.product(later, reversed(others)):
        touch = _conflict(early, late)
        if touch is not None and _is_reversed(early, late, places):
            yield Conflict(early, late, None, touch)


def _usual_places(trial: Trial, undisturbed: Trial) -> _Places:
    """Return the places of a trial's calls in the order of the undisturbed trial's calls."""
    positions: dict[_Key, int | None] = {}
    for at, (_, keys) in enumerate(_keyed(undisturbed)):
        for key in keys:
            # Several deliveries that make the same call are indistinguishable.
            positions[key] = None if key in positions else at
    places: dict[Line, tuple[int, int]] = {}
    latest: dict[str, int] = {}
    for line, keys in _keyed(trial):
        usual = (positions.get(key) for key in keys)
        position = next((position for position in usual if position is not None), None)
        if position is not None:
            latest[line.strand] = position
            places[line] = position, 0
        elif line.strand in latest:
            places[line] = latest[line.strand], 1
    return places


def _is_reversed(early: Line, late: Line, places: _Places) -> bool:
    """Return whether the undisturbed trial made two calls in the other order."""
    first, second = places.get(early), places.get(late)
    return first is not None and second is not None and first > second


def _keyed(trial: Trial) -> Iterator[tuple[Line, list[_Key]]]:
    """Yield the calls of a trial with the keys by which the same call is found in another trial.

    A delivery can have another number in another trial, so it is also found by its calls alone.
    """
    lookups = lookups_of_trial(trial)
    numbers: dict[str, int] = {}
    for line in trial.lines:
        if line.call is None:
            continue
        number = numbers[line.strand] = numbers.get(line.strand, 0) + 1
        text = call_text(line.call, lookups)
        if line.strand.startswith("delivery"):
            yield line, [(line.strand, number, text), ("delivery", number, text)]
        else:
            yield line, [(line.strand, number, text.partition(" ")[0])]


_OF_A_FAKE: frozenset[Kind] = frozenset({
    "rebalance", "redeliver", "rotate_token", "hold", "moved", "ask",
})  # fmt: skip
"""Kinds of disturbances that happen in a fake. Their lines are whole sentences."""


def cause_text(cause: Cause, trial: Trial) -> str:
    """Return the cause of a broken promise in one sentence; empty if it is uncertain."""
    if cause is None:
        return ""
    if not isinstance(cause, Conflict):
        return _disturbance_text(cause, trial)
    lookups = lookups_of_trial(trial)
    decisive, after = _named(cause.decisive, lookups), _named(cause.after, lookups)
    if cause.before is None:
        return f"{decisive} came before {after}, on {cause.touch}"
    before = _named(cause.before, lookups)
    return f"{decisive} came between {before} and {after}, on {cause.touch}"


def _disturbance_text(line: Line, trial: Trial) -> str:
    kind, lookups = trial.fired[0].kind, lookups_of_trial(trial)
    if line.call is not None:
        return f"{_named(line, lookups)} {line.words}"
    if kind in _OF_A_FAKE:
        return line.words
    text = f"{line.strand} {line.words}"
    is_at_start = not trial.fired[0].point
    call = None if is_at_start else _nearest_call(line, trial, is_next=kind in PAUSES)
    if call is None:
        return text
    if kind in PAUSES:
        return f"{text}: {_call_text(call, lookups)}"
    if kind == "slow":
        return f"{_named(call, lookups)} {line.words}"
    return f"{text} after {_call_text(call, lookups)}" if kind == "crash" else text


def _nearest_call(line: Line, trial: Trial, *, is_next: bool) -> Line | None:
    """Return the call at the point of the first disturbance, among those after or before its line;
    if there is none, the nearest of them.
    """
    own = [other for other in trial.lines if other.strand == line.strand]
    at = own.index(line)
    near = own[at + 1 :] if is_next else own[:at][::-1]
    calls = [other for other in near if other.call is not None]
    of_disturbance = [call for call in calls if call.point == trial.fired[0].point]
    return next(iter(of_disturbance or calls), None)


def _named(line: Line, lookups: Lookups) -> str:
    return f"{line.strand}'s {_call_text(line, lookups)}"


def _call_text(line: Line, lookups: Lookups) -> str:
    assert line.call is not None
    place = f" ({line.source})" if line.source else ""
    return f"{call_text(line.call, lookups)}{place}"
