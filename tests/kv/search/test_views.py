"""The test's view of search: ``search_index()``, ``searches``, ``assert_searched()``."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import ANY

import httpx
import pytest

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.kv.fake import KVServer

CREATE = "SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA title TEXT price F64 FAST brand KEYWORD"


@pytest.fixture
def context() -> Context:
    return Context.alone(now="2026-01-01T00:00:00Z")


@pytest.fixture
def server(context: Context) -> Iterator[KVServer]:
    with KVServer(context) as server:
        server.execute(*CREATE.split())
        server.execute("JSON.SET", "p:1", "$", '{"title":"Running Shoes","price":40}')
        server.execute("JSON.SET", "p:2", "$", '{"title":"red boots","price":"dear"}')
        yield server


def post(server: KVServer, *words: object) -> object:
    answer = httpx.post(server.url, json=[*words], headers=server.headers)
    return answer.json().get("result")


class TestTheView:
    def test_schema_documents_and_name(self, server: KVServer) -> None:
        server.execute("SEARCH.ALIASADD", "live", "i")
        view = server.search_index("live")
        assert view.schema == {"title": ["TEXT"], "price": ["F64", "FAST"], "brand": ["KEYWORD"]}
        assert view.documents == {
            "p:1": {"title": ["run", "shoe"], "price": [40.0]},
            "p:2": {"title": ["red", "boot"]},
        }
        assert view.pending == []
        assert repr(view) == "<search index 'live'>"
        assert server.value("i")["prefixes"] == ["p:"]

    def test_an_index_of_a_stream(self, server: KVServer) -> None:
        server.execute("XADD", "events", "1-0", "t", "late", "n", "x")
        server.execute(
            *[
                "SEARCH.CREATE",
                "s",
                "ON",
                "STREAM",
                "events",
                "SKIPINITIALSCAN",
                "SCHEMA",
                "t",
                "TEXT",
                "n",
                "U64",
            ]
        )
        server.execute("XADD", "events", "2-0", "t", "two words", "n", "x")
        server.execute("XADD", "events", "3-0", "n", "x")
        view = server.search_index("s")
        assert view.documents == {"2-0": {"t": ["two", "word"]}}
        assert view.explain("2-0", {"n": 1}) == [
            "n $eq 1: no match; the document has no 'n' that could be indexed"
        ]
        assert view.explain("1-0", {}) == [
            "it existed before the index, which skipped the initial scan"
        ]
        assert view.explain("3-0", {}) == ["none of its fields could be indexed"]
        for unknown in ("4-0", "events"):
            assert view.explain(unknown, {}) == ["'events' has no such entry"]
        post(server, "SEARCH.QUERY", "s", '{"t":"words"}')
        server.assert_searched("s", keys="2-0")

    def test_why_a_retriever_does_not_return_a_key(self, server: KVServer) -> None:
        server.execute(
            *[
                "SEARCH.CREATE",
                "h",
                "ON",
                "JSON",
                "PREFIX",
                "1",
                "p:",
                "SCHEMA",
                "title",
                "HYBRID",
                "price",
                "F64",
            ]
        )
        server.execute("JSON.SET", "p:3", "$", '{"price":5}')
        explain = server.search_index("h").explain
        near = {"$ann": {"field": "title", "query": "boots", "filter": {"price": 40}}}
        assert explain("p:1", near) == []
        assert explain("p:2", near) == [
            "price $eq 40: no match; the document has no 'price' that could be indexed"
        ]
        no_text = "$ann: the document has no text in 'title' that could be embedded"
        assert explain("p:3", near) == [no_text]
        assert explain("p:1", {"$rrf": {"retrievers": [{"price": 7}, near]}}) == []
        assert explain("p:3", {"$rrf": {"retrievers": [{"price": 7}, near]}}) == [
            "price $eq 7: no match; its 'price' is 5.0", no_text,
        ]  # fmt: skip
        with pytest.raises(ContractError, match="the vendor rejects this filter: \\$ann takes"):
            explain("p:1", {"$ann": {}})

    def test_one_that_is_not_there(self, server: KVServer) -> None:
        with pytest.raises(ContractError, match="there is no search index 'no'"):
            server.search_index("no")
        view = server.search_index("i")
        server.execute("SEARCH.DROP", "i")
        with pytest.raises(ContractError, match="no search index 'i'"):
            _ = view.documents

    def test_why_a_key_is_not_found(self, server: KVServer) -> None:
        explain = server.search_index("i").explain
        assert explain("p:1", {"title": "shoe"}) == []
        assert explain("p:2", {"title": {"$eq": "shoes"}, "price": 40}) == [
            "title $eq \"shoes\": looked for [shoe]; its 'title' was indexed as [red boot]",
            "price $eq 40: no match; the document has no 'price' that could be indexed",
        ]
        assert explain("p:1", {"price": 40, "$mustNot": [{"title": {"$eq": "run"}}]}) == [
            '$mustNot excludes it: title $eq "run"'
        ]
        both = {"price": 40, "$should": [{"brand": "a"}, {"title": {"$eq": "run", "$boost": 2}}]}
        both["$mustNot"] = {"brand": "b"}
        assert explain("p:1", {"price": 40, "$mustNot": [both]}) == [
            '$mustNot excludes it: price $eq 40 but not brand $eq "b"'
        ]
        either = {"$or": [{"brand": "a"}, {"price": 40, "title": "run"}], "$boost": 2}
        assert explain("p:1", {"price": 40, "$mustNot": [either, {}]}) == [
            '$mustNot excludes it: (brand $eq "a" or price $eq 40 and title $smart "run")',
            "$mustNot excludes it: every document",
        ]
        assert len(explain("p:1", {"$should": [{"brand": "a"}, {"price": 1}]})) == 2
        assert explain("p:1", {"$should": [{"brand": "a"}, {"price": 40}]}) == []
        [why] = explain("p:1", {"title": {"$fuzzy": {"value": "boot", "prefix": True}}})
        assert "a prefix within 1 edit of 'boot'" in why
        [why] = explain("p:1", {"title": {"$regex": "b.*"}})
        assert "looked for a whole token that matches /b.*/" in why
        [why] = explain("p:1", {"$mustNot": [{"price": 1}]})
        assert "alone matches nothing" in why

    def test_why_a_key_is_not_indexed(self, server: KVServer) -> None:
        explain = server.search_index("i").explain
        server.execute("SET", "p:s", "x")
        server.execute("JSON.SET", "p:a", "$", "[]")
        for key, reason in {
            "p:9": "the key does not exist",
            "i": "its name starts with none of the prefixes p:",
            "p:s": "it is a string, but the index is on JSON keys",
            "p:a": "its value is not a JSON object",
        }.items():
            assert explain(key, {}) == [reason]
        line = CREATE.replace(" i ", " j ").replace("SCHEMA", "SKIPINITIALSCAN SCHEMA")
        server.execute(*line.split())
        assert "skipped the initial scan" in server.search_index("j").explain("p:1", {})[0]

    def test_a_filter_that_the_service_refuses(self, server: KVServer) -> None:
        with pytest.raises(
            ContractError, match="vendor rejects this filter: Unknown field: nobody"
        ):
            server.search_index("i").explain("p:1", {"nobody": 1})


class TestSearches:
    def test_recorded_searches(self, server: KVServer) -> None:
        post(server, "SEARCH.QUERY", "i", '{"title":"shoe"}')
        post(server, "SEARCH.COUNT", "i", "{}")
        post(server, "SEARCH.AGGREGATE", "i", '{"price":40}', "{}")
        server.execute("SEARCH.COUNT", "i", "{}")  # searches of the test itself are not recorded
        assert [(search.command, search.total, search.keys) for search in server.searches()] == [
            ("query", 1, ["p:1"]), ("count", 2, []), ("aggregate", 1, []),
        ]  # fmt: skip
        assert server.searches().where(command="count").only().filter == {}
        assert len(server.assert_searched()) == 3
        assert len(server.assert_searched("i", times=3)) == 3
        server.assert_searched("i", keys="p:*", filter={"title": ANY})
        server.assert_not_searched("other")
        server.assert_not_searched(keys="p:2")

    def test_a_failure_names_the_clause(self, server: KVServer) -> None:
        post(server, "SEARCH.QUERY", "i", '{"title":{"$eq":"shoe"},"price":{"$gt":1}}')
        with pytest.raises(AssertionError) as failed:
            server.assert_searched("i", keys="p:2")
        for line in (
            "expected a search index='i' keys='p:2' at least once, found 0",
            "query of 'i'",
            "returned [p:1]",
            "p:2: title $eq \"shoe\": looked for [shoe]; its 'title' was indexed as [red boot]",
            "p:2: price $gt 1: no match; the document has no 'price' that could be indexed",
        ):
            assert line in str(failed.value)

    def test_a_failure_shows_the_results_of_searches(self, server: KVServer) -> None:
        post(server, "SEARCH.QUERY", "i", '{"title":"boots"}')
        post(server, "SEARCH.COUNT", "i", "{}")
        with pytest.raises(AssertionError) as failed:
            server.assert_searched("other", keys="p:2")
        message = str(failed.value)
        assert "returned [p:2]" in message
        assert "count of 'i' {} found 2 documents" in message
        assert "p:2: " not in message.split("count of")[0], "it was found there"

    def test_nothing_at_all(self, server: KVServer) -> None:
        with pytest.raises(AssertionError, match="no client has searched yet"):
            server.assert_searched()

    def test_a_reset_forgets_them(self, server: KVServer) -> None:
        post(server, "SEARCH.COUNT", "i", "{}")
        server.reset()
        assert server.searches() == []
        assert server.execute("SEARCH.LISTINDEXES") == []


class TestSettings:
    def test_until_a_time(self, context: Context) -> None:
        with KVServer(context, search_ready_after="2s") as server:
            server.execute(*CREATE.split())
            server.execute("JSON.SET", "p:1", "$", '{"price":1}')
            assert server.search_index("i").pending == ["p:1"]
            assert post(server, "SEARCH.COUNT", "i", "{}") == 0
            server.assert_searched("i", pending=1, total=0)
            (why,) = server.search_index("i").explain("p:1", {})
            assert why == "it is not indexed yet; run SEARCH.WAITINDEXING"
            with pytest.raises(AssertionError, match=r"1 pending change"):
                server.assert_not_searched("i")
            context.timekeeper.advance("2s")
            assert post(server, "SEARCH.COUNT", "i", "{}") == 1
            server.execute("JSON.SET", "p:1", "$", '{"price":2}')
            (why,) = server.search_index("i").explain("p:1", {})
            assert why == "its last change is not indexed yet; run SEARCH.WAITINDEXING"

    def test_for_a_number_of_searches(self, context: Context) -> None:
        with KVServer(context, search_ready_after_reads=2) as server:
            server.execute(*CREATE.split())
            server.execute("JSON.SET", "p:1", "$", '{"price":1}')
            counts = [post(server, "SEARCH.COUNT", "i", "{}") for _ in range(4)]
            assert counts == [0, 0, 1, 1]

    def test_more_indexes(self, context: Context) -> None:
        with KVServer(context, max_search_indexes=1) as server:
            server.execute(*CREATE.split())
            with pytest.raises(Exception, match="Exceeded max index count of 1"):
                server.execute(*CREATE.replace(" i ", " j ").split())


class TestFaults:
    def test_a_fault_is_meant_for_an_index(self, server: KVServer) -> None:
        server.faults.respond(503, index="i", command="SEARCH.QUERY", times=1)
        other = httpx.post(server.url, json=["SEARCH.LISTINDEXES"], headers=server.headers)
        asked = ["SEARCH.QUERY", "i", '{"title":"boots"}']
        first = httpx.post(server.url, json=asked, headers=server.headers)
        assert (other.status_code, first.status_code) == (200, 503)
        assert httpx.post(server.url, json=asked, headers=server.headers).status_code == 200
        assert len(server.journal.calls(index="i")) == 2

    def test_another_index_is_left_alone(self, server: KVServer) -> None:
        with server.faults.respond(503, index="j*"):
            assert post(server, "SEARCH.QUERY", "i", '{"title":"boots"}') is not None
        server.assert_not_called(index="j")
