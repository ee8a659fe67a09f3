"""The page of a broken promise: rows by strand, and the undisturbed run for comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core.timeparse import to_datetime
from ..reporting.as_json import as_json
from ..reporting.masking import Mask
from ..reporting.rows import rows
from .cause import Conflict, cause_text, find_cause
from .story import reason

if TYPE_CHECKING:
    from ..any_cloud import AnyCloud
    from ..reporting.model import Report
    from .explore import BrokenSchedule
    from .run import Line, Run

_SPREAD = 10
"""Factor by which journal numbers are multiplied, to leave room for events between two calls."""
_BESIDE = 10_000_000
"""Offset for the undisturbed run's numbers, which keeps them unique on the page."""


def picture(
    cloud: AnyCloud, report: Report, states: Mapping[str, Any], found: BrokenSchedule
) -> dict[str, Any]:
    """Return the data of the page about a broken promise, for ``trace.document()``.

    The actor of each call is the client, worker, task, thread or delivery that made it. The events
    of the schedule are rows of their own.
    """
    data = as_json(report)
    mask = Mask(cloud)
    run, undisturbed = found.runs
    shown = _as_story(data, run, mask, undisturbed)
    shown["failure"] = "\n".join(f"E   {line}" for line in mask.text(str(found)).splitlines())
    shown["states"] = {
        **states,
        "steps": [{**step, "number": step["number"] * _SPREAD} for step in states.get("steps", ())],
    }
    if undisturbed is not None:
        calls = [line.call for line in undisturbed.lines if line.call is not None]
        plain = replace(
            report, rows=rows(cloud, calls), findings=(), unfinished=(), problems=(), failure=""
        )
        other = _as_story(as_json(plain), undisturbed, mask)
        for row in other["rows"]:
            row["number"] += _BESIDE
            row["cause"] += _BESIDE * bool(row["cause"])
        shown["beside"] = {"title": "The undisturbed run", "report": other}
    return shown


def _as_story(
    data: dict[str, Any], run: Run, mask: Mask, undisturbed: Run | None = None
) -> dict[str, Any]:
    """Return a report in which the clients and other strands are actors, and events of the schedule
    are rows.
    """
    lines = {id(line.call): line for line in run.lines if line.call is not None}
    by_number = {line.call.number: line for line in lines.values() if line.call is not None}
    own: list[dict[str, Any]] = []
    for row in data["rows"]:
        made = by_number.get(row["number"])
        if made is not None and row["kind"] == "call":
            row["actor"] = _lane(made)
            row["where"] = row["where"] or _place(made.source)
            if made.words:
                row["text"]["note"] = mask.text(made.words)
        for name in ("number", "began", "ended", "cause"):
            row[name] *= _SPREAD
        own.append(row)
    places = {id(line): index for index, line in enumerate(run.lines)}
    numbers = _numbers(run.lines)
    own += [
        _event(line, numbers[places[id(line)]], mask) for line in run.lines if line.call is None
    ]
    own.sort(key=lambda row: row["began"])
    shown = {**data, "rows": own}
    for one in (*data["findings"], *data["unfinished"], *data["problems"]):
        one["rows"] = [number * _SPREAD for number in one["rows"]]
    if run.broken is not None:
        _mark(shown, run, undisturbed, numbers, mask)
    return shown


def _numbers(lines: Sequence[Line]) -> list[int]:
    """Return a number for each line; an event's number is between the numbers of the surrounding
    calls.
    """
    found: list[int] = []
    latest = min((line.call.number for line in lines if line.call is not None), default=1) - 1
    number = latest * _SPREAD
    for line in lines:
        number = line.call.number * _SPREAD if line.call is not None else number + 1
        found.append(number)
    return found


def _mark(
    shown: dict[str, Any],
    run: Run,
    undisturbed: Run | None,
    numbers: Sequence[int],
    mask: Mask,
) -> None:
    """Add the broken promise as the first finding, linked to the step that broke it."""
    cause = find_cause(run, undisturbed)
    breaking = next((line for line in run.lines if line.breaks), None)
    decisive = breaking or (cause.decisive if isinstance(cause, Conflict) else cause)
    decisive = decisive or next((line for line in run.lines if line.event), None)
    index = next((i for i, line in enumerate(run.lines) if line is decisive), None)
    number = None if index is None else numbers[index]
    for row in shown["rows"]:
        row["findings"] = [at + 1 for at in row["findings"]]
        if row["number"] == number:
            row["findings"].insert(0, 0)
    finding = {
        "kind": "broken_promise",
        "severity": "cause",
        "fake": "",
        "rows": [] if number is None else [number],
        "subjects": [],
        "values": {},
        "text": mask.text(
            ": ".join(filter(None, (reason(run.broken), cause_text(run, undisturbed))))
        ),
    }
    shown["findings"] = [finding, *shown["findings"]]


def _event(line: Line, number: int, mask: Mask) -> dict[str, Any]:
    lane, words = _lane(line), mask.text(line.words)
    fault = {"kind": "event", "description": "event of the schedule", "function": "", "moment": ""}
    return {
        "number": number,
        "began": number,
        "ended": 0,
        "at": to_datetime(line.at_us).isoformat(),
        "at_us": line.at_us,
        "kind": "event",
        "actor": lane,
        "peer": lane,
        "service": "",
        "operation": "event",
        "subjects": [],
        "status": None,
        "outcome": "",
        "ok": not line.breaks,
        "faults": [fault] if line.event else [],
        "cause": 0,
        "depth": 0,
        "attempt": 0,
        "findings": [],
        "where": None,
        "text": {"what": words, "answer": "", "lines": [], "note": ""},
        "request": None,
        "response": None,
        "data": {},
    }


def _lane(line: Line) -> str:
    return line.process.removesuffix(":loop")


def _place(source: str) -> dict[str, Any] | None:
    file, colon, number = source.rpartition(":")
    return {"file": file, "line": int(number), "function": ""} if colon else None
