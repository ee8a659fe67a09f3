"""Indexes follow every way in which keys are created, changed, removed and restored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_fakecloud.core.timekeeper import Timekeeper
from tests.kv.conftest import Run

from .conftest import Searching, text


@pytest.fixture
def strings(bare: Searching) -> Searching:
    """An index of strings under p:."""
    bare.run("SEARCH.CREATE i ON STRING PREFIX 1 p: SCHEMA n I64 FAST t TEXT")
    return bare


@pytest.fixture
def hashes(bare: Searching) -> Searching:
    """An index of hashes under p:."""
    bare.run("SEARCH.CREATE i ON HASH PREFIX 1 p: SCHEMA n I64 FAST b BOOL t TEXT d DATE f F64")
    return bare


def doc(number: int) -> str:
    return json.dumps({"n": number})


class TestStrings:
    def test_any_write_that_leaves_a_json_object(self, strings: Searching) -> None:
        run = strings.run
        run("SET", "p:1", doc(1))
        run("MSET", "p:2", doc(2), "other", doc(2))
        run("SETEX", "p:3", "100", doc(3))
        run("SET", "half", '{"n":')
        run("RENAME", "half", "p:4")
        assert strings.found({}) == {"p:1", "p:2", "p:3"}
        run("APPEND", "p:4", "4}")
        assert strings.found({"n": 4}) == {"p:4"}
        run("SET", "p:1", "[1]")
        run("GETDEL", "p:2")
        run("SETRANGE", "p:4", "5", "9")
        assert strings.found({}) == {"p:3", "p:4"}
        assert strings.found({"n": 9}) == {"p:4"}

    def test_another_type_under_the_name_is_no_document(self, strings: Searching) -> None:
        strings.run("SET", "p:1", doc(1))
        strings.run("DEL", "p:1")
        strings.run("LPUSH", "p:1", doc(1))
        assert strings.found({}) == set()

    def test_rename_copy_and_restore(self, strings: Searching) -> None:
        run = strings.run
        run("SET", "p:1", doc(1))
        payload = run("DUMP", "p:1")
        run("COPY", "p:1", "p:2")
        run("RENAME", "p:1", "x:1")
        run("RESTORE", "p:3", 0, payload)
        assert strings.found({"n": 1}) == {"p:2", "p:3"}
        run("RENAME", "x:1", "p:1")
        run("RENAMENX", "p:2", "p:4")
        assert strings.found({"n": 1}) == {"p:1", "p:3", "p:4"}

    def test_expiry_takes_a_document_out(self, strings: Searching, clock: Timekeeper) -> None:
        strings.run("SET", "p:1", doc(1), "PX", 1500)
        clock.advance(1.499)
        assert strings.found({}) == {"p:1"}
        clock.advance(0.001)
        assert strings.found({}) == set()

    def test_a_transaction_and_a_script(self, strings: Searching) -> None:
        run = strings.run
        run("MULTI")
        run("SET", "p:1", doc(1))
        run("SEARCH.COUNT", "i", "{}")
        run("SEARCH.QUERY", "i", "{}", "NOCONTENT")
        assert run("EXEC")[1:] == [1, [[b"p:1", b"1"]]]
        script = "redis.call('SET', KEYS[1], ARGV[1]); return redis.call('SEARCH.COUNT', 'i', '{}')"
        assert run("EVAL", script, 1, "p:2", doc(2)) == 2

    def test_a_query_in_them_needs_no_content(self, strings: Searching) -> None:
        run = strings.run
        run("MULTI")
        run("SEARCH.QUERY", "i", "{}")
        assert "needs NOCONTENT" in str(run("EXEC")[0])
        assert "needs NOCONTENT" in run.error(
            "EVAL", "return redis.call('SEARCH.QUERY','i','{}')", 0
        )


class TestHashes:
    def test_texts_are_read_as_the_field_says(self, hashes: Searching) -> None:
        line = (
            "HSET", "p:1", "n", "-7", "b", "true", "t", "Two words", "d", "2026-01-01", "f", "1e2",
        )  # fmt: skip
        hashes.run(*line)
        hashes.run("HSET", "p:2", "n", "7.5", "b", "yes", "d", "soon", "f", "x")
        for filter in (
            {"n": -7}, {"b": True}, {"t": "words"}, {"d": "2026-01-01T00:00:00Z"}, {"f": 100},
        ):  # fmt: skip
            assert hashes.found(filter) == {"p:1"}
        assert hashes.found({}) == {"p:1", "p:2"}
        assert hashes.found({"n": {"$gte": -100}}) == {"p:1"}

    def test_changes_of_fields(self, hashes: Searching, clock: Timekeeper) -> None:
        run = hashes.run
        run("HSET", "p:1", "n", "1")
        run("HINCRBY", "p:1", "n", "4")
        assert hashes.found({"n": 5}) == {"p:1"}
        run("HPEXPIRE", "p:1", "100", "FIELDS", "1", "n")
        run("HSET", "p:1", "b", "true")
        clock.advance(0.1)
        assert hashes.found({"n": 5}) == set()
        assert hashes.found({"b": True}) == {"p:1"}
        run("HDEL", "p:1", "b")
        assert hashes.found({}) == set()

    def test_only_fields_of_the_top(self, bare: Searching) -> None:
        bare.run("SEARCH.CREATE i ON HASH PREFIX 1 p: SCHEMA a.b TEXT FROM x.y")
        bare.run("HSET", "p:1", "x.y", "word", "x", '{"y":"no"}')
        assert bare.found({"a.b": "word"}) == {"p:1"}
        assert bare.found({"a.b": {"$eq": "no"}}) == set()

    def test_content_is_all_pairs(self, hashes: Searching) -> None:
        hashes.run("HSET", "p:1", "n", "1", "other", "x")
        assert text(hashes.query({})) == [["p:1", "1", [["n", "1"], ["other", "x"]]]]
        assert text(hashes.query({}, "SELECT", 2, "other", "none")) == [
            ["p:1", "1", [["other", "x"]]]
        ]


class TestJson:
    def test_every_change_of_a_document(self, shop: Searching) -> None:
        run = shop.run
        run("JSON.SET", "p:4", "$.price", "1")
        run("JSON.NUMINCRBY", "p:4", "$.price", "2")
        assert shop.found({"price": 3}) == {"p:4"}
        run("JSON.MERGE", "p:4", "$", '{"brand":null,"stock":[8,9]}')
        assert shop.found({"brand": "crown"}) == set()
        assert shop.found({"stock": 9}) == {"p:4"}
        run("JSON.ARRPOP", "p:4", "$.stock")
        assert shop.found({"stock": 9}) == set()
        run("JSON.DEL", "p:4", "$.stock")
        run("JSON.MSET", "p:5", "$", '{"price":3}')
        assert shop.found({"price": 3}) == {"p:4", "p:5"}
        run("JSON.SET", "p:5", "$", "[]")
        assert "p:5" not in shop.found({})

    def test_a_changed_document_moves_to_the_end(self, shop: Searching) -> None:
        assert shop.keys({}) == ["p:1", "p:2", "p:3", "p:4"]
        shop.run("JSON.SET", "p:2", "$.price", "41")
        assert shop.keys({}) == ["p:1", "p:3", "p:4", "p:2"]


class TestTheIndexItself:
    def test_it_is_a_key_of_its_own_type(self, shop: Searching) -> None:
        run = shop.run
        assert run("TYPE i").text == b"search"
        assert run("SCAN 0 TYPE search") == [b"0", [b"i"]]
        assert run.error("GET i").startswith("WRONGTYPE")
        assert run.error("JSON.GET i").startswith("WRONGTYPE")
        assert run("OBJECT ENCODING i") == b"raw"
        assert run("MEMORY USAGE i") > 0
        assert "cannot be dumped" in run.error("DUMP i")

    def test_del_rename_copy(self, shop: Searching) -> None:
        run = shop.run
        run("RENAME i j")
        shop.put("p:9", {"price": 9})
        assert shop.found({"price": 9}, index="j") == {"p:9"}
        run("COPY j k")
        shop.run("DEL", "p:9")
        assert shop.found({"price": 9}, index="k") == set()
        assert run("DEL j") == 1
        assert run("SEARCH.COUNT", "j", "{}") == -1
        assert shop.found({"price": 40}, index="k") == {"p:2"}

    def test_a_string_under_the_key_ends_the_wait(self, shop: Searching) -> None:
        shop.run("SET i x")
        assert shop.run("SEARCH.COUNT", "i", "{}") == -1

    @pytest.mark.parametrize("line", ["FLUSHDB", "FLUSHALL"])
    def test_a_flush_drops_indexes_and_aliases(self, shop: Searching, line: str) -> None:
        shop.run("SEARCH.ALIASADD a i")
        shop.run(line)
        assert shop.run("SEARCH.LISTINDEXES") == shop.run("SEARCH.LISTALIASES") == []
        shop.run("SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA t TEXT")
        shop.put("p:1", {"t": "x"})
        assert shop.found({}) == {"p:1"}


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
