"""The messages, schedules, runs and callbacks that the entries of a journal read and wrote."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from ...core.calls import Action, Arguments, Call, Event
from ...core.errors import ContractError
from ...http.routing import RouteTable
from ...reporting.calls import Lookups, error_of, has_full_answer
from ...reporting.model import DataAccess, ReportRow, ReportSubject, Sought
from ...reporting.values import compact, items_of, parsed, readable, shortened, shortened_json
from ..delivery.routes import FunctionRoute
from ..rest.app import PUBLISHING, QueueApp
from .wording import attempt_summary, callback_report, sent_steps, summary

_LONGEST = 280
"""Maximum length of the description of a request, in characters: with its callbacks."""
_CREATED = {"messageId": "message", "scheduleId": "schedule", "workflowRunId": "run"}
_ROUTES = RouteTable(QueueApp.routes())


def accesses(row: ReportRow, lookups: Lookups) -> Iterator[DataAccess]:
    """Yield the accesses of a request to a queue, of a delivery, or of an action of the test."""
    if row.delivery is not None:
        yield from _of_delivery(row, row.delivery, lookups)
    elif isinstance(row.entry, Action):
        message_id = row.entry.data.get("message_id")
        positional, _ = row.entry.call or ((), {})
        if row.entry.kind.startswith("message."):
            message_id = str(positional[0])
        if message_id:
            subject = ReportSubject("message", str(message_id), row.entry.fake)
            what = f"{row.entry.kind} {shortened(' '.join(row.words), 100)}"
            yield DataAccess(subject, True, what.strip(), value=list(row.words))
    elif isinstance(row.entry, Call) and row.entry.service == "queue":
        yield from _of_call(row.entry, lookups)


def _of_call(call: Call, lookups: Lookups) -> Iterator[DataAccess]:
    writes = _ROUTES.writes(call.method, call.path)
    words = summary(call, lookups)
    what = f"{call.method} {call.path}" if words is None else words.what
    value = parsed(call.request_body) if call.request_body else None
    is_created = False
    for item in items_of(call.response_body) if has_full_answer(call) else ():
        for name, kind in _CREATED.items():
            if isinstance(item.get(name), str):
                is_created = True
                subject = ReportSubject(kind, item[name], call.fake)
                result = f"{kind} {lookups.short(item[name])}"
                result += " (deduplicated)" if item.get("deduplicated") else ""
                yield DataAccess(subject, writes, shortened(what, _LONGEST), result, value=value)
    if is_created:
        return
    if call.number in lookups.created_by_lost_call:
        message_id = lookups.created_by_lost_call[call.number]
        subject = ReportSubject("message", message_id, call.fake)
        result = f"{lookups.short(message_id)}, {call.outcome}"
        yield DataAccess(
            subject, True, shortened(what, _LONGEST), result, value=value, succeeded=None
        )
    elif call.route in PUBLISHING:
        status, text = error_of(call)
        result = shortened(f"{status} {text}".strip() or call.outcome, 120)
        is_known = call.fault is None or not call.reached
        subject = ReportSubject("message", "", call.fake)
        succeeded = False if is_known else None
        yield DataAccess(
            subject, True, shortened(what, _LONGEST), result, value=value, succeeded=succeeded
        )
    elif writes and "/messages/" in call.path and "id" in call.facts:
        subject = ReportSubject("message", str(call.facts["id"]), call.fake)
        result, succeeded = _outcome(call)
        yield DataAccess(subject, True, what, result, succeeded=succeeded)


def _outcome(call: Call) -> tuple[str, bool | None]:
    """Return the answer to a request that changes an existing message, and whether it changed it."""
    if has_full_answer(call):
        return call.response_body.decode("utf-8", "replace"), True
    status, text = error_of(call)
    result = shortened(f"{status} {text}".strip() or call.outcome, 120)
    return result, False if status and call.fault is None else None


def _of_delivery(row: ReportRow, event: Event, lookups: Lookups) -> Iterator[DataAccess]:
    data = event.data
    words = attempt_summary(row, row, lookups) if "url" in data else None
    what = (
        f"delivery of {lookups.short(data.get('message_id', ''))}" if words is None else words.what
    )
    result = str(row.status or data.get("error") or "no answer") if words is None else words.answer
    raised = [words.note] if words is not None and words.note else data.get("logged") or ()
    if raised:
        result = shortened(f"{result}, {raised[0]}", 300)
    exchange = lookups.attempts.get(data.get("began") or 0)
    body = exchange.body if exchange is not None else str(data.get("sent") or "").encode()
    value = callback_report(body) or parsed(body) or body.decode("utf-8", "replace")
    message = ReportSubject("message", str(data.get("message_id")), event.fake)
    yield DataAccess(message, True, what, result, value=value, succeeded=row.ok or None)
    # The destination reads the body of the message, and that of the message that a callback is about.
    about = str(data.get("about") or data.get("message_id"))
    sent = shortened_json(lookups.mask.text(_sent(body)), 160)
    reads: list[tuple[str, str, Any]] = [(about, sent, value)]
    if data.get("run"):
        reads = list(sent_steps(body.decode("utf-8", "replace"))) or reads
    for message_id, text, content in reads:
        subject = ReportSubject("message", message_id, event.fake)
        yield DataAccess(subject, False, what, text, value=content)
    if data.get("run"):
        yield DataAccess(ReportSubject("run", str(data["run"]), event.fake), True, what, result)
    if data.get("message_kind", "message") != "message":
        # A capture has the name of the fake that received the callback.
        subject = ReportSubject("callback", row.peer, row.peer)
        yield DataAccess(subject, True, what, result, lookups.short(about), value, row.ok or None)


def _sent(body: bytes) -> str:
    """Return the body of a delivery; of a callback, what it reports."""
    report = callback_report(body)
    if report is None:
        return readable(body.decode("utf-8", "replace"))
    names = {"status": "status", "body": "answered", "sourceBody": "published"}
    fields = {label: report.get(name) for name, label in names.items()}
    return ", ".join(f"{label} {compact(value)}" for label, value in fields.items() if value)


def sought(fake: Any, method: str, arguments: Arguments) -> list[Sought]:
    """Return the data that a method of the fake looked at: the messages that it returns now, all
    messages if it returns none.
    """
    if method.endswith(("callback", "callbacks", "failure", "failures")):
        return [Sought(ReportSubject("callback", fake.name, fake.name))]
    positional, named = arguments
    ids: list[str] = []
    kind = "schedule" if method == "schedules" else "message"
    with suppress(ContractError):  # such as a message that does not exist
        if method.startswith("assert_"):
            url = {"url": positional[0]} if positional and positional[0] is not None else {}
            fields = {
                name: value for name, value in named.items() if name not in ("times", "within")
            }
            views = [*fake.messages(**url, **fields)]
        elif method == "deliveries":
            routes = fake.destinations.routes()
            views = [delivery for route in routes if route.prefix == positional[0]
                     for delivery in route.deliveries]  # fmt: skip
        elif method == "message":
            views = [fake.message(*positional, **named)]
        else:
            views = [*getattr(fake, method)(*positional, **named)]
        views = [getattr(view, "message", view) for view in views]  # that of a dead letter
        ids = [getattr(view, "message_id", None) or view.id for view in views]
    names = list(dict.fromkeys(ids)) or ["*"]
    return [Sought(ReportSubject(kind, name, fake.name)) for name in names]


def handlers(fake: Any) -> Iterator[tuple[object, set[str]]]:
    """Yield each function that is a destination, and the ids of the messages that it received."""
    for route in fake.destinations.routes():
        if isinstance(route, FunctionRoute):
            yield route._to, {received.message_id for received in route.deliveries}


def unsent(fake: Any) -> Iterator[tuple[str, set[str]]]:
    """Yield the URL of each destination that received nothing, and the ids of the messages that another
    one of the same host received.
    """
    routes = list(fake.destinations.routes())
    served = {
        urlsplit(route.prefix).netloc: {received.message_id for received in route.deliveries}
        for route in routes
        if route.deliveries
    }
    for route in routes:
        host = urlsplit(route.prefix).netloc
        if not route.deliveries and host in served:
            yield route.prefix, served[host]
