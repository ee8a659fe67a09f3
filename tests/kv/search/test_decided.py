"""Questions that the sources leave open and that were decided here, one test each."""

from __future__ import annotations

import pytest

from .conftest import Searching, text


def test_1_a_write_is_found_immediately(shop: Searching) -> None:
    shop.put("p:9", {"title": "fresh"})
    assert shop.found({"title": {"$eq": "fresh"}}) == {"p:9"}
    flat = text(shop.run("SEARCH.DESCRIBE i"))
    assert flat[flat.index("pendingUpdates") + 1] == 0


@pytest.mark.parametrize(
    ("line", "culprit"),
    [("SEARCH.QUERY i {\"nobody\":1}", "nobody"), ("SEARCH.QUERY i {}x", "filter"),
     ("SEARCH.QUERY i {} OFFSET one", "one"), ("SEARCH.QUERY i {} WHAT", "WHAT")],
)  # fmt: skip
def test_2_errors_name_the_culprit(shop: Searching, line: str, culprit: str) -> None:
    error = shop.run.error(*line.split())
    assert error.startswith("ERR ")
    assert culprit in error


def test_3_a_text_that_is_no_tokens_keeps_its_case(shop: Searching) -> None:
    assert shop.found({"code": {"$eq": "AB-1 x"}}) == {"p:1"}
    assert shop.found({"code": {"$eq": "ab-1 x"}}) == set()
    assert shop.found({"code": "AB-1 x"}) == {"p:1"}, "two edits are too many"
    assert shop.found({"code": "AB-2 x"}) == {"p:1"}
    assert shop.found({"code": {"$regex": "AB.*"}}) == {"p:1", "p:2"}


def test_4_smart_promises_an_order_only(shop: Searching) -> None:
    shop.put("p:5", {"title": "guitar"})
    shop.put("p:6", {"title": "guitars for bass players who wait"})
    shop.put("p:7", {"title": "a guitr"})
    assert shop.keys({"title": "guitar"})[0] == "p:5"
    assert shop.keys({"title": "guitar"})[-1] == "p:7"
    assert shop.keys({"title": "bass guitar"})[0] == "p:4"


def test_5_selected_values_are_raw(shop: Searching) -> None:
    shop.put("p:5", {"s": 'a "b"', "n": 1, "f": 2.0, "t": True, "o": {"x": [1, 2.5]}, "z": None})
    [hit] = text(shop.query({"$must": []}, "OFFSET", 4, "SELECT", 6, *"snftoz"))
    assert hit[2] == [
        ["s", 'a "b"'], ["n", "1"], ["f", "2.0"], ["t", "true"], ["o", '{"x":[1,2.5]}'],
    ]  # fmt: skip


def test_6_whole_words_are_marked_in_the_whole_value(shop: Searching) -> None:
    found = shop.query(
        {"title": {"$eq": "run"}}, "SELECT", 1, "title", "HIGHLIGHT", "FIELDS", 1, "title"
    )
    assert text(found)[0][2] == [["title", "<em>Running</em> shoes for every runner"]]


def test_7_every_scalar_of_an_array_is_a_value(shop: Searching) -> None:
    shop.put("p:5", {"title": ["red hat", ["blue", {"x": 1}], "coat"], "price": [7, 99, "x"]})
    shop.put("p:6", {"price": 50})
    assert shop.found({"title": {"$eq": "blue"}}) == {"p:5"}
    assert shop.found({"title": {"$eq": "red hat"}}) == {"p:5"}
    assert shop.found({"title": {"$phrase": {"value": "hat blue", "slop": 50}}}) == set()
    assert shop.found({"price": {"$gt": 90}}) == {"p:5"}
    assert shop.keys({"price": {"$gte": 7}}, "ORDERBY", "price")[-1] == "p:5"
    assert shop.scores({"price": 7}, "ORDERBY", "price") == {"p:5": 7}


def test_8_modes_are_sums(shop: Searching) -> None:
    line = ["SCOREFUNC", "FIELDVALUE", "price", "FIELDVALUE", "delta"]
    assert shop.scores({}, *line)["p:2"] == 1 + 40 + 7


def test_9_an_index_is_a_key_and_comes_before_an_alias(shop: Searching) -> None:
    run = shop.run
    assert run.error("GET i").startswith("WRONGTYPE")
    run.each("SEARCH.CREATE j ON JSON PREFIX 1 q: SCHEMA t TEXT", "SEARCH.ALIASADD i j")
    assert len(shop.found({})) == 4, "the index i"
    run.each("SEARCH.ALIASADD k i", "SEARCH.CREATE k ON JSON PREFIX 1 q: SCHEMA t TEXT")
    assert shop.found({}, index="k") == set()
    assert run("DEL i") == 1
    assert shop.found({}) == set(), "now the alias"


def test_10_nothing_keeps_its_shape(shop: Searching) -> None:
    nothing = {"brand": "none"}
    found = shop.aggregate(
        {"t": {"$terms": {"field": "brand"}}, "f": {"$facet": {"field": "place"}}}, nothing
    )
    assert found["t"] == ["buckets", [], "sumOtherDocCount", 0, "docCountErrorUpperBound", 0]
    assert found["f"] == ["path", "/", "sumOtherDocCount", 0, "children", []]
    assert len(shop.found({"$must": []})) == 4
    assert shop.found({"$should": []}) == set()
    assert shop.found({"$mustNot": [{"brand": "acme"}]}) == set()
    assert "Unknown operator: $nor" in shop.error({"$nor": []})
    assert shop.run("SEARCH.CREATE j ON JSON PREFIX 1 p: SCHEMA x TEXT AS title") == 1
    assert shop.found({"x": {"$eq": "guitar"}}, index="j") == {"p:4"}
