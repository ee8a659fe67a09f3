"""The messages, schedules, runs and callbacks that the entries of a journal read and wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from ...core.calls import Action, Arguments, Call, Entry, Event
from ...core.errors import ContractError
from ...http.routing import RouteTable
from ...reporting.calls import changed_items, has_full_answer, success_of
from ...reporting.lookups import Lookups
from ...reporting.model import DataAccess, ReportRow, ReportSubject, Sought, SubjectKind
from ...reporting.values import items_of, parsed
from ..delivery.routes import AsgiRoute, FunctionRoute, WsgiRoute, parts_of
from ..rest.app import PUBLISHING, QueueApp
from .lookups import QueueLookups, schedule_of
from .steps import sent_steps

_CREATED: Mapping[str, SubjectKind] = {
    "messageId": "message", "scheduleId": "schedule", "workflowRunId": "run"
}  # fmt: skip
_SECTIONS: Mapping[str, SubjectKind] = {
    "messages": "message", "schedules": "schedule", "workflow runs": "run"
}  # fmt: skip
"""What the items of sections of the state are."""
_PATHS: Mapping[str, SubjectKind] = {
    "messages": "message", "queues": "queue", "schedules": "schedule", "runs": "run"
}  # fmt: skip
"""What the parts of paths are that come before an ID or a name, such as ``/v2/schedules/{id}/pause``."""
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
            yield DataAccess(ReportSubject("message", str(message_id), row.entry.fake), True)
    elif isinstance(row.entry, Call) and row.entry.service == "queue":
        yield from _of_call(row.entry, lookups)


def _of_call(call: Call, lookups: Lookups) -> Iterator[DataAccess]:
    writes = _ROUTES.writes(call.method, call.path)
    items = items_of(call.response_body) if has_full_answer(call) else []
    created = [
        DataAccess(ReportSubject(kind, item[name], call.fake), writes, "", not item.get("deduplicated"))
        for item in items for name, kind in _CREATED.items() if isinstance(item.get(name), str)
    ]  # fmt: skip
    yield from created
    if created:
        return
    if message_id := lookups.of(QueueLookups).created_by_lost_call.get(call.number):
        yield DataAccess(ReportSubject("message", message_id, call.fake), True, "", None)
    elif call.route in PUBLISHING:
        is_known = call.fault is None or not call.reached
        succeeded = False if is_known else None
        yield DataAccess(ReportSubject("message", "", call.fake), True, "", succeeded)
    elif call.path.startswith(("/v2/messages", "/v2/dlq")):
        body = parsed(call.request_body) if call.request_body else None
        ids = body.get("messageIds") if isinstance(body, dict) else None
        if "id" in call.facts:
            ids = [call.facts["id"]]
        did_something = all(item.get("cancelled") != 0 for item in items)
        for message_id in ids if isinstance(ids, list) else ["*"] if writes else []:
            subject = ReportSubject("message", str(message_id), call.fake)
            yield DataAccess(subject, writes, "", success_of(call, did_something))


def _of_delivery(row: ReportRow, event: Event, lookups: Lookups) -> Iterator[DataAccess]:
    data = event.data
    message = ReportSubject("message", str(data.get("message_id")), event.fake)
    yield DataAccess(message, True, "", row.ok or None)
    # The destination reads the body of the message, and that of the message that a callback is about.
    read = [str(data.get("about") or data.get("message_id"))]
    if data.get("run"):
        exchange = lookups.attempts.get(data.get("began") or 0)
        body = exchange.body.decode("utf-8", "replace") if exchange else str(data.get("sent") or "")
        read = [message_id for message_id, _ in sent_steps(body)] or read
        yield DataAccess(ReportSubject("run", str(data["run"]), event.fake), True)
    for message_id in read:
        yield DataAccess(ReportSubject("message", message_id, event.fake), False)
    if data.get("message_kind", "message") != "message":
        # A capture has the name of the fake that received the callback.
        callback = ReportSubject("callback", row.peer, row.peer)
        yield DataAccess(callback, True, lookups.short(read[0]), row.ok or None)


def subjects(entry: Entry, lookups: Lookups) -> Iterator[ReportSubject]:
    """Yield the queue and the workflow runs of a request, what it names in its path and what it created;
    the messages, the run and the schedule of a delivery.
    """
    if isinstance(entry, Call):
        yield from _subjects_of_call(entry)
    elif not isinstance(entry, Action):
        yield from _subjects_of_event(entry, lookups)


def _subjects_of_call(call: Call) -> Iterator[ReportSubject]:
    if call.facts.get("queue"):
        yield ReportSubject("queue", str(call.facts["queue"]), call.fake)
    if named := str(call.facts.get("id") or call.facts.get("name") or ""):
        kinds = [_PATHS[part] for part in call.path.split("/") if part in _PATHS]
        for kind in kinds[:1]:
            yield ReportSubject(kind, named, call.fake)
    headers_of_items: list[Any] = [item.get("headers") for item in items_of(call.request_body)]
    for headers in (dict(call.request_headers.pairs), *headers_of_items):
        for name, value in headers.items() if isinstance(headers, dict) else ():
            if name.lower() == "upstash-workflow-runid" and isinstance(value, str):
                yield ReportSubject("run", value, call.fake)
    for item in items_of(call.response_body) if has_full_answer(call) else ():
        for name, kind in _CREATED.items():
            if isinstance(item.get(name), str):
                yield ReportSubject(kind, item[name], call.fake)


def _subjects_of_event(event: Event, lookups: Lookups) -> Iterator[ReportSubject]:
    kinds: tuple[tuple[str, SubjectKind], ...] = (
        ("message_id", "message"), ("about", "message"), ("run", "run")
    )  # fmt: skip
    for name, kind in kinds:
        if isinstance(event.data.get(name), str):
            yield ReportSubject(kind, event.data[name], event.fake)
    if schedule := schedule_of(event, lookups):
        yield ReportSubject("schedule", schedule, event.fake)
    for section, item in changed_items(event):
        if kind_of_items := _SECTIONS.get(section):
            yield ReportSubject(kind_of_items, item, event.fake)


def sought(fake: Any, method: str, arguments: Arguments) -> list[Sought]:
    """Return the data that a method of the fake looked at: the messages that it returns now, all
    messages if it returns none.
    """
    if method.endswith(("callback", "callbacks", "failure", "failures")):
        return [Sought(ReportSubject("callback", fake.name, fake.name))]
    positional, named = arguments
    ids: list[str] = []
    kind: SubjectKind = "schedule" if method == "schedules" else "message"
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


def handlers(fake: Any) -> Iterator[tuple[list[object], set[str]]]:
    """Yield the functions of the application that serve each destination, and the ids of the messages
    that it received.
    """
    for route in fake.destinations.routes():
        if isinstance(route, FunctionRoute | WsgiRoute | AsgiRoute):
            received = {delivery.message_id for delivery in route.deliveries}
            yield [*_views(parts_of(route).to)], received


def _views(app: Any) -> Iterator[object]:
    """Yield a function, or the functions that serve the requests to an application of Flask, Starlette
    or FastAPI.
    """
    views = getattr(app, "view_functions", None)
    if isinstance(views, dict):
        yield from views.values()
        return
    for route in getattr(app, "routes", ()):
        yield from _views(getattr(route, "endpoint", None) or route)
    yield app
    yield vars(type(app)).get("__call__")  # of an object that is called like a function
