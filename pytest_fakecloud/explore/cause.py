"""The cause of a broken promise: the event that broke it or, if the order of two calls broke it,
those calls and the data that both access.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from .footprint import ALL, Footprint, Touch
from .schedule import CLOCK, PAUSES, SWITCHES
from .story import call_text, scene_of

if TYPE_CHECKING:
    from .run import Line, Run

_Made: TypeAlias = "tuple[int, Line, Footprint]"
"""The position of a call in the run's lines, the call's line, and the data that the call accesses."""
_Key: TypeAlias = tuple[str, int, str]
_DELAYS = SWITCHES | PAUSES | {"slow"}
"""Kinds of events that delay a strand while others run."""
_OF_A_FAKE = frozenset({"rebalance", "redeliver", "rotate_token", "hold_pending"})
"""Kinds of events that happen in a fake. Their lines are whole sentences."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two calls whose order broke the promise, with the data that both access.

    ``decisive`` was executed before ``after`` and, if ``before`` is not None, after ``before``.
    """

    decisive: Line
    after: Line
    before: Line | None
    touch: Touch


def find_cause(run: Run, undisturbed: Run | None) -> Conflict | Line | None:
    """Return the conflict, or the line of the event, that broke the promise; None if it is uncertain.

    Two calls are only a cause if the schedule delayed one of them or changed the order of their
    deliveries, and if the undisturbed run made the calls in the other order. An event is only a
    cause if the schedule contains no other. If one of several events neither delays a strand nor
    changes an order, the cause is uncertain.
    """
    found = None if undisturbed is None else _find_conflict(run, undisturbed)
    if found is not None or len(run.fired) != 1 or run.fired[0].kind in SWITCHES:
        return found
    return next((line for line in run.lines if line.event), None)


def _find_conflict(run: Run, undisturbed: Run) -> Conflict | None:
    if not run.fired or not all(event.kind in _DELAYS for event in run.fired):
        return None
    end = next((at for at, line in enumerate(run.lines) if line.breaks), len(run.lines))
    calls = [
        (at, line, _data_of(run.steps[line.step].footprint))
        for at, line in enumerate(run.lines[:end])
        if line.call is not None
        and line.call.service != "queue"
        and 0 <= line.step < len(run.steps)
    ]
    orders = _Orders(run, undisturbed)
    for delayed, since in reversed(list(_delays(run))):
        own = [made for made in calls if _is_of(made[1], delayed)]
        earlier = [made for made in own if made[0] < since]
        later = [made for made in own if made[0] > since]
        until = later[0][0] if later else since
        others = [made for made in calls if since < made[0] < until]
        found = _between(earlier, others, later, orders) or _before(others, later, orders)
        if found is not None:
            return found
    return _of_deliveries(calls, orders)


def _delays(run: Run) -> Iterator[tuple[str, int]]:
    """Yield the strand that each event delayed, and the position of the event's line."""
    begin = 0
    for event in run.fired:
        if event.kind in _DELAYS:
            name = event.process if event.kind not in SWITCHES else event.detail
            name = "clock" if name == CLOCK else name
            for at, line in enumerate(run.lines[begin:], begin):
                if line.event and line.call is None and line.process == name:
                    yield event.process, at
                    begin = at + 1
                    break


def _is_of(line: Line, strand: str) -> bool:
    """Return whether a strand, or a task or thread that it started, made a call."""
    return line.process == strand or line.process.startswith((f"{strand}:", f"{strand}+"))


def _between(
    earlier: Sequence[_Made], others: Sequence[_Made], later: Sequence[_Made], orders: _Orders
) -> Conflict | None:
    for _, late, late_data in later:
        for _, middle, data in reversed(others):
            after = data.conflict(late_data)
            if after is None:
                continue
            for _, early, early_data in reversed(earlier):
                before = data.conflict(early_data)
                if before is None or not before[0].writes:
                    continue
                if orders.is_reversed(middle, late) or orders.is_reversed(early, middle):
                    return Conflict(middle, late, early, before[0])
    return None


def _before(others: Sequence[_Made], later: Sequence[_Made], orders: _Orders) -> Conflict | None:
    for _, late, late_data in later:
        for _, early, data in reversed(others):
            found = data.conflict(late_data)
            if found is not None and orders.is_reversed(early, late):
                return Conflict(early, late, None, found[0])
    return None


def _of_deliveries(calls: Sequence[_Made], orders: _Orders) -> Conflict | None:
    """Return the last conflict between two deliveries that the schedule put in another order."""
    delivered = [made for made in calls if _is_delivery(made[1])]
    for index in range(len(delivered) - 1, 0, -1):
        _, late, late_data = delivered[index]
        others = [made for made in delivered[:index] if made[1].process != late.process]
        found = _before(others, [(0, late, late_data)], orders)
        if found is not None:
            return found
    return None


def _is_delivery(line: Line) -> bool:
    return line.process.startswith("delivery")


class _Orders:
    """Compares the order of two calls with their order in the undisturbed run."""

    def __init__(self, run: Run, undisturbed: Run) -> None:
        self._found: dict[_Key, int | None] = {}
        for at, (_, keys) in enumerate(_keyed(undisturbed)):
            for key in keys:
                # Several deliveries that make the same call are indistinguishable.
                self._found[key] = None if key in self._found else at
        self._positions: dict[int, float] = {}
        latest: dict[str, float] = {}
        for line, keys in _keyed(run):
            places = (self._found.get(key) for key in keys)
            place = next((place for place in places if place is not None), None)
            # A call that the undisturbed run did not make follows the strand's previous call.
            if place is not None:
                latest[line.process] = place
            if line.process in latest:
                self._positions[id(line)] = latest[line.process]
                latest[line.process] = int(latest[line.process]) + 0.5

    def is_reversed(self, early: Line, late: Line) -> bool:
        """Return whether the undisturbed run made two calls in the other order."""
        first, second = self._positions.get(id(early)), self._positions.get(id(late))
        return first is not None and second is not None and first > second


def _keyed(run: Run) -> Iterator[tuple[Line, list[_Key]]]:
    """Yield the calls of a run with the keys by which the same call is found in another run.

    A delivery can have another number in another run, so it is also found by its calls alone.
    """
    scene = scene_of(run)
    numbers: dict[str, int] = {}
    for line in run.lines:
        if line.call is None:
            continue
        number = numbers[line.process] = numbers.get(line.process, 0) + 1
        text = call_text(line.call, scene)
        if _is_delivery(line):
            yield line, [(line.process, number, text), ("delivery", number, text)]
        else:
            yield line, [(line.process, number, text.partition(" ")[0])]


def _data_of(footprint: Footprint) -> Footprint:
    """Return the part of a footprint that is in the fakes, without the clock, the memory and the
    like.
    """
    return Footprint(touch for touch in footprint.touches if touch.fake)


def cause_text(cause: Conflict | Line | None, run: Run) -> str:
    """Return the cause of a broken promise in one sentence; empty if it is uncertain."""
    if cause is None:
        return ""
    if not isinstance(cause, Conflict):
        return _event_text(cause, run)
    decisive, after = _named(cause.decisive, run), _named(cause.after, run)
    if cause.before is None:
        return f"{decisive} came before {after}{_on(cause.touch)}"
    return f"{decisive} came between {_named(cause.before, run)} and {after}{_on(cause.touch)}"


def _event_text(line: Line, run: Run) -> str:
    event = run.fired[0]
    kind = event.kind
    if line.call is not None:
        return f"{_named(line, run)} {line.words}"
    if kind in _OF_A_FAKE:
        return line.words
    if not event.point:
        return f"{line.process} {line.words}"
    at = next(at for at, one in enumerate(run.lines) if one is line)
    near = run.lines[at + 1 :] if kind in PAUSES else run.lines[:at][::-1]
    calls = (one for one in near if one.process == line.process and one.call is not None)
    call = next(calls, None)
    if kind == "slow" and call is not None:
        return f"{_named(call, run)} {line.words}"
    if kind == "crash" and call is not None:
        return f"{line.process} {line.words} after {_call(call, run)}"
    if kind in PAUSES and call is not None:
        return f"{line.process} {line.words}, {_call(call, run)}"
    return f"{line.process} {line.words}"


def _named(line: Line, run: Run) -> str:
    return f"{line.process}'s {_call(line, run)}"


def _call(line: Line, run: Run) -> str:
    assert line.call is not None
    place = f" ({line.source})" if line.source else ""
    return f"{call_text(line.call, scene_of(run))}{place}"


def _on(touch: Touch) -> str:
    kind = touch.kind.removesuffix(" of db0")
    return f", on all {kind}s" if touch.name == ALL else f", on {kind} {touch.name}"
