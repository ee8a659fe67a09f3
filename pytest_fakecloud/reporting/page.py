"""One HTML page for one test: a sequence diagram of its fakes with bodies to unfold.

Self-contained (no script, style or font from elsewhere), readable in light and dark.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..core.timeparse import to_datetime
from .as_json import whole_text
from .masking import Mask
from .model import CLIENT, Finding, Report, Row
from .pictures import groups, ladders
from .private_files import write_private
from .rows import parts_of
from .text import problem
from .wording import Scene, describe, sentence

if TYPE_CHECKING:
    from ..any_cloud import AnyCloud

_INDEX = "index.html"
_HEAD = 20_000
"""How many characters of a page hold its title and what failed."""
_MESSAGE = re.compile(r'<pre class="message">([^<\n]*)')
_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")

_STYLE = """
:root { color-scheme: light dark; --ink: light-dark(#1c2330, #e3e7ee);
  --soft: light-dark(#667085, #98a2b3); --line: light-dark(#d7dce4, #343c49);
  --paper: light-dark(#ffffff, #14181f); --card: light-dark(#f1f3f6, #1f2630);
  --good: light-dark(#17663a, #6fd39b); --bad: light-dark(#b42318, #ff9b8f);
  --fault: light-dark(#8a4b00, #f5b967); --out: light-dark(#3646b5, #a6b4ff); }
* { box-sizing: border-box; }
body { margin: 0; padding: 24px; background: var(--paper); color: var(--ink);
  font: 14px/1.45 system-ui, sans-serif; }
header, .pictures { max-width: calc(100vw - 64px); position: sticky; left: 24px; }
h1 { font-size: 20px; margin: 0 0 4px; overflow-wrap: anywhere; }
.facts { color: var(--soft); margin: 0 0 16px; }
.facts code { color: var(--ink); }
header details, header .short { border-left: 4px solid var(--bad); background: var(--card);
  padding: 6px 12px; margin: 0 0 8px; overflow-wrap: anywhere; }
header summary { cursor: pointer; }
header pre { max-height: 40vh; }
header .message { color: var(--bad); max-height: 8.5em; }
header a, .next, li a { color: var(--out); }
.worth { margin: 0 0 8px; padding: 6px 12px; background: var(--card); overflow-wrap: anywhere; }
.worth ul { margin: 0; padding-left: 18px; }
.worth b { font-weight: 600; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr));
  gap: 12px; }
figure { margin: 0; padding: 8px; overflow-x: auto; min-width: 0;
  border: 1px solid var(--line); border-radius: 4px; }
figcaption { font-weight: 600; overflow-wrap: anywhere; }
svg { width: 100%; min-width: 480px; height: auto; }
svg text { font: 12px ui-monospace, monospace; fill: var(--ink); }
svg .when { fill: var(--soft); }
svg .step { fill: none; stroke: var(--soft); stroke-dasharray: 3 3; }
svg .good { fill: var(--good); }
svg .bad { fill: var(--bad); }
svg .on { fill: #10131a; }
.m0 { fill: #9ecbff; } .m1 { fill: #ffc78a; } .m2 { fill: #a5e0b5; }
.m3 { fill: #f2b3d0; } .m4 { fill: #cdbcf5; } .m5 { fill: #e5dc8b; }
.diagram { display: grid; min-width: calc(100px + var(--lanes) * 130px);
  grid-template-columns: 100px repeat(var(--lanes), minmax(130px, 1fr)); }
.lane { grid-row: 1; position: sticky; top: 0; background: var(--paper); padding: 10px 4px 6px;
  font-weight: 600; font-size: 12px; text-align: center; border-bottom: 2px solid var(--line);
  overflow-wrap: anywhere; z-index: 2; }
.life { border-left: 1px dashed var(--line); margin-left: 50%; grid-row: 2 / -1; }
.time { grid-column: 1; color: var(--soft); font: 12px/1.6 ui-monospace, monospace;
  padding: 8px 8px 0 0; white-space: nowrap; }
.day { grid-column: 1 / -1; color: var(--soft); font-weight: 600; padding: 12px 0 2px;
  background: var(--paper); border-bottom: 1px solid var(--line); z-index: 1; }
.entry { grid-column: 2 / -1; padding: 4px 0 0; min-width: 0; z-index: 1;
  scroll-margin-top: 64px; }
.entry > summary { cursor: pointer; list-style: none; display: block; border-radius: 4px;
  --unit: calc(100% / var(--lanes)); padding-left: calc(var(--unit) * (var(--first) + .5)); }
.entry > summary::-webkit-details-marker { display: none; }
.entry > summary:hover, .entry > summary:focus-visible, .entry[open] { background: var(--card); }
.what::before { content: "▸ "; color: var(--soft); }
.entry[open] .what::before { content: "▾ "; }
.below { color: var(--soft); white-space: pre-wrap; }
.entry:target > summary { outline: 2px solid var(--bad); }
.entry > summary > span { display: block; max-width: max-content; overflow-wrap: anywhere;
  padding: 0 6px; background: var(--paper); font: 12px/1.5 ui-monospace, monospace; }
.entry > summary:hover > span, .entry[open] > summary > span { background: var(--card); }
.entry > summary > .ends { display: none; }
.late > summary { padding-left: 0;
  padding-right: calc(var(--unit) * (var(--lanes) - var(--first) - .5)); }
.late > summary > span { margin-left: auto; text-align: right; }
.detail { color: var(--soft); }
.answer { color: var(--good); }
.failed .answer { color: var(--bad); }
.what, .answer { max-height: 3em; overflow: hidden; }
.entry > summary > .fault { color: var(--fault); font-weight: 600; }
.entry > summary > .note { color: var(--bad); }
.entry > summary > .arrow { position: relative; height: 9px; max-width: none; padding: 0;
  background: none; width: calc(100% * (var(--span) - 1) / (var(--lanes) - var(--first) - .5)); }
.arrow::before { content: ""; position: absolute; left: 0; right: 0; top: 4px;
  border-top: 2px solid var(--soft); }
.arrow::after { content: ""; position: absolute; top: 0; border: 5px solid transparent; }
.right::after { right: -1px; border-left-color: var(--soft); border-right: 0; }
.left::after { left: -1px; border-right-color: var(--soft); border-left: 0; }
.out .arrow::before { border-color: var(--out); }
.out .right::after { border-left-color: var(--out); }
.out .left::after { border-right-color: var(--out); }
.bodies { display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 8px;
  padding: 6px; }
pre { margin: 0; padding: 8px; background: var(--paper); border: 1px solid var(--line);
  border-radius: 4px; max-height: 420px; overflow: auto; white-space: pre-wrap;
  overflow-wrap: anywhere; font: 12px/1.5 ui-monospace, monospace; }
@media (max-width: 700px) {
  body { padding: 12px; }
  header, .pictures { max-width: 100%; left: 0; }
  .diagram { display: block; min-width: 0; }
  .entry { scroll-margin-top: 12px; }
  .lane, .life, .entry > summary > .arrow { display: none; }
  .time { padding-top: 10px; }
  .entry > summary, .late > summary { padding: 0; }
  .entry > summary > span, .late > summary > span { text-align: left; margin: 0; }
  .entry > summary > .ends { display: block; font-weight: 600; }
  .bodies { grid-template-columns: 1fr; }
}
"""


def page(cloud: AnyCloud, report: Report) -> str:
    """Return the whole page of one test."""
    mask, scene = Mask(cloud), report.scene
    every = list(report.rows)
    lanes = _lanes(every, [fake.name for fake in report.fakes])
    now = cloud.clock.now()
    facts = (
        f"seed <code>{html.escape(repr(cloud.seed))}</code> · clock {cloud.clock.mode} at "
        f"<code>{now:%Y-%m-%d %H:%M:%S} UTC</code> · {len(every)} entries"
    )
    entries = list(cloud.journal.entries)
    problems = [problem(one, scene).partition("\n") for one in report.problems]
    body = [
        f"<header><h1>{html.escape(report.test)}</h1>",
        f'<p class="facts">{facts}</p>',
        *_failure(report.failure),
        _first_error(every, scene),
        *(_folded(summary, rest) for summary, _, rest in problems),
        _list("Findings", report.findings, scene),
        _list("Unfinished", report.unfinished, scene),
        "</header>",
        *_pictures([*ladders(entries, scene), *groups(entries)], mask),
        *_diagram(every, lanes, scene),
    ]
    return _whole(report.test, "\n".join(body))


def _whole(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"{body}</body></html>\n"
    )


def _failure(text: str) -> Iterator[str]:
    """What a test failed with, open; the whole of what pytest tells of it, folded."""
    if not text:
        return
    message = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    if message:
        told = html.escape("\n".join(message))
        yield f'<div class="short">the failure<pre class="message">{told}</pre></div>'
    yield _folded("where it failed" if message else "the failure", text, is_open=not message)


def _list(title: str, findings: Iterable[Finding], scene: Scene) -> str:
    items = "".join(f"<li>{html.escape(sentence(one, scene))}</li>" for one in findings)
    return f'<div class="worth"><b>{title}</b><ul>{items}</ul></div>' if items else ""


def _first_error(every: Sequence[Row], scene: Scene) -> str:
    """The first row that went wrong, in words, and the way to it."""
    wrong = [row for row in every if not row.ok]
    if not wrong:
        return ""
    count = f"the first of {len(wrong)} errors" if len(wrong) > 1 else "the error"
    first = wrong[0]
    words = describe(first, scene)
    told = html.escape(f"{row_ends(first)} {words.what} {words.answer}".strip())
    why = "".join(f"\n{html.escape(text)}" for text in (*words.remarks, words.note) if text)
    rest = f'<span class="below">{why}</span>' if why else ""
    return f'<div class="short"><a href="#error-1">{count}</a>: {told}{rest}</div>'


def row_ends(row: Row) -> str:
    """Both ends of a row in words, where there is no room for lanes."""
    return row.actor if row.actor == row.peer else f"{row.actor} → {row.peer}"


def _pictures(pictures: Sequence[str], mask: Mask) -> Iterator[str]:
    if pictures:
        yield f'<div class="pictures">{"".join(map(mask.text, pictures))}</div>'


def _folded(summary: str, rest: str, *, is_open: bool = False) -> str:
    if not rest:
        return f'<div class="short">{html.escape(summary)}</div>'
    state = " open" if is_open else ""
    told = f"<summary>{html.escape(summary)}</summary><pre>{html.escape(rest)}</pre>"
    return f"<details{state}>{told}</details>"


def write(cloud: AnyCloud, folder: Path, report: Report) -> Path:
    """Write the page of a test into a folder, readable for its owner only; return its path."""
    return write_private(folder / f"{file_name(report.test)}.html", page(cloud, report))


def write_index(folder: Path) -> Path | None:
    """Write the list of all pages in a folder; None where there are none."""
    pages = sorted(path for path in folder.glob("*.html") if path.name != _INDEX)
    if not pages:
        return None
    items = []
    for path in pages:
        with path.open(encoding="utf-8") as file:
            head = file.read(_HEAD)
        found, message = _TITLE.search(head), _MESSAGE.search(head)
        # Escaped already, both.
        title = found[1] if found else html.escape(path.stem)
        why = f'<div class="below">{message[1]}</div>' if message else ""
        items.append(f'<li><a href="{html.escape(quote(path.name))}">{title}</a>{why}</li>')
    text = _whole(
        f"{len(pages)} timelines", f"<h1>{len(pages)} timelines</h1><ul>{''.join(items)}</ul>"
    )
    return write_private(folder / _INDEX, text)


def file_name(name: str) -> str:
    """A test's name as a file name: safe everywhere, the same in every worker, another's never."""
    function, bracket, parameters = name.partition("[")
    parameters = parameters.removesuffix("]") if bracket else ""
    kept = _UNSAFE.sub("-", parameters).strip("-.")
    cleaned = "-".join(filter(None, (_UNSAFE.sub("-", function).strip("-."), kept)))
    if kept == parameters and len(cleaned) <= 150:
        return cleaned
    # What was lost may be all that tells two tests apart.
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{cleaned[:130]}-{digest}"


def _lane(row_end: str, handles: Sequence[str]) -> str:
    """The lane an end of a row stands in: a handle, the client, or a destination's origin."""
    if row_end in handles or row_end == CLIENT:
        return row_end
    parts = parts_of(row_end)
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else row_end


def _lanes(every: Sequence[Row], handles: list[str]) -> list[str]:
    lanes = [CLIENT]
    for row in every:
        for end in (row.actor, row.peer):
            lane = _lane(end, handles)
            if lane not in lanes:
                lanes.append(lane)
    return lanes


def _diagram(every: Sequence[Row], lanes: list[str], scene: Scene) -> Iterator[str]:
    days = {to_datetime(row.at_us).date() for row in every}
    yield (
        f'<div class="diagram" style="--lanes:{len(lanes)};'
        f'grid-template-rows:repeat({len(every) + len(days) + 2},auto)">'
    )
    yield '<div class="lane">time (UTC)</div>'
    for column, lane in enumerate(lanes, 2):
        shown = html.escape(lane.rpartition("://")[2])
        yield f'<div class="lane" style="grid-column:{column}">{shown}</div>'
        yield f'<div class="life" style="grid-column:{column}"></div>'
    day, line = None, 1
    errors = [row.number for row in every if not row.ok]
    for row in every:
        at = to_datetime(row.at_us)
        line += 1
        if at.date() != day:
            day = at.date()
            yield f'<div class="day" style="grid-row:{line}">{day}</div>'
            line += 1
        stamp = f"{at:%H:%M:%S}.{at.microsecond // 1000:03}"
        yield f'<div class="time" style="grid-row:{line}">{stamp}</div>'
        error = errors.index(row.number) + 1 if not row.ok else 0
        yield _entry(row, lanes, line, error, scene, has_next=error < len(errors))
    yield "</div>"


def _entry(
    row: Row, lanes: list[str], line: int, error: int, scene: Scene, *, has_next: bool
) -> str:
    """One row; ``error`` is its number among those that went wrong, 0 for one that did not."""
    start, end = (lanes.index(_lane(one, lanes)) for one in (row.actor, row.peer))
    first, last = sorted((start, end))
    classes = [
        "entry",
        "" if row.ok else "failed",
        "out" if row.actor != CLIENT else "",
        # What happens inside a lane in the right half stands to the left of its line.
        "late" if start == end and 2 * start >= len(lanes) else "",
    ]
    words = describe(row, scene)
    fault = ", ".join(one.description for one in row.faults)
    direction = "right" if end > start else "left"
    below = html.escape("\n".join([*words.below, *words.remarks]))
    parts = [
        f'<span class="ends">{html.escape(row_ends(row))}</span>',
        f'<span class="what">{html.escape(words.what)}</span>',
        f'<span class="arrow {direction}"></span>' if start != end else "",
        f'<span class="answer">{html.escape(words.answer)}</span>' if words.answer else "",
        f'<span class="fault">fault: {html.escape(fault)}</span>' if fault else "",
        f'<span class="note">{html.escape(words.note)}</span>' if words.note else "",
        f'<span class="below">{below}</span>' if below else "",
        f'<span><a class="next" href="#error-{error + 1}">next error</a></span>'
        if error and has_next
        else "",
    ]
    id = f' id="error-{error}"' if error else ""
    bodies = "".join(f"<pre>{html.escape(text)}</pre>" for text in whole_text(row, scene) if text)
    style = f"grid-row:{line};--first:{first};--span:{last - first + 1}"
    return (
        f'<details{id} class="{" ".join(filter(None, classes))}" style="{style}">'
        f'<summary>{"".join(parts)}</summary><div class="bodies">{bodies}</div></details>'
    )
