"""Check that every field of every command accepts only its own JSON type; other types return 422.

The table contains the fields of the specification and of the facts. Other fields have no meaning. A
null is not a wrong type, because clients send it for missing values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import orjson
import pytest

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.http.messages import Request
from pytest_fakecloud.vector.fake import VectorIndex
from tests.harness import check_each

VALUES: Mapping[str, Any] = {
    "text": "a", "empty text": "", "true": "true", "false": "false", "whole number": 3,
    "fraction": 1.5, "boolean": True, "array": [],
    "array of arrays": [[]], "array of booleans": [True], "array of nulls": [None],
    "array of texts": ["a"], "array of numbers": [1, 2], "object": {},
    "object of other things": {"a": 1},
}  # fmt: skip
TEXT = {"text", "empty text", "true", "false"}
WHOLE = {"whole number"}
BOOLEAN = {"boolean", "true", "false"}
OBJECT = {"object", "object of other things"}
IDS = {"array", "array of texts", "array of numbers"}
NUMBERS = {"array", "array of numbers"}
# An object with other member names returns 400, like any unknown name: see test_fields.
SPARSE = {"object of other things"}
ID = TEXT | WHOLE
INCLUDES = {"includeVectors": BOOLEAN, "includeMetadata": BOOLEAN, "includeData": BOOLEAN}
QUERY = {
    "topK": WHOLE, "filter": TEXT, "weightingStrategy": TEXT, "fusionAlgorithm": TEXT, **INCLUDES,
}  # fmt: skip
VECTOR_QUERY = {"vector": NUMBERS, "sparseVector": SPARSE, **QUERY}
TEXT_QUERY = {"data": TEXT, "queryMode": TEXT, **QUERY}
RECORD = {"id": ID, "vector": NUMBERS, "sparseVector": SPARSE, "metadata": OBJECT, "data": TEXT}
GOOD: Mapping[str, Any] = {
    "id": "a", "vector": [1, 2], "sparseVector": {"indices": [1], "values": [1]}, "metadata": {},
    "data": "words",
}  # fmt: skip
VECTORS = {name: GOOD[name] for name in ("vector", "sparseVector")}
SCAN = {"cursor": ID, "limit": WHOLE, "prefix": TEXT, **INCLUDES}
COMMANDS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, set[str]]]] = {
    "upsert": (GOOD, RECORD),
    "upsert-data": (
        {"id": "a", "data": "words"},
        {name: RECORD[name] for name in ("id", "metadata", "data")},
    ),
    "update": (GOOD, {**RECORD, "metadataUpdateMode": TEXT}),
    "query": (VECTORS, VECTOR_QUERY),
    "query-data": ({"data": "words"}, TEXT_QUERY),
    "resumable-query": (VECTORS, {"maxIdle": WHOLE, **VECTOR_QUERY}),
    "resumable-query-data": ({"data": "words"}, {"maxIdle": WHOLE, **TEXT_QUERY}),
    "resumable-query-next": ({"uuid": "u", "additionalK": 1}, {"uuid": TEXT, "additionalK": WHOLE}),
    "resumable-query-end": ({"uuid": "u"}, {"uuid": TEXT}),
    "fetch": ({"ids": ["a"]}, {"ids": IDS, **INCLUDES}),
    "fetch by prefix": ({"prefix": "a"}, {"prefix": TEXT, **INCLUDES}),
    "range": ({"cursor": "0", "limit": 5}, SCAN),
    "delete": ({"ids": ["a"]}, {"ids": IDS}),
    "delete by prefix": ({"prefix": "a"}, {"prefix": TEXT}),
    "delete by filter": ({"filter": "n = 1"}, {"filter": TEXT}),
    "rename-namespace": (
        {"namespace": "a", "newNamespace": "b"},
        {"namespace": TEXT, "newNamespace": TEXT, "deleteExisting": BOOLEAN},
    ),
}
REQUIRED = {
    "upsert": ["id", "vector", "sparseVector"], "upsert-data": ["id", "data"], "update": ["id"],
    "query-data": ["data"], "resumable-query-data": ["data"],
    "resumable-query-next": ["uuid", "additionalK"], "resumable-query-end": ["uuid"],
    "rename-namespace": ["namespace", "newNamespace"],
}  # fmt: skip
WITHOUT_FIELDS = {"reset", "delete-namespace", "random", "info", "list-namespaces"}
WRONG = {
    command: [
        (command, field, kind)
        for field, right in fields.items()
        for kind in VALUES
        if kind not in right
    ]
    for command, (_, fields) in COMMANDS.items()
}


@pytest.fixture(scope="module")
def index() -> Iterator[VectorIndex]:
    context = Context.alone(now="2026-01-01T00:00:00Z")
    with VectorIndex(context, kind="hybrid", dimension=2, embedding=True) as made:
        made.load([GOOD])
        yield made


def answer(index: VectorIndex, command: str, body: object) -> tuple[int, Any]:
    path = "/" + command.partition(" ")[0]
    request = Request("POST", path, list(index.headers.items()), orjson.dumps(body))
    got = index._app.respond(request)
    return got.status, orjson.loads(got.body)  # type: ignore[arg-type]


def test_the_table_has_every_command_that_takes_fields(index: VectorIndex) -> None:
    commands = {route.name for route in index._app.table.routes}
    assert commands - {name.partition(" ")[0] for name in COMMANDS} == WITHOUT_FIELDS


@pytest.mark.parametrize("command", WRONG)
def test_a_field_of_a_wrong_type_is_refused_by_name(index: VectorIndex, command: str) -> None:
    check_each(partial(is_refused_by_name, index), WRONG[command])


def is_refused_by_name(index: VectorIndex, command: str, field: str, kind: str) -> None:
    before = index.vectors()
    status, payload = answer(index, command, {**COMMANDS[command][0], field: VALUES[kind]})
    assert (status, payload["status"]) == (422, 422), payload
    assert f"Invalid field {field}" in payload["error"]
    assert "expected" in payload["error"] or "needed" in payload["error"]
    assert index.vectors() == before


@pytest.mark.parametrize(
    ("command", "field"),
    [(command, field) for command, names in REQUIRED.items() for field in names],
)
@pytest.mark.parametrize("absent", ["left out", "null"])
def test_a_field_that_is_missing_is_refused_by_name(
    index: VectorIndex, command: str, field: str, absent: str
) -> None:
    body = {name: value for name, value in COMMANDS[command][0].items() if name != field}
    status, payload = answer(index, command, {**body, field: None} if absent == "null" else body)
    assert (status, f"field {field}" in payload["error"]) == (422, True), payload


FLAGS = [
    (command, field)
    for command, (_, fields) in COMMANDS.items()
    for field, right in fields.items()
    if right == BOOLEAN
]


@pytest.mark.parametrize(("command", "field"), FLAGS)
def test_a_flag_may_be_a_string(index: VectorIndex, command: str, field: str) -> None:
    start = index.snapshot()
    index.load([GOOD], namespace="a")
    index.load([{**GOOD, "id": "b"}], namespace="b")
    before = index.snapshot()

    def effect(flag: object) -> object:
        index.restore(before)
        status, payload = answer(index, command, {**COMMANDS[command][0], field: flag})
        # A namespace is not renamed onto an existing one, which is an error.
        assert status == 200 or (status, command) == (400, "rename-namespace"), payload
        if isinstance(payload.get("result"), dict):
            payload["result"].pop("uuid", None)
        return payload, index.vectors(namespace="b")

    effects = [effect(flag) for flag in (True, "true", False, "false")]
    index.restore(start)
    assert effects[0] == effects[1] != effects[2] == effects[3]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_table_has_a_body_that_is_taken(index: VectorIndex, command: str) -> None:
    """Otherwise the rejections above could have another reason."""
    before = index.snapshot()
    status, payload = answer(index, command, COMMANDS[command][0])
    if command in ("resumable-query-next", "resumable-query-end", "rename-namespace"):
        assert (status, "does not exist" in payload["error"]) == (404, True)
    else:
        assert status == 200, payload
    index.restore(before)
