"""What each disturbance of a failing trial changed.

A schedule is a sequence of decisions: its disturbances. Each has two *sides*: the trial of the
disturbances before it, and the trial of these and itself.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ...core.calls import Call
from ...core.touches import Touch
from ..values.disturbances import Disturbance
from ..values.schedule import Schedule
from ..values.trial import Line, Trial

_CallId = tuple[str, int]
"""A strand, and the ordinal of one of its calls; unlike the point, it leaves out gaps in pipelines."""
_Pair = tuple[Line | None, Line | None]
"""A call without the disturbance, and one with it; None for a call that is not made."""


@dataclass(frozen=True, slots=True)
class Change:
    """What one disturbance of a schedule changed, given the disturbances before it.

    ``sides`` are the trials without and with it. ``calls`` are one call of each, where the sides first
    differ. ``call``: the strand makes another call in its place, gets another answer, or makes none.
    ``order``: all calls are the same, but one comes before the other, which access the same data.
    ``data`` are the first that a side accesses differently.
    """

    disturbance: Disturbance
    sides: tuple[Trial, Trial]
    kind: Literal["call", "order"] = "call"
    calls: _Pair = (None, None)
    data: Touch | None = None

    @property
    def breaks(self) -> bool:
        """Whether the promise holds without the disturbance, and is broken with it."""
        without, applied = self.sides
        return without.broken is None and applied.broken is not None


def find_changes(
    trial: Trial, undisturbed: Trial | None, play: Callable[[Schedule], Trial]
) -> list[Change]:
    """Return what each disturbance of a failing trial changed, with a trial for each but the last."""
    if undisturbed is None:
        return []
    parts = [Schedule(trial.applied[:number]) for number in range(1, len(trial.applied))]
    sides = itertools.pairwise([undisturbed, *map(play, parts), trial])
    return [
        _change(disturbance, without, applied)
        for disturbance, (without, applied) in zip(trial.applied, sides, strict=True)
    ]


def _change(disturbance: Disturbance, without: Trial, applied: Trial) -> Change:
    sides, pairs = (without, applied), list(_other_calls(disturbance, without, applied))
    if pairs:
        data = (touch for pair in pairs if (touch := _data(pair)) is not None)
        return Change(disturbance, sides, "call", pairs[0], next(data, None))
    for touch, pair in _other_orders(without, applied):
        return Change(disturbance, sides, "order", pair, touch)
    return Change(disturbance, sides)


def calls_by_id(trial: Trial) -> dict[_CallId, Line]:
    """Return the calls of a trial, in their order, by strand and ordinal within it."""
    calls: dict[_CallId, Line] = {}
    ordinals: defaultdict[str, int] = defaultdict(int)
    for line in trial.call_lines:
        ordinals[line.strand] += 1
        calls[line.strand, ordinals[line.strand]] = line
    return calls


def request_of(call: Call) -> tuple[str, bytes]:
    return call.target, bytes(call.request_body)


def _other_calls(disturbance: Disturbance, without: Trial, applied: Trial) -> Iterator[_Pair]:
    """Yield the calls that the other side does not have: first those without the disturbance."""
    calls, others = calls_by_id(without), calls_by_id(applied)
    is_hidden = disturbance.kind == "lose_response"
    for call_id in {**calls, **others}:
        call, other = calls.get(call_id), others.get(call_id)
        if call is None or other is None:
            yield call, other
        elif is_hidden and other.is_disturbance and not call.is_disturbance:
            continue  # It has the same effect; what its client does next is the difference.
        elif _content(call) != _content(other):
            yield call, other


def _other_orders(without: Trial, applied: Trial) -> Iterator[tuple[Touch, _Pair]]:
    """Yield the data that the same calls access in another order, and the first call of each side."""
    calls, others = calls_by_id(without), calls_by_id(applied)
    orders, other_orders = _orders(calls), _orders(others)
    for touch, call_ids in orders.items():
        pairs = zip(call_ids, other_orders.get(touch, ()), strict=False)
        for first, second in pairs:
            call, other = calls[first], others[second]
            writes = {data.read for data in (*call.data, *other.data) if data.writes}
            if first != second and touch in writes:
                yield touch, (call, other)
                break


def _orders(calls: Mapping[_CallId, Line]) -> dict[Touch, list[_CallId]]:
    """Return the calls that access each piece of data, without those of queues."""
    orders: defaultdict[Touch, list[_CallId]] = defaultdict(list)
    for call_id, line in calls.items():
        for touch in dict.fromkeys(touch.read for touch in line.data if line.has_own_data):
            orders[touch].append(call_id)
    return orders


def _content(line: Line) -> tuple[object, ...]:
    call = line.call
    assert call is not None
    if call.service == "queue":
        # Targets and answers contain IDs, which follow from the order of other calls.
        return call.route, bytes(call.request_body), call.status, call.outcome
    answer = call.status, call.outcome, bytes(call.response_body)
    return call.fake, call.route, request_of(call), answer


def _data(pair: Sequence[Line | None]) -> Touch | None:
    """Return what the first of two calls accesses, first what it writes; nothing of a queue."""
    line = next(line for line in pair if line is not None)
    return min(
        line.data if line.has_own_data else (), key=lambda touch: not touch.writes, default=None
    )
