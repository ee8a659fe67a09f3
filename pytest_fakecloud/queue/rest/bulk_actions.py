"""Endpoints for bulk actions, the records of requests that selected messages or runs by filters."""

from __future__ import annotations

from ...http.messages import Request
from ..engine.bulk_actions import BulkAction, Source
from ..errors import QueueError
from ..wire import records
from ..wire.values import without_none
from .family import QueueRoute, RouteFamily
from .requests import query_of

_ACTION_STATES = ("IN_PROGRESS", "FINISHED")


class BulkActionRoutes(RouteFamily):
    """Endpoints that list and show bulk actions of messages and of workflow runs."""

    @classmethod
    def routes(cls) -> list[QueueRoute]:
        workflow = "/v2/workflows/bulkActions"
        return [
            cls.route("GET", "/v2/bulkActions", "list_bulk_actions", cls.list_bulk_actions),
            cls.route("GET", "/v2/bulkActions/{id}", "get_bulk_action", cls.get_bulk_action),
            cls.route("GET", workflow, "list_workflow_bulk_actions", cls.list_bulk_actions),
            cls.route("GET", f"{workflow}/{{id}}", "get_workflow_bulk_action", cls.get_bulk_action),
        ]

    def list_bulk_actions(self, request: Request) -> object:
        chosen = records.read_filters(
            query_of(request), frozenset({"count", "cursor", "state"}), 1000, states=_ACTION_STATES
        )
        states = chosen.fields.get("state", _ACTION_STATES)
        actions = [action for action in self._actions(request) if action.state in states]
        rows, cursor = records.page(
            actions, lambda action: action.number, chosen, latest_first=True
        )
        return {"bulkActions": [action.record() for action in rows]} | without_none(cursor=cursor)

    def get_bulk_action(self, request: Request) -> object:
        action_id = request.segment("id")
        action = next((action for action in self._actions(request) if action.id == action_id), None)
        if action is None:
            raise QueueError(404, "Bulk action not found")
        return action.record()

    def _actions(self, request: Request) -> list[BulkAction]:
        source: Source = "workflow" if "workflow" in (request.route or "") else "qstash"
        return self.engine.bulk_actions.recent(source)
