"""Parse requests to the queue, and build common parts of its responses."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from ...http.messages import Request
from ...http.readers import json_value
from ...http.routing import Route
from ..engine.engine import Engine
from ..engine.publishing import Accepted
from ..errors import QueueError, bad_request, not_found
from ..model import HeaderList
from ..wire import records
from ..wire.values import as_text, as_wire, check_name, check_nesting, json_headers

_ID = r"(?a)(?:(?:msg|msd|wfr)_[\w.-]+|\d+-\d+)\Z"
"""Matches ids of messages, of workflow runs and of dead letters."""
_IDENTIFIED = {"messageIds": "message", "dlqIds": "dlq message", "workflowRunIds": "workflow run"}
"""For each field for ids in a bulk request, the kind of object that the ids identify."""
_KINDS = {str: "a string", dict: "an object", bool: "true or false"}


class RouteFamily:
    """The routes of one family of endpoints, which are called with the engine's lock held.

    An endpoint that returns None responds with an empty body.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.runs = engine.workflow

    def routes(self) -> list[Route]:
        raise NotImplementedError


def _read_json(body: bytes, what: str) -> Any:
    try:
        return check_nesting(json_value(body))
    except ValueError as error:
        raise bad_request(f"invalid {what}: {error}") from None


def json_object(request: Request, *, required: bool = False) -> dict[str, Any]:
    """Return the JSON object in a body; raise a 400 error for any other body.

    An empty body counts as an empty object unless the object is ``required``.
    """
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
    kept: list[str] = []
    settings: list[tuple[str, str]] = []
    for part in request.query_string.split("&"):
        key, _, value = part.partition("=")
        lower = unquote(key).lower()
        if lower.startswith("upstash-"):
            settings.append((lower, as_wire(unquote(value.replace("+", " ")))))
        elif lower != "qstash_token":
            kept.append(part)
    return tail + ("?" + "&".join(kept) if kept else ""), settings


def field_of(
    item: dict[str, Any], what: str, name: str, kind: type, *, required: bool = False
) -> Any:
    """Return a field of a JSON object, or None if it is missing or null and not ``required``.

    Raises a 400 error about an invalid ``what`` if the field has another type than ``kind``.
    """
    value = item.get(name)
    if not isinstance(value, kind) and (required or value is not None):
        raise bad_request(f"invalid {what}: {name} must be {_KINDS[kind]}")
    return value


def caller_of(request: Request) -> str:
    """Return the publisher's IP address, or a loopback address if there is no socket."""
    return request.client[0] if request.client else "127.0.0.1"


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
    given = value if isinstance(value, list) else [value]
    if not all(isinstance(one, str) and re.match(_ID, one) for one in given):
        raise bad_request(f"invalid body: expected a JSON object, or only {ids}")
    return {ids: given}


def bulk_pairs(request: Request, ids: str, *, keep_empty: bool = False) -> list[tuple[str, str]]:
    """Return the filters in the query and in the JSON body. An empty filter matches nothing.

    Without ``keep_empty``, the empty filters of the query are ignored. Raises a 404 error for a path
    that ends in an empty id, such as ``/v2/messages/``, because a client with an empty id would
    otherwise change everything.
    """
    if request.path.endswith("/"):
        raise not_found(_IDENTIFIED[ids], "with an empty id")
    given = [pair for pair in query_of(request) if keep_empty or pair[1]]
    return given + records.pairs_of(bulk_object(request, ids))


def has_id_field(request: Request, ids: str) -> bool:
    """Return whether a request has a field for ids. Such a request without filters selects nothing."""
    body = bulk_object(request, ids)
    names = (ids, ids.removesuffix("s"))
    return any(name in body or request.query(name) is not None for name in names)


def cursor_field(cursor: str | None) -> dict[str, str]:
    return {} if cursor is None else {"cursor": cursor}


def accepted_record(one: Accepted) -> dict[str, object]:
    answer: dict[str, object] = {"messageId": one.message_id, "url": as_text(one.url)}
    if one.deduplicated:
        answer["deduplicated"] = True
    return answer


def error_item(error: QueueError) -> dict[str, object]:
    return {"error": error.message, "status": error.status}


def endpoints_of(request: Request) -> list[dict[str, Any]]:
    """Return the endpoints in a body; raise a 400 error unless they are a list of objects."""
    found = json_object(request).get("endpoints")
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise bad_request("invalid body: endpoints must be an array of objects")
    for item in found:
        field_of(item, "endpoint", "url", str)
        field_of(item, "endpoint", "name", str)
    return found


def read_batch_item(item: Any) -> tuple[str, HeaderList, bytes, str | None]:
    """Return destination, headers, body and queue of a batch item; raise a 400 error if malformed."""
    if not isinstance(item, dict):
        raise bad_request("invalid batch item: expected an object")
    destination = field_of(item, "batch item", "destination", str)
    if not destination:
        raise bad_request("invalid batch item: destination must be a string")
    headers = field_of(item, "batch item", "headers", dict) or {}
    body = field_of(item, "batch item", "body", str) or ""
    queue = field_of(item, "batch item", "queue", str)
    if queue:
        check_name(queue, "queue name")
    data = body.encode("utf-8", "surrogatepass")
    return as_wire(destination), json_headers(headers), data, queue or None
