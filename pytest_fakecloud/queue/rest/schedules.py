"""Endpoints for schedules. Their creation is a publish request."""

from __future__ import annotations

from ...http.messages import Json, Request
from ..engine.engine import Engine
from ..wire import records
from .messages import publish
from .routing import QueueRoute

SCHEDULES = ("/v2/schedules", "/v2/Schedules")
"""The vendor's documentation spells this path in both ways."""


def create_schedule(engine: Engine, request: Request) -> Json:
    return publish(engine, request, schedule_only=True)


def list_schedules(engine: Engine, request: Request) -> object:
    return [records.schedule_record(engine, schedule_id) for schedule_id in engine.schedules.by_id]


def get_schedule(engine: Engine, request: Request) -> object:
    return records.schedule_record(engine, request.segment("id"))


def delete_schedule(engine: Engine, request: Request) -> None:
    engine.schedules.delete(request.segment("id"))


def pause_schedule(engine: Engine, request: Request) -> None:
    engine.schedules.set_paused(request.segment("id"), True)


def resume_schedule(engine: Engine, request: Request) -> None:
    engine.schedules.set_paused(request.segment("id"), False)


def _routes_at(base: str) -> list[QueueRoute]:
    return [
        QueueRoute(
            "POST", f"{base}/{{destination*}}", "create_schedule", create_schedule, schedules=True
        ),
        QueueRoute("GET", base, "list_schedules", list_schedules),
        QueueRoute("PATCH POST", f"{base}/{{id}}/pause", "pause_schedule", pause_schedule),
        QueueRoute("PATCH POST", f"{base}/{{id}}/resume", "resume_schedule", resume_schedule),
        QueueRoute("GET", f"{base}/{{id}}", "get_schedule", get_schedule),
        QueueRoute("DELETE", f"{base}/{{id}}", "delete_schedule", delete_schedule),
    ]


ROUTES = [route for base in SCHEDULES for route in _routes_at(base)]
