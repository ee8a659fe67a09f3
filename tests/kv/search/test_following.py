"""Indexes after a snapshot, and with updates that are still pending."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_fakecloud.core.timekeeper import Timekeeper
from tests.kv.conftest import Run

from .conftest import Searching


@pytest.fixture
def strings(bare: Searching) -> Searching:
    """An index of strings under p:."""
    bare.run("SEARCH.CREATE i ON STRING PREFIX 1 p: SCHEMA n I64 FAST t TEXT")
    return bare


def doc(number: int) -> str:
    return json.dumps({"n": number})


def test_an_index_uses_memory(shop: Searching) -> None:
    assert shop.run("MEMORY USAGE i") > 0


class TestCopies:
    def test_a_snapshot_brings_everything_back(self, shop: Searching) -> None:
        engine = shop.run.engine
        shop.run("SEARCH.ALIASADD a i")
        before = shop.scores({"title": "headphones"})
        saved = engine.snapshot()
        shop.run("DEL p:1")
        shop.put("p:9", {"title": "headphones"})
        shop.run("SEARCH.DROP i")
        shop.run("SEARCH.ALIASDEL a")
        for _ in range(2):
            engine.restore(saved)
            assert shop.scores({"title": "headphones"}) == before
            assert shop.found({}, index="a") == {"p:1", "p:2", "p:3", "p:4"}
            shop.put("p:8", {"title": "more"})
            assert len(shop.found({})) == 5

    def test_a_snapshot_from_before_the_index_has_none(self, bare: Searching) -> None:
        saved = bare.run.engine.snapshot()
        bare.run("SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA t TEXT")
        bare.run.engine.restore(saved)
        assert bare.run("SEARCH.COUNT", "i", "{}") == -1

    def test_a_snapshot_can_be_loaded_elsewhere(self, shop: Searching, clock: Timekeeper) -> None:
        from pytest_fakecloud.core.ids import Ids
        from pytest_fakecloud.kv.engine.engine import Engine

        other = Engine(clock, Ids(1))
        other.restore(shop.run.engine.snapshot())
        there = Searching(Run(other, other.session(), shop.run.notes))
        there.put("p:7", {"title": "new"})
        assert there.found({"title": "new"}) == {"p:7"}
        assert shop.found({"title": "new"}) == set()


class TestPending:
    def pending(self, shop: Searching) -> Any:
        flat = shop.run("SEARCH.DESCRIBE i")
        return flat[flat.index(b"pendingUpdates") + 1]

    def test_until_a_time(self, strings: Searching, clock: Timekeeper) -> None:
        strings.run.engine.databases[0].indexes.delay_ms = 2000
        strings.run("SET", "p:1", doc(1))
        clock.advance(1)
        strings.run("SET", "p:2", doc(2))
        assert strings.found({}) == set()
        assert self.pending(strings) == 2
        clock.advance(1)
        assert strings.found({}) == {"p:1"}
        strings.run("SET", "p:1", doc(5))
        clock.advance(1)
        assert strings.found({"n": 1}) == {"p:1"}, "the old document until the new one is due"
        assert strings.found({"n": 2}) == {"p:2"}

    def test_for_a_number_of_searches(self, strings: Searching) -> None:
        strings.run.engine.databases[0].indexes.delay_reads = 2
        strings.run("SET", "p:1", doc(1))
        counts = [strings.run("SEARCH.COUNT", "i", "{}") for _ in range(4)]
        assert counts == [0, 0, 1, 1]

    def test_until_a_client_blocks(self, bare: Searching) -> None:
        bare.run.engine.search_delay = (3_600_000, None)
        bare.run("SET", "p:0", doc(0))
        bare.run("SEARCH.CREATE i ON STRING PREFIX 1 p: SCHEMA n I64")
        bare.run("SET", "p:1", doc(1))
        assert self.pending(bare) == 2
        assert bare.run("SEARCH.WAITINDEXING i") == 1
        assert bare.found({}) == {"p:0", "p:1"}
        assert self.pending(bare) == 0

    def test_a_removed_key_is_counted_and_not_shown(self, strings: Searching) -> None:
        strings.run("SET", "p:1", doc(1))
        assert strings.found({}) == {"p:1"}
        strings.run.engine.databases[0].indexes.delay_ms = 1000
        strings.run("DEL p:1")
        assert strings.run("SEARCH.COUNT", "i", "{}") == 1
        assert strings.query({}) == []
        assert strings.keys({}) == ["p:1"], "NOCONTENT needs no content"


@pytest.mark.parametrize("text", ["\u0663", "\u0663.5", "\u0662\u0660\u0662\u0664-01-01"])
def test_numbers_in_hashes_have_ascii_digits(bare: Searching, text: str) -> None:
    bare.run("SEARCH.CREATE i ON HASH PREFIX 1 p: SCHEMA u U64 i I64 f F64 d DATE")
    bare.run("HSET", "p:1", *(word for name in "uifd" for word in (name, text)))
    bare.run("SEARCH.WAITINDEXING i")
    for name in "uif":
        assert bare.run("SEARCH.COUNT", "i", json.dumps({name: {"$gte": 0}})) == 0
    assert bare.run("SEARCH.COUNT", "i", json.dumps({"d": {"$gte": "2000-01-01"}})) == 0
