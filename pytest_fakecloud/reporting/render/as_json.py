"""A report as JSON, which pages, editors, CI annotations and agents read.

The schema is ``docs/reference/report.schema.json``.
"""

from __future__ import annotations

import json
import linecache
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...cloud.files import local_path
from ...core.characters import printable
from ...core.errors import shown
from ...core.output_files import write_public
from ...core.timers import to_datetime
from ..accesses import ReportSubject
from ..errors import contained
from ..lookups import Lookups
from ..mask import Mask
from ..model import KINDS, VERSION, Finding, Kind, Marks, Place, ReportRow
from ..report import Report
from .wording import describe, headline, read_data_text, sentence, violation

_BEFORE, _AFTER = 2, 8
"""Number of source lines before and after a call that are shown with it."""
_COPIED = (
    "number", "began", "ended", "at_us", "kind", "actor", "peer", "service", "operation", "status",
    "outcome", "ok", "parent", "depth", "attempt", "took_us",
)  # fmt: skip
"""Fields of a row that its JSON contains unchanged."""
_LEFT_OUT = {"exception", "sent", "sent_headers", "answer", "changed"}


def as_json(report: Report) -> dict[str, Any]:
    """Return a report as plain data for ``json.dumps()``."""
    about: dict[int, list[int]] = {}
    for index, finding in enumerate(report.findings):
        for number in finding.row_numbers:
            about.setdefault(number, []).append(index)
    return {
        "version": VERSION, "test": report.test, "failure": report.failure,
        "errors": list(report.errors), "hints": list(report.hints), "log": report.log,
        "clock": {"mode": report.clock, "now": _time(report.now_us), "now_us": report.now_us},
        "seed": report.seed, "fakes": [asdict(fake) for fake in report.fakes],
        "findings": _findings(report.findings, sentence, report.lookups),
        "unfinished": _findings(report.unfinished, sentence, report.lookups),
        "violations": _findings(report.violations, violation, report.lookups),
        "statement": None if report.read_data is None else _statement(report),
        "rows": [row_json(row, about.get(row.number, []), report.lookups, report.marks)
                 for row in report.rows],
    }  # fmt: skip


def _statement(report: Report) -> dict[str, Any]:
    read_data, lookups = report.read_data, report.lookups
    assert read_data is not None
    return {
        "kind": read_data.kind, "text": read_data_text(read_data, lookups),
        "headline": headline(report), "rows": list(read_data.row_numbers),
        "subjects": [{**_subject(own.subject), "part": own.part} for own in read_data.sought],
    }  # fmt: skip


def _subject(subject: ReportSubject) -> dict[str, str]:
    return {"kind": subject.kind.name, "name": subject.name, "fake": subject.fake}


def write(report: Report, path: Path) -> Path:
    """Write the JSON of a report to a file; return its path."""
    text = json.dumps(as_json(report), ensure_ascii=False, indent=1, default=shown)
    return write_public(path, printable(text) + "\n")


def _findings(
    findings: Iterable[Finding], words: Callable[[Finding, Lookups], str], lookups: Lookups
) -> list[dict[str, Any]]:
    return [
        {
            "kind": finding.kind, "fake": finding.fake, "rows": list(finding.row_numbers),
            "subjects": list(map(_subject, finding.subjects)), "values": _plain(finding.values),
            "failed": finding.failed, "text": words(finding, lookups),
        }
        for finding in findings
    ]  # fmt: skip


def row_json(
    row: ReportRow, findings: Sequence[int], lookups: Lookups, marks: Marks | None = None
) -> dict[str, Any]:
    """Return a row as plain data; `findings` are the indexes of the findings about it."""
    marks = marks or Marks()
    words = describe(row, lookups)
    request, response, data, errors = None, None, dict[str, Any](), list[str]()
    with contained("the data cannot be shown", errors):
        shown_data = row.source.data().items()
        data = _plain({name: value for name, value in shown_data if name not in _LEFT_OUT})
        request, response = row.source.messages(row, lookups)
    lines = [*words.lines(with_marks=True), *errors]
    text = {"what": words.what, "answer": words.answer, "lines": lines, "note": words.note}
    if words.script is not None:
        text["script"] = words.script.source
    return {
        **{name: getattr(row, name) for name in _COPIED},
        "rules": {**rules_of(row.kind), "bar": row.bar},
        "at": _time(row.at_us), "subjects": list(map(_subject, row.subjects)),
        "faults": [asdict(fault) for fault in row.faults], "findings": list(findings),
        "marks": list(marks.of(row.number)), "writer": row.number in marks.writers,
        "trace": None if row.trace is None else row.trace.trace_id,
        "where": None if row.where is None else _where(row.where, lookups.mask), "text": text,
        "request": request, "response": response, "data": data,
    }  # fmt: skip


def rules_of(kind: Kind) -> dict[str, Any]:
    """Return what pages read in place of a kind of rows: a client sends it to a fake, a fake sends it,
    it happens inside a fake, or its receiver makes the calls in it.
    """
    return {
        "bar": KINDS[kind].bar, "is_received": kind == "call", "is_sent": kind == "delivery",
        "is_inside": kind == "event", "surrounds": KINDS[kind].surrounds,
    }  # fmt: skip


def _where(place: Place, mask: Mask) -> dict[str, Any]:
    """Return a place with the source lines around it, which show what the code does with the answer."""
    lines = range(max(1, place.line - _BEFORE), place.line + _AFTER + 1)
    code = [(line, linecache.getline(place.file, line).rstrip()) for line in lines]
    filled = [at for at, (_, text) in enumerate(code) if text]
    code = code[filled[0] : filled[-1] + 1] if filled else []
    return {
        **_line(place), "callers": list(map(_line, place.callers)),
        "source": [{"line": line, "text": mask.text(text)} for line, text in code],
    }  # fmt: skip


def _line(place: Place) -> dict[str, Any]:
    return {"file": local_path(place.file), "line": place.line, "function": place.function}


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(value, default=shown, skipkeys=True))
    return plain


def _time(at_us: int) -> str:
    return f"{to_datetime(at_us):%Y-%m-%dT%H:%M:%S.%f}Z"
