"""The words of a failing trial: of its calls, its error, its cause, and what disturbances changed."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ...core.calls import Call
from ...core.errors import counted, cut
from ...kv.report.calls import SEVERAL
from ...kv.report.lookups import gathered
from ...reporting.lookups import Lookups
from ...reporting.model import MaskedCall
from ...reporting.rows.sources import error_of, summarise
from ..values.disturbances import PAUSES, Disturbance, with_trait
from ..values.trial import Line, Trial
from .cause import Cause, LastDisturbance

if TYPE_CHECKING:
    from .changes import Change

_LONG = 110
"""Maximum number of characters of a call, and of an error; longer texts are cut."""


def call_text(call: Call, lookups: Lookups) -> str:
    """Return a call as the story shows it, without its answer."""
    summary = summarise(call, lookups)
    if summary is not None:
        text = summary.what
    elif call.service == "queue" and call.route:
        text = call.route.replace("_", " ")
    else:
        text = f"{call.method} {call.path}"
    if summary is not None and summary.below and call.service == "kv":
        # Add the commands of a transaction or a pipeline.
        text += f" ({'; '.join(summary.below)})"
    if summary is not None and len(summary.below) == 1 and call.service == "queue":
        text = f"publish {summary.below[0]}"  # a step of a workflow run
    return cut(text, _LONG)


def lookups_of_trial(trial: Trial) -> Lookups:
    lines = (*trial.lines, *trial.verdict.lines)
    calls = [*trial.wording.silent_calls, *(line.call for line in lines if line.call is not None)]
    groups, _ = gathered(sorted(calls, key=lambda call: call.number))
    # A story shows raw calls, as `summarise()` says.
    grouped = {number: list(map(MaskedCall, group)) for number, group in groups.items()}
    return Lookups(ids=trial.wording.ids, grouped_calls=grouped)


def line_text(line: Line, lookups: Lookups) -> str:
    """Return a line of the story: a call with its answer, or the description of a disturbance."""
    if line.call is None:
        return line.words
    text = call_text(line.call, lookups)
    if line.is_disturbance:
        text += f" {line.words}"
    elif answer := answer_text(line.call, lookups):
        text += f" → {answer}"
    return f"{text} ({line.source})" if line.source else text


def answer_text(call: Call, lookups: Lookups) -> str:
    if call.status is None:
        return call.outcome
    status, text = error_of(call)
    if status or text:
        # A Redis reply has no status.
        return status or cut(text, _LONG)
    summary = summarise(call, lookups)
    # The answers of several commands are shown next to the commands.
    return summary.answer if summary is not None and call.route not in SEVERAL else ""


def reason(error: BaseException | None) -> str:
    """Return the reason why a promise is broken: the message of its assertion, or an exception."""
    lines = str(error).strip().splitlines() if error is not None else []
    if error is not None and not isinstance(error, AssertionError):
        name = type(error).__name__
        lines = [f"{name}: {lines[0]}", *lines[1:]] if lines else [name]
    if not lines:
        return "an assertion failed"
    # Leave out the details of the assertion, which pytest's report contains.
    return "\n".join([lines[0], *itertools.takewhile(lambda line: line[:2] == "  ", lines[1:])])


# -- the cause, and what each disturbance changed --------------------------------------------------

_OF_A_FAKE = with_trait("fake")
"""Kinds of disturbances that happen in a fake. Their lines are whole sentences."""


def change_text(change: Change) -> str:
    """Return the call in which the two sides of a disturbance first differ."""
    lookups = map(lookups_of_trial, change.sides)
    sides = zip(change.calls, lookups, strict=True)
    without, applied = (line and f"{line.strand}'s {line_text(line, of)}" for line, of in sides)
    disturbed = change.calls[1] is not None and change.calls[1].is_disturbance
    if not (without or applied):
        text = "changes no call"
    elif change.kind == "order":
        text = f"lets {applied} come before {without}"
    elif not without:
        text = f"adds {applied}"
    elif change.disturbance.kind == "duplicate" and disturbed:
        text = f"repeats {without}"
    elif not applied or disturbed:
        text = f"prevents {without}"
    else:
        text = f"leads to {applied} instead of {without}"
    return f"{change.disturbance}: {text}"


def cause_text(cause: Cause | None, trial: Trial) -> str:
    """Return the cause of a broken promise in one sentence; empty without one."""
    if cause is None:
        return ""
    data = f", on {cause.data}" if cause.data is not None else ""
    if isinstance(cause, LastDisturbance):
        before = len(cause.disturbances) - 1
        after = f"after {counted(before, 'other disturbance')}, " if before else ""
        return f"{after}{_disturbance_text(cause, trial)}{data}"
    lookups = lookups_of_trial(trial)
    decisive, later = _named(cause.decisive, lookups), _named(cause.after, lookups)
    if cause.before is None:
        return f"{decisive} came before {later}{data}"
    return f"{decisive} came between {_named(cause.before, lookups)} and {later}{data}"


def _disturbance_text(cause: LastDisturbance, trial: Trial) -> str:
    disturbance, line, lookups = cause.disturbances[-1], cause.decisive, lookups_of_trial(trial)
    if line is None:
        return f"{disturbance}"
    if line.call is not None:
        return f"{_named(line, lookups)} {line.words}"
    kind, text = disturbance.kind, f"{line.strand} {line.words}"
    if kind in _OF_A_FAKE:
        return line.words
    call = _nearest_call(line, disturbance, trial) if disturbance.point else None
    if call is None:
        return text
    if kind in PAUSES:
        return f"{text}: {call_with_source(call, lookups)}"
    if kind == "slow":
        return f"{_named(call, lookups)} {line.words}"
    return f"{text} after {call_with_source(call, lookups)}" if kind == "crash" else text


def _nearest_call(line: Line, disturbance: Disturbance, trial: Trial) -> Line | None:
    """Return the call at the point of a disturbance, among those after its line if it is a pause,
    else before it; if there is none, the nearest of them.
    """
    own = [other for other in trial.lines if other.strand == line.strand]
    at = own.index(line)
    near = own[at + 1 :] if disturbance.kind in PAUSES else own[:at][::-1]
    calls = [other for other in near if other.call is not None]
    of_disturbance = [call for call in calls if call.point == disturbance.point]
    return next(iter(of_disturbance or calls), None)


def _named(line: Line, lookups: Lookups) -> str:
    return f"{line.strand}'s {call_with_source(line, lookups)}"


def call_with_source(line: Line, lookups: Lookups) -> str:
    assert line.call is not None
    source = f" ({line.source})" if line.source else ""
    return f"{call_text(line.call, lookups)}{source}"
