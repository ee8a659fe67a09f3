"""The queue's HTTP app.

Decided here: an empty response to a successful request is an empty JSON object if clients parse it,
otherwise an empty body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, ClassVar

from ...core.field_types import MESSAGE_ID, METHOD, TEXT, URL
from ...core.matching import Field
from ...http.app import App, Instruments
from ...http.messages import Answer, Request, bearer_token, same
from ...http.routing import Route
from .. import errors
from ..engine.engine import Engine
from ..views import DESTINATION, LABEL, NAME
from ..wire.values import as_text, first_setting, read_labels
from . import (
    bulk_actions,
    chat,
    dead_letters,
    flow_control,
    keys,
    logs,
    messages,
    queues,
    schedules,
    url_groups,
    v1,
    workflow_dead_letters,
    workflow_events,
    workflow_runs,
)
from .requests import destination_of
from .routing import QueueRoute
from .workflow_events import HOOKS

_ROUTES = (
    *v1.ROUTES,
    *schedules.ROUTES,
    *queues.ROUTES,
    *url_groups.ROUTES,
    *flow_control.ROUTES,
    *dead_letters.ROUTES,
    *logs.ROUTES,
    *bulk_actions.ROUTES,
    *workflow_runs.ROUTES,
    *workflow_events.ROUTES,
    *workflow_dead_letters.ROUTES,
    *messages.ROUTES,
    *keys.ROUTES,
    *chat.ROUTES,
)
_PARAMETERS = [name for route in _ROUTES for name in route.parameters]


class QueueApp(App):
    """The HTTP app of a queue. ``read_only_token`` authenticates ``GET`` requests only."""

    service = "queue"
    fact_fields: ClassVar[Mapping[str, Field]] = {
        **dict.fromkeys(_PARAMETERS, Field(TEXT)),
        "url": Field(DESTINATION),
        "destination": Field(DESTINATION),
        "label": Field(LABEL, several=True),
        "queue": Field(NAME),
    }
    event_kinds: ClassVar[frozenset[str]] = frozenset(("attempt",))
    event_fields: ClassVar[Mapping[str, Field]] = {
        **dict.fromkeys(
            ("number", "status", "message_kind", "error", "fault", "faults", "note", "exception",
             "traceback", "where", "sent", "sent_type", "sent_headers", "answer", "answer_type",
             "location", "logged", "signature", "about_attempt", "raised_outside_step"),
            Field(),
        ),
        **dict.fromkeys(("message_id", "about"), Field(MESSAGE_ID)),
        "run": Field(TEXT),
        "url": Field(URL),
        "method": Field(METHOD),
    }  # fmt: skip

    def __init__(self, instruments: Instruments, engine: Engine, read_only_token: str) -> None:
        super().__init__(instruments)
        self.engine = engine
        self.read_only_token = read_only_token

    @classmethod
    def routes(cls) -> Sequence[QueueRoute]:
        return _ROUTES

    def authenticate(self, request: Request) -> object:
        if request.path.startswith(HOOKS):
            return None
        token = bearer_token(request.fields.get("authorization"))
        if token is None:
            token = request.query("qstash_token")
        if same(token, self.token):
            return token
        if not same(token, self.read_only_token):
            raise errors.unauthorized()
        if self.table.writes(request.method, request.path):
            raise errors.read_only()
        return token

    def run_endpoint(self, request: Request, route: Route) -> object:
        """Count a request if the burst limit applies, and call its endpoint. The engine's lock is held,
        unless the endpoint may linger.
        """
        assert isinstance(route, QueueRoute)
        engine = self.engine
        with nullcontext() if route.lingers else engine.lock:
            if route.counts_for_burst and engine.data.limits.burst is not None:
                engine.quota.count_request(engine.clock.now_us())
            result = route.endpoint(engine, request)
        return Answer() if result is None else result

    def wrong_method(self, request: Request, allowed: frozenset[str]) -> Answer:
        # Respond with plain text, unlike for all other errors (observed).
        return Answer(
            b"Method Not Allowed",
            405,
            [("Allow", ", ".join(sorted(allowed)))],
            "text/plain; charset=utf-8",
        )

    def facts(self, request: Request) -> dict[str, Any]:
        """Return the path parameters, decoded, and for a publish request its ``url`` and ``label``."""
        facts: dict[str, Any] = {name: request.segment(name) for name in request.params}
        if "destination" in request.params:
            destination, settings = destination_of(request)
            facts["url"] = facts["destination"] = as_text(destination)
            label = first_setting([*request.headers.pairs, *settings], "label")
            facts["label"] = [] if label is None else [*read_labels(label)]
        return facts


PUBLISHING = frozenset(route.name for route in QueueApp.routes() if route.publishes)
"""Routes by which clients send messages; not those that start, resume or notify workflow runs."""
PUBLISHING_OR_SCHEDULING = PUBLISHING | {
    route.name for route in QueueApp.routes() if route.schedules
}
"""Routes by which clients send messages, immediately or by a schedule."""
