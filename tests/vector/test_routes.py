"""Routes over HTTP that need more than one request and its result; others are scenarios."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import orjson
import pytest

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.vector.fake import VectorIndex

Result = Any


class Api:
    """Send requests to one index over a persistent connection."""

    def __init__(self, **settings: Any) -> None:
        self.context = Context.alone(now="2026-01-01T00:00:00Z")
        self.index = VectorIndex(self.context, **{"dimension": 2, **settings})
        self.http = httpx.Client(base_url=self.index.url, headers=self.index.headers, verify=False)

    def send(self, method: str, path: str, body: object = None, **options: Any) -> httpx.Response:
        content = (
            body if isinstance(body, bytes) else orjson.dumps(body) if body is not None else b""
        )
        return self.http.request(method, path, content=content, **options)

    def __call__(self, path: str, body: object = None, method: str = "POST") -> Result:
        answer = self.send(method, path, body)
        assert answer.status_code == 200, answer.text
        payload = answer.json()
        assert list(payload) == ["result"]
        return payload["result"]

    def error(self, path: str, body: object = None) -> tuple[int, str]:
        answer = self.send("POST", path, body)
        payload = answer.json()
        assert payload["status"] == answer.status_code
        return payload["status"], payload["error"]


@pytest.fixture
def make() -> Iterator[Callable[..., Api]]:
    made: list[Api] = []

    def make(**settings: Any) -> Api:
        made.append(Api(**settings))
        return made[-1]

    yield make
    for api in made:
        api.http.close()
        api.index.close()
        assert [p for p in api.context.violations if p.kind == "bug"] == []


@pytest.fixture
def api(make: Callable[..., Api]) -> Api:
    return make()


@pytest.fixture
def filled(api: Api) -> Api:
    records = [
        {"id": f"id-{n}", "vector": [1, n], "metadata": {"n": n}, "data": f"d{n}"} for n in range(3)
    ]
    api("/upsert", records)
    return api


# -- transport -----------------------------------------------------------------------------------


def test_a_head_request_is_refused(api: Api) -> None:
    answer = api.send("HEAD", "/info")
    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, GET, POST, PUT")


@pytest.mark.parametrize("path", ["/", "/nope", "/upserts", "/info/extra"])
def test_an_unknown_path_is_a_json_error(api: Api, path: str) -> None:
    assert api.error(path)[0] == 404
    assert [violation.kind for violation in api.context.violations] == ["unrouted"]


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eDp5"}]
)
def test_a_token_is_needed(api: Api, headers: dict[str, str]) -> None:
    answer = httpx.post(api.index.url + "/info", headers=headers)
    assert answer.status_code == 401
    assert answer.json() == {"error": "Unauthorized: Invalid auth token", "status": 401}


def test_the_read_only_token_reads_only(filled: Api) -> None:
    headers = {"Authorization": f"Bearer {filled.index.read_only_token}"}
    query = {"vector": [1, 0], "topK": 1}
    assert len(filled.send("POST", "/query", query, headers=headers).json()["result"]) == 1
    before = filled.index.snapshot().data
    refused = set()
    for route in filled.index._app.table.routes:
        answer = filled.send("POST", f"/{route.name}", {}, headers=headers)
        if answer.status_code == 401:
            assert "read-only" in answer.json()["error"]
            refused.add(route.name)
    assert refused == filled.index._app.writes
    assert refused > {"upsert", "upsert-data", "update", "delete", "reset", "delete-namespace"}
    after = filled.index.snapshot().data
    assert list(after.namespaces) == list(before.namespaces)
    assert len(filled.index.vectors()) == 3


# -- records -------------------------------------------------------------------------------------


def test_numbers_are_the_shortest_of_float32(api: Api) -> None:
    api("/upsert", {"id": "a", "vector": [0.1, 3.4e38]})
    api("/upsert", {"id": "b", "vector": [16777217, 1e-45]})
    answer = api.send("POST", "/fetch", {"ids": ["a", "b"], "includeVectors": True})
    assert b'"vector":[0.1,3.4e38]' in answer.content.replace(b"e+38", b"e38")
    assert b'"vector":[16777216.0,1e-45]' in answer.content


# -- what faults and reports see -----------------------------------------------------------------


def test_the_journal_knows_command_namespace_and_fields(filled: Api) -> None:
    filled("/query/ns", {"vector": [1, 2], "filter": "n = 1", "topK": 3})
    filled("/delete", ["id-0"])
    query, delete = filled.index.journal.calls()[-2:]
    assert query.facts == {"command": "query", "namespace": "ns", "filter": "n = 1", "topK": 3}
    assert delete.facts == {"command": "delete", "namespace": "", "ids": ["id-0"]}


def test_faults_match_commands_and_answer_in_the_service_dialect(filled: Api) -> None:
    with filled.index.faults.respond(503, command="query") as fault:
        filled("/info")
        assert filled.send("POST", "/query", {"vector": [1, 2]}).json()["status"] == 503
    assert fault.hits == 1
    assert len(filled("/query", {"vector": [1, 2]})) == 3


# -- filters whose cost grows with their length and the index ------------------------------------

DOCUMENT = {"id": "a", "content": {"title": "A"}, "metadata": {}}
SEARCH: dict[str, Any] = {
    "/search/movies": {"query": "a", "topK": 5, "includeData": True},
    "/upsert-data/movies": [DOCUMENT],
    "/fetch/movies": {"ids": ["a"], "includeData": True},
    "/delete/movies": {"ids": ["a"]},
    "/range/movies": {"cursor": "0", "limit": 5},
    "/reset/movies": None,
    "/delete-namespace/movies": None,
    "/info": None,
    "/list-namespaces": None,
}
"""Requests of the clients of Upstash Search (`@upstash/search` 0.1.7, `upstash-search` 0.1.1)."""


@pytest.mark.parametrize("sdk", ["upstash-search-js@0.1.0", "upstash-search-py@v0.1.1"])
@pytest.mark.parametrize("path", SEARCH)
def test_every_request_of_the_search_clients_names_their_product(
    make: Callable[..., Api], path: str, sdk: str
) -> None:
    api = make(embedding=True)
    api.index.load([{"id": "a", "data": "text"}], namespace="movies")
    api.http.headers["Upstash-Telemetry-Sdk"] = sdk
    assert api.error(path, SEARCH[path]) == (
        404,
        f"Upstash Search is not faked, only Upstash Vector: POST {path}",
    )
    (violation,) = api.context.violations
    assert (violation.kind, violation.facts["path"]) == ("unrouted", path)
    assert "Upstash Search is not faked, only Upstash Vector" in violation.text
