"""The page of a broken promise: rows by strand, and the undisturbed run for comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Assigns the numbers of a page's rows, with gaps between the journal's numbers for events."""

    gap: int
    offset: int = 0

    @classmethod
    def for_run(cls, run: Run, offset: int = 0) -> _Numbers:
        """Return numbers with gaps for the events of a run."""
        longest = between = 0
        for line in run.lines:
            between = 0 if line.call is not None else between + 1
            longest = max(longest, between)
        return cls(longest + 1, offset)

    def of(self, number: int) -> int:
        """Return the page's number for a number of the journal, in which 0 means none."""
        return self.offset + number * self.gap if number else 0

    def of_lines(self, lines: Sequence[Line]) -> list[int]:
        """Return the numbers of a story's lines; events follow the call before them."""
        first = min((line.call.number for line in lines if line.call is not None), default=1)
        number = self.offset + (first - 1) * self.gap
        numbers: list[int] = []
        for line in lines:
            number = self.of(line.call.number) if line.call is not None else number + 1
            numbers.append(number)
        return numbers


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
    numbers = _Numbers.for_run(run)
    shown = _as_story(data, run, mask, numbers, undisturbed)
    shown["failure"] = "\n".join(f"E   {line}" for line in mask.text(str(found)).splitlines())
    shown["states"] = {
        **states,
        "steps": [
            {**step, "number": numbers.of(step["number"])} for step in states.get("steps", ())
        ],
    }
    if undisturbed is not None:
        calls = [line.call for line in undisturbed.lines if line.call is not None]
        plain = replace(
            report, rows=rows(cloud, calls), findings=(), unfinished=(), problems=(), failure=""
        )
        offset = max((row["number"] for row in shown["rows"]), default=0)
        beside = _Numbers.for_run(undisturbed, offset)
        other = _as_story(as_json(plain), undisturbed, mask, beside)
        shown["beside"] = {"title": "The undisturbed run", "report": other}
    return shown


def _as_story(
    data: dict[str, Any],
    run: Run,
    mask: Mask,
    numbers: _Numbers,
    undisturbed: Run | None = None,
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
            row[name] = numbers.of(row[name])
        own.append(row)
    places = {id(line): index for index, line in enumerate(run.lines)}
    of_lines = numbers.of_lines(run.lines)
    own += [
        _event(line, of_lines[places[id(line)]], mask) for line in run.lines if line.call is None
    ]
    own.sort(key=lambda row: row["began"])
    shown = {**data, "rows": own}
    for one in (*data["findings"], *data["unfinished"], *data["problems"]):
        one["rows"] = [numbers.of(number) for number in one["rows"]]
    if run.broken is not None:
        _mark(shown, run, undisturbed, of_lines, mask)
    return shown


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
