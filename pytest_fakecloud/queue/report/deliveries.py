"""The deliveries of queues: what they read and write, and who received them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...core.calls import Call, Entry, Event
from ...core.hosts import parts_of_url
from ...reporting.accesses import DataAccess, ReportSubject
from ...reporting.lookups import Lookups
from ...reporting.model import Delivery, ReportRow
from ..delivery.routes import AsgiRoute, FunctionRoute, WsgiRoute, parts_of
from ..fake import Queue
from .accesses import CALLBACK, MESSAGE, RUN, of_event
from .steps import sent_steps

_MESSAGE_HEADER = "Upstash-Message-Id"
"""The header of a delivery that has the ID of its message."""


def accesses(row: ReportRow, delivery: Delivery, lookups: Lookups) -> Iterator[DataAccess]:
    fake = delivery.event.fake
    yield from of_event(delivery.event, lookups)
    yield DataAccess(ReportSubject(MESSAGE, delivery.message_id, fake), True, "", row.ok or None)
    # The destination reads the body of the message, and that of the message that a callback is about.
    read = [delivery.about or delivery.message_id]
    if delivery.run:
        exchange = lookups.exchanges.get(delivery.began)
        sent = str(delivery.event.data.get("sent") or "")
        body = exchange.body.decode("utf-8", "replace") if exchange else sent
        read = [message_id for message_id, _ in sent_steps(body)] or read
        yield DataAccess(ReportSubject(RUN, delivery.run, fake), True)
    for message_id in read:
        yield DataAccess(ReportSubject(MESSAGE, message_id, fake), False)
    if delivery.kind != "message":
        # A capture has the name of the fake that received the callback.
        callback = ReportSubject(CALLBACK, row.peer, row.peer)
        yield DataAccess(callback, True, lookups.short(read[0]), row.ok or None)


def received(entries: Iterable[Entry]) -> dict[int, Event]:
    """Return the events of the deliveries that fakes of the cloud received, by the call's number."""
    waiting: dict[tuple[str | None, str], list[Call]] = {}
    delivered: dict[int, Event] = {}
    for entry in entries:
        if isinstance(entry, Call):
            message_id = entry.request_headers.get(_MESSAGE_HEADER)
            if message_id is not None:
                waiting.setdefault((message_id, entry.target), []).append(entry)
        elif entry.kind == "attempt":
            parts = parts_of_url(str(entry.data.get("url", "")))
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            if calls := waiting.get((entry.data.get("message_id"), target)):
                delivered[calls.pop().number] = entry
    return delivered


def handlers(fake: Queue, rows: Sequence[ReportRow]) -> Iterator[tuple[list[object], list[int]]]:
    """Yield the functions of the application that serve each destination, and the numbers of the rows of
    the deliveries to it.
    """
    for route in fake.destinations.routes():
        if isinstance(route, FunctionRoute | WsgiRoute | AsgiRoute):
            message_ids = {delivery.message_id for delivery in route.deliveries}
            numbers = [row.number for row in rows if row.source.delivery is not None
                       and row.source.delivery.message_id in message_ids]  # fmt: skip
            yield [*_views(parts_of(route).to)], numbers


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
