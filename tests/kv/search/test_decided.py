"""Questions that the sources leave open and that were decided here."""

from __future__ import annotations

from .conftest import Searching


def test_a_text_that_is_no_tokens_keeps_its_case(shop: Searching) -> None:
    assert shop.found({"code": {"$eq": "AB-1 x"}}) == {"p:1"}
    assert shop.found({"code": {"$eq": "ab-1 x"}}) == set()
    assert shop.found({"code": "AB-1 x"}) == {"p:1"}, "two edits are too many"
    assert shop.found({"code": "AB-2 x"}) == {"p:1"}
    assert shop.found({"code": {"$regex": "AB.*"}}) == {"p:1", "p:2"}


def test_every_scalar_of_an_array_is_a_value(shop: Searching) -> None:
    shop.put("p:5", {"title": ["red hat", ["blue", {"x": 1}], "coat"], "price": [7, 99, "x"]})
    shop.put("p:6", {"price": 50})
    assert shop.found({"title": {"$eq": "blue"}}) == {"p:5"}
    assert shop.found({"title": {"$eq": "red hat"}}) == {"p:5"}
    assert shop.found({"title": {"$phrase": {"value": "hat blue", "slop": 50}}}) == set()
    assert shop.found({"price": {"$gt": 90}}) == {"p:5"}
    assert shop.keys({"price": {"$gte": 7}}, "ORDERBY", "price")[-1] == "p:5"
    assert shop.scores({"price": 7}, "ORDERBY", "price") == {"p:5": 7}


def test_an_index_is_a_key_and_comes_before_an_alias(shop: Searching) -> None:
    run = shop.run
    assert run.error("GET i").startswith("WRONGTYPE")
    run.each("SEARCH.CREATE j ON JSON PREFIX 1 q: SCHEMA t TEXT", "SEARCH.ALIASADD i j")
    assert len(shop.found({})) == 4, "the index i"
    run.each("SEARCH.ALIASADD k i", "SEARCH.CREATE k ON JSON PREFIX 1 q: SCHEMA t TEXT")
    assert shop.found({}, index="k") == set()
    assert run("DEL i") == 1
    assert shop.found({}) == set(), "now the alias"


def test_nothing_keeps_its_shape(shop: Searching) -> None:
    nothing = {"brand": "none"}
    reply = shop.aggregate(
        {"t": {"$terms": {"field": "brand"}}, "f": {"$facet": {"field": "place"}}}, nothing
    )
    assert reply["t"] == ["buckets", [], "sumOtherDocCount", 0, "docCountErrorUpperBound", 0]
    assert reply["f"] == ["path", "/", "sumOtherDocCount", 0, "children", []]
    assert len(shop.found({"$must": []})) == 4
    assert shop.found({"$should": []}) == set()
    assert shop.found({"$mustNot": [{"brand": "acme"}]}) == set()
    assert "Unknown operator: $nor" in shop.error({"$nor": []})
    assert shop.run("SEARCH.CREATE j ON JSON PREFIX 1 p: SCHEMA x TEXT AS title") == 1
    assert shop.found({"x": {"$eq": "guitar"}}, index="j") == {"p:4"}
