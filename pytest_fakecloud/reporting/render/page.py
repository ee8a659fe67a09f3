"""The HTML pages of failing tests, and the index of a folder of pages.

A page shows the failure, what the failing statement read, the findings, and the timeline
(the modules in `_SCRIPTS`). It is self-contained; its Content-Security-Policy allows only its own script
and style.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from ...cloud.base import BaseCloud
from ...core.assets import asset
from ...core.characters import printable, shortened, visible
from ...core.errors import counted, shown
from ...core.output_files import write_public
from ..report import Report
from .as_json import as_json
from .replayed import states

_INDEX = "index.html"
_SOURCE_LINES = 6
"""Maximum number of source lines above the failing one."""
_LONGEST = 160
"""Maximum number of characters of the text of a link to a row."""
_MOST_LINKS = 6
"""Maximum number of rows that a line of the header links to."""
_MOST_PLACES = 3
"""Maximum number of lines of the application, from the call outwards, in a link to a row."""
_Links = Mapping[int, tuple[str, str]]
"""A link with the text of its row, and a short one, by the row's number."""
Picture: TypeAlias = "Callable[[BaseCloud, Report, Mapping[str, Any]], Mapping[str, Any]]"
"""A function that returns a page's data, given the cloud, its report and the fakes' states."""


def page(cloud: BaseCloud, report: Report, picture: Picture | None = None) -> str:
    """Return the HTML page of one test, whose data ``picture`` makes: by default those of the report,
    with its ``beside`` as a second timeline.
    """
    masked: Mapping[str, Any] = report.lookups.mask.value(states(cloud, report))
    if picture is not None:
        return document(picture(cloud, report, masked))
    data = {**as_json(report), "states": masked}
    return document({**data, "beside": report.beside} if report.beside else data)


def write_index(folder: Path) -> Path | None:
    """Write the index of all pages in a folder; return None without pages."""
    pages = sorted(path for path in folder.glob("*.html") if path.name != _INDEX)
    if not pages:
        return None
    title = counted(len(pages), "failing test")
    items = "\n".join(map(_indexed, pages))
    body = f"<header><h1>{title}</h1><ul>{items}</ul></header>"
    return write_public(folder / _INDEX, _whole(title, body))


def _indexed(path: Path) -> str:
    """Return a link to a page, with the error, what the statement read and the first finding."""
    data = _data_of(path)
    statement = data.get("statement") or {}
    finding: Mapping[str, Any] = next(iter(data.get("findings", ())), {})
    texts = statement.get("headline", ""), finding.get("text", "")
    lines = [exception_line(data.get("failure", "")), *texts]
    below = [
        f'<br><span class="soft">{html.escape(visible(line))}</span>' for line in lines if line
    ]
    link = f'<a href="{html.escape(quote(path.name))}">'
    return f"<li>{link}{html.escape(visible(data.get('test', path.stem)))}</a>{''.join(below)}</li>"


def _data_of(path: Path) -> Mapping[str, Any]:
    """Return the JSON file that belongs to a page; an empty mapping if it is missing or invalid."""
    try:
        report = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return report if isinstance(report, dict) else {}


_SCRIPTS = "elements", "spans", "copying", "facts", "drawing", "waterfall", "pane", "trace", "page"
"""The modules of a page, each after those that it imports."""


def document(data: Mapping[str, Any]) -> str:
    """Return the HTML document of a report in its JSON form (`docs/reference/report.schema.json`)."""
    # The page has all modules in one script, which needs no import.
    modules = "".join(asset(__file__, f"{name}.js") for name in _SCRIPTS)
    script = re.sub(r"(?m)^import .*\n", "", modules)
    report = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=shown)
    # A "<" in the data must not end the element that contains it.
    escaped = printable(report).replace("<", "\\u003c")
    return _whole(
        data["test"],
        "\n".join([*_header(data), *_timelines(data.get("beside"))])
        + f'<script type="application/json" id="report">{escaped}</script>'
        + f'<script type="module">{script}</script>',
        script,
    )


def _header(data: Mapping[str, Any]) -> Iterator[str]:
    rows, clock = data["rows"], data["clock"]
    now = clock["now"][:19].replace("T", " ")
    at = f" at {now} UTC" if clock["mode"] == "frozen" else f", {now} UTC at the end"
    facts = f"clock {clock['mode']}{at} · {counted(len(rows), 'row')}"
    # The test's name is the default seed, so do not repeat it.
    if data["seed"] != data["test"]:
        facts = f"seed {shown(data['seed'])} · {facts}"
    links = {
        row["number"]: (_link(place, row), f'<a href="#row-{place}">row {place}</a>')
        for place, row in enumerate(rows, 1)
    }
    failed = [finding for finding in data["unfinished"] if finding["failed"]]
    waiting = [finding for finding in data["unfinished"] if finding not in failed]
    yield f"<header><h1>{html.escape(visible(data['test']))}</h1>"
    yield f'<p class="facts">{html.escape(facts)}</p>'
    yield from _failure(visible(data["failure"]))
    if statement := data.get("statement"):
        yield f'<p class="statement">{html.escape(statement["text"])}</p>'
    for title, name in (("Hints", "hints"), ("Missing in this report", "errors")):
        if texts := data.get(name):
            items = "".join(f'<li class="hint">{html.escape(visible(text))}</li>' for text in texts)
            yield f"<section><h2>{title}</h2><ul>{items}</ul></section>"
    yield from _findings("Violations", data["violations"], links)
    yield from _findings("Findings", data["findings"], links, numbered=True)
    yield from _findings("Unfinished", waiting, links)
    yield from _findings("Failed", failed, links)
    if log := data.get("log"):
        is_open = "" if data["findings"] else " open"
        pre = f'<pre tabindex="0">{html.escape(visible(log))}</pre>'
        yield f"<details{is_open}><summary>Log</summary>{pre}</details>"
    yield "</header>"


def _timelines(beside: Mapping[str, Any] | None) -> Iterator[str]:
    timeline = '<div id="timeline"><noscript>The timeline needs JavaScript.</noscript></div>'
    if beside is None:
        yield f"<main><h2>Timeline</h2>{timeline}</main>"
    else:
        yield f'<main class="both"><section><h2>Timeline</h2>{timeline}</section>'
        title = html.escape(beside["title"])
        yield f'<section><h2>{title}</h2><div id="beside"></div></section></main>'


def _whole(title: str, body: str, script: str = "") -> str:
    """Return an HTML document whose policy allows only our style sheets and the given script."""
    style = asset(__file__, "page.css") + asset(__file__, "trace.css")
    scripts = f"script-src {_hash(script)}; " if script else ""
    styles = f"style-src {_hash(style)}"
    policy = f"default-src 'none'; {scripts}{styles}; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(visible(title))}</title><style>{style}</style></head><body>"
        f"{body}</body></html>\n"
    )


def exception_line(failure: str) -> str:
    """Return the first line of a test's exception, as pytest prints it, a traceback of Python, or a
    runner of another language.
    """
    lines = failure.splitlines() or [""]
    last = lines[-1 if lines[0].startswith("Traceback ") else 0]
    return next((line[1:].strip() for line in lines if line.startswith("E ")), last)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _failure(text: str) -> Iterator[str]:
    """Yield the assertion with its source lines, and pytest's complete output, collapsed."""
    if not text:
        return
    lines = text.splitlines()
    if not (excerpt := _assertion_of(lines)):
        yield f"<pre>{html.escape(text)}</pre>"
        return
    # The failing line and the lines of the error are bold.
    bold = re.sub(r"(?m)^((?:&gt;|E).*)$", r"<b>\1</b>", html.escape("\n".join(excerpt)))
    yield f'<pre class="assertion" tabindex="0">{bold}</pre>'
    if len(excerpt) < len(lines):
        traceback = f'<pre tabindex="0">{html.escape(text)}</pre>'
        yield f"<details><summary>Whole traceback</summary>{traceback}</details>"


def _assertion_of(lines: Sequence[str]) -> list[str]:
    """Return the last source lines, the error and its place, from pytest's output; empty without one."""
    raised = [index for index, line in enumerate(lines) if line.startswith("E ")]
    if not raised:
        return []
    first, last = raised[0], raised[-1]
    failing = next((index for index in range(first, -1, -1) if lines[index].startswith(">")), first)
    start = max(0, failing - _SOURCE_LINES)
    # Lines above an empty line belong to another frame of the traceback.
    start = max([start, *(at + 1 for at in range(start, failing) if not lines[at].strip())])
    place = [line for line in lines[last + 1 :] if re.match(r"\S+:\d+: ", line)][:1]
    # Remove the common indentation of the text after pytest's markers (`>`, `E`).
    code = lines[start : last + 1]
    rests = textwrap.dedent("\n".join(line[1:] for line in code)).split("\n")
    code = [f"{line[:1] or ' '} {rest}" for line, rest in zip(code, rests, strict=True)]
    return [*code, *place]


def _findings(
    title: str, findings: Sequence[Mapping[str, Any]], links: _Links, *, numbered: bool = False
) -> Iterator[str]:
    """Yield a list of findings, each with links to its rows; the timeline numbers ``numbered`` ones."""
    if not findings:
        return
    note = " <small>marked ▲ in the timeline</small>" if numbered and links else ""
    yield f"<section><h2>{title}{note}</h2><ul>"
    for index, finding in enumerate(findings, 1):
        shown_rows = [links[number] for number in finding["rows"] if number in links]
        first, _, rest = finding["text"].partition("\n")
        mark = f"<b>▲{index}</b> " if numbered and shown_rows else ""
        text = mark + html.escape(first)
        if shown_rows:
            others = [short for _, short in shown_rows[1:_MOST_LINKS]]
            more = len(shown_rows) - _MOST_LINKS
            others += [f"and {more} more"] if more > 0 else []
            text += f"<br>{' · '.join([shown_rows[0][0], *others])}"
        if rest:
            details = f'<pre tabindex="0">{html.escape(rest)}</pre>'
            text += f"<details><summary>More</summary>{details}</details>"
        yield f"<li>{text}</li>"
    yield "</ul></section>"


def _link(place: int, row: Mapping[str, Any]) -> str:
    """Return a link to a row of the timeline, whose rows are numbered from 1."""
    text = row["text"]["what"]
    # The text of a delivery already contains the URL of its peer.
    if row["actor"] != row["peer"] and row["peer"] not in text:
        text = f"{row['actor']} → {row['peer']} {text}"
    text = shortened(" ".join(text.split()), _LONGEST)
    where = row["where"]
    all_places = [where, *where.get("callers", ())] if where else []
    places = [f"{place['file']}:{place['line']}" for place in all_places]
    called = f" (called at {' from '.join(places[:_MOST_PLACES])})" if places else ""
    return f'<a href="#row-{place}">row {place}: {html.escape(text)}</a>{html.escape(called)}'
