"""The page of a report that shows a broken promise: its two trials, beside each other."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...reporting.lookups import Lookups
from ...reporting.mask import Mask
from ...reporting.model import AppliedFault, ReportRow
from ...reporting.render.as_json import as_json, row_json
from ...reporting.rows.rows import rows
from ..values.names import StrandName
from ..values.trial import Line, Trial
from .cause import Cause
from .wording import cause_text, reason

if TYPE_CHECKING:
    from ...cloud.base import BaseCloud
    from ...reporting.report import Report

_NUMBERS = ("number", "began", "ended", "parent")
"""Fields of a row that contain numbers of the journal."""


def page_of_broken_promise(
    failure: str,
    trial: Trial,
    undisturbed: Trial | None,
    cause: Cause | None,
    cloud: BaseCloud,
    report: Report,
    states: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the data of a report's page that shows the failing trial, and the undisturbed one beside
    it.

    The actor of each call is the client, worker, task, thread or delivery that made it. The
    disturbances of the schedule are rows of their own.
    """
    shown = _TrialPage(trial, report, Mask(cloud))
    page = shown.page()
    shown.add_broken_promise(page, cause)
    lines = shown.mask.text(failure).splitlines()
    page["failure"] = "\n".join(f"E   {line}" for line in lines)
    steps = states.get("steps", ())
    page["states"] = {
        **states,
        "steps": [{**step, "number": shown.number(step["number"])} for step in steps],
    }
    if undisturbed is not None:
        calls = [line.call for line in undisturbed.lines if line.call is not None]
        plain_rows = rows(cloud, calls, lookups=Lookups(mask=shown.mask))
        plain = replace(
            report, rows=plain_rows, findings=(), unfinished=(), violations=(), failure=""
        )
        last = max((row["number"] for row in page["rows"]), default=0)
        beside = _TrialPage(undisturbed, plain, shown.mask, offset=last)
        page["beside"] = {"title": "The undisturbed trial", "report": beside.page()}
    return page


class _TrialPage:
    """A trial as rows of a page, with gaps between the journal's numbers for disturbances."""

    def __init__(self, trial: Trial, report: Report, mask: Mask, offset: int = 0) -> None:
        self.mask = mask
        self._trial = trial
        self._report = report
        self._offset = offset
        groups = itertools.groupby(trial.lines, lambda line: line.call is None)
        lengths = (len(list(lines)) for is_disturbance, lines in groups if is_disturbance)
        self._gap = max(lengths, default=0) + 1
        # With a gap of 3, call 1, two disturbances and call 2 have the numbers 3, 4, 5, 6.
        first = min((line.call.number for line in trial.lines if line.call is not None), default=1)
        number = offset + (first - 1) * self._gap
        self._line_numbers: list[int] = []
        for line in trial.lines:
            number = self.number(line.call.number) if line.call is not None else number + 1
            self._line_numbers.append(number)

    def number(self, number: int) -> int:
        """Return the page's number for a number of the journal, in which 0 means none."""
        return self._offset + number * self._gap if number else 0

    def page(self) -> dict[str, Any]:
        """Return the report as data, with the trial's strands as actors and its disturbances as rows."""
        data = as_json(self._report)
        lines = {line.call.number: line for line in self._trial.lines if line.call is not None}
        page_rows = [self._row(row, lines.get(row["number"])) for row in data["rows"]]
        page_rows += [
            self._row_of_line(line, number)
            for line, number in zip(self._trial.lines, self._line_numbers, strict=True)
            if line.call is None
        ]
        page_rows.sort(key=lambda row: row["began"])
        page = {**data, "rows": page_rows}
        for part in ("findings", "unfinished", "violations"):
            page[part] = [
                {**entry, "rows": list(map(self.number, entry["rows"]))} for entry in data[part]
            ]
        return page

    def _row(self, row: dict[str, Any], line: Line | None) -> dict[str, Any]:
        numbers = {name: self.number(row[name]) for name in _NUMBERS}
        if line is None or not row["rules"]["is_received"]:
            return {**row, **numbers}
        note = self.mask.text(line.words) if line.words else row["text"]["note"]
        return {
            **row,
            **numbers,
            "actor": StrandName.of(line.strand).shown,
            "where": row["where"] or _place(line.source),
            "text": {**row["text"], "note": note},
        }

    def _row_of_line(self, line: Line, number: int) -> dict[str, Any]:
        strand = StrandName.of(line.strand).shown
        disturbance = AppliedFault("disturbance", "disturbance of the schedule")
        row = ReportRow(
            number,
            line.at_us,
            "event",
            actor=strand,
            peer=strand,
            operation="event",
            ok=not line.breaks,
            faults=(disturbance,) if line.is_disturbance else (),
            began=number,
        )
        text = {"what": self.mask.text(line.words), "answer": "", "lines": [], "note": ""}
        return {**row_json(row, (), self._report.lookups), "text": text}

    def add_broken_promise(self, page: dict[str, Any], cause: Cause | None) -> None:
        """Add the broken promise as the first finding, linked to the step that broke it."""
        trial = self._trial
        # The step after which the promise no longer held, or the cause, or the first disturbance.
        breaking = next((line for line in trial.lines if line.breaks), None)
        disturbance = next((line for line in trial.lines if line.is_disturbance), None)
        decisive = breaking or (cause and cause.decisive) or disturbance
        numbered = zip(trial.lines, self._line_numbers, strict=True)
        number = next((number for line, number in numbered if line is decisive), None)
        for row in page["rows"]:
            # Rows refer to findings by index, and each finding moves one position down.
            row["findings"] = [index + 1 for index in row["findings"]]
            if row["number"] == number:
                row["findings"].insert(0, 0)
        sentences = filter(None, (reason(trial.broken), cause_text(cause, trial)))
        finding = {
            "kind": "broken_promise",
            "fake": "",
            "rows": [] if number is None else [number],
            "subjects": [],
            "values": {},
            "text": self.mask.text(": ".join(sentences)),
        }
        page["findings"] = [finding, *page["findings"]]


def _place(source: str) -> dict[str, Any] | None:
    file, colon, number = source.rpartition(":")
    return {"file": file, "line": int(number), "function": ""} if colon else None
