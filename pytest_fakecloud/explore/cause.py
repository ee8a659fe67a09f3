"""The cause of a broken promise: which two calls conflicted, on what, and which order broke it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .footprint import Touch
from .schedule import SWITCHES
from .story import call_text

if TYPE_CHECKING:
    from .simulation import Line, Run


def cause(run: Run) -> str:
    """One sentence about the calls that conflicted; empty where no conflict was at work."""
    calls = [
        (line, run.steps[line.step].footprint)
        for line in run.lines
        if line.call is not None and 0 <= line.step < len(run.steps)
    ]
    if not calls:
        return ""
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
                    return (
                        f"{_named(middle, run)} came between {_named(early, run)} and "
                        f"{_named(late, run)}{_on(before[0])}"
                    )
    if not any(event.kind in SWITCHES for event in run.fired):
        return ""
    for index in range(len(calls) - 1, 0, -1):
        late, late_touches = calls[index]
        for early, touches in reversed(calls[:index]):
            found = touches.conflict(late_touches) if early.process != late.process else None
            if found is not None:
                return f"{_named(early, run)} came before {_named(late, run)}{_on(found[0])}"
    return ""


def _named(line: Line, run: Run) -> str:
    assert line.call is not None
    place = f" ({line.source})" if line.source else ""
    return f"{line.process}'s {call_text(line.call, run)}{place}"


def _on(touch: Touch) -> str:
    kind = touch.kind.removesuffix(" of db0")
    return f", on all {kind}s" if touch.name == "*" else f", on {kind} {touch.name}"
