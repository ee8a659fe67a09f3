"""The OpenAPI document of the control API, generated from its routes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any, get_type_hints

from ..http.app import Route
from ..reporting.data import PAGING
from .control.shapes import BODIES, RESPONSES, Schemas

_QUERIES = {
    "journal": {"after": "return only rows after this number", "limit": "maximum number of rows"},
    "journal_stream": {"after": "stream only entries after this number"},
    "list": PAGING,
    "item": PAGING,
    "changes": {"until": "the later snapshot; by default the current data"},
    "attempts": {"id": "return only attempts of the message with this id"},
}
_TEXTS = {"console": "text/html", "console_file": "text/*", "journal_stream": "text/event-stream"}
"""Content types of the endpoints that do not return JSON."""
WITHOUT_TOKEN = frozenset(
    {"live", "ready", "console", "console_file", "icon", "openapi", "session"}
)


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the routes. Descriptions are the endpoints' docstrings."""
    paths: dict[str, dict[str, Any]] = {}
    schemas = Schemas()
    for route in routes:
        for method in route.methods.split():
            paths.setdefault(route.pattern, {})[method.lower()] = _operation(route, method, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "pytest-fakecloud control API",
            "version": "1",
            "description": "Moves the clock, injects faults, returns the journal and the data of fakes.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _ERROR, **dict(sorted(schemas.named.items()))},
        },
    }


_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        }
    },
}


def _operation(route: Route, method: str, schemas: Schemas) -> dict[str, Any]:
    text = inspect.getdoc(route.endpoint) or ""
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)\*?}", route.pattern)
    ] + [
        {"name": name, "in": "query", "description": about, "schema": {"type": "string"}}
        for name, about in _QUERIES.get(route.name, {}).items()
    ]
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": text.partition("\n")[0],
        "description": text,
        "responses": {
            **_done(route, schemas),
            "default": {
                "description": "the request is rejected",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if parameters:
        operation["parameters"] = parameters
    if method in ("POST", "PUT"):
        body = schemas.of(BODIES[route.name]) if route.name in BODIES else {"type": "object"}
        operation["requestBody"] = {"content": {"application/json": {"schema": body}}}
    if route.name not in WITHOUT_TOKEN:
        operation["security"] = [{"token": []}]
    return operation


def _done(route: Route, schemas: Schemas) -> dict[str, Any]:
    if route.name == "icon":
        return {"204": {"description": "there is no icon"}}
    returned = RESPONSES.get(route.name, get_type_hints(route.endpoint)["return"])
    schema = {"type": "string"} if route.name in _TEXTS else schemas.of(returned)
    kind = _TEXTS.get(route.name, "application/json")
    return {"200": {"description": "done", "content": {kind: {"schema": schema}}}}
