"""The OpenAPI file of the control API, generated from its routes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

from ..http.routing import Route

__all__ = ["WITHOUT_TOKEN", "document"]

_QUERIES = {
    "journal": {"after": "leave out entries up to this number"},
    "journal_stream": {"after": "leave out entries up to this number"},
    "attempts": {"id": "only this message's"},
}
WITHOUT_TOKEN = frozenset({"live", "ready", "console", "console_file", "icon", "openapi"})


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """All routes as an OpenAPI 3.1 object; texts are the endpoints' docstrings."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        for method in route.methods.split():
            paths.setdefault(route.pattern, {})[method.lower()] = _operation(route, method)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "pytest-fakecloud control API",
            "version": "1",
            "description": "Moves the clock, arms faults, shows the journal and the data of fakes.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["error"],
                    "properties": {
                        "error": {
                            "type": "object",
                            "required": ["type", "message"],
                            "properties": {
                                "type": {"type": "string"},
                                "message": {"type": "string"},
                            },
                        }
                    },
                }
            },
        },
    }


def _operation(route: Route, method: str) -> dict[str, Any]:
    text = inspect.getdoc(route.endpoint) or ""
    kind = "text/html" if route.name == "console" else "application/json"
    if route.name == "console_file":
        kind = "text/*"
    if route.name == "journal_stream":
        kind = "text/event-stream"
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
            "200": {"description": "done", "content": {kind: {"schema": {}}}},
            "default": {
                "description": "refused",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if parameters:
        operation["parameters"] = parameters
    if method in ("POST", "PUT"):
        operation["requestBody"] = {"content": {"application/json": {"schema": {"type": "object"}}}}
    if route.name not in WITHOUT_TOKEN:
        operation["security"] = [{"token": []}]
    return operation
