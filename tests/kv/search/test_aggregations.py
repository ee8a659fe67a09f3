"""Aggregations: metrics, buckets, facets, and rejected requests."""

from __future__ import annotations

import json
import math
import statistics
from typing import Any

import pytest

from tests.kv.conftest import Run

from .conftest import Searching, cases, text

PRICES = [29.99, 40, 10.5]


def one(shop: Searching, wanted: Any, filter: Any = None) -> Any:
    """Return the reply of a single aggregation."""
    return shop.aggregate({"a": wanted}, filter)["a"]


def pairs(flat: list[Any]) -> dict[str, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def buckets(flat: list[Any]) -> list[dict[str, Any]]:
    assert flat[0] == "buckets", "the clients know buckets by their first word"
    return [pairs(bucket) for bucket in flat[1]]


class TestMetrics:
    @pytest.mark.parametrize(
        ("operator", "field", "value"),
        [
            ("$avg", "price", repr(math.fsum(PRICES) / 3)), ("$sum", "price", "80.49"),
            ("$min", "price", "10.5"), ("$max", "price", "40"), ("$count", "price", "3"),
            ("$cardinality", "brand", "3"), ("$count", "brand", "4"), ("$sum", "stock", "17"),
            ("$min", "delta", "-3"), ("$max", "added", "1769904000000"), ("$cardinality", "price", "3"),
        ],
    )  # fmt: skip
    def test_one_figure(self, shop: Searching, operator: str, field: str, value: str) -> None:
        assert one(shop, {operator: {"field": field}}) == ["value", value]

    def test_of_nothing(self, shop: Searching) -> None:
        nothing = {"brand": "none"}
        for operator in ("$avg", "$sum", "$min", "$max"):
            assert one(shop, {operator: {"field": "price"}}, nothing) == ["value", None]
        for operator in ("$count", "$cardinality"):
            assert one(shop, {operator: {"field": "price"}}, nothing) == ["value", "0"]
        assert one(shop, {"$stats": {"field": "price"}}, nothing) == [
            *("count", 0, "sum", "0", "min", None, "max", None, "avg", None)
        ]
        assert pairs(one(shop, {"$extendedStats": {"field": "price"}}, nothing))["variance"] is None
        keyed = one(shop, {"$percentiles": {"field": "price", "percents": [50]}}, nothing)
        assert keyed == ["values", ["50.0", None]]

    def test_a_default_for_missing_values(self, shop: Searching) -> None:
        assert one(shop, {"$sum": {"field": "stock", "missing": 3}}) == ["value", "20"]
        assert one(shop, {"$count": {"field": "price", "missing": 0}}) == ["value", "4"]

    def test_stats(self, shop: Searching) -> None:
        found = one(shop, {"$stats": {"field": "price"}})
        assert found[0::2] == ["count", "sum", "min", "max", "avg"]
        assert found[1] == 3

    @pytest.mark.parametrize("sigma", [2, 0.5])
    def test_extended_stats(self, shop: Searching, sigma: float) -> None:
        given = {} if sigma == 2 else {"sigma": sigma}
        found = pairs(one(shop, {"$extendedStats": {"field": "price", **given}}))
        mean = statistics.fmean(PRICES)
        spread, sampling = statistics.pstdev(PRICES), statistics.stdev(PRICES)
        figures = {
            "sumOfSquares": sum(price * price for price in PRICES),
            "variance": spread**2, "variancePopulation": spread**2, "varianceSampling": sampling**2,
            "stdDeviation": spread, "stdDeviationPopulation": spread,
            "stdDeviationSampling": sampling,
        }  # fmt: skip
        for name, value in figures.items():
            assert float(found[name]) == pytest.approx(value), name
        bounds = pairs(found["stdDeviationBounds"])
        for name, value in {
            "upper": mean + sigma * spread, "lower": mean - sigma * spread,
            "upperSampling": mean + sigma * sampling, "lowerSampling": mean - sigma * sampling,
            "upperPopulation": mean + sigma * spread, "lowerPopulation": mean - sigma * spread,
        }.items():  # fmt: skip
            assert float(bounds[name]) == pytest.approx(value), name

    def test_percentiles(self, shop: Searching) -> None:
        found = one(shop, {"$percentiles": {"field": "price", "percents": [0, 50, 75, 100]}})
        values = pairs(found[1])
        assert list(values) == ["0.0", "50.0", "75.0", "100.0"]
        assert [float(value) for value in values.values()] == [10.5, 29.99, 34.995, 40]
        listed = {"field": "price", "keyed": False, "percents": [50]}
        assert one(shop, {"$percentiles": listed}) == [
            "values", [["key", "50", "value", "29.99"]],
        ]  # fmt: skip
        usual = one(shop, {"$percentiles": {"field": "price"}})[1]
        assert usual[0::2] == ["1.0", "5.0", "25.0", "50.0", "75.0", "95.0", "99.0"]

    def test_the_largest_numbers(self, shop: Searching) -> None:
        shop.put("p:5", {"price": 1.7e308, "stock": 2**64 - 1})
        shop.put("p:6", {"price": 1.7e308})
        assert one(shop, {"$max": {"field": "stock"}}) == ["value", str(2**64 - 1)]
        assert one(shop, {"$sum": {"field": "price"}}) == ["value", "inf"]
        one(shop, {"$extendedStats": {"field": "price"}})
        error = shop.run.error(
            "SEARCH.AGGREGATE", "i", "{}",
            json.dumps({"a": {"$histogram": {"field": "price", "interval": 5e-324}}}),
        )  # fmt: skip
        assert "operator '$histogram'" in error


class TestTerms:
    def test_the_most_frequent_first(self, shop: Searching) -> None:
        found = one(shop, {"$terms": {"field": "brand", "size": 2}})
        assert [bucket["key"] for bucket in buckets(found)] == ["acme", "bolt"]
        assert [bucket["docCount"] for bucket in buckets(found)] == [2, 1]
        assert found[2:] == ["sumOtherDocCount", 1, "docCountErrorUpperBound", 0]

    def keys(self, shop: Searching, **options: Any) -> list[str]:
        return [bucket["key"] for bucket in buckets(one(shop, {"$terms": options}))]

    def test_options(self, shop: Searching) -> None:
        assert self.keys(shop, field="brand", order={"key": "desc"}) == ["crown", "bolt", "acme"]
        assert self.keys(shop, field="brand", order={"count": "asc"})[-1] == "acme"
        assert self.keys(shop, field="brand", minDocCount=2) == ["acme"]
        assert self.keys(shop, field="brand", include="[ab].*") == ["acme", "bolt"]
        assert self.keys(shop, field="brand", exclude=["acme"]) == ["bolt", "crown"]
        assert self.keys(shop, field="price", missing="none")[-1] == "none"
        assert self.keys(shop, field="price", missing=40)[0] == "40"
        assert "false" in str(one(shop, {"$terms": {"field": "sold", "missing": False}}))
        day = "2026-05-01T00:00:00Z"
        assert self.keys(shop, field="added", missing=day)[-1] == day

    @pytest.mark.parametrize(
        ("field", "expression", "terms", "key"),
        [
            ("price", r"4\d", [40], "40"),
            ("stock", "1.", [12], "12"),
            ("sold", "t.*", [True], "1"),
            ("added", "2026-01-01.*", ["2026-01-01T11:00:00+01:00"], "2026-01-01T10:00:00Z"),
            ("brand", "a.+", ["acme"], "acme"),
        ],
    )
    def test_included_keys_of_each_type(
        self, shop: Searching, field: str, expression: str, terms: list[Any], key: str
    ) -> None:
        for wanted in (expression, terms):
            assert self.keys(shop, field=field, include=wanted) == [key]
            others = self.keys(shop, field=field, exclude=wanted)
            assert others
            assert key not in others

    def test_keys_of_each_type(self, shop: Searching) -> None:
        assert buckets(one(shop, {"$terms": {"field": "sold"}})) == [
            {"key": "1", "keyAsString": "true", "docCount": 2},
            {"key": "0", "keyAsString": "false", "docCount": 1},
        ]
        assert self.keys(shop, field="added", order={"key": "asc"})[0] == "2026-01-01T10:00:00Z"
        assert set(self.keys(shop, field="price")) == {"29.99", "40", "10.5"}

    def test_equal_counts_of_numbers_are_in_the_services_order(self, bare: Searching) -> None:
        # The only order known from the service's tests is that of its hash table.
        bare.run("SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA n F64 FAST")
        for number in range(5):
            bare.put(f"p:{number}", {"n": number})
        found = self.keys(bare, field="n")
        assert sorted(found) == ["0", "1", "2", "3", "4"]
        assert found != sorted(found)
        for number in range(5):
            bare.run("DEL", f"p:{number}")
            bare.put(f"p:{number}", {"n": number})
        assert self.keys(bare, field="n") == found

    def test_recursive_descent(self, shop: Searching) -> None:
        below = {"m": {"$avg": {"field": "price"}}, "s": {"$stats": {"field": "price"}}}
        found = buckets(one(shop, {"$terms": {"field": "brand"}, "$aggs": below}))
        assert float(found[0]["m"][1]) == pytest.approx(20.245)
        assert found[0]["s"][:2] == ["count", 2]
        for order, first in (({"m": "desc"}, "bolt"), ({"s.min": "asc"}, "crown")):
            wanted = {"$terms": {"field": "brand", "order": order}, "$aggs": below}
            assert buckets(one(shop, wanted))[0]["key"] == first

    def test_values_of_an_array_are_counted_once_a_document(self, bare: Searching) -> None:
        bare.run("SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA k KEYWORD")
        bare.put("p:1", {"k": ["a", "b", "a"]})
        assert buckets(one(bare, {"$terms": {"field": "k"}})) == [
            {"key": "a", "docCount": 1}, {"key": "b", "docCount": 1},
        ]  # fmt: skip


class TestRanges:
    def test_from_is_in_and_to_is_out(self, shop: Searching) -> None:
        ranges = [{"to": 29.99}, {"from": 29.99, "to": 40, "key": "mid"}, {"from": 40}]
        assert buckets(one(shop, {"$range": {"field": "price", "ranges": ranges}})) == [
            {"key": "*-29.99", "docCount": 1, "to": "29.99"},
            {"key": "mid", "docCount": 1, "from": "29.99", "to": "40"},
            {"key": "40-*", "docCount": 1, "from": "40"},
        ]

    def test_holes_and_ends_are_filled(self, shop: Searching) -> None:
        ranges = [{"from": 30, "to": 50}, {"from": 10, "to": 20}]
        found = buckets(one(shop, {"$range": {"field": "price", "ranges": ranges}}))
        assert [(bucket["key"], bucket["docCount"]) for bucket in found] == [
            ("*-10", 0), ("10-20", 1), ("20-30", 1), ("30-50", 1), ("50-*", 0),
        ]  # fmt: skip

    def test_dates(self, shop: Searching) -> None:
        ranges = [{"from": 1767225600000}]
        found = buckets(one(shop, {"$range": {"field": "added", "ranges": ranges}}))
        assert found[1]["fromAsString"] == "2026-01-01T00:00:00Z"

    def test_keyed(self, shop: Searching) -> None:
        wanted = {"$range": {"field": "price", "ranges": [{"from": 20}], "keyed": True}}
        flat = one(shop, wanted)
        assert flat == ["buckets", ["*-20", ["docCount", 1, "to", "20"],
                                    "20-*", ["docCount", 2, "from", "20"]]]  # fmt: skip


class TestHistograms:
    def keys(self, shop: Searching, **options: Any) -> list[tuple[str, int]]:
        found = buckets(one(shop, {"$histogram": {"field": "price", **options}}))
        return [(bucket["key"], bucket["docCount"]) for bucket in found]

    def test_gaps_are_filled(self, shop: Searching) -> None:
        assert self.keys(shop, interval=10) == [("10", 1), ("20", 1), ("30", 0), ("40", 1)]
        assert self.keys(shop, interval=10, minDocCount=1) == [("10", 1), ("20", 1), ("40", 1)]

    def test_offset_and_bounds(self, shop: Searching) -> None:
        assert self.keys(shop, interval=20, offset=5) == [("5", 1), ("25", 2)]
        hard = {"min": 20, "max": 50}
        assert self.keys(shop, interval=20, hardBounds=hard) == [("20", 1), ("40", 1)]
        wide = self.keys(shop, interval=20, extendedBounds={"min": -20, "max": 70})
        assert [key for key, _ in wide] == ["-20", "0", "20", "40", "60"]

    def test_of_nothing(self, shop: Searching) -> None:
        wanted = {"$histogram": {"field": "price", "interval": 1}}
        assert one(shop, wanted, {"brand": "none"}) == ["buckets", []]

    def test_too_many_buckets(self, shop: Searching) -> None:
        wanted = json.dumps({"a": {"$histogram": {"field": "price", "interval": 0.0001}}})
        error = shop.run.error("SEARCH.AGGREGATE", "i", "{}", wanted)
        assert error == ("ERR Aggregation 'a' operator '$histogram' makes more than 65000 buckets")

    def test_dates(self, shop: Searching) -> None:
        wanted = {"$dateHistogram": {"field": "added", "fixedInterval": "1d", "minDocCount": 1}}
        found = buckets(one(shop, wanted))
        assert found[0] == {
            "key": "1767225600000", "keyAsString": "2026-01-01T00:00:00Z", "docCount": 1,
        }  # fmt: skip
        assert len(found) == 3
        moved = {"field": "added", "fixedInterval": "24h", "offset": "-6h", "minDocCount": 1}
        first = buckets(one(shop, {"$dateHistogram": moved}))[0]
        assert first["keyAsString"] == "2025-12-31T18:00:00Z"


class TestFacets:
    def test_levels(self, shop: Searching) -> None:
        assert one(shop, {"$facet": {"field": "place", "path": "/shop"}}) == [
            *("path", "/shop", "sumOtherDocCount", 0, "children"),
            [
                ["path", "/shop/audio", "docCount", 2, "sumOtherDocCount", 0],
                ["path", "/shop/sport", "docCount", 1, "sumOtherDocCount", 0],
            ],
        ]
        deep = one(shop, {"$facet": {"field": "place", "path": "/shop", "depth": 2, "size": 1}})
        assert deep == [
            *("path", "/shop", "sumOtherDocCount", 1, "children"),
            [
                [
                    *("path", "/shop/audio", "docCount", 2, "sumOtherDocCount", 1, "children"),
                    [["path", "/shop/audio/head", "docCount", 1, "sumOtherDocCount", 0]],
                ]
            ],
        ]

    def test_options(self, shop: Searching) -> None:
        def paths(**options: Any) -> list[str]:
            node = one(shop, {"$facet": {"field": "place", "path": "/shop", **options}})
            return [child[1] for child in pairs(node)["children"]]

        assert paths(order={"path": "desc"}) == ["/shop/sport", "/shop/audio"]
        assert paths(order={"count": "asc"}) == ["/shop/sport", "/shop/audio"]
        assert paths(minDocCount=2) == ["/shop/audio"]
        assert paths(path="/") == ["/shop"]
        assert paths(path="/none") == []


class TestRefusals:
    @pytest.mark.parametrize(("wanted", "told"), cases("rejected aggregations"))
    def test_the_culprit_is_named(self, run: Run, wanted: str, told: str) -> None:
        run(
            "SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA title TEXT price F64 FAST slow F64 "
            "brand KEYWORD added DATE FAST place FACET"
        )
        error = run.error("SEARCH.AGGREGATE", "i", "{}", f'{{"a": {wanted}}}')
        assert error.startswith("ERR Aggregation ")
        assert told in error

    def test_the_request_itself(self, shop: Searching) -> None:
        for wanted in ("[]", "{", "1"):
            error = shop.run.error("SEARCH.AGGREGATE", "i", "{}", wanted)
            assert error.startswith("ERR aggregations ")
        assert text(shop.run("SEARCH.AGGREGATE", "i", "{}", "{}")) == []
