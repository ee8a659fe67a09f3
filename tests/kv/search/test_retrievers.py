"""Retrievers of hybrid search: $standard, $ann and $rrf."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_fakecloud.kv.reply import to_json
from pytest_fakecloud.similarity.hashing import hash_dense

from .conftest import Searching, cases

DESCRIPTIONS = {
    "p:1": "wireless headset with noise cancelling",
    "p:2": "wired headset",
    "p:3": "running shoes for every runner",
    "p:4": "headphones that cancel noise",
}
TOP_OF_BOTH = 2 / 61
TOP_OF_ONE = 1 / 61


def ann(query: str, **more: Any) -> dict[str, Any]:
    return {"$ann": {"field": "description", "query": query, **more}}


def rrf(*retrievers: Any, **more: Any) -> dict[str, Any]:
    return {"$rrf": {"retrievers": list(retrievers), **more}}


@pytest.fixture
def catalogue(bare: Searching) -> Searching:
    bare.run(
        "SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA name TEXT description HYBRID price F64 FAST"
    )
    for number, (key, description) in enumerate(DESCRIPTIONS.items(), 1):
        bare.put(key, {"name": f"number {number}", "description": description, "price": number})
    return bare


class TestNearest:
    def test_documents_by_similarity(self, catalogue: Searching) -> None:
        scores = catalogue.scores(ann("headset"))
        query = hash_dense("headset")
        for key, description in DESCRIPTIONS.items():
            expected = (1 + float(query @ hash_dense(description))) / 2
            assert scores[key] == pytest.approx(expected, abs=1e-6)
        assert list(scores) == sorted(scores, key=lambda key: -scores[key])
        assert catalogue.keys(ann("wired headset"))[0] == "p:2"
        assert catalogue.scores(ann("wired headset"))["p:2"] == 1

    @pytest.mark.parametrize("profile", ["fast", "balanced", "precise"])
    def test_pages_and_profiles(self, catalogue: Searching, profile: str) -> None:
        everything = catalogue.keys(ann("headset"))
        options = ("NOCONTENT", "LIMIT", 2, "OFFSET", 1)
        hits = to_json(catalogue.query(ann("headset", profile=profile), *options))
        assert [key for key, _ in hits] == everything[1:3]

    def test_a_filter_restricts_documents_and_keeps_scores(self, catalogue: Searching) -> None:
        everything = catalogue.scores(ann("headset"))
        cheap = catalogue.scores(ann("headset", filter={"price": {"$lt": 3}}))
        assert cheap == {key: everything[key] for key in cheap}
        assert set(cheap) == {"p:1", "p:2"}
        assert catalogue.keys(ann("headset", filter={"name": {"$eq": "none"}})) == []

    def test_documents_change_and_lose_their_embedding(self, catalogue: Searching) -> None:
        catalogue.put("p:1", {"description": "red boots"})
        catalogue.put("p:2", {"description": " "})
        catalogue.put("p:3", {"name": "no description"})
        catalogue.put("p:5", {"description": ["red", "boots"]})
        assert catalogue.scores(ann("red boots")) == {
            "p:1": 1, "p:5": 1, "p:4": pytest.approx(0.5, abs=0.2),
        }  # fmt: skip
        assert len(catalogue.found({})) == 5

    @pytest.mark.parametrize("kind", ["HASH", "STRING", "STREAM"])
    def test_every_kind_of_index(self, bare: Searching, kind: str) -> None:
        source = "STREAM s" if kind == "STREAM" else f"{kind} PREFIX 1 p:"
        bare.run(f"SEARCH.CREATE i ON {source} SCHEMA description HYBRID NOTOKENIZE FROM d")
        line = {
            "HASH": ("HSET", "p:1", "d", "red boots"),
            "STRING": ("SET", "p:1", '{"d":"red boots"}'),
            "STREAM": ("XADD", "s", "1-0", "d", "red boots"),
        }
        bare.run(*line[kind])
        [[key, score, _]] = to_json(bare.query(ann("red boots")))
        assert (key, score) == ("1-0" if kind == "STREAM" else "p:1", "1")
        described = to_json(bare.run("SEARCH.DESCRIBE i"))
        assert described[-1] == [["description", "HYBRID", "NOTOKENIZE", "FROM", "d"]]

    def test_a_snapshot_keeps_embeddings(self, catalogue: Searching) -> None:
        before = catalogue.scores(ann("headset"))
        saved = catalogue.run.engine.snapshot()
        catalogue.run("FLUSHALL")
        catalogue.run.engine.restore(saved)
        assert catalogue.scores(ann("headset")) == before


def test_a_hybrid_field_is_a_text_field(catalogue: Searching) -> None:
    assert catalogue.found({"description": {"$eq": "cancel"}}) == {"p:1", "p:4"}
    assert catalogue.found({"description": {"$fuzzy": "headzet"}}) == {"p:1", "p:2"}
    options = ("SELECT", 1, "description", "HIGHLIGHT", "FIELDS", 1, "description")
    [hit] = to_json(catalogue.query({"description": {"$eq": "shoes"}}, *options))
    assert hit[2] == [["description", "running <em>shoes</em> for every runner"]]


def test_a_standard_retriever_is_a_filter(catalogue: Searching) -> None:
    filter = {"description": {"$eq": "headset"}, "price": {"$gt": 1}}
    standard = {"$standard": {"query": filter}}
    assert catalogue.query(standard) == catalogue.query(filter)
    options = ("ORDERBY", "price", "ASC")
    assert catalogue.query(standard, *options) == catalogue.query(filter, *options)
    assert catalogue.found(standard) == {"p:2"}


class TestMerged:
    def test_scores_are_sums_of_reciprocal_ranks(self, catalogue: Searching) -> None:
        both = rrf({"description": {"$eq": "shoes"}}, ann("running shoes for every runner"))
        assert catalogue.scores(both)["p:3"] == TOP_OF_BOTH
        [first, *_] = to_json(catalogue.query(both, "NOCONTENT"))
        assert first == ["p:3", "0.03278688524590164"]
        query = rrf({"description": {"$eq": "shoes"}}, {"name": {"$eq": "none"}})
        assert to_json(catalogue.query(query, "NOCONTENT")) == [["p:3", "0.01639344262295082"]]

    def test_weights(self, catalogue: Searching) -> None:
        shoes, first = {"description": {"$eq": "shoes"}}, {"name": {"$eq": "1"}}
        heavy = {"$standard": {"query": shoes, "weight": 2}}
        assert catalogue.scores(rrf(heavy, first)) == {"p:3": TOP_OF_BOTH, "p:1": TOP_OF_ONE}
        nothing = {"$standard": {"query": shoes, "weight": 0}}
        assert catalogue.scores(rrf(nothing, first)) == {"p:1": TOP_OF_ONE, "p:3": 0}
        wired = ann("wired headset", weight=0.5, filter={"price": 2})
        assert catalogue.scores(rrf(wired, first)) == {"p:1": TOP_OF_ONE, "p:2": TOP_OF_ONE / 2}

    def test_the_rank_constant(self, catalogue: Searching) -> None:
        merged = rrf({"description": {"$eq": "shoes"}}, {"name": {"$eq": "none"}}, rankConstant=1)
        assert catalogue.scores(merged) == {"p:3": 0.5}

    def test_the_window_is_the_limit_by_default(self, catalogue: Searching) -> None:
        queries = {"price": {"$gte": 1}}, {"price": {"$gte": 2}}
        assert catalogue.keys(rrf(*queries)) == ["p:2", "p:3", "p:4", "p:1"]
        two = catalogue.query(rrf(*queries), "LIMIT", 2, "NOCONTENT")
        # Each retriever returns two documents: 1 and 2, 2 and 3.
        assert [hit[0] for hit in two] == [b"p:2", b"p:1"]
        assert catalogue.query(rrf(*queries), "LIMIT", 2, "OFFSET", 2, "NOCONTENT") == []
        wide = rrf(*queries, window=4)
        page = catalogue.query(wide, "LIMIT", 2, "OFFSET", 2, "NOCONTENT")
        assert [hit[0] for hit in page] == [b"p:4", b"p:1"]
        assert catalogue.keys(rrf(*queries, window=1)) == ["p:1"]
        assert (
            catalogue.keys(rrf(ann("headset"), ann("headset"), window=3))
            == catalogue.keys(ann("headset"))[:3]
        )

    def test_counts_and_aggregations(self, catalogue: Searching) -> None:
        merged = rrf({"name": {"$eq": "1"}}, {"$standard": {"query": {"price": {"$gte": 3}}}})
        assert catalogue.run("SEARCH.COUNT", "i", json.dumps(merged)) == 3
        reply = catalogue.aggregate({"a": {"$sum": {"field": "price"}}}, merged)
        assert reply == {"a": ["value", "8"]}
        limited = rrf({"price": {"$gte": 1}}, {"price": {"$gte": 2}}, window=1)
        assert catalogue.run("SEARCH.COUNT", "i", json.dumps(limited)) == 1

    def test_words_of_full_text_queries_are_marked(self, catalogue: Searching) -> None:
        merged = rrf({"description": {"$eq": "shoes"}}, ann("running"))
        options = ("SELECT", 1, "description", "HIGHLIGHT", "FIELDS", 1, "description")
        [first, *_] = to_json(catalogue.query(merged, *options))
        assert first[2] == [["description", "running <em>shoes</em> for every runner"]]


@pytest.mark.parametrize(("query", "message"), cases("rejected retrievers"))
def test_the_culprit_is_named(catalogue: Searching, query: str, message: str) -> None:
    assert message in catalogue.error(json.loads(query))


def test_what_retrievers_cannot_be_combined_with(catalogue: Searching) -> None:
    for query in (ann("headset"), rrf({}, ann("headset"))):
        for options in (("ORDERBY", "price"), ("SCOREFUNC", "FIELDVALUE", "price")):
            assert "cannot be combined with ORDERBY or SCOREFUNC" in catalogue.error(
                query, *options
            )
        for line in (("SEARCH.COUNT", "i"), ("SEARCH.AGGREGATE", "i")):
            rest = ("{}",) if "AGGREGATE" in line[0] else ()
            error = catalogue.run.error(*line, json.dumps(query), *rest)
            assert error == "ERR $ann is allowed only in SEARCH.QUERY"
