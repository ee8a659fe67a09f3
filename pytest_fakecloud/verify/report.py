"""Formats the results of a comparison as text, JSON and an HTML page."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from .run import Comparison, Result

WIDTH = 400
"""Maximum number of characters of a response to show."""


def as_text(results: Sequence[Result]) -> str:
    """Return one line per service, then each differing pair of replies."""
    lines = [_head(result) for result in results]
    for result in results:
        for each in result.differing:
            lines += ["", *_differences(each)]
    for result in results:
        reasons = Counter(each.reason for each in result.explained)
        lines += [
            f"{result.target.service}: {count} known to differ: {reason}"
            for reason, count in reasons.items()
        ]
    return "\n".join(lines) + "\n"


def as_json(results: Sequence[Result]) -> str:
    """Return all comparisons as JSON; a step that differs has ``differs``, and maybe a ``reason``."""
    return json.dumps(
        {"services": [_record(result) for result in results]}, indent=2, ensure_ascii=False
    )


def as_html(results: Sequence[Result]) -> str:
    """Return a self-contained HTML page that lists differences first, then all comparisons."""
    body = "\n".join(_section(result) for result in results)
    return _PAGE.replace("BODY", body)


def _head(result: Result) -> str:
    count, known = len(result.differing), len(result.explained)
    same = len(result.comparisons) - count - known
    verdict = "the same" if not count else f"{count} DIFFER"
    return (
        f"{result.target.service}: {same} of {len(result.comparisons)} replies agree, {verdict}"
        + (f", {known} known to differ" if known else "")
        + f" ({result.scenarios} scenarios, {result.requests} requests)"
    )


def _differences(each: Comparison) -> Iterator[str]:
    yield f"[{each.scenario.service}: {each.scenario.title}] {each.step}"
    yield f"    {each.differs}"
    yield f"    real  {_cut(str(each.real))}"
    yield f"    fake  {_cut(str(each.fake))}"


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def _record(result: Result) -> dict[str, Any]:
    return {
        "service": result.target.service,
        "scenarios": result.scenarios,
        "requests": result.requests,
        "compared": len(result.comparisons),
        "differing": len(result.differing),
        "steps": [
            {
                "scenario": each.scenario.title,
                "request": str(each.step),
                "compare": each.step.compare,
                "real": {"status": each.real.status, "body": each.real.body},
                "fake": {"status": each.fake.status, "body": each.fake.body},
                "differs": each.differs,
                "reason": each.reason,
            }
            for each in result.comparisons
        ],
    }


def _section(result: Result) -> str:
    parts = [f"<h2>{html.escape(_head(result))}</h2>"]
    if result.differing:
        parts.append(_table("Differs", result.differing, is_open=True))
    if result.explained:
        parts.append(_table("Known to differ", result.explained, is_open=False))
    same = [each for each in result.comparisons if not each.differs]
    parts.append(_table("The same", same, is_open=False))
    return "\n".join(parts)


def _table(title: str, comparisons: Sequence[Comparison], *, is_open: bool) -> str:
    rows = "".join(map(_row, comparisons))
    return (
        f"<details{' open' if is_open else ''}><summary>{title}</summary><div class=wide><table>"
        "<tr><th>scenario<th>request<th>real<th>fake<th>what differs</tr>"
        f"{rows}</table></div></details>"
    )


def _row(each: Comparison) -> str:
    why = " — ".join(filter(None, (each.differs, each.reason)))
    cells = (each.scenario.title, str(each.step), str(each.real), str(each.fake), why)
    inside = "".join(f"<td>{html.escape(_cut(cell))}" for cell in cells)
    return f"<tr>{inside}</tr>"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>pytest-fakecloud verify</title>
<style>
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 1.5rem auto; max-width: 90rem; padding: 0 1rem; }
h2 { font-size: 1.1rem; }
summary { cursor: pointer; padding: .3rem 0; font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font: 13px/1.4 ui-monospace, monospace; }
td, th { border: 1px solid #8886; padding: .25rem .5rem; text-align: left; vertical-align: top; }
td { max-width: 28rem; overflow-wrap: anywhere; }
</style></head><body>
<h1>Does the fake behave like yours?</h1>
BODY
</body></html>
"""
