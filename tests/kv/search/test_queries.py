"""Queries: the filter language, options, order, scores and returned fields."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from pytest_fakecloud.kv.reply import to_json

from .conftest import Searching, cases


class TestFilters:
    @pytest.mark.parametrize(("filter", "numbers"), cases("filters"))
    def test_filters(self, shop: Searching, filter: str, numbers: str) -> None:
        assert shop.found(json.loads(filter)) == {f"p:{number}" for number in numbers}

    @pytest.mark.parametrize(("filter", "message"), cases("rejected filters"))
    def test_rejected(self, shop: Searching, filter: str, message: str) -> None:
        error = shop.error(json.loads(filter))
        assert error.startswith("ERR ")
        assert message in error
        assert shop.run.error("SEARCH.COUNT", "i", filter) == error
        assert shop.run.error("SEARCH.AGGREGATE", "i", filter, "{}") == error

    @pytest.mark.parametrize("filter", ["{", "", "[]", "1", "{} {}", '{"a":NaN}', "[" * 500])
    def test_requests_that_are_not_json_objects(self, shop: Searching, filter: str) -> None:
        assert shop.run.error("SEARCH.QUERY", "i", filter).startswith("ERR filter ")

    def test_a_hostile_expression_ends(self, shop: Searching) -> None:
        shop.put("p:9", {"title": "a" * 39})
        assert shop.found({"title": {"$regex": "(a*)*b"}}) == set()
        assert "too large" in shop.error({"title": {"$regex": "((a{1,50}){1,50}){1,50}"}})


class TestScores:
    def test_bm25(self, shop: Searching) -> None:
        # Two of four documents contain it, in texts of 6 and 2 tokens.
        scores = shop.scores({"title": {"$eq": "headphone"}})
        weight = math.log(1 + (4 - 2 + 0.5) / (2 + 0.5)) * 2.2
        average = (6 + 5 + 2 + 2) / 4
        assert scores == pytest.approx(
            {
                f"p:{number}": weight / (1 + 1.2 * (0.25 + 0.75 * length / average))
                for number, length in ((1, 6), (3, 2))
            }
        )

    @pytest.mark.parametrize(
        "filter",
        [{}, {"price": {"$gt": 30}}, {"title": {"$fuzzy": "shoo"}}, {"title": {"$regex": "sho.*"}}],
    )
    def test_conditions_without_words_count_one(self, shop: Searching, filter: Any) -> None:
        assert shop.scores(filter)["p:2"] == 1

    def test_equality_counts_how_rare_it_is(self, shop: Searching) -> None:
        scores = shop.scores({"$should": [{"brand": "acme"}, {"brand": "bolt"}]})
        assert scores["p:1"] == pytest.approx(math.log(1 + 2.5 / 2.5))
        assert scores["p:2"] == pytest.approx(math.log(1 + 3.5 / 1.5))

    def test_boosts_multiply_and_clauses_add_up(self, shop: Searching) -> None:
        clause = {"price": {"$gt": 30}}
        assert shop.scores({**clause, "$boost": 4})["p:2"] == 4
        assert shop.scores({"price": {"$gt": 30, "$boost": 2}, "$boost": 4})["p:2"] == 8
        assert shop.scores({"$must": [clause, {"stock": {"$gte": 0}}]})["p:2"] == 2
        beside = {"stock": {"$gte": 0}, "$should": [{**clause, "$boost": -0.5}]}
        assert shop.scores(beside) == {"p:1": 1, "p:3": 1, "p:2": 0.5}

    def test_smart_sorts_better_matches_first(self, bare: Searching) -> None:
        bare.run("SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA t TEXT")
        texts = ["redd", "red", "redder than", "blue shoe of red", "red shoe", "shoe and a red"]
        for number, title in enumerate(texts):
            bare.put(f"p:{number}", {"t": title})
        assert bare.keys({"t": "red"})[0] == "p:1"
        assert bare.keys({"t": "red shoe"})[:3] == ["p:4", "p:3", "p:5"]


class TestOptions:
    def test_pages(self, shop: Searching) -> None:
        assert [hit[0] for hit in shop.query({}, "LIMIT", 2)] == [b"p:1", b"p:2"]
        assert [hit[0] for hit in shop.query({}, "OFFSET", 2, "LIMIT", 1)] == [b"p:3"]
        assert shop.query({}, "OFFSET", 10_000) == []
        for number in range(20):
            shop.put(f"p:a{number}", {})
        assert len(shop.query({})) == 10
        assert len(shop.query({}, "LIMIT", 1000)) == 24

    @pytest.mark.parametrize(("options", "message"), cases("rejected options"))
    def test_rejected(self, shop: Searching, options: str, message: str) -> None:
        assert message in shop.error({}, *options.split())

    def test_an_order_by_a_field(self, shop: Searching) -> None:
        shop.put("p:5", {"price": 40})
        assert shop.keys({}, "ORDERBY", "price") == ["p:2", "p:5", "p:1", "p:3", "p:4"]
        assert shop.keys({}, "ORDERBY", "price", "desc")[0] == "p:2"
        assert shop.keys({}, "ORDERBY", "price", "ASC") == ["p:3", "p:1", "p:2", "p:5", "p:4"]
        hits = to_json(shop.query({}, "ORDERBY", "price", "NOCONTENT"))
        assert [hit[1] for hit in hits] == ["40", "40", "29.99", "10.5", "0"]
        assert shop.keys({"sold": True}, "ORDERBY", "added") == ["p:3", "p:1"]
        reply = shop.query({"stock": 5}, "ORDERBY", "added", "NOCONTENT")
        assert to_json(reply) == [["p:1", "1767261600000"]]

    def test_returned_fields(self, bare: Searching) -> None:
        bare.run("SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA name TEXT FROM a.b n F64")
        whole = '{"a":{"b":"Some Words"},"n":3.50,"list":[1,{"x":true}],"nothing":null,"off":false}'
        bare.run("JSON.SET", "p:1", "$", whole)
        [[key, score, content]] = to_json(bare.query({}))
        assert (key, score) == ("p:1", "1")
        assert [path for path, _ in content] == ["$"]
        assert json.loads(content[0][1]) == json.loads(whole)
        selected = bare.query({}, "SELECT", 6, "a.b", "n", "list", "nothing", "off", "name")
        assert to_json(selected)[0][2] == [
            ["a.b", "Some Words"], ["n", "3.5"], ["list", '[1,{"x":true}]'], ["off", "false"],
        ]  # fmt: skip
        assert to_json(bare.query({}, "SELECT", 0)) == [["p:1", "1", []]]
        assert to_json(bare.query({}, "NOCONTENT")) == [["p:1", "1"]]

    def test_a_string_is_shown_as_it_was_written(self, bare: Searching) -> None:
        bare.run("SEARCH.CREATE i ON STRING PREFIX 1 p: SCHEMA n F64")
        bare.run("SET", "p:1", '{ "n" : 1.50 }')
        assert to_json(bare.query({}))[0][2] == [["$", '{ "n" : 1.50 }']]


class TestHighlight:
    def shown(self, shop: Searching, filter: Any, *options: object) -> str:
        [[_, _, [[_, value]]]] = to_json(shop.query(filter, "SELECT", 1, "title", *options))
        return str(value)

    def test_words_that_the_query_looked_for(self, shop: Searching) -> None:
        options = ("HIGHLIGHT", "FIELDS", 1, "title")
        shown = self.shown(shop, {"title": {"$eq": "headphone"}, "price": 29.99}, *options)
        assert shown == "Wireless <em>Headphones</em> with studies of bass"
        shown = self.shown(shop, {"title": {"$phrase": "bass guitar"}}, *options, "TAGS", "[", "]")
        assert shown == "[Bass] [guitar]"
        assert self.shown(shop, {"title": {"$fuzzy": "guitra"}}, *options) == "Bass guitar"
        shown = self.shown(
            shop, {"title": "guitar", "$mustNot": [{"title": {"$eq": "x"}}]}, *options
        )
        assert shown == "Bass <em>guitar</em>"

    def test_other_fields_stay(self, shop: Searching) -> None:
        filter = {"title": {"$eq": "guitar"}}
        assert self.shown(shop, filter, "HIGHLIGHT", "FIELDS", 0) == "Bass guitar"
        assert self.shown(shop, filter, "HIGHLIGHT", "FIELDS", 1, "plain") == "Bass guitar"

    def test_the_source_of_a_field_in_whole_documents_and_arrays(self, bare: Searching) -> None:
        bare.run("SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA name TEXT FROM a.b")
        document = {"a": [{"b": "red"}, {"b": ["blue", "Reds"]}], "c": "red"}
        bare.put("p:1", document)
        [[_, _, [[_, shown]]]] = to_json(
            bare.query({"name": {"$eq": "red"}}, "HIGHLIGHT", "FIELDS", 1, "name")
        )
        odd = {"a": [{"x": 1}, {"b": {"b": "red"}}, "red", {"b": "red"}]}
        bare.put("p:2", odd)
        reply = to_json(bare.query({"name": {"$eq": "red"}}, "HIGHLIGHT", "FIELDS", 1, "name"))
        assert {key: json.loads(fields[0][1]) for key, _, fields in reply}["p:2"] == {
            "a": [{"x": 1}, {"b": {"b": "red"}}, "red", {"b": "<em>red</em>"}]
        }
        marked = {"a": [{"b": "<em>red</em>"}, {"b": ["blue", "<em>Reds</em>"]}], "c": "red"}
        assert json.loads(shown) == marked
        assert json.loads(bare.run("JSON.GET p:1")) == document

    def test_a_hash(self, bare: Searching) -> None:
        bare.run("SEARCH.CREATE i ON HASH PREFIX 1 p: SCHEMA t TEXT k TEXT NOTOKENIZE")
        bare.run("HSET", "p:1", "t", "a Word", "k", "a Word")
        reply = bare.query({"t": {"$eq": "word"}, "k": {"$eq": "a Word"}},
                           "HIGHLIGHT", "FIELDS", 2, "t", "k")  # fmt: skip
        assert to_json(reply)[0][2] == [["t", "a <em>Word</em>"], ["k", "<em>a Word</em>"]]

    def test_an_array_in_a_hash(self, bare: Searching) -> None:
        bare.run("SEARCH.CREATE i ON HASH PREFIX 1 p: SCHEMA a TEXT k KEYWORD")
        written = '["hello world", "foo & bar", 7]'
        bare.run("HSET", "p:1", "a", written, "k", '["x","y"]')
        assert bare.found({"k": "y"}) == bare.found({"a": {"$eq": "bar"}}) == {"p:1"}
        [[_, _, content]] = to_json(
            bare.query({"a": {"$eq": "hello"}}, "HIGHLIGHT", "FIELDS", 1, "a")
        )
        assert content == [["a", '["<em>hello</em> world","foo & bar",7]'], ["k", '["x","y"]']]
        [[_, _, content]] = to_json(bare.query({"k": "x"}, "HIGHLIGHT", "FIELDS", 1, "a"))
        assert content[0] == ["a", written]
        assert bare.run("HGET p:1 a").decode() == written


class TestScoreFunctions:
    def score(self, shop: Searching, line: str, key: str = "p:2") -> float:
        return shop.scores({}, "SCOREFUNC", *line.split())[key]

    @pytest.mark.parametrize(
        ("modifier", "value"),
        [
            ("NONE", 40), ("LOG", math.log10(40)), ("LOG1P", math.log10(41)),
            ("LOG2P", math.log10(42)), ("LN", math.log(40)), ("LN1P", math.log(41)),
            ("LN2P", math.log(42)), ("SQUARE", 1600), ("SQRT", math.sqrt(40)),
            ("RECIPROCAL", 1 / 40),
        ],
    )  # fmt: skip
    def test_modifiers(self, shop: Searching, modifier: str, value: float) -> None:
        line = f"scoremode replace FIELDVALUE price modifier {modifier} FACTOR 2"
        assert self.score(shop, line) == pytest.approx(2 * value)

    def test_modes(self, shop: Searching) -> None:
        assert self.score(shop, "FIELDVALUE price") == 41
        assert self.score(shop, "FIELDVALUE price SCOREMODE MULTIPLY") == 40
        assert self.score(shop, "FIELDVALUE price FIELDVALUE delta SCOREMODE REPLACE") == 47
        both = "COMBINEMODE MULTIPLY FIELDVALUE price FIELDVALUE delta SCOREMODE REPLACE"
        assert self.score(shop, both) == 280

    def test_what_is_missing_or_cannot_be_modified(self, shop: Searching) -> None:
        replace = "SCOREMODE REPLACE FIELDVALUE"
        assert self.score(shop, f"{replace} price", "p:4") == 0
        assert self.score(shop, f"{replace} price MISSING 7 FACTOR 3", "p:4") == 21
        assert self.score(shop, f"{replace} price MODIFIER SQUARE MISSING 3", "p:4") == 9
        assert self.score(shop, f"{replace} stock MODIFIER RECIPROCAL MISSING 4") == 0.25
        assert self.score(shop, f"{replace} stock MODIFIER LOG MISSING -5 FACTOR 2") == -10
        assert self.score(shop, f"{replace} delta MODIFIER SQRT MISSING 9", "p:1") == 3

    def test_they_decide_the_order(self, shop: Searching) -> None:
        keys = shop.keys({}, "SCOREFUNC", "FIELDVALUE", "stock", "FACTOR", "-1")
        assert keys == ["p:2", "p:4", "p:1", "p:3"]


@pytest.mark.parametrize("field", ["price", "stock", "sold", "added"])
@pytest.mark.parametrize("order", ["ASC", "DESC"])
def test_any_page_of_any_order_is_a_sort(bare: Searching, field: str, order: str) -> None:
    chance = random.Random(f"{field} {order}")
    bare.run("SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA price F64 FAST stock U64 FAST sold BOOL FAST "
             "added DATE FAST k KEYWORD")  # fmt: skip
    documents = {}
    for number in chance.sample(range(80), 80):
        made = {
            "price": chance.choice([1.5, -2, 7, [3, 99], [99, 0]]), "stock": chance.randint(0, 9),
            "sold": chance.random() < 0.5, "added": f"2026-01-0{chance.randint(1, 9)}T00:00:00Z",
        }  # fmt: skip
        made = {name: value for name, value in made.items() if chance.random() < 0.8}
        documents[f"p:{number}"] = {**made, "k": chance.choice(["few", "most", "most", "most"])}
        bare.put(f"p:{number}", documents[f"p:{number}"])
    few = list(documents)[:4]
    for key in few:
        documents[key]["k"] = "some"
        documents[key] = documents.pop(key)
        bare.put(key, documents[key])

    def rank(key: str) -> Any:
        value = documents[key][field]
        return value[0] if isinstance(value, list) else value

    for filter in ({}, {"k": "most"}, {"k": "some"}):
        matching = [key for key, made in documents.items() if filter.items() <= made.items()]
        having = [key for key in matching if field in documents[key]]
        wanted = sorted(having, key=rank, reverse=order == "DESC")
        wanted += [key for key in matching if field not in documents[key]]
        for offset, limit in ((0, 5), (3, 7), (0, 1000), (60, 20)):
            hits = bare.query(filter, "ORDERBY", field, order, "OFFSET", offset, "LIMIT", limit)
            assert [hit[0].decode() for hit in hits] == wanted[offset : offset + limit]


def test_large_integers_are_ordered_exactly(bare: Searching) -> None:
    bare.run("SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA n U64 FAST k KEYWORD")
    for number in (3, 1, 2):
        bare.put(f"p:{number}", {"n": 2**62 + number, "k": "few"})
    for number in range(40):
        bare.put(f"p:other{number}", {"n": number})
    for filter in ({"k": "few"}, {}):
        assert bare.keys(filter, "ORDERBY", "n", "DESC")[:3] == ["p:3", "p:2", "p:1"]
