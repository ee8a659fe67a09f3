"""The queue's HTTP app.

Decided here: an empty response to a successful request is an empty JSON object if clients parse it,
otherwise an empty body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...core.field_types import MESSAGE_ID, METHOD, TEXT, URL
from ...core.matching import Field
from ...http.app import App
from ...http.messages import Answer, Request, bearer_token, same
from .. import errors
from ..engine.engine import Engine
from ..views import DESTINATION, LABEL, NAME
from ..wire.values import as_text, first_setting, read_labels
from .bulk_actions import BulkActionRoutes
from .chat import ChatRoutes
from .dead_letters import DeadLetterRoutes
from .family import QueueRoute, RouteFamily
from .flow_control import FlowControlRoutes
from .keys import KeyRoutes
from .logs import LogRoutes
from .messages import MessageRoutes
from .queues import QueueRoutes
from .requests import destination_of
from .schedules import ScheduleRoutes
from .url_groups import UrlGroupRoutes
from .v1 import V1Routes
from .workflow_dead_letters import WorkflowDeadLetterRoutes
from .workflow_events import HOOKS, WorkflowEventRoutes
from .workflow_runs import WorkflowRunRoutes

_FAMILIES: tuple[type[RouteFamily], ...] = (
    V1Routes,
    ScheduleRoutes,
    QueueRoutes,
    UrlGroupRoutes,
    FlowControlRoutes,
    DeadLetterRoutes,
    LogRoutes,
    BulkActionRoutes,
    WorkflowRunRoutes,
    WorkflowEventRoutes,
    WorkflowDeadLetterRoutes,
    MessageRoutes,
    KeyRoutes,
    ChatRoutes,
)
_PARAMETERS = [
    name for family in _FAMILIES for route in family.routes() for name in route.parameters
]


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
             "location", "logged", "signature"),
            Field(),
        ),
        **dict.fromkeys(("message_id", "about"), Field(MESSAGE_ID)),
        "run": Field(TEXT),
        "url": Field(URL),
        "method": Field(METHOD),
    }  # fmt: skip

    def __init__(self, engine: Engine, read_only_token: str) -> None:
        super().__init__()
        self.engine = engine
        self.read_only_token = read_only_token

    @classmethod
    def routes(cls) -> list[QueueRoute]:
        return [route for family in _FAMILIES for route in family.routes()]

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
