"""The last passing run of a test, kept to show what a failing one did otherwise.

Runs are kept as the JSON of their reports, in a folder of pytest's cache. Rows are compared by their
data; ids and times in them differ from run to run, so long numbers count as equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ..core.characters import printable
from ..core.errors import shown
from ..core.output_files import file_name, write_private
from ..reporting.model import VERSION, Comparison, Finding
from ..reporting.observed import ObservedTest
from ..reporting.render.as_json import row_json

_LARGEST = 1_000_000
"""Maximum number of characters of a run that is kept; a page contains two runs."""
_VARYING = re.compile(
    r"(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{5,}\.\d+|[0-9a-f]{8,}|\d{5,}"
)
"""Parts of names and bodies, such as ids, times and ports, that differ between equal runs."""
_JSON = Mapping[str, Any]
_DEED = ("kind", "actor", "peer", "operation", "status", "outcome", "faults", "depth", "attempt",
         "subjects")  # fmt: skip
"""Fields of a row that tell what happened, without the contents of request and response."""


def keep(folder: Path, test: str, report: _JSON) -> None:
    """Keep the report of a passing test, as JSON; one that is too large replaces none."""
    text = json.dumps(report, ensure_ascii=False, default=shown)
    if len(text) <= _LARGEST:
        write_private(_path(folder, test), printable(text))


def last_passing_run(folder: Path, test: str) -> _JSON | None:
    """Return the JSON of the test's last passing run, or None if there is none."""
    try:
        report = json.loads(_path(folder, test).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return report if isinstance(report, dict) and report.get("version") == VERSION else None


def _path(folder: Path, test: str) -> Path:
    return folder / f"{file_name(test)}.json"


def compared(test: ObservedTest, passed: _JSON) -> Comparison:
    """Return a finding about the first row of a test that differs from a run, and the run."""
    rows = [row_json(row, (), test.lookups) for row in test.rows]
    own, other = _first_difference(rows, passed["rows"])
    if own is None and other is None:
        return Comparison(None, _beside(passed, None))
    numbers = tuple(row.number for row in test.rows[-1:]) if own is None else (own["number"],)
    values = {name: other and other["text"][name] for name in ("what", "answer")}
    values["ended"] = own is None
    difference = Finding("differs_from_pass", row_numbers=numbers, values=values)
    return Comparison(difference, _beside(passed, other))


def _first_difference(
    rows: Sequence[_JSON], others: Sequence[_JSON]
) -> tuple[_JSON | None, _JSON | None]:
    """Return the first two rows that differ in what was done; if none do, in what was said."""
    for part in (_deed, _said):
        for own, other in zip_longest(rows, others):
            if own is None or other is None or part(own) != part(other):
                return own, other
    return None, None


def _deed(row: _JSON) -> object:
    """Return what happened in a row, without the contents of request and response."""
    return _without_ids([row[name] for name in _DEED])


def _said(row: _JSON) -> object:
    """Return the contents of a row; headers are left out, as they contain lengths and ports."""
    parts = (row["request"] or {}, row["response"] or {})
    return _without_ids(
        [[part.get("line"), part.get("decoded", part.get("body"))] for part in parts]
    )


def _without_ids(value: object) -> str:
    return _VARYING.sub("#", json.dumps(value, default=shown))


def _beside(passed: _JSON, marked: _JSON | None) -> _JSON:
    """Return the run as a page shows it beside another: only the row that differs is marked."""
    findings = []
    if marked is not None:
        findings = [{
            "kind": "differs_from_pass",
            "text": "the first row that differs", "rows": [marked["number"]], "subjects": [],
        }]  # fmt: skip
    rows = [{**row, "findings": [0] if row is marked else []} for row in passed["rows"]]
    report = {**passed, "rows": rows, "findings": findings}
    return {"title": "The last passing run", "report": report}
