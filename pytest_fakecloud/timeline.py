"""One HTML page for one test: a sequence diagram of its fakes with bodies to unfold.

Self-contained (no script, style or font from elsewhere), readable in light and dark.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .kernel.instants import to_datetime
from .report import CLIENT, Row, rows

if TYPE_CHECKING:
    from .cloud import Cloud

__all__ = ["page", "write"]

_STYLE = """
:root { color-scheme: light dark; --ink: light-dark(#1c2330, #e3e7ee);
  --soft: light-dark(#667085, #98a2b3); --line: light-dark(#d7dce4, #343c49);
  --paper: light-dark(#ffffff, #14181f); --card: light-dark(#f6f7f9, #1c222c);
  --good: light-dark(#17663a, #6fd39b); --bad: light-dark(#b42318, #ff9b8f);
  --fault: light-dark(#8a4b00, #f5b967); --out: light-dark(#3646b5, #a6b4ff); }
* { box-sizing: border-box; }
body { margin: 0; padding: 24px; background: var(--paper); color: var(--ink);
  font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 20px; margin: 0 0 4px; overflow-wrap: anywhere; }
.facts { color: var(--soft); margin: 0 0 16px; }
.facts code { color: var(--ink); }
.problem { border-left: 4px solid var(--bad); background: var(--card); padding: 8px 12px;
  margin: 0 0 8px; white-space: pre-wrap; overflow-wrap: anywhere; }
.diagram { display: grid; grid-template-columns: 110px repeat(var(--lanes), minmax(150px, 1fr));
  overflow-x: auto; }
.lane { position: sticky; top: 0; background: var(--paper); padding: 6px 4px; font-weight: 600;
  text-align: center; border-bottom: 2px solid var(--line); overflow-wrap: anywhere; z-index: 1; }
.time { grid-column: 1; color: var(--soft); font: 12px/1.6 ui-monospace, monospace;
  padding: 8px 8px 0 0; white-space: nowrap; }
.day { grid-column: 1 / -1; color: var(--soft); font-weight: 600; padding: 12px 0 2px;
  border-bottom: 1px solid var(--line); }
details { padding: 4px 0 0; min-width: 0; }
summary { cursor: pointer; list-style: none; display: block; border-radius: 4px; padding: 0 6px; }
summary::-webkit-details-marker { display: none; }
summary:hover, summary:focus-visible { background: var(--card); }
.what { display: block; overflow-wrap: anywhere; font: 12px/1.5 ui-monospace, monospace; }
.what, .answer, .fault, .note { margin-inline: calc(50% / var(--span)); padding-left: 4px; }
.inside > summary > * { margin-inline: 0; }
.arrow { display: block; position: relative; height: 9px; margin: 0 calc(50% / var(--span)); }
.arrow::before { content: ""; position: absolute; left: 0; right: 0; top: 4px;
  border-top: 2px solid var(--soft); }
.arrow::after { content: ""; position: absolute; top: 0; border: 5px solid transparent; }
.right::after { right: -1px; border-left-color: var(--soft); border-right: 0; }
.left::after { left: -1px; border-right-color: var(--soft); border-left: 0; }
.out .arrow::before { border-color: var(--out); }
.out .right::after { border-left-color: var(--out); }
.out .left::after { border-right-color: var(--out); }
.answer { display: block; font: 12px/1.5 ui-monospace, monospace; overflow-wrap: anywhere;
  color: var(--good); display: -webkit-box; -webkit-line-clamp: 2; -webkit-box-orient: vertical;
  overflow: hidden; }
.failed .answer { color: var(--bad); }
.fault { color: var(--fault); font-weight: 600; display: block; }
.note { color: var(--bad); display: block; }
pre { margin: 4px 6px 8px; padding: 8px; background: var(--card); border: 1px solid var(--line);
  border-radius: 4px; max-height: 420px; overflow: auto; white-space: pre-wrap;
  overflow-wrap: anywhere; font: 12px/1.5 ui-monospace, monospace; }
"""


def page(cloud: Cloud, title: str, failure: str = "") -> str:
    """The whole page of one test; ``failure`` is the text of its error."""
    every = rows(cloud)
    lanes = _lanes(every, [handle.name for handle in cloud.handles])
    now = cloud.clock.now()
    facts = (
        f"seed <code>{html.escape(repr(cloud.seed))}</code> · clock {cloud.clock.mode} at "
        f"<code>{now:%Y-%m-%d %H:%M:%S} UTC</code> · {len(every)} entries"
    )
    problems = "".join(
        f'<p class="problem">[{problem.kind}] {html.escape(problem.text)}</p>'
        for problem in cloud.problems
    )
    body = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="facts">{facts}</p>',
        f"<details><summary>the failure</summary><pre>{html.escape(failure)}</pre></details>"
        if failure
        else "",
        problems,
        f'<div class="diagram" style="--lanes:{len(lanes)}">',
        '<div class="lane">time (UTC)</div>',
        *(f'<div class="lane">{html.escape(lane)}</div>' for lane in lanes),
        *_cells(every, lanes),
        "</div>",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>"
        + "\n".join(body)
        + "</body></html>\n"
    )


def write(cloud: Cloud, folder: Path, name: str, failure: str = "") -> Path:
    """Write the page of a test into a folder; the path of the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{file_name(name)}.html"
    path.write_text(page(cloud, name, failure), encoding="utf-8")
    return path


def file_name(name: str) -> str:
    """A test's name as a file name, the same in every worker of a parallel run."""
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")
    if len(cleaned) <= 150:
        return cleaned
    import hashlib

    return f"{cleaned[:130]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def _lane(row_end: str, handles: Sequence[str]) -> str:
    """The lane an end of a row stands in: a handle, the client, or a destination's origin."""
    if row_end in handles or row_end == CLIENT:
        return row_end
    parts = urlsplit(row_end)
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else row_end


def _lanes(every: Sequence[Row], handles: list[str]) -> list[str]:
    lanes = [CLIENT]
    for row in every:
        for end in (row.source, row.target):
            lane = _lane(end, handles)
            if lane not in lanes:
                lanes.append(lane)
    return lanes


def _cells(every: Sequence[Row], lanes: list[str]) -> list[str]:
    cells = []
    day = None
    for index, row in enumerate(every, 2):
        at = to_datetime(row.at_us)
        if at.date() != day:
            day = at.date()
            cells.append(f'<div class="day">{day}</div>')
        stamp = f"{at:%H:%M:%S}.{at.microsecond // 1000:03}"
        cells.append(f'<div class="time" id="row-{index}">{stamp}</div>')
        cells.append(_row(row, lanes))
    return cells


def _row(row: Row, lanes: list[str]) -> str:
    start, end = (lanes.index(_lane(one, lanes)) for one in (row.source, row.target))
    first, last = sorted((start, end))
    span = last - first + 1
    direction = "right" if end >= start else "left"
    classes = [
        "inside" if start == end else "",
        "" if row.ok else "failed",
        "out" if row.source != CLIENT else "",
    ]
    arrow = f'<span class="arrow {direction}"></span>' if start != end else ""
    parts = [
        f'<span class="what">{html.escape(row.what)}</span>',
        arrow,
        f'<span class="answer">{html.escape(row.answer)}</span>' if row.answer else "",
        f'<span class="fault">fault: {html.escape(row.fault)}</span>' if row.fault else "",
        f'<span class="note">{html.escape(row.note)}</span>' if row.note else "",
    ]
    bodies = "".join(f"<pre>{html.escape(text)}</pre>" for text in (row.sent, row.got) if text)
    style = f"grid-column:{first + 2} / span {span};--span:{span}"
    return (
        f'<details class="{" ".join(filter(None, classes))}" style="{style}">'
        f"<summary>{''.join(parts)}</summary>{bodies}</details>"
    )
