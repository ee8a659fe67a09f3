"""Endpoints for schedules, except their creation, which is publishing."""

from __future__ import annotations

from ...http.messages import Request
from ..wire import records
from .family import QueueRoute, RouteFamily

SCHEDULES = ("/v2/schedules", "/v2/Schedules")
"""The vendor's documentation spells this path in both ways."""


class ScheduleRoutes(RouteFamily):
    """Endpoints that list, pause and delete schedules."""

    @classmethod
    def routes(cls) -> list[QueueRoute]:
        return [
            *(route for base in SCHEDULES for route in cls._at(base)),
            cls.route("GET", "/v1/schedules", "list_schedules_v1", cls.list_schedules),
            cls.route("GET", "/v1/schedules/{id}", "get_schedule_v1", cls.get_schedule),
        ]

    @classmethod
    def _at(cls, base: str) -> list[QueueRoute]:
        return [
            cls.route("GET", base, "list_schedules", cls.list_schedules),
            cls.route("PATCH POST", f"{base}/{{id}}/pause", "pause_schedule", cls.set_paused),
            cls.route("PATCH POST", f"{base}/{{id}}/resume", "resume_schedule", cls.set_paused),
            cls.route("GET", f"{base}/{{id}}", "get_schedule", cls.get_schedule),
            cls.route("DELETE", f"{base}/{{id}}", "delete_schedule", cls.delete_schedule),
        ]

    def list_schedules(self, request: Request) -> object:
        engine = self.engine
        return [
            records.schedule_record(engine, schedule_id) for schedule_id in engine.schedules.by_id
        ]

    def get_schedule(self, request: Request) -> object:
        return records.schedule_record(self.engine, request.segment("id"))

    def delete_schedule(self, request: Request) -> None:
        self.engine.schedules.delete(request.segment("id"))

    def set_paused(self, request: Request) -> None:
        paused = request.route == "pause_schedule"
        self.engine.schedules.set_paused(request.segment("id"), paused)
