"""What happened on all fakes of a cloud, as rows on one clock, and as text for a failing test."""

from __future__ import annotations

import itertools
import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from .kernel.instants import to_datetime
from .kernel.journal import Call, Entry, Event

if TYPE_CHECKING:
    from .cloud import Cloud

__all__ = ["CLIENT", "Mask", "Row", "rows", "section"]

WIDTH = 80
NEWEST = 60
CLIENT = "client"
"""The lane of whoever calls the fakes."""
_SECRET_HEADERS = frozenset({"authorization", "cookie", "set-cookie", "upstash-signature"})
_SECRET_QUERIES = frozenset({"_token", "qstash_token", "pass"})


class Mask:
    """Takes the cloud's credentials out of texts that leave the process."""

    _NAMES = (
        "token", "read_only_token", "password", "current_signing_key", "next_signing_key",
    )  # fmt: skip

    def __init__(self, cloud: Cloud) -> None:
        found = {
            secret
            for handle in cloud.handles
            for name in self._NAMES
            if isinstance(secret := getattr(handle, name, None), str) and len(secret) >= 8
        }
        self._secrets = sorted(found, key=len, reverse=True)

    def text(self, text: str) -> str:
        """The text with every known credential replaced."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def header(self, name: str, value: str) -> str:
        """A header's value, hidden when its name says that it is secret."""
        return "***" if name.lower() in _SECRET_HEADERS else self.text(value)

    def target(self, target: str) -> str:
        """A request target without the credentials in its query."""
        path, mark, query = target.partition("?")
        parts = [
            f"{part.partition('=')[0]}=***" if part.partition("=")[0] in _SECRET_QUERIES else part
            for part in query.split("&")
        ]
        return self.text(path + mark + "&".join(parts))


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that happened: an arrow from a lane to another, or a note in one lane.

    ``what`` names it in a few words, ``answer`` what came back (empty for notes), ``fault`` what was
    done on purpose, ``note`` a diagnosis; ``sent`` and ``got`` are the whole texts of both ways.
    """

    number: int
    at_us: int
    source: str
    target: str
    what: str
    answer: str
    ok: bool
    fault: str = ""
    note: str = ""
    sent: str = ""
    got: str = ""


def rows(cloud: Cloud, entries: Iterable[Entry] | None = None) -> list[Row]:
    """The journal of a cloud as rows, secrets masked."""
    mask = Mask(cloud)
    source = cloud.journal.entries if entries is None else entries
    return [
        _call_row(entry, mask) if isinstance(entry, Call) else _event_row(entry, mask)
        for entry in source
    ]


def _call_row(call: Call, mask: Mask) -> Row:
    return Row(
        call.number,
        call.at_us,
        CLIENT,
        call.handle,
        mask.text(_what(call, mask)),
        _answer(call, mask),
        call.status is not None and call.status < 400 and call.outcome == "answered",
        call.fault or "",
        "" if call.problem == "bug" else call.note,
        _message(f"{call.method} {mask.target(call.target)}", call.headers, call.body, mask),
        _message(_status(call), call.answer_headers, call.answer, mask),
    )


def _event_row(event: Event, mask: Mask) -> Row:
    data = {key: value for key, value in event.data.items() if value is not None}
    url = data.get("url")
    target = str(url) if event.kind == "attempt" and url else event.handle
    return Row(
        event.number,
        event.at_us,
        event.handle,
        mask.text(target),
        f"{event.kind}: {mask.text(event.text)}",
        "",
        bool(data.get("ok", True)),
        str(data.get("fault", "") or ""),
        "",
        mask.text(json.dumps(data, indent=2, default=str, ensure_ascii=False)) if data else "",
        "",
    )


def _what(call: Call, mask: Mask) -> str:
    command = call.facts.get("command")
    if isinstance(command, list) and command:
        if all(isinstance(word, list) for word in command):
            shown = "; ".join(" ".join(map(_word, one)) for one in command[:3])
            return f"{call.route} {shown}{' …' if len(command) > 3 else ''}"
        return " ".join(map(_word, command))
    if isinstance(command, str):
        return f"{command} {mask.target(call.target)}"
    return f"{call.method} {mask.target(call.target)}"


def _word(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    text = text.replace("\n", "\\n")
    return text if len(text) <= 24 else f"{text[:21]}..."


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
    body = mask.text(call.answer[:200].decode("utf-8", "replace")).replace("\n", " ")
    return f"{call.status}{ending} {body}".strip()


def _message(first: str, headers: Sequence[tuple[str, str]], body: bytes | Any, mask: Mask) -> str:
    lines = [first]
    lines += [f"{name}: {mask.header(name, value)}" for name, value in headers]
    if isinstance(body, bytes) and body:
        lines += ["", mask.text(_pretty(body))]
    return "\n".join(lines)


def _pretty(body: bytes) -> str:
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = body[:20_000].decode("utf-8", "replace")
        return text if len(body) <= 20_000 else f"{text}\n… {len(body) - 20_000} more bytes"


# -- as text ---------------------------------------------------------------------------------------


def section(cloud: Cloud, *, link: str = "") -> str:
    """The section a failing test gets: 80 columns, newest last; ``link`` names a longer report."""
    now = cloud.clock.now()
    lines = [
        f"seed {cloud.seed!r}",
        f"clock {cloud.clock.mode} at {now:%Y-%m-%d %H:%M:%S}.{now.microsecond // 1000:03} UTC",
    ]
    lines += [f"{handle.name} at {handle.url}" for handle in cloud.handles]
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
        lines += _lines(row, times)
    problems = list(cloud.problems)
    if problems:
        lines.append("")
    for problem in problems:
        lines += textwrap.wrap(
            f"[{problem.kind}] {problem.text.splitlines()[0]}",
            WIDTH,
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def _folded(every: list[Row]) -> list[tuple[Row, int]]:
    """Runs of rows that read the same, as one row and its count."""

    def face(row: Row) -> tuple[object, ...]:
        return (row.source, row.target, row.what, row.answer, row.fault, row.note)

    folded = []
    for _, group in itertools.groupby(every, key=face):
        same = list(group)
        folded.append((same[0], len(same)))
    return folded


def _lines(row: Row, times: int) -> list[str]:
    at = to_datetime(row.at_us)
    stamp = f"{at:%H:%M:%S}.{at.microsecond // 1000:03}"
    arrow = "-->" if row.source == CLIENT else "==>" if row.source != row.target else " * "
    name = row.target if row.source == CLIENT else row.source
    count = f" (x{times})" if times > 1 else ""
    head = f"{stamp} {arrow} {name}: {row.what}{count}"
    lines = [_cut(head, WIDTH)]
    indent = " " * 17
    answer = f"<-- {row.answer}" if row.answer else ""
    if answer and len(head) + 1 + len(answer) <= WIDTH:
        lines = [f"{head} {answer}"]
    elif answer:
        lines.append(_cut(indent + answer, WIDTH))
    if row.fault:
        lines.append(_cut(f"{indent}fault: {row.fault}", WIDTH))
    if row.note:
        lines.append(_cut(f"{indent}note: {row.note}", WIDTH))
    return lines


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
