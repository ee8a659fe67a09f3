"""Every search request is answered, at worst with an error of the service."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.settings import KVConfig
from pytest_fakecloud.kv.table.registry import COMMANDS
from tests.budget import cases
from tests.harness import check_each
from tests.kv.conftest import NOW

from .conftest import Searching

FIELDS = [
    "title", "plain", "code", "price", "stock", "delta", "sold", "added", "brand", "place", "no",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2, 3.5, 1e308, -1e308, 5e-324, 2**64 - 1, -(2**63), 10**30, "", "a",
    "acme", "/", "/shop", "//", "é" * 50, "\u0000", "2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59+14:00", "1d", "-99999999999999d", "1ms", "(", "a*", "[]", [], [1], ["a"],
    [[1]], {}, {"a": 1}, {"min": 0, "max": 5}, {"min": -1e308, "max": 1e308}, {"count": "asc"},
    {"key": "desc"}, {"x": "asc"}, [{"from": 1}], [{"from": 2, "to": 1}], [{"to": 1e308}, {"from": 2}],
    [50, 99.9], {"value": "a"}, {"value": "bass", "slop": 10**9}, {"value": "a b", "prefix": True},
    {"value": "abc", "distance": 2, "prefix": True}, {"$eq": "a"}, {"$boost": -0.0}, '"', '""',
]  # fmt: skip
OPERATORS = ["$eq", "$in", "$smart", "$phrase", "$fuzzy", "$regex", "$gt", "$gte", "$lt", "$lte",
             "$boost", "$not"]  # fmt: skip
BOOLEAN = ["$must", "$and", "$should", "$or", "$mustNot"]
AGGREGATIONS = [
    "$avg", "$sum", "$min", "$max", "$count", "$cardinality", "$stats", "$extendedStats",
    "$percentiles", "$terms", "$range", "$histogram", "$dateHistogram", "$facet", "$composite", "$no",
]  # fmt: skip
PROPERTIES = [
    "missing", "sigma", "percents", "keyed", "size", "segmentSize", "minDocCount", "order", "include",
    "exclude", "ranges", "interval", "offset", "hardBounds", "extendedBounds", "fixedInterval", "path",
    "depth", "showTermDocCountError", "sources", "after", "nullIfNoMatch",
]  # fmt: skip
SOURCES = [
    ("$terms", "stock"),
    ("$histogram", "price"),
    ("$dateHistogram", "added"),
    ("$avg", "no"),
]
SOURCE_PROPERTIES = [
    "interval", "fixedInterval", "calendarInterval", "order", "missingBucket", "missingOrder", "field",
]  # fmt: skip
WORDS = [
    "LIMIT", "OFFSET", "ORDERBY", "ASC", "DESC", "SELECT", "NOCONTENT", "HIGHLIGHT", "FIELDS", "TAGS",
    "SCOREFUNC", "FIELDVALUE", "MODIFIER", "FACTOR", "MISSING", "SCOREMODE", "COMBINEMODE", "SQUARE",
    "RECIPROCAL", "LOG", "MULTIPLY", "REPLACE", "1", "2", "0", "-1", "99999999999999999999", "1e400",
    "1e308", "nan", "inf", "", "x", *FIELDS,
]  # fmt: skip


def a_filter(chance: random.Random, depth: int = 2) -> Any:
    if chance.random() < 0.1:
        return chance.choice(VALUES)
    made: dict[str, Any] = {}
    for _ in range(chance.randint(0, 3)):
        if depth and chance.random() < 0.4:
            inner = [a_filter(chance, depth - 1) for _ in range(chance.randint(0, 2))]
            made[chance.choice(BOOLEAN)] = inner if chance.random() < 0.7 else a_filter(chance, 0)
        elif chance.random() < 0.3:
            made[chance.choice(FIELDS)] = chance.choice(VALUES)
        else:
            pairs = {chance.choice(OPERATORS): chance.choice(VALUES) for _ in range(2)}
            made[chance.choice(FIELDS)] = pairs
    return made


def a_query(chance: random.Random) -> Any:
    """Return a filter or a retriever of filters, possibly with odd properties."""
    if chance.random() < 0.7:
        return a_filter(chance)
    if chance.random() < 0.5:
        made: Any = {
            "$rrf": {"retrievers": [a_filter(chance, 1) for _ in range(chance.randint(1, 3))]}
        }
    else:
        near = {"field": chance.choice(["summary", *FIELDS]), "query": chance.choice(VALUES)}
        made = {chance.choice(["$ann", "$standard"]): near}
    for properties in made.values():
        name = chance.choice(["window", "rankConstant", "weight", "filter", "profile", "query"])
        if chance.random() < 0.3:
            properties[name] = chance.choice([*VALUES, {}, 1])
    return made


def an_aggregation(chance: random.Random, depth: int = 1) -> Any:
    if chance.random() < 0.05:
        return chance.choice(VALUES)
    operator = chance.choice(AGGREGATIONS)
    options: dict[str, Any] = {"field": chance.choice(FIELDS)}
    if operator == "$histogram":
        options["interval"] = chance.choice([1, 0.5, 1e-9, 1e300, 7])
    if operator == "$dateHistogram":
        options["fixedInterval"] = chance.choice(["1d", "1h", "1ms", "99999999999999d"])
    if operator == "$range":
        options["ranges"] = [{"from": 1}]
    if operator == "$composite":
        kind, field = chance.choice(SOURCES)
        source_options = {"field": field, "interval": chance.choice([1, 1e-300])}
        source_options[chance.choice(SOURCE_PROPERTIES)] = chance.choice(VALUES)
        source = {kind: source_options}
        options = {"sources": [{"s": source}, {"k": {"$terms": {"field": chance.choice(FIELDS)}}}]}
    for _ in range(chance.randint(0, 2)):
        options[chance.choice(PROPERTIES)] = chance.choice(VALUES)
    made: dict[str, Any] = {operator: options}
    if depth and chance.random() < 0.3:
        made["$aggs"] = {"below": an_aggregation(chance, depth - 1)}
    return made


@pytest.mark.parametrize("seed", range(4))
def test_any_input_is_answered_or_rejected(shop: Searching, seed: int) -> None:
    chance = random.Random(seed)
    shop.put("p:7", {"price": [1e308, -1e308], "added": "9999-12-31T23:59:59Z", "stock": 2**64 - 1})
    shop.run(
        "SEARCH.CREATE hybrid ON JSON PREFIX 1 p: SCHEMA summary HYBRID FROM title price F64 FAST"
    )
    answered = 0
    rounds = cases(700)
    for _ in range(rounds):
        filter = json.dumps(a_query(chance))
        for line in (
            ("SEARCH.COUNT", "i", filter),
            ("SEARCH.QUERY", "hybrid", filter),
            ("SEARCH.QUERY", "i", filter, *chance.choices(WORDS, k=chance.randint(0, 6))),
            ("SEARCH.AGGREGATE", "i", "{}", json.dumps({"a": an_aggregation(chance)})),
        ):
            try:
                shop.run(*line)
                answered += 1
            except CommandError as error:
                assert str(error).startswith("ERR "), line  # noqa: PT017
    assert answered > rounds / 7


@pytest.mark.parametrize("seed", range(2))
def test_any_document_is_indexed_or_left_out(shop: Searching, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(300):
        document = {name: chance.choice(VALUES) for name in FIELDS if chance.random() < 0.6}
        shop.put(f"p:{number}", document)
        if chance.random() < 0.3:
            shop.run("DEL", f"p:{chance.randint(0, number)}")
    everything = {f"p:{number}" for number in range(300)}
    assert shop.found({}) == {key for key in everything if shop.run("EXISTS", key)}
    for field in ("price", "stock", "added"):
        shop.keys({}, "ORDERBY", field)
        shop.aggregate({"a": {"$stats": {"field": field}}, "b": {"$terms": {"field": field}}})


def test_every_command_meets_an_index() -> None:
    """Each command gets an index in place of a key, under limits that measure the data."""
    check_each(meets_an_index, [(name,) for name, spec in COMMANDS.items() if spec.function])


def meets_an_index(name: str) -> None:
    settings = KVConfig(max_data_size=10_000, max_record_size=1000)
    engine = KVEngine(Timekeeper(NOW), Ids(1), settings)
    session = engine.session(interface="rest")
    for line in ("SEARCH.CREATE i ON STRING PREFIX 1 p: SCHEMA t TEXT", "SET p:1 {}", "SET j x"):
        engine.execute(session, line.encode().split())
    spec = COMMANDS[name]
    for filler, more in itertools.product(("i", "1", "j"), range(3)):
        words = [*name.split(), "i", *[filler] * (spec.least - len(name.split()) - 1 + more)]
        try:
            engine.execute(session, [word.encode() for word in words])
        except CommandError:
            session.transaction = None
    assert engine.execute(engine.session(), [b"PING"]) is not None


def test_many_digits_with_a_letter_behind_take_no_longer(shop: Searching) -> None:
    """A pattern that could match digits in two ways would take half an hour and block everything."""
    shop.run(*["SEARCH.CREATE", "h", "ON", "HASH", "PREFIX", "1", "h:", "SCHEMA", "n", "F64"])
    shop.run("HSET", "h:1", "n", "1" * 200_000 + "x")
    shop.run("HSET", "h:2", "n", "2.5e0")
    assert shop.found({"n": {"$gt": 0}}, index="h") == {"h:2"}
