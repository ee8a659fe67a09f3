"""Check that the OpenAPI document describes the requests and responses of the control API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import Server, fetch

pytestmark = pytest.mark.slow
JSON = "application/json"


@pytest.fixture(scope="module")
def document(server: Server) -> dict[str, Any]:
    """The document of a running server."""
    return dict(server.ask("GET", "/openapi.json")[1])


def mistakes(value: Any, schema: Any, document: Any, at: str = "$") -> Iterator[str]:
    """Describe where a value does not match a schema of the document; unknown fields do not match."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        if all(list(mistakes(value, option, document, at)) for option in schema["anyOf"]):
            yield f"{at}: {value!r} is none of {schema['anyOf']}"
    elif "enum" in schema:
        if value not in schema["enum"]:
            yield f"{at}: {value!r} is not in {schema['enum']}"
    elif "type" in schema:
        kinds: dict[str, Any] = {"string": str, "integer": int, "number": (int, float),
                 "boolean": bool, "null": type(None), "array": list, "object": dict}  # fmt: skip
        if not isinstance(value, kinds[schema["type"]]):
            yield f"{at}: {value!r} is not {schema['type']}"
        elif isinstance(value, list):
            for number, item in enumerate(value):
                yield from mistakes(item, schema["items"], document, f"{at}[{number}]")
        elif isinstance(value, dict) and "properties" in schema:
            yield from (f"{at}.{name} is missing" for name in schema.get("required", ())
                        if name not in value)  # fmt: skip
            for name, item in value.items():
                if name not in schema["properties"]:
                    yield f"{at}.{name} is not described"
                else:
                    yield from mistakes(item, schema["properties"][name], document, f"{at}.{name}")
        elif isinstance(value, dict) and "additionalProperties" in schema:
            for name, item in value.items():
                yield from mistakes(item, schema["additionalProperties"], document, f"{at}.{name}")


def test_every_response_is_described(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for status, response in operation["responses"].items():
                for content in response.get("content", {}).values():
                    assert content["schema"], (method, path, status)


CALLS: list[tuple[str, str, Any]] = [
    ("GET", "/live", None),
    ("GET", "/journal/{number}/changes", None),
    ("GET", "/journal/{number}/data?section=messages", None),
    ("GET", "/journal/{number}/tests", None),
    ("GET", "/journal/{number}/again", None),
    ("POST", "/copies", {"method": "POST", "path": "/snapshots", "body": {}}),
    ("GET", "/journal/{number}/since?fake=queue", None),
    ("GET", "/fakes/{name}/versions?section=messages", None),
    ("GET", "/ready", None),
    ("GET", "/state", None),
    ("GET", "/env", None),
    ("GET", "/clock", None),
    ("POST", "/clock", {"action": "freeze"}),
    ("POST", "/clock", {"action": "resume"}),
    ("POST", "/clock", {"action": "freeze"}),
    ("GET", "/due", None),
    ("POST", "/clock", {"action": "advance", "by": "5m"}),
    ("POST", "/clock", {"action": "advance", "by": 30.5}),
    ("POST", "/clock", {"action": "move_to", "to": "2026-02-01T00:00:00Z"}),
    ("POST", "/clock", {"action": "advance_to_next"}),
    ("GET", "/seed", None),
    ("PUT", "/seed", {"seed": "a"}),
    ("PUT", "/seed", {"seed": 5}),
    ("GET", "/journal", None),
    ("GET", "/violations", None),
    ("POST", "/violations/dismiss", {"texts": ["x"]}),
    ("GET", "/archive", None),
    ("GET", "/saved", None),
    ("POST", "/fakes/{name}/destinations", {"url": "https://app.test", "answer": 200}),
    ("GET", "/fakes/{name}/destinations", None),
    ("DELETE", "/fakes/{name}/destinations?url=https%3A%2F%2Fapp.test", None),
    ("GET", "/fakes/{name}", None),
    ("POST", "/fakes/{name}/requests", {"method": "GET", "target": "/v2/messages", "headers": {}}),
    ("POST", "/fakes/{name}/faults", {"kind": "drop", "args": [], "times": 1, "route": "publish"}),
    ("GET", "/fakes/{name}/faults", None),
    ("DELETE", "/fakes/{name}/faults", None),
    ("GET", "/fakes/{name}/attempts", None),
    ("GET", "/fakes/{name}/dead-letters", None),
    ("POST", "/journal/{number}/again", {"headers": {"X-Trace": "7"}}),
    ("POST", "/journal/{number}/restore", {"fake": "queue"}),
    ("POST", "/snapshots", {"id": "before"}),
    ("GET", "/snapshots", None),
    ("POST", "/snapshots/{id}", {}),
    ("DELETE", "/snapshots/{id}", None),
    ("POST", "/clouds", {"services": {"kv": {}}, "seed": 1}),
    ("GET", "/clouds", None),
    ("POST", "/call", {"object": "queue", "name": "token"}),
    ("POST", "/load", {"state": {"kv": {"values": {"k": "v"}}}}),
    ("POST", "/replay", {"archive": {"log": {"entries": []}}}),
    ("POST", "/call", {"object": "queue", "name": "publish", "args": [5], "kwargs": {}}),
    ("POST", "/reset", {"fake": "queue"}),
    ("POST", "/begin", {"now": "2026-01-01T00:00:00Z", "clock": "frozen"}),
    ("POST", "/fakes", {"fixture": "callback_capture", "settings": {}}),
]  # fmt: skip


def test_requests_and_responses_are_as_described(server: Server, document: dict[str, Any]) -> None:
    queue = server.fake("queue")
    for delay in ("0s", "1h"):
        fetch(
            "POST", f"{queue['url']}/v2/publish/https://app.test/hook", body=b"x",
            headers={**queue["headers"], "Upstash-Delay": delay, "Upstash-Retries": "0"},
        )  # fmt: skip
    first = str(server.ask("GET", "/journal")[1][0]["number"])
    for method, path, body in CALLS:
        place = path.partition("?")[0]
        operation = document["paths"][f"/__control__{place}"][method.lower()]
        schema = operation["responses"]["200"]["content"][JSON]["schema"]
        status, answer = server.ask(
            method,
            path.replace("{name}", "queue").replace("{id}", "before").replace("{number}", first),
            body,
        )
        assert status == 200, (path, answer)
        assert list(mistakes(answer, schema, document)) == [], path
        if body is not None:
            wanted = operation.get(
                "requestBody", {"content": {JSON: {"schema": {"type": "object"}}}}
            )
            assert list(mistakes(body, wanted["content"][JSON]["schema"], document)) == [], path
    assert answer["fixture"] == "callback_capture"
    server.ask("DELETE", f"/fakes/{answer['name']}")
    for entry in server.ask("GET", "/clouds")[1]:
        server.ask("DELETE", f"/clouds/{entry['id']}")


def test_the_comparison_notices_what_is_wrong(document: dict[str, Any]) -> None:
    clock = {"$ref": "#/components/schemas/ClockData"}
    right = {"now": "x", "mode": "frozen", "next_due": None, "next": None, "move": None}
    assert list(mistakes(right, clock, document)) == []
    for wrong in ({}, {**right, "mode": "fast"}, {**right, "more": 1}, {**right, "now": 5}, []):
        assert list(mistakes(wrong, clock, document)), json.dumps(wrong)
