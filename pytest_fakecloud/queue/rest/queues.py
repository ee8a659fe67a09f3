"""Endpoints for queues."""

from __future__ import annotations

from ...http.messages import Request
from ..engine.engine import Engine
from ..wire import records
from ..wire.values import check_name
from .requests import field_of, json_object, number_of
from .routing import QueueRoute


def list_queues(engine: Engine, request: Request) -> object:
    return [records.queue_record(engine, queue) for queue in engine.queues.by_name.values()]


def upsert_queue(engine: Engine, request: Request) -> None:
    body = json_object(request)
    name = field_of(body, "queue", "queueName", str, required=True)
    parallelism = number_of(body, "queue", "parallelism", least=1)
    paused = field_of(body, "queue", "paused", bool)
    engine.queues.upsert(name, parallelism=parallelism, paused=paused)


def get_queue(engine: Engine, request: Request) -> object:
    return records.queue_record(engine, engine.queues.get(_queue_name(request)))


def delete_queue(engine: Engine, request: Request) -> None:
    # The deletion of an unknown queue succeeds, and so does that of a name that no queue can have.
    engine.lifecycle.delete_queue(request.segment("name"))


def pause_queue(engine: Engine, request: Request) -> None:
    engine.queues.set_paused(_queue_name(request), True)


def resume_queue(engine: Engine, request: Request) -> None:
    engine.queues.set_paused(_queue_name(request), False)


def _queue_name(request: Request) -> str:
    return check_name(request.segment("name"), "queue name")


ROUTES = [
    QueueRoute("GET", "/v2/queues", "list_queues", list_queues),
    QueueRoute("POST", "/v2/queues", "upsert_queue", upsert_queue),
    QueueRoute("GET", "/v2/queues/{name}", "get_queue", get_queue),
    QueueRoute("DELETE", "/v2/queues/{name}", "delete_queue", delete_queue),
    QueueRoute("POST", "/v2/queues/{name}/pause", "pause_queue", pause_queue),
    QueueRoute("POST", "/v2/queues/{name}/resume", "resume_queue", resume_queue),
]
