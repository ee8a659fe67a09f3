"""The HTML document of one report: the failure, the findings and the timeline of `trace.js`.

The document is self-contained. Its Content-Security-Policy allows only its own script and style.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pkgutil import get_data
from typing import Any

from ..core.errors import shown
from .bodies import printable

_SOURCE_LINES = 4
"""How many lines of source code are shown above the failing one."""
_START = """
const report = JSON.parse(document.getElementById("report").textContent);
const trace = new Trace(document.getElementById("timeline"), {hash: true});
trace.show(report);
if (report.beside) new Trace(document.getElementById("beside"), {}).show(report.beside.report);
"""
_STYLE = """
:root { color-scheme: light dark; --ink: light-dark(#1c2330, #e3e7ee);
  --soft: light-dark(#5b6575, #98a2b3); --line: light-dark(#d7dce4, #343c49);
  --faint: light-dark(#eef0f4, #20262f); --paper: light-dark(#ffffff, #14181f);
  --card: light-dark(#f4f6f9, #1c222c); --accent: light-dark(#2746c4, #9db2ff);
  --good: light-dark(#17663a, #6fd39b); --bad: light-dark(#b42318, #ff9b8f);
  --fault: light-dark(#8a4b00, #f5b967); --find: light-dark(#7a1fa2, #dba6f5); }
* { box-sizing: border-box; }
body { margin: 0; padding: 16px 20px 40px; background: var(--paper); color: var(--ink);
  font: 14px/1.45 system-ui, sans-serif; overflow-anchor: none; }
h1 { font-size: 18px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 14px; margin: 14px 0 4px; }
a { color: var(--accent); }
.facts { color: var(--soft); margin: 2px 0 10px; overflow-wrap: anywhere; }
header pre { margin: 4px 0; padding: 8px 12px; background: var(--card); border-radius: 6px;
  border-left: 4px solid var(--bad); font: 12.5px/1.5 ui-monospace, monospace; max-height: 46vh;
  overflow: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
header pre b { color: var(--bad); }
header summary { cursor: pointer; color: var(--soft); }
header ul { margin: 0; padding: 0; list-style: none; }
header li { padding: 3px 10px; margin: 2px 0; border-left: 4px solid var(--line);
  overflow-wrap: anywhere; }
header li.cause { border-color: var(--find); background: light-dark(#fdf3ff, #291b33); }
header li.hint { border-color: var(--find); }
header li pre { max-height: 30vh; }
li.soft, .soft { color: var(--soft); }
@media (min-width: 1560px) { .both { display: grid; grid-template-columns: 1fr 1fr; gap: 20px; }
  .both > section { min-width: 0; } }
@media (max-width: 700px) { body { padding: 12px 12px 32px; } }
"""


def document(data: Mapping[str, Any]) -> str:
    """Return the HTML document of a report in its JSON form (`docs/reference/report.schema.json`)."""
    rows = data["rows"]
    clock = data["clock"]
    facts = (
        f"seed {shown(data['seed'])} · clock {clock['mode']} at {clock['now'][:19].replace('T', ' ')}"
        f" UTC · {len(rows)} rows"
    )
    numbers = {row["number"] for row in rows}
    body = [
        f"<header><h1>{html.escape(data['test'])}</h1>",
        f'<p class="facts">{html.escape(facts)}</p>',
        *_failure(data["failure"]),
        *_notes(data.get("hints", ()), data.get("log", "")),
        *_findings("Problems", data["problems"], numbers),
        *_findings("Findings", data["findings"], numbers),
        *_first_error(rows),
        *_findings("Unfinished", data["unfinished"], numbers),
        "</header>",
        *_timelines(data.get("beside")),
    ]
    script = f"{asset('trace.js')}{_START}"
    report = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=shown)
    # A "<" in the data must not end the element that contains it.
    escaped = printable(report).replace("<", "\\u003c")
    return whole(
        data["test"],
        "\n".join(body)
        + f'<script type="application/json" id="report">{escaped}</script>'
        + f'<script type="module">{script}</script>',
        style=_STYLE + asset("trace.css"),
        script=script,
    )


def _timelines(beside: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the elements that show the timeline, and another one beside it."""
    timeline = '<div id="timeline"><noscript>The timeline needs JavaScript.</noscript></div>'
    if beside is None:
        yield f"<main><h2>Timeline</h2>{timeline}</main>"
        return
    yield '<main class="both">'
    yield f"<section><h2>Timeline</h2>{timeline}</section>"
    yield f'<section><h2>{html.escape(beside["title"])}</h2><div id="beside"></div></section></main>'


def whole(title: str, body: str, *, style: str = _STYLE, script: str = "") -> str:
    """Return an HTML document that may run and apply nothing but the given script and style."""
    allowed = f"script-src {_hash(script)}; " if script else ""
    allowed += f"style-src {_hash(style)}"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{style}</style></head><body>"
        f"{body}</body></html>\n"
    )


def asset(name: str) -> str:
    """Return a file of this package, read as modules are, so that a faked file system has it too."""
    found = get_data(__package__, name)
    assert found is not None
    return found.decode("utf-8").replace("\r\n", "\n")


def headline(failure: str) -> str:
    """Return the first line of what a failed test raised, as pytest prints it."""
    lines = failure.splitlines()
    return next((line[1:].strip() for line in lines if line.startswith("E ")), (lines or [""])[-1])


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _failure(text: str) -> Iterator[str]:
    """Yield the assertion with its source lines, and everything that pytest printed, folded."""
    if not text:
        return
    lines = text.splitlines()
    raised = [index for index, line in enumerate(lines) if line.startswith("E ")]
    if not raised:
        yield f"<pre>{html.escape(text)}</pre>"
        return
    first, last = raised[0], raised[-1]
    failing = next((index for index in range(first, -1, -1) if lines[index].startswith(">")), first)
    start = max(0, failing - _SOURCE_LINES)
    # Not across the end of another frame of the traceback.
    start = max([start, *(at + 1 for at in range(start, failing) if not lines[at].strip())])
    place = [line for line in lines[last + 1 :] if re.match(r"\S+:\d+: ", line)][:1]
    code = [f"{line[:1] or ' '} {rest}" for line, rest in _dedented(lines[start : last + 1])]
    told = [
        f"<b>{html.escape(line)}</b>" if line[:1] in (">", "E") else html.escape(line)
        for line in [*code, *place]
    ]
    yield f'<pre class="assertion" tabindex="0">{chr(10).join(told)}</pre>'
    if start > 0 or last + 1 + len(place) < len(lines):
        yield (
            "<details><summary>Whole traceback</summary>"
            f'<pre tabindex="0">{html.escape(text)}</pre></details>'
        )


def _notes(hints: Sequence[str], log: str) -> Iterator[str]:
    """Yield the hints, and the log, which is unfolded."""
    if hints:
        items = "".join(f'<li class="hint">{html.escape(one)}</li>' for one in hints)
        yield f"<section><h2>Hints</h2><ul>{items}</ul></section>"
    if log:
        pre = f'<pre tabindex="0">{html.escape(log)}</pre>'
        yield f"<details open><summary>Log</summary>{pre}</details>"


def _dedented(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each line with the part after its mark, the indentation that all share removed."""
    rests = textwrap.dedent("\n".join(line[1:] for line in lines)).split("\n")
    yield from zip(lines, rests, strict=True)


def _findings(
    title: str, findings: Sequence[Mapping[str, Any]], numbers: Iterable[int]
) -> Iterator[str]:
    if not findings:
        return
    yield f"<section><h2>{title}</h2><ul>"
    for one in findings:
        known = [number for number in one["rows"] if number in numbers]
        first, _, rest = one["text"].partition("\n")
        text = html.escape(first)
        if known:
            text = f'<a href="#row-{known[0]}">{text}</a>'
        if rest:
            more = f'<pre tabindex="0">{html.escape(rest)}</pre>'
            text += f"<details><summary>More</summary>{more}</details>"
        yield f'<li class="{html.escape(one["severity"])}">{text}</li>'
    yield "</ul></section>"


def _first_error(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a link to the first row that went wrong, if possible without an injected fault."""
    wrong = [row for row in rows if not row["ok"]]
    if not wrong:
        return
    injected = {row["number"] for row in rows if row["faults"]}
    injected |= {row["cause"] for row in rows if row["faults"]}
    first = next((row for row in wrong if row["number"] not in injected), wrong[0])
    count = f"{len(wrong)} failed rows, for example" if len(wrong) > 1 else "Failed row"
    text = first["text"]
    # The words of a delivery contain its URL.
    own = first["actor"] == first["peer"] or first["peer"] in text["what"]
    ends = first["actor"] if own else f"{first['actor']} → {first['peer']}"
    told = html.escape(f"{ends} {text['what']} {text['answer']}".strip())
    yield f'<p class="soft">{count}: <a href="#row-{first["number"]}">{told}</a></p>'
