"""What happened on all fakes of a cloud, as rows in the order in which one thing caused another."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from ..core.calls import Call, Entry, Event, faults_ended
from ..core.errors import shown, telling
from ..handle import gone_of
from .bodies import compact, decoded, parsed, printable, readable, shortened
from .connections import gathered
from .masking import Mask, hides_words
from .summaries import Scene, Summary, summarise
from .summaries.summary import error_of, taken

if TYPE_CHECKING:
    from ..any_cloud import AnyCloud
    from .applications import Served

__all__ = ["CLIENT", "Row", "parts_of", "rows", "scene_of"]

CLIENT = "client"
"""The lane of whoever calls the fakes."""
APPLICATION = "application"
"""The lane of the application under test, where its own test client asks it."""
_IDS = ("message_id", "about")
EXCERPT = 400
"""The longest body, in characters, that stands in a row."""


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that happened: an arrow from a lane to another, or a note in one lane.

    ``what`` names it in a few words, ``detail`` is more of it where there is room, ``answer`` what
    came back (empty for notes), ``fault`` what was done on purpose, ``note`` a diagnosis, ``below``
    the lines that explain it and ``remarks`` short ones that may share a line; ``sent`` and ``got``
    are the whole texts of both ways. ``began`` is its place among all numbers, ``depth`` how many
    rows it stands below, ``script`` a text that many rows share. ``kind`` is the same for rows of one
    kind, ``consumer`` the group and instance it is of, ``also`` the number of the attempt that a call
    came with, ``attempt`` its count among those of its message (0: no attempt), ``follows`` the
    number of the call that a group's event comes of.
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
    began: int = 0
    depth: int = 0
    below: tuple[str, ...] = ()
    script: tuple[str, str] | None = None
    kind: str = ""
    consumer: tuple[str, str] = ("", "")
    also: int = 0
    remarks: tuple[str, ...] = ()
    attempt: int = 0
    follows: int = 0


def rows(
    cloud: AnyCloud, entries: Iterable[Entry] | None = None, served: Iterable[Served] = ()
) -> list[Row]:
    """The journal of a cloud as rows, secrets masked.

    An attempt that reached one of the cloud's own fakes is one row and not two: what its receiver
    recorded, coming from the queue. A row stands where it began, below what caused it. ``served`` are
    the requests to the application under test: those that went well and called no fake are left out.
    """
    mask = Mask(cloud)
    source = list(cloud.journal.entries if entries is None else entries)
    homes = {url: name for name, (_, url) in gone_of(cloud).homes.items()}
    homes.update((handle.url, handle.name) for handle in cloud.handles)
    attempts = _attempts_of_calls(source)
    received = {id(attempt) for attempt in attempts.values()}
    # Of some entries only, as a console asks for them one by one, nothing is looked up.
    scene = scene_of(cloud if entries is None else None, source)
    scene.gathered = {n: [mask.call(one) for one in of] for n, of in scene.gathered.items()}
    found: list[tuple[Row, int]] = []
    for entry in source:
        if id(entry) in received or entry.number in scene.told:
            continue
        # One entry that cannot be told must not take the others along.
        failures: list[str] = []
        with telling("this entry cannot be told", failures.append):
            if isinstance(entry, Call):
                attempt = attempts.get(id(entry))
                row = _call_row(entry, mask, scene, attempt)
            else:
                attempt = entry
                row = _event_row(entry, mask, homes, scene)
            of_fault = faults_ended(entry) if isinstance(entry, Call) and _runs(entry) else 0
            found.append((row, of_fault or _ended(attempt)))
        for text in map(mask.text, failures):
            lane, number = entry.handle, entry.number
            row = Row(number, entry.at_us, lane, lane, text, "", False, began=number)
            found.append((row, 0))
    found += _served_rows(served, found, source, mask)
    return _below_their_causes(found)


def parts_of(url: str) -> SplitResult:
    """A URL taken apart; all of it is the path where it is none that ``urlsplit`` takes."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", url, "", "")


def scene_of(cloud: AnyCloud | None, entries: Sequence[Entry]) -> Scene:
    """What the summaries may look up in a cloud, if any.

    A handle that cannot be asked has nothing to tell.
    """
    scene = Scene()
    ids: set[str] = set()
    ends: dict[tuple[str, str], list[int]] = {}
    for entry in entries:
        if isinstance(entry, Event) and "message_id" in entry.data:
            ids.update(str(entry.data[name]) for name in _IDS if entry.data.get(name))
    for handle in cloud.handles if cloud is not None else ():
        with telling("", lambda line: None):
            if handle.service == "queue":
                for message in handle.messages():  # type: ignore[attr-defined]
                    ids.add(message.id)
                    scene.published[message.id] = f"{message.created:%H:%M:%S}"
            elif handle.service == "broker":
                for topic in handle.topics():  # type: ignore[attr-defined]
                    view = handle.topic(topic)  # type: ignore[attr-defined]
                    ends[handle.name, topic] = view.end_offsets
    scene.made = _made(cloud, entries)
    if cloud is not None:
        together = gathered(entries)
        scene.gathered, scene.told = together.of, together.told
    scene.ids = _short(ids)
    scene.ends = ends
    return scene


def _made(cloud: AnyCloud | None, entries: Sequence[Entry]) -> dict[int, str]:
    """The message of each publish request whose answer was lost, by the request's number.

    It is the one message of that URL and instant that no answer names; of several none is told.
    """
    calls = [one for one in entries if isinstance(one, Call) and one.service == "queue"]
    lost = [call for call in calls if taken(call)]
    if cloud is None or not lost:
        return {}
    named = b"".join(call.answer for call in calls if call not in lost)
    found = {}
    for handle in cloud.handles:
        if handle.service != "queue":
            continue
        messages = [one for one in handle.messages() if one.id.encode() not in named]  # type: ignore[attr-defined]
        for call in lost:
            alike = [
                one.id
                for one in messages
                if call.handle == handle.name
                and one.url == call.facts.get("url")
                and one.created == call.at
            ]
            if len(alike) == 1:
                found[call.number] = alike[0]
    return found


def _short(ids: Iterable[str]) -> dict[str, str]:
    """Each id by its beginning, as long as all of them need to differ."""
    whole = sorted(ids)
    length = 8
    while length < max(map(len, whole), default=0) and len({one[:length] for one in whole}) < len(
        whole
    ):
        length += 2
    return {one: one[:length] for one in whole}


# -- order -----------------------------------------------------------------------------------------


def _ended(attempt: Event | None) -> int:
    """Up to which number all was caused by this attempt; 0 where nobody knows."""
    if attempt is None or attempt.data.get("alone") is not True:
        return 0
    return attempt.number


def _runs(call: Call) -> bool:
    """Whether a fault ran a function of the test's while the call was served."""
    return any(part.startswith("call ") for part in (call.fault or "").split(", "))


def _below_their_causes(found: list[tuple[Row, int]]) -> list[Row]:
    found.sort(key=lambda one: one[0].began)
    open_until: list[int] = []
    ordered = []
    caller: Row | None = None
    for row, until in found:
        while open_until and open_until[-1] < row.began:
            open_until.pop()
        depth = len(open_until)
        if row.source != row.target:
            caller = row
        elif caller is not None and _follows(row, caller):
            depth += 1
            row = replace(row, follows=caller.number)
        ordered.append(replace(row, depth=depth) if depth else row)
        if until > row.began:
            open_until.append(until)
    for number, (row, below) in enumerate(itertools.pairwise(ordered)):
        if below.depth > row.depth and row.fault.startswith("call ") and "before" in row.fault:
            ordered[number] = replace(
                row, fault=f"{row.fault} it; carried out after the rows below"
            )
    return ordered


_FOLLOWING = {
    "consume": ("join", "rebalance joined"),
    "commit": ("commit",),
    "delete-consumer": ("leave", "rebalance left"),
}
"""What a broker does at once, and only then, because of a call; a rebalance by its reason."""


def _follows(event: Row, call: Row) -> bool:
    """Whether a group did this because one of its own has just called."""
    route = call.kind.split(" ")[1]
    return (
        event.target == call.target
        and event.at_us == call.at_us
        and event.consumer == call.consumer
        and event.kind.partition(" ")[2] in _FOLLOWING.get(route, ())
    )


def _consumer(data: Mapping[str, Any]) -> tuple[str, str]:
    """The group and the instance that a call came from, or that an event is about."""
    who, _, did = str(data.get("reason", "")).rpartition(" ")
    instance = data.get("instance") or (who if did in ("joined", "left") else "")
    return str(data.get("group") or ""), str(instance)


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


# -- calls -----------------------------------------------------------------------------------------


def _call_row(call: Call, mask: Mask, scene: Scene, attempt: Event | None = None) -> Row:
    method = f"{call.method} {mask.target(call)}"
    body = mask.body(call)
    scene.hidden = hides_words(call)
    told = mask.call(call)
    summary = summarise(told, scene)
    what, detail = (summary.what, "") if summary else (method, _excerpt(body, call, mask))
    below = summary.below if summary else ()
    remarks: Iterable[str] = ()
    if attempt is not None:
        what = f"{_attempt(attempt, scene)} {what}"
        # Of a fake that took it, its own row tells what came.
        remarks = _exchange(attempt.data, mask, scene) if "answer" in attempt.data else ()
    ok = call.status is not None and call.status < 400 and call.outcome in ("answered", "streamed")
    return Row(
        call.number,
        call.at_us,
        CLIENT if attempt is None else attempt.handle,
        call.handle,
        mask.text(what),
        mask.text(_answer(told, summary)),
        ok,
        detail,
        call.fault or ("" if attempt is None else str(attempt.data.get("fault") or "")),
        "" if call.problem == "bug" else mask.text(call.note),
        _message(method, call.headers, body, mask),
        _message(_status(call), call.answer_headers, call.answer, mask),
        call.number if attempt is None else min(call.number, _began(attempt)),
        0,
        tuple(map(mask.text, below)),
        (summary.script[0], mask.text(summary.script[1])) if summary and summary.script else None,
        f"{call.handle} {call.route} {_first_word(what) if call.service == 'kv' else ''}",
        _consumer(told.facts),
        0 if attempt is None else attempt.number,
        tuple(map(mask.text, remarks)),
        0 if attempt is None else _count_of(attempt),
    )


def _first_word(what: str) -> str:
    return what.partition(" ")[0]


def _answer(call: Call, summary: Summary | None) -> str:
    if call.status is None:
        return call.outcome
    ending = "" if call.outcome == "answered" else f" {call.outcome}"
    wrong = error_of(call)
    if wrong:
        wrong = shortened(wrong, EXCERPT)
        return f"{wrong.partition(' ')[0]}{ending} {wrong.partition(' ')[2]}".strip()
    if summary is not None and summary.answer:
        return f"{summary.answer}{ending and f' ({call.status}{ending})'}"
    kind = next((v for n, v in call.answer_headers if n.lower() == "content-type"), "")
    return f"{call.status}{ending} {shortened(readable(call.answer, kind), EXCERPT)}".strip()


def _excerpt(body: bytes | str, call: Call, mask: Mask) -> str:
    # A credential is taken out before it can be cut in two, when nobody would know it any more.
    text = mask.text(readable(body[: 10 * EXCERPT], call.header("Content-Type") or ""))
    return shortened(text, EXCERPT)


def _status(call: Call) -> str:
    if call.status is None:
        return call.outcome
    try:
        phrase = HTTPStatus(call.status).phrase
    except ValueError:
        phrase = ""
    ending = "" if call.outcome == "answered" else f" ({call.outcome})"
    return f"{call.status} {phrase}".strip() + ending


# -- events ----------------------------------------------------------------------------------------


def _began(event: Event) -> int:
    began = event.data.get("began")
    return began if isinstance(began, int) else event.number


def _event_row(event: Event, mask: Mask, homes: dict[str, str], scene: Scene) -> Row:
    internal = ("began", "alone")
    data = {k: v for k, v in event.data.items() if v is not None and k not in internal}
    if "sent_headers" in data:
        data["sent_headers"] = [[one, mask.header(one, it)] for one, it in data["sent_headers"]]
    trace = str(data.pop("traceback", ""))
    details = json.dumps(data, indent=2, default=shown, ensure_ascii=False) if data else ""
    details += f"\n\n{trace}" if trace else ""
    target, what, answer, ok = event.handle, f"{event.kind}: {event.text}", "", True
    remarks: tuple[str, ...] = ()
    is_attempt = event.kind == "attempt"
    if is_attempt and "url" in data:
        head, arrow, tail = event.text.rpartition(" -> ")
        parts = parts_of(str(data["url"]))
        origin = f"{parts.scheme}://{parts.netloc}"
        target = homes.get(origin, str(data["url"]))
        method = head.split(" ")[2] if arrow else ""
        what = f"{_attempt(event, scene)} {method} {data['url']}"
        answer = f"{tail} {_answered(data, mask)}".strip() if arrow else ""
        ok = isinstance(data.get("status"), int) and 200 <= data["status"] < 300
        remarks = tuple(map(mask.text, _exchange(data, mask, scene)))
    note = str(data.get("note", "") or "")
    if answer and note.startswith(f"{answer}: "):
        answer, note = note, ""  # which names the error as well
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
        mask.text(note),
        mask.text(printable(details)),
        "",
        _began(event),
        kind=f"{event.handle} {event.kind} {_manner(event)}".strip(),
        consumer=_consumer(event.data) if event.service == "broker" else ("", ""),
        remarks=remarks,
        attempt=_count_of(event) if is_attempt else 0,
    )


def _count_of(attempt: Event) -> int:
    number = attempt.data.get("number")
    return number if isinstance(number, int) else 0


def _manner(event: Event) -> str:
    """What sets events of one kind apart: how a rebalance came about, whether a promise held."""
    if event.kind == "run":
        return {True: "held", None: "undisturbed"}.get(event.data.get("held"), "broken")
    return str(event.data.get("reason", "")).rpartition(" ")[2]


def _attempt(event: Event, scene: Scene) -> str:
    kind = str(event.data.get("message_kind", "message"))
    name = "attempt" if kind == "message" else kind.replace("_", " ")
    about = scene.short(event.data["message_id"]) if "message_id" in event.data else ""
    told = f"{name} {event.data.get('number', '')} {about and f'of {about}'}".strip()
    source = event.data.get("about")
    return f"{told} about {scene.short(source)}" if source else told


def _exchange(data: dict[str, Any], mask: Mask, scene: Scene) -> Iterable[str]:
    """What an attempt that failed was sent, and what was logged meanwhile.

    A body that stands in the row of its publish request is not said again.
    """
    headers = [
        f"{name}: {mask.header(name, value)}" for name, value in data.get("sent_headers", ())
    ]
    named = f"with header{'s' * (len(headers) > 1)} {', '.join(headers)}" if headers else ""
    sent = _callback(data, mask) or _told(data, "sent", mask)
    if data.get("signature"):
        # Each character of what is signed counts.
        whole = mask.text(str(data.get("sent") or ""))
        sent = sent if "\n" in whole else shortened(whole, EXCERPT)
    elif sent == scene.bodies.get(str(data.get("message_id"))):
        sent = ""
    elif not sent and headers:
        sent = "no body"
    if sent or headers:
        yield " ".join(filter(None, ["sent", sent, named]))
    yield from data.get("logged") or ()
    yield from data.get("signature") or ()


def _answered(data: Mapping[str, Any], mask: Mask) -> str:
    """What an attempt that failed was answered; empty where that is no more than its status."""
    if data.get("location"):
        return f"to {mask.text(str(data['location']))}"
    told = _told(data, "answer", mask) if "answer" in data else ""
    try:
        phrase = HTTPStatus(data.get("status") or 0).phrase
    except ValueError:
        phrase = ""
    return "" if told == phrase else told.removeprefix(f"{data.get('status')} ")


def _callback(data: dict[str, Any], mask: Mask) -> str:
    """A callback that was sent, in words, and which of its fields are Base64 on the wire."""
    raw = parsed(mask.text(str(data.get("sent") or "")))
    if not isinstance(raw, dict) or "sourceMessageId" not in raw:
        return ""
    about: dict[str, Any] = decoded(raw)
    fields = [f"status {about.get('status')}"]
    went_well = "answer" not in data
    if went_well and about.get("maxRetries"):
        fields.append(f"retried {about.get('retried')} of {about['maxRetries']}")
    for name in ("body",) if went_well else ("body", "sourceBody"):
        if about.get(name):
            value = about[name] if isinstance(about[name], str) else compact(about[name])
            fields.append(f"{name} Base64 of {shortened(value, EXCERPT // 3)}")
    return ", ".join(fields)


def _told(data: Mapping[str, Any], name: str, mask: Mask) -> str:
    kind = str(data.get(f"{name}_type") or "")
    return shortened(readable(mask.text(str(data.get(name) or "")), kind), EXCERPT)


# -- the application's requests ------------------------------------------------------------------


def _served_rows(
    served: Iterable[Served], told: Sequence[tuple[Row, int]], entries: Sequence[Entry], mask: Mask
) -> list[tuple[Row, int]]:
    deliveries = [(one, until) for one, until in told if one.attempt and until]
    in_background = [
        _began(entry)
        for entry in entries
        if isinstance(entry, Event) and entry.data.get("alone") is False
    ]
    found = []
    for one in served:
        row = _served_row(one, mask)
        # What a queue delivered has its row, whatever framework answered it.
        if any(it.began < one.began < until and _same(it, one) for it, until in deliveries):
            continue
        inside = [each for each, _ in told if one.began < each.began < one.ended]
        if row.ok and not inside:
            continue
        alone = one.alone and not any(one.began < it < one.ended for it in in_background)
        found.append((row, one.ended if alone else 0))
    return found


def _served_row(one: Served, mask: Mask) -> Row:
    answer = "" if one.status is None else str(one.status)
    return Row(
        one.began,
        one.at_us,
        CLIENT,
        APPLICATION,
        mask.text(f"{one.target} ({one.framework})"),
        answer,
        (one.status or 0) < 400 and not one.raised,
        note=mask.text(one.raised),
        sent=mask.text(one.target),
        began=one.began,
        kind=f"{APPLICATION} request",
    )


def _same(delivery: Row, one: Served) -> bool:
    """Whether a request to the application has the path of a delivery."""
    path = one.target.partition(" ")[2].partition("?")[0]
    return any(word.partition("?")[0].endswith(path) for word in delivery.what.split())


# -- whole texts -----------------------------------------------------------------------------------


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
        value = decoded(json.loads(body))
        return mask.text(printable(json.dumps(value, indent=2, ensure_ascii=False)))
    except (ValueError, RecursionError):
        # As with an excerpt: first hidden, then cut.
        text = mask.text(body[:21_000].decode("utf-8", "replace"))[:20_000]
        return text if len(body) <= 20_000 else f"{text}\n… {len(body) - 20_000} more bytes"
