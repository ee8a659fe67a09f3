"""Endpoints for URL groups, which the API calls topics."""

from __future__ import annotations

from typing import Any

from ...http.messages import Request
from ..engine.engine import Engine
from ..errors import bad_request
from ..model import HeaderList
from ..wire import records
from ..wire.headers import read_given
from ..wire.values import as_wire, json_headers
from .requests import field_of, json_object
from .routing import QueueRoute


def list_groups(engine: Engine, request: Request) -> object:
    return [records.group_record(group) for group in engine.url_groups.by_name.values()]


def get_group(engine: Engine, request: Request) -> object:
    return records.group_record(engine.url_groups.get(request.segment("name")))


def delete_group(engine: Engine, request: Request) -> None:
    group = engine.url_groups.find(request.segment("name"))
    if group is not None:
        engine.url_groups.remove(group)


def change_group(engine: Engine, request: Request) -> None:
    headers = field_of(json_object(request), "topic", "headers", dict, required=True)
    defaults: HeaderList = []
    for name, value in json_headers(headers):
        is_own = name.lower().startswith(("upstash-", "service-", "content-type"))
        defaults.append((name if is_own else f"Upstash-Forward-{name}", value))
    read_given(defaults)  # Raises an error for an invalid setting.
    groups = engine.url_groups
    group = groups.get(request.segment("name"))
    groups.set_headers(group, defaults)


def add_endpoints(engine: Engine, request: Request) -> None:
    endpoints = [
        (
            as_wire(field_of(endpoint, "endpoint", "url", str, required=True)),
            endpoint.get("name") or None,
        )
        for endpoint in _endpoints_of(request)
    ]
    engine.url_groups.add_all(request.segment("name"), endpoints)


def remove_endpoints(engine: Engine, request: Request) -> None:
    endpoints = _endpoints_of(request)
    for item in endpoints:
        if item.get("url") is None and item.get("name") is None:
            raise bad_request("invalid endpoint: pass url or name")
        if item.get("url") is not None:
            item["url"] = as_wire(item["url"])
    group = engine.url_groups.get(request.segment("name"))
    engine.url_groups.remove_endpoints(group, endpoints)


def _endpoints_of(request: Request) -> list[dict[str, Any]]:
    """Return the endpoints in a body; raise a 400 error unless they are a list of objects."""
    endpoints = json_object(request).get("endpoints")
    if not isinstance(endpoints, list) or not all(isinstance(item, dict) for item in endpoints):
        raise bad_request("invalid body: endpoints must be an array of objects")
    for item in endpoints:
        field_of(item, "endpoint", "url", str)
        field_of(item, "endpoint", "name", str)
    return endpoints


ROUTES = [
    QueueRoute("GET", "/v2/topics", "list_groups", list_groups),
    QueueRoute("GET", "/v2/topics/{name}", "get_group", get_group),
    QueueRoute("DELETE", "/v2/topics/{name}", "delete_group", delete_group),
    QueueRoute("PATCH", "/v2/topics/{name}", "change_group", change_group),
    QueueRoute("POST", "/v2/topics/{name}/endpoints", "add_endpoints", add_endpoints),
    QueueRoute("DELETE", "/v2/topics/{name}/endpoints", "remove_endpoints", remove_endpoints),
]
