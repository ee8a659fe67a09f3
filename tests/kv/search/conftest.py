"""An index of products, and a helper that searches it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_fakecloud.kv.reply import to_json
from tests.kv.conftest import Run
from tests.notations import rows

SCHEMA = (
    "title TEXT plain TEXT NOSTEM code TEXT NOTOKENIZE price F64 FAST stock U64 FAST delta I64 FAST "
    "sold BOOL FAST added DATE FAST brand KEYWORD place FACET"
)
PRODUCTS: dict[str, dict[str, Any]] = {
    "p:1": {
        "title": "Wireless Headphones with studies of bass", "plain": "running experiments",
        "code": "AB-1 x", "price": 29.99, "stock": 5, "delta": -3, "sold": True,
        "added": "2026-01-01T10:00:00Z", "brand": "acme", "place": "/shop/audio/head",
    },
    "p:2": {
        "title": "Running shoes for every runner", "plain": "run", "code": "ab-1 X", "price": 40,
        "stock": 0, "delta": 7, "sold": False, "added": "2026-01-02T11:30:00+01:00",
        "brand": "bolt", "place": "/shop/sport",
    },
    "p:3": {
        "title": "Wired headphone", "plain": "Experiment", "code": "zz", "price": 10.5, "stock": 12,
        "delta": 0, "sold": True, "added": "2026-02-01T00:00:00Z", "brand": "acme",
        "place": "/shop/audio/wire",
    },
    "p:4": {"title": "Bass guitar", "brand": "crown", "unindexed": {"deep": [1, 2]}},
}  # fmt: skip


def cases(heading: str) -> list[tuple[str, str]]:
    """Return the rows of ``cases.txt`` under a heading: requests with their results."""
    return rows(Path(__file__).with_name("cases.txt"), heading, raw=True)


class Searching:
    """Runs searches on one engine, with Python values for JSON."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def put(self, key: str, document: Any) -> None:
        self.run("JSON.SET", key, "$", json.dumps(document))

    def query(self, filter: Any, *options: object, index: str = "i") -> Any:
        return self.run("SEARCH.QUERY", index, json.dumps(filter), *options)

    def keys(self, filter: Any, *options: object, index: str = "i") -> list[str]:
        hits = self.query(filter, *options, "NOCONTENT", "LIMIT", 1000, index=index)
        return [hit[0].decode() for hit in hits]

    def found(self, filter: Any, index: str = "i") -> set[str]:
        """Return the keys of the hits, after checking their number with SEARCH.COUNT."""
        keys = self.keys(filter, index=index)
        assert self.run("SEARCH.COUNT", index, json.dumps(filter)) == len(keys)
        return set(keys)

    def scores(self, filter: Any, *options: object) -> dict[str, float]:
        hits = self.query(filter, *options, "NOCONTENT", "LIMIT", 1000)
        return {hit[0].decode(): float(hit[1]) for hit in hits}

    def aggregate(self, aggregations: Any, filter: Any = None) -> dict[str, Any]:
        """Return the flat reply with strings; pairs stay lists."""
        words = map(json.dumps, (filter or {}, aggregations))
        reply = self.run("SEARCH.AGGREGATE", "i", *words)
        flat = to_json(reply)
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def error(self, filter: Any, *options: object) -> str:
        return self.run.error("SEARCH.QUERY", "i", json.dumps(filter), *options)


@pytest.fixture
def bare(run: Run) -> Searching:
    return Searching(run)


@pytest.fixture
def shop(bare: Searching) -> Searching:
    bare.run("SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA " + SCHEMA)
    for key, document in PRODUCTS.items():
        bare.put(key, document)
    return bare
