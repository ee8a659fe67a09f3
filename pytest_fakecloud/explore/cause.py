"""The cause of a broken promise: two conflicting calls, the data that both access, and the order
that broke it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .footprint import ALL, Footprint, Touch
from .schedule import SWITCHES
from .story import call_text

if TYPE_CHECKING:
    from .run import Line, Run


@dataclass(frozen=True, slots=True)
class Cause:
    """A conflict: ``decisive`` was executed before ``after`` and, if ``before`` is not None, after
    ``before``.
    """

    decisive: Line
    after: Line
    before: Line | None
    touch: Touch


def find_cause(run: Run, undisturbed: Run | None) -> Cause | None:
    """Return the last conflict of a run that broke its promise, or None if there was none.

    Conflicts on the application's data take precedence over those on the queue's own data. A call
    that was executed before another one is only a cause if the undisturbed run made them in the
    other order.
    """
    calls = [
        (line, _data_of(run.steps[line.step].footprint))
        for line in run.lines
        if line.call is not None and 0 <= line.step < len(run.steps)
    ]
    data = [one for one in calls if one[0].call is not None and one[0].call.service != "queue"]
    orders = {} if undisturbed is None else _positions(undisturbed)
    return _conflict(data, run, orders) or _conflict(calls, run, orders)


def _positions(run: Run) -> dict[tuple[str, str], int]:
    """Return the position at which each call was last made, by the caller's name and the call's
    text.
    """
    made = [
        (line.process, call_text(line.call, run)) for line in run.lines if line.call is not None
    ]
    return {call: position for position, call in enumerate(made)}


def _conflict(
    calls: Sequence[tuple[Line, Footprint]], run: Run, orders: Mapping[tuple[str, str], int]
) -> Cause | None:
    for last, (late, late_touches) in enumerate(calls):
        for first in range(last - 1, -1, -1):
            early, early_touches = calls[first]
            if early.process != late.process:
                continue
            for middle, touches in calls[first + 1 : last]:
                if middle.process == late.process:
                    continue
                before = touches.conflict(early_touches)
                after = touches.conflict(late_touches)
                if before is not None and after is not None and before[0].writes:
                    return Cause(middle, late, early, before[0])
    if not any(event.kind in SWITCHES for event in run.fired):
        return None
    for index in range(len(calls) - 1, 0, -1):
        late, late_touches = calls[index]
        for early, touches in reversed(calls[:index]):
            found = touches.conflict(late_touches) if early.process != late.process else None
            if found is not None and _is_reversed(early, late, run, orders):
                return Cause(early, late, None, found[0])
    return None


def _is_reversed(early: Line, late: Line, run: Run, orders: Mapping[tuple[str, str], int]) -> bool:
    """Return whether the undisturbed run made two calls in the other order."""
    assert early.call is not None
    assert late.call is not None
    first = orders.get((early.process, call_text(early.call, run)))
    second = orders.get((late.process, call_text(late.call, run)))
    return first is not None and second is not None and first > second


def _data_of(footprint: Footprint) -> Footprint:
    """Return the part of a footprint that is in the fakes, without the clock, the memory and the
    like.
    """
    return Footprint(touch for touch in footprint.touches if touch.fake)


def cause_text(run: Run, undisturbed: Run | None) -> str:
    """Return the cause of a broken promise in one sentence; empty without a conflict."""
    found = find_cause(run, undisturbed)
    if found is None:
        return ""
    decisive, after = _named(found.decisive, run), _named(found.after, run)
    if found.before is None:
        return f"{decisive} came before {after}{_on(found.touch)}"
    return f"{decisive} came between {_named(found.before, run)} and {after}{_on(found.touch)}"


def _named(line: Line, run: Run) -> str:
    assert line.call is not None
    place = f" ({line.source})" if line.source else ""
    return f"{line.process}'s {call_text(line.call, run)}{place}"


def _on(touch: Touch) -> str:
    kind = touch.kind.removesuffix(" of db0")
    return f", on all {kind}s" if touch.name == ALL else f", on {kind} {touch.name}"
