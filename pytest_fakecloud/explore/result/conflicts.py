"""The conflicts of a trial: two calls that access the same data, in another order than undisturbed.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...core.touches import Touch
from ...kv.report.calls import command_of
from ..values.disturbances import ONLY_TIMING, Disturbance
from ..values.names import StrandName
from ..values.trial import Line, Trial
from .changes import calls_by_id, request_of

_Key: TypeAlias = tuple[str, int, object]
"""A strand, the ordinal of one of its calls (``calls_by_id()``), and what that call is."""
_Places: TypeAlias = Mapping[Line, tuple[int, int]]
"""Where calls are in the undisturbed trial: ``(position, 0)``. A call that it does not make is at
``(position, 1)``, after the latest call of its strand that it makes; without such a call, it is missing.
"""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two calls whose order may have broken the promise, perhaps beside a third, and their data."""

    decisive: Line
    after: Line
    before: Line | None
    """The call after which the decisive one came, if it came between two."""
    data: Touch


def find_conflicts(trial: Trial, undisturbed: Trial) -> Iterator[Conflict]:
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
            if call.strand == delayed or StrandName.of(call.strand).is_part_of(delayed)
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


def positions_of_disturbances(trial: Trial) -> Iterator[int | None]:
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
    for disturbance, at in zip(trial.applied, positions_of_disturbances(trial), strict=True):
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


def completed(conflict: Conflict, trial: Trial) -> Conflict:
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
