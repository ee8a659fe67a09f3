"""Endpoints for the log of what happened to messages."""

from __future__ import annotations

from ...http.messages import Request
from ..engine.engine import Engine
from ..wire import records
from ..wire.values import without_none
from .requests import query_of
from .routing import QueueRoute

_MAX_LOGS = 1000
"""Default and maximum size of a page of logs, as the Python client documents it and as the Go client's
tests observe it. (The vendor's OpenAPI file says 100.)
"""


def list_events(engine: Engine, request: Request) -> dict[str, object]:
    chosen = records.read_filters(query_of(request), records.FOR_LOGS, most=_MAX_LOGS)
    entries, cursor = engine.history.log_page(chosen, _MAX_LOGS)
    messages, no_answer = engine.data.messages, engine.data.settings.no_answer_status
    events = [records.log_record(entry, messages[entry.message_id], no_answer) for entry in entries]
    return {"events": events} | without_none(cursor=cursor)


def list_logs(engine: Engine, request: Request) -> object:
    listed = list_events(engine, request)
    return {"logs": listed["events"]} | listed


ROUTES = [
    QueueRoute("GET", "/v2/events", "list_events", list_events),
    QueueRoute("GET", "/v2/logs", "list_logs", list_logs),
]
