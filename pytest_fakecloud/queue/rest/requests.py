"""Read the parts of a request: its JSON body, its destination, its query."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from ...core.json_schema import check_nesting
from ...http.messages import Request, json_value
from ..errors import bad_request
from ..wire.values import MAX_NESTING, as_wire

_KINDS = {str: "a string", dict: "an object", bool: "true or false"}


def read_json(body: bytes, what: str) -> Any:
    try:
        return check_nesting(json_value(body), MAX_NESTING)
    except ValueError as error:
        raise bad_request(f"invalid {what}: {error}") from None


def json_object(request: Request, *, required: bool = False) -> dict[str, Any]:
    """Return the JSON object in a body (otherwise 400). Unless ``required``, the body may be empty."""
    if not required and not request.body.strip():
        return {}
    value = read_json(request.body, "body")
    if not isinstance(value, dict):
        raise bad_request("invalid body: expected a JSON object")
    return value


def json_array(request: Request) -> list[Any]:
    """Return the JSON array of a batch; raise a 400 error for any other body."""
    items = read_json(request.body, "batch")
    if not isinstance(items, list):
        raise bad_request("invalid batch: expected a JSON array")
    return items


def field_of(
    item: dict[str, Any], what: str, name: str, kind: type, *, required: bool = False
) -> Any:
    """Return a field of a JSON object, or None; raise a 400 error about an invalid ``what``."""
    value = item.get(name)
    if not isinstance(value, kind) and (required or value is not None):
        raise bad_request(f"invalid {what}: {name} must be {_KINDS[kind]}")
    return value


def number_of(item: dict[str, Any], what: str, name: str, *, least: int) -> int | None:
    """Return an integer of a JSON object, or None; raise a 400 error about an invalid ``what``."""
    value = item.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise bad_request(f"invalid {what}: {name} must be a number of at least {least}")
    return value


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


def query_of(request: Request) -> list[tuple[str, str]]:
    return [
        pair
        for pair in request.query_items()
        if pair[0] != "qstash_token" and not pair[0].lower().startswith("upstash-")
    ]


def caller_of(request: Request) -> str:
    """Return the publisher's IP address, or a loopback address if there is no socket."""
    return request.client[0] if request.client else "127.0.0.1"
