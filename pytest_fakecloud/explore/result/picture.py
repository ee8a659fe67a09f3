"""The page of a broken promise: rows by strand, and the undisturbed run for comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...reporting.as_json import as_json, row_json
from ...reporting.masking import Mask
from ...reporting.model import AppliedFault, Row
from ...reporting.rows import rows
from .cause import Conflict
from .cause_text import cause_text
from .story import reason

if TYPE_CHECKING:
    from ...base_cloud import BaseCloud
    from ...reporting.model import Report
    from ..run import Line, Run
    from .exploration import BrokenPromiseError

_NUMBERS = ("number", "began", "ended", "cause")
"""Fields of a row that contain numbers of the journal."""


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Assigns the numbers of a page's rows, with gaps between the journal's numbers for events."""

    gap: int
    offset: int = 0

    @classmethod
    def for_run(cls, run: Run, offset: int = 0) -> _Numbers:
        longest = between = 0
        for line in run.lines:
            between = 0 if line.call is not None else between + 1
            longest = max(longest, between)
        return cls(longest + 1, offset)

    def of(self, number: int) -> int:
        """Return the page's number for a number of the journal, in which 0 means none."""
        return self.offset + number * self.gap if number else 0

    def of_lines(self, lines: Sequence[Line]) -> list[int]:
        """Return the numbers of a story's lines; events follow the call before them.

        With a gap of 3, the lines call 1, event, event, call 2 have the numbers 3, 4, 5, 6.
        """
        first = min((line.call.number for line in lines if line.call is not None), default=1)
        number = self.offset + (first - 1) * self.gap
        numbers: list[int] = []
        for line in lines:
            number = self.of(line.call.number) if line.call is not None else number + 1
            numbers.append(number)
        return numbers


def picture(
    cloud: BaseCloud, report: Report, states: Mapping[str, Any], found: BrokenPromiseError
) -> dict[str, Any]:
    """Return the data of the page about a broken promise, for ``page.document()``.

    The actor of each call is the client, worker, task, thread or delivery that made it. The events
    of the schedule are rows of their own.
    """
    run, undisturbed = found.runs
    story = _Story(run, report, Mask(cloud))
    page = story.page()
    story.add_broken_promise(page, undisturbed)
    page["failure"] = "\n".join(f"E   {line}" for line in story.mask.text(str(found)).splitlines())
    steps = states.get("steps", ())
    page["states"] = {
        **states,
        "steps": [{**step, "number": story.numbers.of(step["number"])} for step in steps],
    }
    if undisturbed is not None:
        calls = [line.call for line in undisturbed.lines if line.call is not None]
        plain = replace(
            report, rows=rows(cloud, calls), findings=(), unfinished=(), problems=(), failure=""
        )
        last = max((row["number"] for row in page["rows"]), default=0)
        beside = _Story(undisturbed, plain, story.mask, offset=last)
        page["beside"] = {"title": "The undisturbed run", "report": beside.page()}
    return page


class _Story:
    """A run as rows of a page."""

    def __init__(self, run: Run, report: Report, mask: Mask, offset: int = 0) -> None:
        self.mask = mask
        self.numbers = _Numbers.for_run(run, offset)
        self._run = run
        self._report = report
        self._line_numbers = self.numbers.of_lines(run.lines)

    def page(self) -> dict[str, Any]:
        """Return the report as data, with the run's strands as actors and its events as rows."""
        data = as_json(self._report)
        lines = {line.call.number: line for line in self._run.lines if line.call is not None}
        page_rows = [self._row(row, lines.get(row["number"])) for row in data["rows"]]
        page_rows += [
            self._event(line, number)
            for line, number in zip(self._run.lines, self._line_numbers, strict=True)
            if line.call is None
        ]
        page_rows.sort(key=lambda row: row["began"])
        page = {**data, "rows": page_rows}
        for part in ("findings", "unfinished", "problems"):
            page[part] = [
                {**one, "rows": list(map(self.numbers.of, one["rows"]))} for one in data[part]
            ]
        return page

    def _row(self, row: dict[str, Any], line: Line | None) -> dict[str, Any]:
        numbers = {name: self.numbers.of(row[name]) for name in _NUMBERS}
        if line is None or row["kind"] != "call":
            return {**row, **numbers}
        note = self.mask.text(line.words) if line.words else row["text"]["note"]
        return {
            **row,
            **numbers,
            "actor": _strand(line),
            "where": row["where"] or _place(line.source),
            "text": {**row["text"], "note": note},
        }

    def _event(self, line: Line, number: int) -> dict[str, Any]:
        strand = _strand(line)
        row = Row(
            number,
            line.at_us,
            "event",
            actor=strand,
            peer=strand,
            operation="event",
            ok=not line.breaks,
            faults=(AppliedFault("event", "event of the schedule"),) if line.event else (),
            began=number,
        )
        text = {"what": self.mask.text(line.words), "answer": "", "lines": [], "note": ""}
        return {**row_json(row, (), self._report.lookups), "text": text}

    def add_broken_promise(self, page: dict[str, Any], undisturbed: Run | None) -> None:
        """Add the broken promise as the first finding, linked to the step that broke it."""
        run = self._run
        if run.broken is None:
            return
        cause = run.cause
        decisive = _decisive_line(run, cause)
        numbered = zip(run.lines, self._line_numbers, strict=True)
        number = next((number for line, number in numbered if line is decisive), None)
        for row in page["rows"]:
            # Rows refer to findings by index, and each finding moves one position down.
            row["findings"] = [index + 1 for index in row["findings"]]
            if row["number"] == number:
                row["findings"].insert(0, 0)
        sentences = filter(None, (reason(run.broken), cause_text(cause, run)))
        finding = {
            "kind": "broken_promise",
            "severity": "cause",
            "fake": "",
            "rows": [] if number is None else [number],
            "subjects": [],
            "values": {},
            "text": self.mask.text(": ".join(sentences)),
        }
        page["findings"] = [finding, *page["findings"]]


def _decisive_line(run: Run, cause: Conflict | Line | None) -> Line | None:
    """Return the step after which the promise no longer held, or the cause, or the first event."""
    breaking = next((line for line in run.lines if line.breaks), None)
    event = next((line for line in run.lines if line.event), None)
    return breaking or (cause.decisive if isinstance(cause, Conflict) else cause) or event


def _strand(line: Line) -> str:
    return line.strand.removesuffix(":loop")


def _place(source: str) -> dict[str, Any] | None:
    file, colon, number = source.rpartition(":")
    return {"file": file, "line": int(number), "function": ""} if colon else None
