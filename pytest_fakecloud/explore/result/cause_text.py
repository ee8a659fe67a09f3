"""The sentence that states the cause of a broken promise."""

from __future__ import annotations

from ...reporting.lookups import Lookups
from ..footprint import ALL, Touch
from ..run import Line, Run
from ..schedule import PAUSES, Kind
from .cause import Conflict
from .story import call_text, lookups_of_run

_OF_A_FAKE: frozenset[Kind] = frozenset({"rebalance", "redeliver", "rotate_token", "hold"})
"""Kinds of events that happen in a fake. Their lines are whole sentences."""


def cause_text(cause: Conflict | Line | None, run: Run) -> str:
    """Return the cause of a broken promise in one sentence; empty if it is uncertain."""
    if cause is None:
        return ""
    if not isinstance(cause, Conflict):
        return _event_text(cause, run)
    lookups = lookups_of_run(run)
    decisive, after = _named(cause.decisive, lookups), _named(cause.after, lookups)
    if cause.before is None:
        return f"{decisive} came before {after}{_on(cause.touch)}"
    return f"{decisive} came between {_named(cause.before, lookups)} and {after}{_on(cause.touch)}"


def _event_text(line: Line, run: Run) -> str:
    kind, lookups = run.fired[0].kind, lookups_of_run(run)
    if line.call is not None:
        return f"{_named(line, lookups)} {line.words}"
    if kind in _OF_A_FAKE:
        return line.words
    text = f"{line.strand} {line.words}"
    is_at_start = not run.fired[0].point
    call = None if is_at_start else _nearest_call(line, run, is_next=kind in PAUSES)
    if call is None:
        return text
    if kind in PAUSES:
        return f"{text}: {_call_text(call, lookups)}"
    if kind == "slow":
        return f"{_named(call, lookups)} {line.words}"
    return f"{text} after {_call_text(call, lookups)}" if kind == "crash" else text


def _nearest_call(line: Line, run: Run, *, is_next: bool) -> Line | None:
    """Return the next call of an event's strand, or the call before the event."""
    at = run.lines.index(line)
    near = run.lines[at + 1 :] if is_next else run.lines[:at][::-1]
    return next((one for one in near if one.strand == line.strand and one.call is not None), None)


def _named(line: Line, lookups: Lookups) -> str:
    return f"{line.strand}'s {_call_text(line, lookups)}"


def _call_text(line: Line, lookups: Lookups) -> str:
    assert line.call is not None
    place = f" ({line.source})" if line.source else ""
    return f"{call_text(line.call, lookups)}{place}"


def _on(touch: Touch) -> str:
    kind = touch.kind.removesuffix(" of db0")
    return f", on all {kind}s" if touch.name == ALL else f", on {kind} {touch.name}"
