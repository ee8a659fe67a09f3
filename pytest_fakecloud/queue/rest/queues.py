"""Endpoints for queues."""

from __future__ import annotations

from ...http.messages import Request
from ..errors import bad_request
from ..wire import records
from ..wire.values import check_name
from .family import QueueRoute, RouteFamily
from .requests import field_of, json_object


class QueueRoutes(RouteFamily):
    """Endpoints that configure and pause queues."""

    @classmethod
    def routes(cls) -> list[QueueRoute]:
        return [
            cls.route("GET", "/v2/queues", "list_queues", cls.list_queues),
            cls.route("POST", "/v2/queues", "upsert_queue", cls.upsert_queue),
            cls.route("GET", "/v2/queues/{name}", "get_queue", cls.get_queue),
            cls.route("DELETE", "/v2/queues/{name}", "delete_queue", cls.delete_queue),
            cls.route("POST", "/v2/queues/{name}/pause", "pause_queue", cls.set_paused),
            cls.route("POST", "/v2/queues/{name}/resume", "resume_queue", cls.set_paused),
        ]

    def list_queues(self, request: Request) -> object:
        return [records.queue_record(self.engine, name) for name in self.engine.queues]

    def upsert_queue(self, request: Request) -> None:
        body = json_object(request)
        name = field_of(body, "queue", "queueName", str, required=True)
        parallelism = body.get("parallelism")
        if parallelism is not None and (
            isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1
        ):
            raise bad_request("invalid queue: parallelism must be a number of at least 1")
        paused = field_of(body, "queue", "paused", bool)
        self.engine.upsert_queue(name, parallelism=parallelism, paused=paused)

    def get_queue(self, request: Request) -> object:
        return records.queue_record(self.engine, _queue_name(request))

    def delete_queue(self, request: Request) -> None:
        self.engine.delete_queue(request.segment("name"))

    def set_paused(self, request: Request) -> None:
        self.engine.set_queue_paused(_queue_name(request), request.route == "pause_queue")


def _queue_name(request: Request) -> str:
    return check_name(request.segment("name"), "queue name")
