"""Endpoints for bulk actions, the records of requests that selected messages or runs by filters."""

from __future__ import annotations

from functools import partial

from ...http.messages import Request
from ..engine.bulk_actions import Source
from ..engine.engine import Engine
from ..errors import QueueError
from ..wire import records
from ..wire.values import without_none
from .requests import query_of
from .routing import QueueRoute

_ACTION_STATES = ("IN_PROGRESS", "FINISHED")


def list_bulk_actions(engine: Engine, request: Request, *, source: Source = "qstash") -> object:
    chosen = records.read_filters(
        query_of(request), frozenset({"count", "cursor", "state"}), 1000, states=_ACTION_STATES
    )
    states = chosen.fields.get("state", _ACTION_STATES)
    actions = [action for action in engine.bulk_actions.recent(source) if action.state in states]
    rows, cursor = records.page(actions, lambda action: action.number, chosen, latest_first=True)
    return {"bulkActions": [records.bulk_action_record(action) for action in rows]} | without_none(
        cursor=cursor
    )


def get_bulk_action(engine: Engine, request: Request, *, source: Source = "qstash") -> object:
    action_id = request.segment("id")
    action = next(
        (action for action in engine.bulk_actions.recent(source) if action.id == action_id), None
    )
    if action is None:
        raise QueueError(404, "Bulk action not found")
    return records.bulk_action_record(action)


ROUTES = [
    QueueRoute("GET", "/v2/bulkActions", "list_bulk_actions", list_bulk_actions),
    QueueRoute("GET", "/v2/bulkActions/{id}", "get_bulk_action", get_bulk_action),
    QueueRoute(
        "GET",
        "/v2/workflows/bulkActions",
        "list_workflow_bulk_actions",
        partial(list_bulk_actions, source="workflow"),
    ),
    QueueRoute(
        "GET",
        "/v2/workflows/bulkActions/{id}",
        "get_workflow_bulk_action",
        partial(get_bulk_action, source="workflow"),
    ),
]
