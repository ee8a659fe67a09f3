"""Endpoints for the log of what happened to messages."""

from __future__ import annotations

from ...http.messages import Request
from ..wire import records
from ..wire.values import without_none
from .family import QueueRoute, RouteFamily
from .requests import query_of

_MAX_LOGS = 1000
"""Default and maximum size of a page of logs, as the Python client documents it and as the Go client's
tests observe it. (The vendor's OpenAPI file says 100.)
"""


class LogRoutes(RouteFamily):
    """Endpoints that list the entries of the log, which the API also calls events."""

    @classmethod
    def routes(cls) -> list[QueueRoute]:
        return [
            cls.route("GET", "/v2/events", "list_events", cls.list_logs),
            cls.route("GET", "/v2/logs", "list_logs", cls.list_logs),
        ]

    def list_logs(self, request: Request) -> object:
        chosen = records.read_filters(query_of(request), records.FOR_LOGS, most=_MAX_LOGS)
        entries, cursor = self.engine.log_page(chosen, _MAX_LOGS)
        messages, no_answer = self.engine.messages, self.engine.settings.no_answer_status
        events = [
            records.log_record(entry, messages[entry.message_id], no_answer) for entry in entries
        ]
        logs = {"logs": events} if request.route == "list_logs" else {}
        return logs | {"events": events} | without_none(cursor=cursor)
