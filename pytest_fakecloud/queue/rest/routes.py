"""The queue's HTTP app, and endpoints for publishing, messages, the language model and keys.

Decided here: publish requests, batches and new schedules return 200, as in the vendor's OpenAPI
file, although other pages say 201, and 202 for a duplicate. ``/v1`` returns 201. A batch returns 200
even if some items are rejected, except that a step of a finished workflow run rejects the whole
batch (400). A chat request is forwarded immediately, without its credentials, to the handler of the
language model (502 if there is no handler). An empty response to a successful request is an empty
JSON object if clients parse it, otherwise an empty body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import unquote

from ...core.field_types import MESSAGE_ID, METHOD, TEXT, URL
from ...core.json_schema import check_nesting
from ...core.matching import Field
from ...core.timers import finished
from ...http.app import App, Route
from ...http.messages import Answer, Request, bearer_token, json_value, same
from .. import errors
from ..engine.bulk_actions import BulkAction, Source
from ..engine.engine import Engine
from ..engine.publishing import Accepted, Published
from ..errors import QueueError, bad_request, not_found
from ..model import Delivery, HeaderList, Message, first
from ..views import DESTINATION, LABEL, NAME
from ..wire import records
from ..wire.headers import LLM_URL
from ..wire.values import (
    HOP_BY_HOP,
    MAX_NESTING,
    as_text,
    as_wire,
    check_name,
    failure_text,
    first_setting,
    json_headers,
    read_flag,
    read_labels,
)
from ..workflow.runs import report_rejected_step

HOOKS = "/v2/workflows/hooks/"
"""Prefix of paths that need no token, because the sender of a workflow's webhook has only the URL."""
SCHEDULES = ("/v2/schedules", "/v2/Schedules")
"""The vendor's documentation spells this path in both ways."""
_ID = r"(?a)(?:(?:msg|msd|wfr)_[\w.-]+|\d+-\d+)\Z"
"""Matches ids of messages, of workflow runs and of dead letters."""
_IDENTIFIED = {"messageIds": "message", "dlqIds": "dlq message", "workflowRunIds": "workflow run"}
"""For each field for ids in a bulk request, the kind of object that the ids identify."""
_KINDS = {str: "a string", dict: "an object", bool: "true or false"}


class RouteFamily:
    """The routes of one family of endpoints, which are called with the engine's lock held.

    An endpoint that returns None responds with an empty body. Each request has its own instance.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.runs = engine.workflow

    @classmethod
    def routes(cls) -> list[Route]:
        raise NotImplementedError


def _locked(family: type[RouteFamily], route: Route) -> Route:
    """Return the route of a family with an endpoint of the app."""

    def endpoint(app: QueueApp, request: Request) -> object:
        with app.engine.lock:
            result = route.endpoint(family(app.engine), request)
        return Answer() if result is None else result

    return route._replace(endpoint=endpoint)


def _limited(route: Route) -> Route:
    """Return a route whose requests count towards the burst limit, if it applies to them."""
    if route.name in errors.WITHOUT_BURST_LIMIT:
        return route

    def endpoint(app: QueueApp, request: Request) -> object:
        if app.engine.limits.burst is not None:
            with app.engine.lock:
                app.engine.quota.count_request(app.engine.clock.now_us())
        return route.endpoint(app, request)

    return route._replace(endpoint=endpoint)


def _read_json(body: bytes, what: str) -> Any:
    try:
        return check_nesting(json_value(body), MAX_NESTING)
    except ValueError as error:
        raise bad_request(f"invalid {what}: {error}") from None


def json_object(request: Request, *, required: bool = False) -> dict[str, Any]:
    """Return the JSON object in a body (otherwise 400). Unless ``required``, the body may be empty."""
    if not required and not request.body.strip():
        return {}
    value = _read_json(request.body, "body")
    if not isinstance(value, dict):
        raise bad_request("invalid body: expected a JSON object")
    return value


def json_array(request: Request) -> list[Any]:
    """Return the JSON array of a batch; raise a 400 error for any other body."""
    items = _read_json(request.body, "batch")
    if not isinstance(items, list):
        raise bad_request("invalid batch: expected a JSON array")
    return items


def destination_of(request: Request) -> tuple[str, list[tuple[str, str]]]:
    """Return the published destination byte for byte, and the settings in its query.

    The query belongs to the destination, except for ``qstash_token`` and ``upstash-*`` keys.
    """
    tail = request.params["destination"]
    if "?" not in request.target:
        return tail, []
    parts: list[str] = []
    settings: list[tuple[str, str]] = []
    for part in request.query_string.split("&"):
        key, _, value = part.partition("=")
        lower = unquote(key).lower()
        if lower.startswith("upstash-"):
            settings.append((lower, as_wire(unquote(value.replace("+", " ")))))
        elif lower != "qstash_token":
            parts.append(part)
    return tail + ("?" + "&".join(parts) if parts else ""), settings


def field_of(
    item: dict[str, Any], what: str, name: str, kind: type, *, required: bool = False
) -> Any:
    """Return a field of a JSON object, or None; raise a 400 error about an invalid ``what``."""
    value = item.get(name)
    if not isinstance(value, kind) and (required or value is not None):
        raise bad_request(f"invalid {what}: {name} must be {_KINDS[kind]}")
    return value


def caller_of(request: Request) -> str:
    """Return the publisher's IP address, or a loopback address if there is no socket."""
    return request.client[0] if request.client else "127.0.0.1"


def published(engine: Engine, request: Request, **options: Any) -> Published:
    destination, settings = destination_of(request)
    return engine.publish(
        destination,
        request.headers.pairs,
        request.body,
        query=settings,
        caller_ip=caller_of(request),
        **options,
    )


def query_of(request: Request) -> list[tuple[str, str]]:
    return [
        pair
        for pair in request.query_items()
        if pair[0] != "qstash_token" and not pair[0].lower().startswith("upstash-")
    ]


def bulk_object(request: Request, ids: str) -> dict[str, Any]:
    """Return the JSON object of a bulk request; raise a 400 error for any other body.

    A single id (bare or as a JSON string) or an array of ids is treated as an object with ``ids``,
    if the values look like ids.
    """
    text = request.body.strip()
    if re.match(_ID, text.decode("latin-1")):
        return {ids: text.decode("latin-1")}
    value = _read_json(text, "body") if text else {}
    if isinstance(value, dict):
        return value
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(value, str) and re.match(_ID, value) for value in values):
        raise bad_request(f"invalid body: expected a JSON object, or only {ids}")
    return {ids: values}


def bulk_pairs(request: Request, ids: str, *, keep_empty: bool = False) -> list[tuple[str, str]]:
    """Return the filters in the query and in the JSON body. An empty filter matches nothing.

    Without ``keep_empty``, the empty filters of the query are ignored. Raises a 404 error for a path
    that ends in an empty id, such as ``/v2/messages/``, because a client with an empty id would
    otherwise change everything.
    """
    if request.path.endswith("/"):
        raise not_found(_IDENTIFIED[ids], "with an empty id")
    filters = [pair for pair in query_of(request) if keep_empty or pair[1]]
    return filters + records.pairs_of(bulk_object(request, ids))


def has_id_field(request: Request, ids: str) -> bool:
    """Return whether a request has a field for ids. Such a request without filters selects nothing."""
    body = bulk_object(request, ids)
    names = (ids, ids.removesuffix("s"))
    return any(name in body or request.query(name) is not None for name in names)


def split_async(pairs: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], bool]:
    """Return the filters of a bulk request without ``async``, and whether it is asynchronous."""
    flags = [read_flag(value, name) for name, value in pairs if name == "async"]
    return [pair for pair in pairs if pair[0] != "async"], any(flags)


def lists_ids(filters: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a bulk request lists ids, so that its other filters are ignored."""
    return any(name in _IDENTIFIED for name in filters)


def recorded_action(
    engine: Engine,
    kind: str,
    source: Source,
    count: int,
    pairs: list[tuple[str, str]],
    *,
    asynchronous: bool,
) -> dict[str, object]:
    """Record a bulk request with filters, and return its id for the response if it is asynchronous.

    A request that lists ids is no bulk action.
    """
    filters = records.filters_by_name(pairs)
    if lists_ids(filters):
        return {}
    action = engine.bulk_actions.record(kind, source, filters, count)
    return {"actionId": action.id} if asynchronous else {}


def cancelled_record(action: BulkAction, *, asynchronous: bool) -> dict[str, object]:
    """Return the response to a cancellation by filters, with its id if it is asynchronous."""
    record: dict[str, object] = {"cancelled": action.total}
    return record | {"actionId": action.id} if asynchronous else record


def accepted_record(accepted: Accepted) -> dict[str, object]:
    answer: dict[str, object] = {"messageId": accepted.message_id, "url": as_text(accepted.url)}
    if accepted.deduplicated:
        answer["deduplicated"] = True
    return answer


def error_item(error: QueueError) -> dict[str, object]:
    return {"error": error.message, "status": error.status}


def endpoints_of(request: Request) -> list[dict[str, Any]]:
    """Return the endpoints in a body; raise a 400 error unless they are a list of objects."""
    endpoints = json_object(request).get("endpoints")
    if not isinstance(endpoints, list) or not all(isinstance(item, dict) for item in endpoints):
        raise bad_request("invalid body: endpoints must be an array of objects")
    for item in endpoints:
        field_of(item, "endpoint", "url", str)
        field_of(item, "endpoint", "name", str)
    return endpoints


def read_batch_item(item: Any) -> tuple[str, HeaderList, bytes, str | None]:
    """Return destination, headers, body and queue of a batch item; raise a 400 error if malformed."""
    if not isinstance(item, dict):
        raise bad_request("invalid batch item: expected an object")
    # An empty destination is rejected like that of any other request.
    destination = field_of(item, "batch item", "destination", str) or ""
    headers = field_of(item, "batch item", "headers", dict) or {}
    body = field_of(item, "batch item", "body", str) or ""
    queue = field_of(item, "batch item", "queue", str)
    if queue:
        check_name(queue, "queue name")
    data = body.encode("utf-8", "surrogatepass")
    return as_wire(destination), json_headers(headers), data, queue or None


_CHANGING = frozenset({"rotate_keys", "rotate_keys_v1"})
"""Endpoints that accept GET but that the read-only token must not use."""


class QueueApp(App):
    """The HTTP app of a queue.

    ``read_only_token`` authenticates ``GET`` requests only. The endpoints of this class acquire the
    engine's lock themselves, because a chat request must not hold it.
    """

    service = "queue"
    families: ClassVar[Sequence[type[RouteFamily]]] = ()
    """The other endpoints, which other modules define."""
    fact_fields: ClassVar[Mapping[str, Field]] = {
        "url": Field(DESTINATION),
        "destination": Field(DESTINATION),
        "label": Field(LABEL, several=True),
        "queue": Field(NAME),
        **{name: Field(TEXT) for name in ("dlq", "event", "id", "key", "name", "run")},
    }
    event_kinds: ClassVar[frozenset[str]] = frozenset(("attempt",))
    event_fields: ClassVar[Mapping[str, Field]] = {
        **dict.fromkeys(
            ("number", "status", "message_kind", "error", "fault", "faults", "note", "exception",
             "traceback", "where", "sent", "sent_type", "sent_headers", "answer", "answer_type",
             "location", "logged", "not_json", "signature"),
            Field(),
        ),
        **dict.fromkeys(("message_id", "about"), Field(MESSAGE_ID)),
        "run": Field(TEXT),
        "url": Field(URL),
        "method": Field(METHOD),
    }  # fmt: skip

    def __init__(self, engine: Engine, read_only_token: str) -> None:
        self.engine = engine
        self.read_only_token = read_only_token

    @classmethod
    def routes(cls) -> list[Route]:
        families = (_locked(family, route) for family in cls.families for route in family.routes())
        return [_limited(route) for route in (*families, *cls._own_routes())]

    @classmethod
    def _own_routes(cls) -> list[Route]:
        return [
            Route("POST", "/v2/publish/{destination*}", "publish", cls.publish),
            Route("POST", "/v2/enqueue/{queue}/{destination*}", "enqueue", cls.enqueue),
            Route("POST", "/v2/batch", "batch", cls.batch),
            Route("DELETE", "/v2/messages", "cancel_messages", cls.cancel_messages),
            Route("GET", "/v2/messages/{id}", "get_message", cls.get_message),
            Route("DELETE", "/v2/messages/{id}", "cancel_message", cls.cancel_message),
            Route("POST", "/v2/messages/{id}/retry", "retry_message", cls.retry_message),
            *(
                Route("POST", f"{base}/{{destination*}}", "create_schedule", cls.create_schedule)
                for base in SCHEDULES
            ),
            # Chat requests may take long, because a handler for the language model may be slow.
            Route("POST", "/llm/v1/chat/completions", "chat", cls.chat, lingers=True),
            Route("GET", "/v2/keys", "get_keys", cls.get_keys),
            Route("POST GET", "/v2/keys/rotate", "rotate_keys", cls.rotate_keys),
            Route("GET", "/v1/keys", "get_keys_v1", cls.get_keys),
            Route("POST GET", "/v1/keys/rotate", "rotate_keys_v1", cls.rotate_keys),
            Route("GET", "/v1/messages/{id}", "get_message_v1", cls.get_message),
        ]

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
        if request.method not in ("GET", "HEAD") or request.route in _CHANGING:
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
        """Return the path parameters and, for a publish request, its ``url`` and ``label``."""
        facts: dict[str, Any] = dict(request.params)
        if "destination" in request.params:
            destination, settings = destination_of(request)
            facts["url"] = facts["destination"] = as_text(destination)
            label = first_setting([*request.headers.pairs, *settings], "label")
            facts["label"] = [] if label is None else [*read_labels(label)]
        return facts

    def answer_published(self, result: Published) -> Answer:
        status = 202 if result.duplicate else 200
        if result.schedule_id is not None:
            again = {"deduplicated": True} if result.duplicate else {}
            return Answer({"scheduleId": result.schedule_id, **again}, status)
        if result.group:
            body: object = [accepted_record(accepted) for accepted in result.accepted]
        else:
            body = accepted_record(result.accepted[0])
        limited = self.engine.limits.daily_messages is not None
        return Answer(body, status, self.engine.quota.daily_headers() if limited else ())

    def enqueue(self, request: Request) -> Answer:
        name = check_name(request.segment("queue"), "queue name")
        return self.publish(request, queue_name=name)

    def create_schedule(self, request: Request) -> Answer:
        return self.publish(request, schedule_only=True)

    def publish(self, request: Request, **options: Any) -> Answer:
        return self.answer_published(published(self.engine, request, **options))

    def batch(self, request: Request) -> Answer:
        limit = self.engine.limits.batch_size
        if len(request.body) > limit:
            raise errors.quota("maxBatchSize", limit, status=413)
        items = json_array(request)
        # Hold the lock for the whole batch, so that no run can finish between two items.
        with self.engine.lock:
            self.engine.workflow.check_steps(map(_headers_of, items))
            answers = [
                self._batch_item(item, number, request) for number, item in enumerate(items, 1)
            ]
        return Answer(answers, 200, self.engine.quota.daily_headers())

    def _batch_item(self, item: Any, number: int, request: Request) -> object:
        try:
            destination, headers, body, queue = read_batch_item(item)
            result = self.engine.publish(
                destination, headers, body, caller_ip=caller_of(request), queue_name=queue
            )
        except QueueError as error:
            run_id = _run_id_of(item)
            if run_id is not None:
                url, what = _shown(item.get("destination")), f"item {number} of a batch"
                report_rejected_step(self.engine.report, what, run_id, url, error)
            return error_item(error)
        return self.answer_published(result).body

    def get_message(self, request: Request) -> object:
        return records.message_record(self.engine.message(request.segment("id")))

    def cancel_message(self, request: Request) -> Answer:
        return Answer({"cancelled": self.engine.cancel(request.segment("id"))}, 202)

    def retry_message(self, request: Request) -> object:
        self.engine.retry_now(request.segment("id"))
        return {}

    def cancel_messages(self, request: Request) -> Answer:
        pairs, asynchronous = split_async(bulk_pairs(request, "messageIds", keep_empty=True))
        chosen = records.read_filters(pairs, records.FOR_MESSAGES, most=2**62)
        if chosen.empty and has_id_field(request, "messageIds"):
            return Answer({"cancelled": 0}, 202)
        with self.engine.lock:
            # The service ignores the deprecated count.
            messages = [
                message
                for message in self._candidates(chosen)
                if chosen.matches(message, message.created_us, {})
            ]
            filters = records.filters_by_name(pairs)
            if lists_ids(filters):
                return Answer({"cancelled": self.engine.cancel_all(messages)}, 202)
            ids = [message.id for message in messages]
            action = self.engine.bulk_actions.cancel(
                "qstash", filters, ids, asynchronous=asynchronous
            )
        return Answer(cancelled_record(action, asynchronous=asynchronous), 202)

    def _candidates(self, chosen: records.Filters) -> list[Message]:
        ids = chosen.fields.get("messageIds") or chosen.fields.get("messageId")
        pending = self.engine.pending
        if ids is None:
            return list(pending.values())
        tasks = dict.fromkeys(
            task for message_id in ids for task in self.engine.task_ids(message_id)
        )
        return [pending[task] for task in tasks if task in pending]

    def chat(self, request: Request) -> Answer:
        own = {"authorization", *HOP_BY_HOP}
        delivery = Delivery(
            message_id="chat",
            url=LLM_URL,
            method=request.method,
            headers=[pair for pair in request.headers.pairs if pair[0].lower() not in own],
            body=request.body,
            attempt=0,
            timeout_us=self.engine.limits.timeout_us,
        )
        outcome = finished(self.engine.perform(delivery, False))
        if outcome.status is None:
            raise QueueError(502, f"no language model answers: {failure_text(outcome)}")
        framing = {"content-type", *HOP_BY_HOP}
        headers = [pair for pair in outcome.headers if pair[0].lower() not in framing]
        content_type = first(outcome.headers, "Content-Type")
        return Answer(outcome.body, outcome.status, headers, content_type)

    def get_keys(self, request: Request) -> object:
        return {"current": self.engine.keys.current, "next": self.engine.keys.next}

    def rotate_keys(self, request: Request) -> object:
        self.engine.rotate_keys()
        return self.get_keys(request)


def _run_id_of(item: Any) -> str | None:
    # Check the types of all parts, because a rejected item may contain anything.
    headers = item.get("headers") if isinstance(item, dict) else None
    if not isinstance(headers, dict):
        return None
    run_id = first_setting(headers.items(), "workflow-runid")
    if isinstance(run_id, list):
        run_id = run_id[0] if run_id else None
    return _shown(run_id) if run_id else None


def _shown(value: object) -> str:
    # Encode and decode the string, because reports cannot encode lone surrogates.
    return as_text(as_wire(str(value)))


def _headers_of(item: Any) -> HeaderList:
    # Ignore a malformed item here. It is rejected later, without the rest of the batch.
    try:
        return read_batch_item(item)[1]
    except QueueError:
        return []
