"""Aggregations: metrics, buckets, facets, and rejected requests."""

from __future__ import annotations

import json
import re
import statistics
from typing import Any

import pytest

from pytest_fakecloud.kv.reply import to_resp
from tests.kv.conftest import Run

from .conftest import Searching, cases

PRICES = [29.99, 40, 10.5]
MOST = {"$max": {"field": "price"}}


def one(shop: Searching, wanted: Any, filter: Any = None) -> Any:
    return shop.aggregate({"a": wanted}, filter)["a"]


def pairs(flat: list[Any]) -> dict[str, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def buckets(flat: list[Any]) -> list[dict[str, Any]]:
    assert flat[0] == "buckets", "the clients know buckets by their first word"
    return [pairs(bucket) for bucket in flat[1]]


class TestReplies:
    @pytest.mark.parametrize(("wanted", "reply"), cases("aggregations"))
    def test_of_all_documents(self, shop: Searching, wanted: str, reply: str) -> None:
        assert one(shop, json.loads(wanted)) == json.loads(reply)

    @pytest.mark.parametrize(("wanted", "reply"), cases("aggregations of no documents"))
    def test_of_no_documents(self, shop: Searching, wanted: str, reply: str) -> None:
        assert one(shop, json.loads(wanted), {"brand": "none"}) == json.loads(reply)

    @pytest.mark.parametrize("sigma", [2, 0.5])
    def test_extended_stats(self, shop: Searching, sigma: float) -> None:
        options = {} if sigma == 2 else {"sigma": sigma}
        stats = pairs(one(shop, {"$extendedStats": {"field": "price", **options}}))
        mean = statistics.fmean(PRICES)
        spread, sampling = statistics.pstdev(PRICES), statistics.stdev(PRICES)
        figures = {
            "sumOfSquares": sum(price * price for price in PRICES),
            "variance": spread**2, "variancePopulation": spread**2, "varianceSampling": sampling**2,
            "stdDeviation": spread, "stdDeviationPopulation": spread,
            "stdDeviationSampling": sampling,
        }  # fmt: skip
        for name, value in figures.items():
            assert float(stats[name]) == pytest.approx(value), name
        bounds = pairs(stats["stdDeviationBounds"])
        for name, value in {
            "upper": mean + sigma * spread, "lower": mean - sigma * spread,
            "upperSampling": mean + sigma * sampling, "lowerSampling": mean - sigma * sampling,
            "upperPopulation": mean + sigma * spread, "lowerPopulation": mean - sigma * spread,
        }.items():  # fmt: skip
            assert float(bounds[name]) == pytest.approx(value), name

    def test_the_largest_numbers(self, shop: Searching) -> None:
        shop.put("p:5", {"price": 1.7e308, "stock": 2**64 - 1})
        shop.put("p:6", {"price": 1.7e308})
        assert one(shop, {"$max": {"field": "stock"}}) == ["value", str(2**64 - 1)]
        assert one(shop, {"$sum": {"field": "stock"}}) == ["value", str(2**64 + 16)]
        assert one(shop, {"$sum": {"field": "price"}}) == ["value", "inf"]
        one(shop, {"$extendedStats": {"field": "price"}})

    @pytest.mark.parametrize(
        ("interval", "message"),
        [
            (0.0001, "makes more than 65000 buckets"),
            (5e-324, "has an interval that is too small for the values"),
        ],
    )
    def test_too_many_buckets(self, shop: Searching, interval: float, message: str) -> None:
        wanted = json.dumps({"a": {"$histogram": {"field": "price", "interval": interval}}})
        error = shop.run.error("SEARCH.AGGREGATE", "i", "{}", wanted)
        assert error == f"ERR Aggregation 'a' operator '$histogram' {message}"

    def test_equal_counts_of_numbers_are_in_the_services_order(self, bare: Searching) -> None:
        # The only order known from the service's tests is that of its hash table.
        bare.run("SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA n F64 FAST")
        for number in range(5):
            bare.put(f"p:{number}", {"n": number})
        wanted = {"$terms": {"field": "n"}}
        keys = [bucket["key"] for bucket in buckets(one(bare, wanted))]
        assert sorted(keys) == ["0", "1", "2", "3", "4"]
        assert keys != sorted(keys)
        for number in range(5):
            bare.run("DEL", f"p:{number}")
            bare.put(f"p:{number}", {"n": number})
        assert [bucket["key"] for bucket in buckets(one(bare, wanted))] == keys

    def test_values_of_an_array_are_counted_once_a_document(self, bare: Searching) -> None:
        bare.run("SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA k KEYWORD")
        bare.put("p:1", {"k": ["a", "b", "a"]})
        assert buckets(one(bare, {"$terms": {"field": "k"}})) == [
            {"key": "a", "docCount": 1}, {"key": "b", "docCount": 1},
        ]  # fmt: skip

    def test_a_boolean_key_is_a_boolean_in_resp3_only(self, shop: Searching) -> None:
        wanted = json.dumps({"a": {"$terms": {"field": "sold", "exclude": [True]}}})
        reply = shop.run("SEARCH.AGGREGATE", "i", "{}", wanted)
        assert b"$3\r\nkey\r\n#f\r\n" in to_resp(reply, 3)
        assert b"$3\r\nkey\r\n:0\r\n" in to_resp(reply, 2)

    @pytest.mark.parametrize(
        ("wanted", "maps"),
        [
            ({"$terms": {"field": "sold", "exclude": [True]}}, 3),
            ({"$range": {"field": "price", "ranges": [{"from": 0}]}, "$aggs": {"m": MOST}}, 6),
            ({"$range": {"field": "price", "ranges": [{"from": 0}], "keyed": True}}, 5),
            ({"$facet": {"field": "place", "size": 1}}, 3),
            ({"$extendedStats": {"field": "price"}}, 3),
            ({"$percentiles": {"field": "price", "percents": [5]}}, 3),
            ({"$percentiles": {"field": "price", "percents": [5], "keyed": False}}, 3),
        ],
    )
    def test_parts_with_names_are_maps_in_resp3(
        self, shop: Searching, wanted: dict[str, Any], maps: int
    ) -> None:
        reply = to_resp(shop.run("SEARCH.AGGREGATE", "i", "{}", json.dumps({"a": wanted})), 3)
        assert len(re.findall(rb"^%\d+\r$", reply, re.MULTILINE)) == maps


class TestComposite:
    @pytest.fixture
    def sold(self, bare: Searching) -> Searching:
        """Documents with a field of each type, the last of them with few."""
        bare.run(
            "SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA k KEYWORD FAST u U64 FAST i I64 FAST "
            "f F64 FAST b BOOL FAST d DATE FAST slow KEYWORD"
        )
        bare.put("p:1", {"k": "x", "u": 2**63, "i": -1, "f": 1.5, "b": True, "d": "2026-03-05"})
        bare.put("p:2", {"k": "y", "u": 1, "i": 5, "f": -7, "b": False, "d": "2025-12-31"})
        bare.put("p:3", {"k": "x", "u": 1})
        return bare

    @pytest.mark.parametrize(("source", "keys"), cases("sources of composite buckets"))
    def test_pages_of_a_source(self, sold: Searching, source: str, keys: str) -> None:
        """Walk through pages of one bucket each. A row has the buckets' keys in their order, each
        with its value in ``afterKey`` and its number of documents."""
        expected = json.loads(keys)
        rows, after = [], None
        while True:
            wanted: dict[str, Any] = {"sources": [{"s": json.loads(source)}], "size": 1}
            if after is not None:
                wanted["after"] = after
            reply = pairs(one(sold, {"$composite": wanted}))
            if not reply["buckets"]:
                break
            [bucket] = map(pairs, reply["buckets"])
            after = reply["afterKey"]
            rows.append([bucket["key"][1], after[1], bucket["docCount"]])
        assert rows == expected
        assert "afterKey" not in reply

    def test_combinations_are_sorted_by_source_after_source(self, sold: Searching) -> None:
        sources = [
            {"u": {"$terms": {"field": "u", "order": "desc"}}},
            {"k": {"$terms": {"field": "k"}}},
        ]
        keys = [
            bucket["key"] for bucket in buckets(one(sold, {"$composite": {"sources": sources}}))
        ]
        assert keys == [["u", str(2**63), "k", "x"], ["u", "1", "k", "x"], ["u", "1", "k", "y"]]

    def test_a_document_is_in_the_buckets_of_all_its_values(self, sold: Searching) -> None:
        sold.put("p:4", {"k": ["x", "z", "x"]})
        sources = [{"k": {"$terms": {"field": "k"}}}]
        groups = buckets(one(sold, {"$composite": {"sources": sources}}))
        assert [(bucket["key"][1], bucket["docCount"]) for bucket in groups] == [
            ("x", 3), ("y", 1), ("z", 1),
        ]  # fmt: skip

    @pytest.mark.parametrize("as_object", [True, False])
    def test_the_position_is_an_object_or_a_flat_array(
        self, sold: Searching, as_object: bool
    ) -> None:
        sources = [{"k": {"$terms": {"field": "k"}}}, {"u": {"$terms": {"field": "u"}}}]
        after = ["k", "str:x", "u", "u64:1"]
        wanted = {"sources": sources, "after": pairs(after) if as_object else after}
        groups = buckets(one(sold, {"$composite": wanted}))
        assert [bucket["key"] for bucket in groups] == [
            ["k", "x", "u", str(2**63)],
            ["k", "y", "u", "1"],
        ]

    @pytest.mark.parametrize(("wanted", "message"), cases("rejected composite aggregations"))
    def test_the_culprit_is_named(self, sold: Searching, wanted: str, message: str) -> None:
        request = f'{{"a": {{"$composite": {wanted}}}}}'
        assert message in sold.run.error("SEARCH.AGGREGATE", "i", "{}", request)


class TestRefusals:
    @pytest.mark.parametrize(("wanted", "message"), cases("rejected aggregations"))
    def test_the_culprit_is_named(self, run: Run, wanted: str, message: str) -> None:
        run(
            "SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA title TEXT price F64 FAST slow F64 "
            "brand KEYWORD added DATE FAST place FACET"
        )
        error = run.error("SEARCH.AGGREGATE", "i", "{}", f'{{"a": {wanted}}}')
        assert error.startswith("ERR Aggregation ")
        assert message in error

    def test_the_request_itself(self, shop: Searching) -> None:
        for wanted in ("[]", "{", "1"):
            error = shop.run.error("SEARCH.AGGREGATE", "i", "{}", wanted)
            assert error.startswith("ERR aggregations ")
        assert shop.run("SEARCH.AGGREGATE", "i", "{}", "{}") == []
