"""What happened on all fakes of a cloud, as rows on one clock, and as text for a failing test."""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from ..core.errors import shown, telling
from ..core.journal import Call, Entry, Event
from ..core.timeparse import to_datetime
from .masking import HIDDEN, Mask, hides_words

if TYPE_CHECKING:
    from ..fakes import Fakes
    from ..handle import Handle

__all__ = ["CLIENT", "Row", "findings", "parts_of", "refused", "rows", "section"]

WIDTH = 80
# What a terminal would obey instead of showing it.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
NEWEST = 60
LINES_OF_A_TEXT = 3
CLIENT = "client"
"""The lane of whoever calls the fakes."""


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that happened: an arrow from a lane to another, or a note in one lane.

    ``what`` names it in a few words, ``detail`` is more of it where there is room, ``answer`` what
    came back (empty for notes), ``fault`` what was done on purpose, ``note`` a diagnosis; ``sent`` and
    ``got`` are the whole texts of both ways.
    """

    number: int
    at_us: int
    source: str
    target: str
    what: str
    answer: str
    ok: bool
    detail: str = ""
    fault: str = ""
    note: str = ""
    sent: str = ""
    got: str = ""


def rows(cloud: Fakes, entries: Iterable[Entry] | None = None) -> list[Row]:
    """The journal of a cloud as rows, secrets masked.

    An attempt that reached one of the cloud's own fakes is one row and not two: what its receiver
    recorded, coming from the queue.
    """
    mask = Mask(cloud)
    source = list(cloud.journal.entries if entries is None else entries)
    homes = {url: name for name, (_, url) in cloud.gone.homes.items()}
    homes.update((handle.url, handle.name) for handle in cloud.handles)
    attempts = _attempts_of_calls(source)
    received = {id(attempt) for attempt in attempts.values()}
    found = []
    for entry in source:
        if id(entry) in received:
            continue
        # One entry that cannot be told must not take the others along.
        failures: list[str] = []
        with telling("this entry cannot be told", failures.append):
            if isinstance(entry, Call):
                found.append(_call_row(entry, mask, attempts.get(id(entry))))
            else:
                found.append(_event_row(entry, mask, homes))
        for text in map(mask.text, failures):
            lane = entry.handle
            found.append(Row(entry.number, entry.at_us, lane, lane, text, "", False))
    return found


def parts_of(url: str) -> SplitResult:
    """A URL taken apart; all of it is the path where it is none that ``urlsplit`` takes."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", url, "", "")


def _attempts_of_calls(entries: Sequence[Entry]) -> dict[int, Event]:
    """The attempt behind each call that a queue of this cloud made, by the call's identity."""
    waiting: dict[tuple[str | None, str], list[Call]] = {}
    found = {}
    for entry in entries:
        if isinstance(entry, Call):
            message = entry.header("Upstash-Message-Id")
            if message is not None:
                waiting.setdefault((message, entry.target), []).append(entry)
        elif entry.kind == "attempt":
            parts = parts_of(str(entry.data.get("url", "")))
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            calls = waiting.get((entry.data.get("message_id"), target))
            if calls:
                found[id(calls.pop())] = entry
    return found


def _call_row(call: Call, mask: Mask, attempt: Event | None = None) -> Row:
    method = f"{call.method} {mask.target(call)}"
    body = mask.body(call)
    what, detail = _words(call, mask), ""
    if not what:
        what, detail = method, _excerpt(body, mask)
    return Row(
        call.number,
        call.at_us,
        CLIENT if attempt is None else attempt.handle,
        call.handle,
        mask.text(what if attempt is None else f"{_attempt(attempt)} {what}"),
        _answer(call, mask),
        call.status is not None and call.status < 400 and call.outcome in ("answered", "streamed"),
        detail,
        call.fault or ("" if attempt is None else str(attempt.data.get("fault") or "")),
        "" if call.problem == "bug" else mask.text(call.note),
        _message(method, call.headers, body, mask),
        _message(_status(call), call.answer_headers, call.answer, mask),
    )


def _event_row(event: Event, mask: Mask, homes: dict[str, str]) -> Row:
    data = {key: value for key, value in event.data.items() if value is not None}
    trace = str(data.pop("traceback", ""))
    details = json.dumps(data, indent=2, default=shown, ensure_ascii=False) if data else ""
    details += f"\n\n{trace}" if trace else ""
    target, what, answer, ok = event.handle, f"{event.kind}: {event.text}", "", True
    if event.kind == "attempt" and "url" in data:
        head, arrow, tail = event.text.rpartition(" -> ")
        parts = parts_of(str(data["url"]))
        origin = f"{parts.scheme}://{parts.netloc}"
        target = homes.get(origin, str(data["url"]))
        method = head.split(" ")[2] if arrow else ""
        what = f"{_attempt(event)} {method} {data['url']}"
        answer = tail if arrow else ""
        ok = isinstance(data.get("status"), int) and 200 <= data["status"] < 300
    return Row(
        event.number,
        event.at_us,
        event.handle,
        mask.text(target),
        mask.text(what),
        mask.text(answer),
        ok,
        "",
        str(data.get("fault", "") or ""),
        mask.text(str(data.get("note", "") or "")),
        mask.text(details),
    )


def _attempt(event: Event) -> str:
    kind = str(event.data.get("message_kind", "message"))
    name = "attempt" if kind == "message" else kind.replace("_", " ")
    return f"{name} {event.data.get('number', '')}".strip()


def _words(call: Call, mask: Mask) -> str:
    """The commands of a call that speaks in commands, else nothing."""
    lines = call.facts.get("words")
    if not isinstance(lines, list) or not lines:
        return ""
    if hides_words(call):
        lines = [[line[0], HIDDEN] for line in lines]
    # A client of the REST face may write commands in any case; their names stand out in capitals.
    shown = "; ".join(
        " ".join([line[0].upper(), *(_word(mask.text(word)) for word in line[1:])])
        for line in lines[:4]
    )
    left = f"; {len(lines) - 4} more" if len(lines) > 4 else ""
    several = f"{call.route}: " if call.route in ("pipeline", "multi-exec") else ""
    return f"{several}{shown}{left}"


def _word(value: str) -> str:
    text = value.replace("\n", "\\n") or '""'
    return text if len(text) <= 32 else f"{text[:29]}..."


def _excerpt(body: bytes | str, mask: Mask) -> str:
    # A credential is taken out before it can be cut in two, when nobody would know it any more.
    text = body[:1000].decode("utf-8", "replace") if isinstance(body, bytes) else body
    return " ".join(mask.text(text)[:300].split())


def _status(call: Call) -> str:
    if call.status is None:
        return call.outcome
    try:
        phrase = HTTPStatus(call.status).phrase
    except ValueError:
        phrase = ""
    ending = "" if call.outcome == "answered" else f" ({call.outcome})"
    return f"{call.status} {phrase}".strip() + ending


def _answer(call: Call, mask: Mask) -> str:
    if call.status is None:
        return call.outcome
    ending = "" if call.outcome == "answered" else f" {call.outcome}"
    body = call.answer if isinstance(call.answer, bytes) else b""
    text = _decoded(body) if call.facts.get("encoding") == "base64" else ""
    return f"{call.status}{ending} {mask.text(text) or _excerpt(body, mask)}".strip()


def _decoded(body: bytes) -> str:
    """An answer whose strings are Base64, as a reader wants it; nothing where it is not so."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    return _printable(json.dumps(_plain(answer), ensure_ascii=False, separators=(",", ":")))


def _printable(text: str) -> str:
    r"""The text with surrogates that stand alone (``"\ud800"``) as JSON writes them.

    Nothing that is written as UTF-8, a page or an event, can hold them.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: each if key == "error" else _plain(each) for key, each in value.items()}
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True).decode("utf-8")
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return value
    return value


def _message(
    first: str, headers: Sequence[tuple[str, str]], body: bytes | str | Any, mask: Mask
) -> str:
    lines = [first]
    lines += [f"{name}: {mask.header(name, value)}" for name, value in headers]
    if isinstance(body, bytes | str) and body:
        lines += ["", _pretty(body, mask) if isinstance(body, bytes) else mask.text(body)]
    return "\n".join(lines)


def _pretty(body: bytes, mask: Mask) -> str:
    try:
        return mask.text(_printable(json.dumps(json.loads(body), indent=2, ensure_ascii=False)))
    except (ValueError, RecursionError):
        # As with an excerpt: first hidden, then cut.
        text = mask.text(body[:21_000].decode("utf-8", "replace"))[:20_000]
        return text if len(body) <= 20_000 else f"{text}\n… {len(body) - 20_000} more bytes"


# -- credentials -----------------------------------------------------------------------------------


def refused(cloud: Fakes, *, every_call: bool = False) -> Iterator[tuple[Handle, str]]:
    """The handles that answered 401, each with a sentence on why.

    ``every_call`` gives only those that answered nothing else.
    """
    for handle in cloud.handles:
        calls = handle.journal.calls()
        wrong = [call for call in calls if call.status == 401 and call.fault is None]
        if not wrong or (every_call and len(wrong) < len(calls)):
            continue
        why = dict.fromkeys(_credentials(call, cloud, handle) for call in wrong)
        yield (
            handle,
            f"{handle.name} answered 401 to {len(wrong)} of {len(calls)} call(s): "
            + "; ".join(why),
        )


def _credentials(call: Call, cloud: Fakes, refusing: Handle) -> str:
    given = call.header("Authorization")
    if given is None:
        return "no credentials came with it" if "_token=" not in call.target else "a wrong _token"
    for handle in cloud.handles:
        if handle is not refusing and handle.headers.get("Authorization") == given:
            return f"the credentials are those of {handle.name}"
    return f"the credentials are not {refusing.name}'s"


# -- as text ---------------------------------------------------------------------------------------


def section(cloud: Fakes, *, link: str = "") -> str:
    """The section a failing test gets: 80 columns, newest last; ``link`` names a longer report."""
    now = cloud.clock.now()
    lines = [
        f"seed {cloud.seed!r}",
        f"clock {cloud.clock.mode} at {now:%Y-%m-%d %H:%M:%S}.{now.microsecond // 1000:03} UTC",
    ]
    lines += [f"{handle.name} at {handle.url}" for handle in cloud.handles]
    lines += [f"{name} at {url}, closed" for name, (_, url) in cloud.gone.homes.items()]
    if link:
        lines.append(f"timeline: {link}")
    lines.append("")
    every = rows(cloud)
    if not every:
        lines.append("no client has called")
    if len(every) > NEWEST:
        lines.append(f"... {len(every) - NEWEST} earlier entries left out")
    day = None
    for row, times in _folded(every[-NEWEST:]):
        at = to_datetime(row.at_us)
        if at.date() != day:
            day = at.date()
            lines.append(f"-- {day} --")
        lines += _lines(_visible(row), times)
    ends = findings(cloud)
    if ends:
        lines.append("")
    for text, _ in ends:
        lines += _wrapped(text.translate(_CONTROLS), "    ")
    return _printable("\n".join(lines))


def findings(cloud: Fakes) -> list[tuple[str, str]]:
    """What a strict test would fail for, and who was refused: a line each, and what follows it."""
    mask = Mask(cloud)
    found: list[tuple[str, str]] = []
    with telling("[problems] they cannot be told", lambda line: found.append((line, ""))):
        for problem in cloud.problems:
            first, _, rest = problem.text.partition("\n")
            found.append((f"[{problem.kind}] {first}", rest))
    found += [(f"[credentials] {why}", "") for _, why in refused(cloud)]
    return [(mask.text(first), mask.text(rest)) for first, rest in found]


def _folded(every: list[Row]) -> list[tuple[Row, int]]:
    """Runs of rows that read the same, as one row and its count."""

    def face(row: Row) -> tuple[object, ...]:
        return (row.source, row.target, row.what, row.detail, row.answer, row.fault, row.note)

    folded = []
    for _, group in itertools.groupby(every, key=face):
        same = list(group)
        folded.append((same[0], len(same)))
    return folded


def _visible(row: Row) -> Row:
    """The row with what a terminal would obey as escapes."""
    return replace(
        row,
        what=row.what.translate(_CONTROLS),
        answer=row.answer.translate(_CONTROLS),
        detail=row.detail.translate(_CONTROLS),
        fault=row.fault.translate(_CONTROLS),
        note=row.note.translate(_CONTROLS),
    )


def _lines(row: Row, times: int) -> list[str]:
    at = to_datetime(row.at_us)
    stamp = f"{at:%H:%M:%S}.{at.microsecond // 1000:03}"
    count = f" (x{times})" if times > 1 else ""
    indent = " " * 15
    if row.source == row.target:
        return _wrapped(f"{stamp} * {row.source} {row.what}{count}", indent, LINES_OF_A_TEXT)
    # An arrow names both ends, unless it comes from the client, as most do.
    ends = f"--> {row.target}" if row.source == CLIENT else f"{row.source} --> {row.target}"
    if "://" in row.target:
        ends = f"{row.source} -->"
    head = f"{stamp} {ends} {row.what}{count}"
    if row.detail and len(head) < WIDTH - 12:
        head = _cut(f"{head} {row.detail}", WIDTH)
    answer = f"<-- {row.answer}" if row.answer else ""
    lines = [_cut(head, WIDTH)]
    if answer and len(head) + 1 + len(answer) <= WIDTH:
        lines = [f"{head} {answer}"]
    elif answer:
        lines.append(_cut(indent + answer, WIDTH))
    if row.fault:
        lines += _wrapped(f"{indent}fault: {row.fault}", indent, LINES_OF_A_TEXT)
    if row.note:
        lines += _wrapped(f"{indent}note: {row.note}", indent, LINES_OF_A_TEXT)
    return lines


def _wrapped(text: str, indent: str, most: int | None = None) -> list[str]:
    lead = text[: len(text) - len(text.lstrip())]
    return textwrap.wrap(
        text.strip(),
        WIDTH,
        initial_indent=lead,
        subsequent_indent=indent,
        max_lines=most,
        placeholder=" ...",
        # What is there to be copied stays in one piece.
        break_long_words=most is not None,
        break_on_hyphens=False,
    )


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
