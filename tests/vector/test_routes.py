"""Test the index over HTTP: paths, methods, forms of bodies, and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import orjson
import pytest

from pytest_fakecloud.core import budget
from pytest_fakecloud.handle import Context
from pytest_fakecloud.vector.handle import VectorIndex

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

    def error(self, path: str, body: object = None, method: str = "POST") -> tuple[int, str]:
        before = self.index.snapshot().data
        answer = self.send(method, path, body)
        payload = answer.json()
        assert set(payload) == {"error", "status"}
        assert payload["status"] == answer.status_code
        assert answer.headers["content-type"] == "application/json"
        after = self.index.snapshot().data
        assert list(before.namespaces) == list(after.namespaces)
        for name, space in before.namespaces.items():
            assert [r.id for _, r in space.scan()] == [
                r.id for _, r in after.namespaces[name].scan()
            ]
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
        assert [p for p in api.context.problems if p.kind == "bug"] == []


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


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_every_command_takes_every_documented_method(make: Callable[..., Api], method: str) -> None:
    api = make(embedding=True)
    record = {"id": "a", "vector": [1, 2]}
    query = {"vector": [1, 2]}
    bodies: dict[str, Any] = {
        "/upsert": record, "/upsert-data": {"id": "b", "data": "hello"}, "/query": query,
        "/query-data": {"data": "hello"}, "/resumable-query-data": {"data": "hello", "topK": 1},
        "/fetch": {"ids": ["a"]}, "/range": {"cursor": "0", "limit": 1},
        "/update": {"id": "a", "data": "x"}, "/random": None, "/info": None,
        "/list-namespaces": None, "/delete": ["a"], "/reset": None, "/upsert/ns": record,
        "/rename-namespace": {"namespace": "ns", "newNamespace": "new"},
        "/delete-namespace/new": None,
    }  # fmt: skip
    for path, body in bodies.items():
        api(path, body, method)
    uuid = api("/resumable-query", query, method)["uuid"]
    assert api("/resumable-query-next", {"uuid": uuid, "additionalK": 1}, method) == []
    assert api("/resumable-query-end", {"uuid": uuid}, method) == "Success"


@pytest.mark.parametrize("body", [b"", b"[]"])
@pytest.mark.parametrize("path", ["/info", "/list-namespaces", "/reset", "/reset?all", "/random"])
def test_commands_without_fields_ignore_their_body(api: Api, path: str, body: bytes) -> None:
    api(path, body)


def test_a_body_is_json_whatever_its_content_type(api: Api) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = api.send("POST", "/upsert", {"id": "a", "vector": [1, 2]}, headers=headers)
    assert answer.json() == {"result": "Success"}


@pytest.mark.parametrize("method", ["PATCH", "OPTIONS", "HEAD"])
def test_other_methods_are_refused(api: Api, method: str) -> None:
    answer = api.send(method, "/info")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "DELETE, GET, POST, PUT"
    if method != "HEAD":
        assert answer.json()["status"] == 405


@pytest.mark.parametrize("path", ["/", "/nope", "/upserts", "/info/extra"])
def test_an_unknown_path_is_a_json_error(api: Api, path: str) -> None:
    assert api.error(path)[0] == 404
    assert [problem.kind for problem in api.context.problems] == ["unrouted"]


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


# -- namespaces in paths -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/upsert", ""), ("/upsert/", ""), ("/upsert/ns", "ns"), ("/upsert/a/b//c", "a/b//c"),
        ("/upsert/a%20b", "a b"), ("/upsert/a%2Fb", "a/b"), ("/upsert/é", "é"),
        ("/upsert/upsert", "upsert"),
    ],
)  # fmt: skip
def test_everything_after_the_command_is_the_namespace(api: Api, path: str, name: str) -> None:
    api(path, {"id": "a", "vector": [1, 2]})
    assert api.index.namespaces() == list(dict.fromkeys(["", name]))
    assert [item["id"] for item in api.index.vectors(name)] == ["a"]
    api(path.replace("/upsert", "/delete", 1), ["a"])
    assert api.index.vectors(name) == []


def test_namespace_commands(filled: Api) -> None:
    filled("/upsert/b", {"id": "x", "vector": [1, 2]})
    assert filled("/list-namespaces") == ["", "b"]
    assert filled("/rename-namespace", {"namespace": "b", "newNamespace": "c"}) == {"renamed": True}
    filled("/upsert/d", {"id": "y", "vector": [1, 2]})
    both = {"namespace": "c", "newNamespace": "d"}
    assert filled("/rename-namespace", both) == {"renamed": False}
    assert filled("/rename-namespace", {**both, "deleteExisting": True}) == {"renamed": True}
    assert filled("/list-namespaces") == ["", "d"]
    assert filled("/delete-namespace/d") == "Success"
    missing = "Namespace d for the index vector_index does not exist"
    assert filled.error("/delete-namespace/d") == (404, missing)
    assert filled.error("/delete-namespace") == (400, "The default namespace cannot be deleted.")
    assert filled.error("/rename-namespace", {"namespace": "d"})[0] == 422


# -- records -------------------------------------------------------------------------------------


def test_parts_that_are_absent_or_not_asked_for_are_left_out(api: Api) -> None:
    records = [
        {"id": 33, "vector": [0.1, 0.2]},
        {"id": "b", "vector": [1, 2], "metadata": {"x": None}, "data": ""},
    ]
    api("/upsert", records)
    everything = {"includeVectors": True, "includeMetadata": True, "includeData": True}
    assert api("/fetch", {"ids": [33, "nope", "b"], **everything}) == [
        {"id": "33", "vector": [0.1, 0.2]},
        None,
        {"id": "b", "vector": [1.0, 2.0], "metadata": {"x": None}, "data": ""},
    ]
    assert api("/fetch", {"ids": ["b"]}) == [{"id": "b"}]
    assert api("/fetch", {"ids": ["b"], "includeMetadata": None}) == [{"id": "b"}]
    assert api("/fetch", ["b"]) == [{"id": "b"}]


def test_numbers_are_the_shortest_of_float32(api: Api) -> None:
    api("/upsert", {"id": "a", "vector": [0.1, 3.4e38]})
    api("/upsert", {"id": "b", "vector": [16777217, 1e-45]})
    answer = api.send("POST", "/fetch", {"ids": ["a", "b"], "includeVectors": True})
    assert b'"vector":[0.1,3.4e38]' in answer.content.replace(b"e+38", b"e38")
    assert b'"vector":[16777216.0,1e-45]' in answer.content


def test_fetch_by_prefix(filled: Api) -> None:
    assert filled("/fetch", {"prefix": "id-", "includeData": True}) == [
        {"id": f"id-{n}", "data": f"d{n}"} for n in range(3)
    ]
    assert filled("/fetch", {"prefix": "zz"}) == []
    message = "Only one of ids or prefix must be provided."
    assert filled.error("/fetch", {"ids": ["a"], "prefix": "b"}) == (400, message)
    assert filled.error("/fetch", {}) == (400, message)


def test_fetch_by_prefix_stops_at_its_limit(make: Callable[..., Api]) -> None:
    api = make(limits={"prefix_fetch": 2})
    api("/upsert", [{"id": f"id-{n}", "vector": [1, n]} for n in range(3)])
    assert api("/fetch", {"prefix": "id-"}) == [{"id": "id-0"}, {"id": "id-1"}]


def test_range_pages(filled: Api) -> None:
    assert filled("/range", {"cursor": "", "limit": 2, "includeMetadata": True}) == {
        "nextCursor": "2",
        "vectors": [{"id": "id-0", "metadata": {"n": 0}}, {"id": "id-1", "metadata": {"n": 1}}],
    }
    last = {"nextCursor": "", "vectors": [{"id": "id-2"}]}
    assert filled("/range", {"cursor": "2", "limit": 2}, "GET") == last
    assert filled("/range", {"cursor": 2, "limit": 1}) == last
    assert filled("/range", {"prefix": "id-2"}) == last
    assert filled("/range/missing", {}) == {"nextCursor": "", "vectors": []}


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_range_without_a_body_is_the_first_page(make: Callable[..., Api], method: str) -> None:
    api = make(range_limit=2)
    api("/upsert", [{"id": str(n), "vector": [1, n]} for n in range(3)])
    page = {"nextCursor": "2", "vectors": [{"id": "0"}, {"id": "1"}]}
    assert api("/range", None, method) == page
    assert api("/range/", b" \n", method) == page


def test_delete_in_every_form(filled: Api) -> None:
    assert filled("/delete", ["id-0", "nope"], "DELETE") == {"deleted": 1}
    assert filled("/delete", {"ids": ["id-1"]}) == {"deleted": 1}
    assert filled("/delete", ["nope"]) == {"deleted": 0}
    filled(
        "/upsert",
        [{"id": "x-1", "vector": [1, 2]}, {"id": "x-2", "vector": [1, 2], "metadata": {"n": 9}}],
    )
    assert filled("/delete", {"filter": "n = 9"}) == {"deleted": 1}
    assert filled("/delete", {"prefix": "x-"}) == {"deleted": 1}
    message = "Only and only one of the ids, prefix, or filter must be provided."
    for body in ({}, {"ids": ["a"], "prefix": "b"}, {"prefix": "a", "filter": "n = 1"}):
        assert filled.error("/delete", body) == (400, message)
    assert [item["id"] for item in filled.index.vectors()] == ["id-2"]


def test_update(filled: Api) -> None:
    patch = {"id": "id-0", "metadata": {"m": 1, "n": None}, "metadataUpdateMode": "PATCH"}
    assert filled("/update", patch) == {"updated": 1}
    assert filled("/update", {"id": "nope", "data": "x"}) == {"updated": 0}
    first = filled.index.vectors()[0]
    assert first == {"id": "id-0", "vector": [1.0, 0.0], "metadata": {"m": 1}, "data": "d0"}


def test_reset(filled: Api) -> None:
    filled("/upsert/ns", {"id": "a", "vector": [1, 2]})
    filled("/upsert/kept", {"id": "a", "vector": [1, 2]})
    assert filled("/reset/ns") == "Success"
    assert filled("/reset/missing") == "Success"
    assert filled("/reset?all=false") == "Success"
    assert [len(filled.index.vectors(name)) for name in ("", "ns", "kept")] == [0, 0, 1]
    filled("/reset?all")
    assert filled.index.vectors("kept") == []
    assert filled("/list-namespaces") == ["", "ns", "kept"]


def test_random(filled: Api) -> None:
    record = filled("/random", method="GET")
    assert record["id"] in {"id-0", "id-1", "id-2"}
    assert set(record) == {"id", "vector"}
    assert filled("/random/missing") is None


# -- queries -------------------------------------------------------------------------------------


def test_query_with_its_options(filled: Api) -> None:
    hits = filled(
        "/query",
        {
            "vector": [1, 0], "topK": 2, "includeVectors": True, "includeMetadata": True,
            "includeData": True, "filter": "n >= 1",
        },
    )  # fmt: skip
    assert hits[0] == {
        "id": "id-1", "score": 0.8535534, "vector": [1.0, 1.0], "metadata": {"n": 1}, "data": "d1",
    }  # fmt: skip
    assert [hit["id"] for hit in hits] == ["id-1", "id-2"]
    assert filled("/query", {"vector": [1, 0], "topK": 1}) == [{"id": "id-0", "score": 1.0}]
    assert len(filled("/query", {"vector": [1, 0], "filter": ""})) == 3


def test_a_batch_of_one_is_flat_and_of_more_is_nested(filled: Api) -> None:
    one, two = {"vector": [1, 0], "topK": 1}, {"vector": [0, 1], "topK": 2}
    assert filled("/query", [one]) == [{"id": "id-0", "score": 1.0}]
    nested = filled("/query", [one, two])
    assert [[hit["id"] for hit in hits] for hits in nested] == [["id-0"], ["id-2", "id-1"]]
    assert filled("/query", []) == []
    assert filled("/query/missing", [one, two]) == [[], []]


def test_a_resumable_query_from_start_to_end(filled: Api) -> None:
    start = {"vector": [1, 0], "topK": 1, "includeData": True, "maxIdle": 60}
    opened = filled("/resumable-query", start)
    assert opened["scores"] == [{"id": "id-0", "score": 1.0, "data": "d0"}]
    more = {"uuid": opened["uuid"], "additionalK": 5}
    assert [hit["data"] for hit in filled("/resumable-query-next", more)] == ["d1", "d2"]
    assert filled("/resumable-query-next", more) == []
    filled.index.clock.advance(61)
    assert filled.error("/resumable-query-next", more)[0] == 404
    assert filled.error("/resumable-query-end", {"uuid": opened["uuid"]})[0] == 404
    for body in ({}, {"uuid": 5}):
        assert filled.error("/resumable-query-end", body)[0] == 422
    assert filled.error("/resumable-query-next", {"uuid": "x"})[0] == 422
    assert filled.error("/resumable-query", [start])[0] == 400


def test_a_resumable_query_of_a_missing_namespace_is_empty_and_usable(api: Api) -> None:
    assert api("/resumable-query/missing", {"vector": [1, 0]}) == {"uuid": "", "scores": []}
    assert api("/resumable-query-next", {"uuid": "", "additionalK": 5}) == []
    assert api("/resumable-query-end", {"uuid": ""}) == "Success"


# -- kinds ---------------------------------------------------------------------------------------


def test_a_sparse_index(make: Callable[..., Api]) -> None:
    api = make(kind="sparse", dimension=None)
    vector = {"indices": [7, 3, 7], "values": [0.1, 0.2, 0.3]}
    api("/upsert", {"id": "a", "sparseVector": vector, "vector": None})
    assert api(
        "/query", {"sparseVector": {"indices": [7], "values": [2]}, "includeVectors": True}
    ) == [{"id": "a", "score": 0.8, "sparseVector": vector}]
    assert api("/query", {"sparseVector": {"indices": [8], "values": [2]}}) == []
    info = api("/info")
    assert (info["indexType"], info["dimension"], info["similarityFunction"]) == ("SPARSE", 0, "")
    assert "denseIndex" not in info
    assert info["sparseIndex"] == {"embeddingModel": ""}


def test_a_hybrid_index_with_an_embedding(make: Callable[..., Api]) -> None:
    api = make(kind="hybrid", embedding=True, dimension=64)
    records = [
        {"id": "a", "data": "hello world", "metadata": {"x": 1}},
        {"id": "b", "data": "vector databases", "metadata": None},
    ]
    api("/upsert-data", records)
    ask = {"data": "hello", "topK": 1, "includeMetadata": True, "includeData": True}
    (hit,) = api("/query-data", ask)
    assert hit == {"id": "a", "score": 0.033333335, "metadata": {"x": 1}, "data": "hello world"}
    dense = api("/query-data", {"data": "hello", "queryMode": "DENSE"})
    sparse = api("/query-data", {"data": "hello", "queryMode": "SPARSE"})
    assert [hit["id"] for hit in dense] == ["a", "b"]
    assert [hit["id"] for hit in sparse] == ["a"]
    assert [h["id"] for h in api("/query-data", [ask, {**ask, "data": "databases"}])[1]] == ["b"]
    opened = api("/resumable-query-data", ask)
    assert opened["scores"][0]["id"] == "a"
    api("/update", {"id": "b", "data": "hello hello"})
    assert [hit["id"] for hit in api("/query-data", {"data": "hello", "queryMode": "SPARSE"})] == [
        "b",
        "a",
    ]
    info = api("/info")
    dense_index = {"dimension": 64, "similarityFunction": "COSINE", "embeddingModel": "hash"}
    assert info["denseIndex"] == dense_index
    assert info["sparseIndex"] == {"embeddingModel": "bm25"}


def test_an_update_of_text_without_a_model_only_replaces_it(filled: Api) -> None:
    filled("/update", {"id": "id-0", "data": "new"})
    assert filled.index.vectors()[0]["data"] == "new"
    assert filled.index.vectors()[0]["vector"] == [1.0, 0.0]


def test_text_needs_a_model(api: Api) -> None:
    message = (
        "Embedding data for this index is not allowed. "
        "The index must be created with an embedding model to use it."
    )
    for path, body in {
        "/upsert-data": {"id": "a", "data": "x"},
        "/upsert": {"id": "a", "data": "x"},
        "/query-data": {"data": "x"},
        "/resumable-query-data": {"data": "x"},
        "/query": {"data": "x"},
        "/resumable-query": {"data": "x", "vector": None},
    }.items():
        assert api.error(path, body) == (422, message)


def test_a_query_is_by_text_or_by_vector(make: Callable[..., Api]) -> None:
    api = make(embedding=True)
    both = {"data": "x", "vector": [1, 2]}
    message = "A query with a vector must be sent to query, not to query-data"
    assert api.error("/query-data", both)[1] == message
    message = "A query with data must be sent to query-data, not to query"
    assert api.error("/query", both)[1] == message
    assert api.error("/query-data", {})[1] == "Missing field data: expected a string"


def test_query_modes_are_for_hybrid_indexes(make: Callable[..., Api]) -> None:
    api = make(embedding=True)
    api("/query-data", {"data": "x", "queryMode": "HYBRID"})
    status, text = api.error("/query-data", {"data": "x", "queryMode": "SPARSE"})
    assert (status, text) == (422, "queryMode SPARSE is for hybrid indexes only")


def test_info(filled: Api) -> None:
    filled("/upsert/ns", {"id": "a", "vector": [1, 2]})
    assert filled("/info", method="GET") == {
        "vectorCount": 4,
        "pendingVectorCount": 0,
        "indexSize": 4 * 24,
        "dimension": 2,
        "similarityFunction": "COSINE",
        "indexType": "DENSE",
        "denseIndex": {"dimension": 2, "similarityFunction": "COSINE", "embeddingModel": ""},
        "namespaces": {
            "": {"vectorCount": 3, "pendingVectorCount": 0},
            "ns": {"vectorCount": 1, "pendingVectorCount": 0},
        },
    }


# -- bad input -----------------------------------------------------------------------------------

GOOD = {"id": "good", "vector": [1, 2]}


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("/upsert", {"id": "a", "vector": [1, 2, 3]}, 422,
         "Invalid vector dimension: 3, expected: 2"),
        ("/upsert", [GOOD, {"id": "a", "vector": [1]}], 422,
         "Invalid vector dimension: 1, expected: 2"),
        ("/upsert", {"id": "a", "vector": []}, 422, "Invalid vector dimension: 0, expected: 2"),
        ("/upsert", b'{"id": "a", "vector": [NaN, 1]}', 400, "not valid JSON"),
        ("/upsert", b'{"id": "a", "vector": [Infinity, 1]}', 400, "not valid JSON"),
        ("/upsert", b'{"id": "a", "vector": [1e39, 1]}', 422, "32-bit float"),
        ("/upsert", b'{"id": "a", "vector": [-1e400, 1]}', None, ""),
        ("/upsert", [GOOD, {"id": "a"}], 422, "needs the field vector"),
        ("/upsert", [GOOD, GOOD, 5], 400, "A vector must be a JSON object, got 5"),
        ("/upsert", [GOOD, {**GOOD, "metadata": {"x": "y" * 2**20}}], 400, "Metadata size limit"),
        ("/upsert", [GOOD, {**GOOD, "data": "y" * (2**20 + 1)}], 400, "Data size limit exceeded"),
        ("/upsert", [GOOD, {**GOOD, "vectors": []}], 400, "unknown field 'vectors'; did you mean"),
        ("/upsert", b"", 400, "The request body is empty, expected JSON"),
        ("/upsert", b"{", 400, "The request body is not valid JSON"),
        ("/upsert", b'"\xff"', 400, "not valid JSON"),
        ("/upsert", b'{"id": "\\ud800"}', 400, "not valid JSON"),
        ("/upsert", b"[" * 100_000, 400, "not valid JSON"),
        ("/upsert", "text", 400, "A vector must be a JSON object"),
        ("/query", {"vector": [1]}, 422, "Invalid vector dimension: 1, expected: 2"),
        ("/query", {"topK": 5}, 422, "needs the field vector, which is missing in the query"),
        ("/query", {"vector": [1, 2], "top_k": 5}, 400, "did you mean 'topK'"),
        ("/query", {"vector": [1, 2], "data": "x"}, 400, "must be sent to query-data"),
        ("/query", {"vector": [1, 2], "filter": "(" * 10_000}, 400, "nested more than 100"),
        ("/query", {"vector": [1, 2], "filter": "a = " + "(" * 10_241}, 400, "Filter size limit"),
        ("/query", {"vector": [1, 2], "filter": "tags[] = 1"}, 400,
         "At line 1:4 token recognition"),
        ("/range", {"cursor": "abc"}, 400, "Invalid cursor 'abc'"),
        ("/delete", {"filter": "n ="}, 400, "Invalid filter. At line 1:3"),
        ("/delete", {"filter": ""}, 400, "To remove everything, use reset"),
        ("/update", {"id": "id-0", "vector": [1]}, 422, "dimension: 1, expected: 2"),
    ],
)  # fmt: skip
def test_bad_input_changes_nothing(
    filled: Api, path: str, body: object, status: int | None, text: str
) -> None:
    got, message = filled.error(path, body)
    assert got in (400, 422)
    assert status in (None, got)
    assert text in message


def test_ids_of_100_kb_are_stored_unless_limited(make: Callable[..., Api]) -> None:
    long = "x" * 100_000
    api = make()
    api("/upsert", {"id": long, "vector": [1, 2]})
    assert api("/fetch", {"ids": [long]}) == [{"id": long}]
    limited = make(limits={"id_bytes": 1000})
    status, text = limited.error("/upsert", {"id": long, "vector": [1, 2]})
    assert (status, text) == (400, "Id size limit exceeded: 100000 bytes, maximum: 1000 bytes")


def test_batches_under_a_limit(make: Callable[..., Api]) -> None:
    api = make(limits={"vectors_per_call": 2})
    records = [{"id": str(n), "vector": [1, n]} for n in range(3)]
    assert api.error("/upsert", records) == (400, "Batch size limit exceeded: 3, maximum: 2")


def test_an_in_list_of_1000_texts_is_refused(filled: Api) -> None:
    names = ", ".join(f"'name-{n}'" for n in range(1000))
    assert filled.error("/query", {"vector": [1, 2], "filter": f"a IN ({names})"})[0] == 400
    short = ", ".join(f"'n{n}'" for n in range(500))
    assert filled("/query", {"vector": [1, 2], "filter": f"a IN ({short})"}) == []


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

FILTERS = {
    "tests": " OR ".join(["a = 1"] * 200),
    "CONTAINS": " OR ".join(["list CONTAINS 1"] * 20),
    "GLOB": "text GLOB '*" + "?b" * 500 + "c*'",
    "HAS": " OR ".join(["HAS FIELD x"] * 200),
}


@pytest.mark.parametrize("filter", FILTERS.values(), ids=FILTERS)
def test_a_filter_stops_at_its_budget(filter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = {"a": 0, "list": [0] * 50, "text": "b" * 2000}
    with VectorIndex(Context.alone(), dimension=2) as index:
        index.load([{"id": str(n), "vector": [1, n], "metadata": metadata} for n in range(50)])
        asked = [
            ("query", {"vector": [1, 1], "topK": 3, "filter": filter}),
            ("delete", {"filter": filter}),
        ]
        with httpx.Client(base_url=index.url, headers=index.headers, trust_env=False) as http:
            monkeypatch.setattr(budget, "STEPS", 20_000)
            for path, body in asked:
                answer = http.post(f"/{path}", json=body)
                assert answer.status_code == 422
                assert "it takes more than" in answer.json()["error"]
            assert http.get("/info").json()["result"]["vectorCount"] == 50


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
    (problem,) = api.context.problems
    assert (problem.kind, problem.facts["path"]) == ("unrouted", path)
    assert "Upstash Search is not faked, only Upstash Vector" in problem.text


@pytest.mark.parametrize("path", ["/search", "/search/", "/search/movies", "/search/a/b"])
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
def test_a_path_of_the_search_service_names_its_product(api: Api, method: str, path: str) -> None:
    status, error = api.error(path, {"query": "a"}, method)
    assert (status, error.partition(":")[0]) == (
        404,
        "Upstash Search is not faked, only Upstash Vector",
    )


@pytest.mark.parametrize("body", [DOCUMENT, [DOCUMENT], [{"id": "b", "data": "b"}, DOCUMENT]])
def test_a_document_of_the_search_service_names_its_product(
    make: Callable[..., Api], body: object
) -> None:
    assert make(embedding=True).error("/upsert-data/movies", body) == (
        400,
        "A vector has an unknown field 'content'; Upstash Search is not faked, only Upstash Vector",
    )


@pytest.mark.parametrize("sdk", ["upstash-vector-js@1.2.3", "upstash-vector-py@v0.8.1", ""])
def test_requests_of_the_vector_clients_are_served(api: Api, sdk: str) -> None:
    api.http.headers["Upstash-Telemetry-Sdk"] = sdk
    assert api("/list-namespaces") == [""]
    assert api("/range/search/") == {"nextCursor": "", "vectors": []}
