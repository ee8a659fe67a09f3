"""Indexes: their definitions, and that after any writes and snapshots they equal a fresh scan."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.reply import to_json, to_resp
from pytest_fakecloud.kv.settings import KVConfig
from tests.budget import cases
from tests.kv.conftest import Run
from tests.kv.search.conftest import Searching


def test_the_size_grows(shop: Searching) -> None:
    flat = shop.run("SEARCH.DESCRIBE i")
    assert flat[flat.index(b"indexSize") + 1] > 100


def test_the_reading_user_may_look_and_not_change(shop: Searching) -> None:
    engine = shop.run.engine
    reader = shop.run.other(user=engine.users.read_only)
    assert reader("SEARCH.COUNT", "i", "{}") == 4
    for line in ("SEARCH.LISTINDEXES", "SEARCH.LISTALIASES", "SEARCH.DESCRIBE i",
                 "SEARCH.WAITINDEXING i", "SEARCH.QUERY i {}"):  # fmt: skip
        reader(line)
    for line in ("SEARCH.DROP i", "SEARCH.REINDEX i", "SEARCH.ALIASADD a i", "SEARCH.ALIASDEL a",
                 "SEARCH.CREATE i ON JSON PREFIX 1 p: SCHEMA t TEXT"):  # fmt: skip
        assert reader.error(line).startswith("NOPERM")


class TestOnTheWire:
    def test_maps_are_maps_in_resp3_and_flat_in_resp2(self, shop: Searching) -> None:
        described = shop.run("SEARCH.DESCRIBE i")
        assert to_resp(described, 3).startswith(b"%7\r\n$4\r\nname\r\n")
        assert to_resp(described, 2).startswith(b"*14\r\n$4\r\nname\r\n")
        aggregated = shop.run("SEARCH.AGGREGATE", "i", "{}", '{"a":{"$avg":{"field":"price"}}}')
        assert to_resp(aggregated, 3).startswith(b"%1\r\n$1\r\na\r\n%1\r\n$5\r\nvalue\r\n$")
        reply = shop.run("SEARCH.QUERY", "i", '{"price":40}', "NOCONTENT")
        assert to_json(reply) == [["p:2", "1.2039728"]]

    def test_names_need_not_be_utf_8(self, run: Run) -> None:
        head = b"SEARCH.CREATE i\xff ON HASH PREFIX 1 p\xff SCHEMA t\xff TEXT"
        run(*head.split())
        run("HSET", b"p\xff1", b"t\xff", b"word \xff")
        reply = run("SEARCH.QUERY", b"i\xff", "{}", "SELECT", "1", b"t\xff")
        assert reply == [[b"p\xff1", b"1", [[b"t\xff", b"word \xff"]]]]
        assert run("SEARCH.DESCRIBE", b"i\xff")[-1] == [[b"t\xff", b"TEXT"]]
        assert "Unknown field" in run.error("SEARCH.QUERY", b"i\xff", '{"t\\u00ff":1}')
        assert run("SEARCH.LISTINDEXES", "MATCH", b"i\xff")[0][1] == b"i\xff"


def test_an_index_has_a_thousand_fields(run: Run) -> None:
    def create(count: int) -> str:
        fields = " ".join(f"f{number} TEXT" for number in range(count))
        return f"SEARCH.CREATE i{count} ON JSON PREFIX 1 p{count}: SCHEMA {fields}"

    assert run(create(1000)) == 1
    assert run.error(create(1001)) == "ERR an index can have at most 1000 fields, not 1001"


KEYS = ["p:1", "p:2", "p:3", "q:1", "other"]
FIELDS = ["n", "t", "u"]
DOC = ['{"n":1,"t":"red hat"}', '{"n":2,"t":["a","b"]}', '{"t":"hat"}', "[1]", "7", '"x"']
LINES = [
    "SET k d", "SET k d PX 50", "SETEX k 1 d", "SETNX k d", "GETSET k d", "MSET k d j d", "GETDEL k",
    "GETEX k PX 60", "APPEND k x", "SETRANGE k 0 {", "INCR k", "SETBIT k 3 1", "BITOP NOT k j",
    "DEL k", "UNLINK k j", "RENAME k j", "RENAMENX k j", "COPY k j", "COPY k j REPLACE", "EXPIRE k 0",
    "PEXPIRE k 40", "PERSIST k", "DELEX k", "HSET k f 3", "HSET k n 4 t words", "HINCRBY k n 2",
    "HINCRBYFLOAT k n 0.5", "HDEL k n", "HDEL k n t u f", "HSETNX k n 9", "HSETEX k PX 30 FIELDS 1 n 5",
    "HPEXPIRE k 20 FIELDS 1 n", "HPERSIST k FIELDS 1 n", "HGETDEL k FIELDS 1 t",
    "HGETEX k PX 25 FIELDS 1 n", "JSON.SET k $ d", "JSON.SET k $.n 5", "JSON.DEL k", "JSON.DEL k $.t",
    "JSON.MERGE k $ d", "JSON.MSET k $ d j $ d", "JSON.NUMINCRBY k $.n 1", "JSON.TOGGLE k $.n",
    "JSON.CLEAR k $", "JSON.ARRAPPEND k $.t d", "JSON.ARRPOP k $.t", "JSON.STRAPPEND k $.t d",
    "LPUSH k x", "SADD k x", "ZADD k 1 x", "SORT j STORE k", "XADD k * n 1", "MULTI", "EXEC", "FLUSHDB",
]  # fmt: skip
STREAM_LINES = [
    "XADD p:1 * n 1 t d", "XADD p:1 * t d", "XADD p:1 MAXLEN = 3 * n 4 t d", "XTRIM p:1 MAXLEN = 2",
    "XTRIM p:1 MINID = 1767225600050", "XDEL p:1 1767225600000-0 1767225600010-0", "DEL p:1",
    "XGROUP CREATE p:1 g $ MKSTREAM", "XDELEX p:1 IDS 1 1767225600030-0", "EXPIRE p:1 0",
    "RENAME j p:1", "COPY STREAM copied", "RENAME copied STREAM",
]  # fmt: skip


def a_line(chance: random.Random, lines: list[str]) -> list[str]:
    words = {"k": KEYS, "j": KEYS, "f": FIELDS, "d": DOC}
    return [
        chance.choice(words[word]) if word in words else word
        for word in chance.choice(lines).split()
    ]


def state(shop: Searching) -> dict[str, Any]:
    """Return the contents of each index, independent of the order of indexing."""
    indexes = shop.run.engine.databases[0].indexes
    documents = {}
    for name, index in indexes.named.items():
        index.refresh(shop.run.engine.databases[0])
        documents[name] = {document.key: document.fields for document in index.documents.values()}
    return documents


@pytest.mark.parametrize("seed", range(cases(5)))
@pytest.mark.parametrize(
    ("sources", "lines"),
    [
        (["JSON PREFIX 2 p: q:", "HASH PREFIX 2 p: q:", "STRING PREFIX 2 p: q:"], LINES),
        (["STREAM p:1"], [*STREAM_LINES, *LINES[:5]]),
    ],
    ids=["keys", "stream"],
)
def test_it_is_what_a_fresh_scan_finds(
    bare: Searching, clock: Timekeeper, sources: list[str], lines: list[str], seed: int
) -> None:
    chance = random.Random(seed)
    run, engine = bare.run, bare.run.engine
    kinds = [source.split()[0] for source in sources]

    def create() -> None:
        for kind, source in zip(kinds, sources, strict=True):
            if run("EXISTS", kind) == 0:
                run.each(*(f"SEARCH.DROP {name}" for name in ("copied", kind)))
            run(f"SEARCH.CREATE {kind} ON {source} EXISTSOK SCHEMA n F64 FAST t TEXT")

    create()
    changed, last = 0, state(bare)
    saved = engine.snapshot()
    for _ in range(250):
        try:
            line = a_line(chance, lines)
            if run.session.is_queuing and chance.random() < 0.4:
                line = ["EXEC"]
            if line != ["FLUSHDB"] or chance.random() < 0.2:
                run(*line)
        except CommandError:
            pass
        if chance.random() < 0.2:
            clock.advance(chance.choice([0.01, 0.03]))
        if chance.random() < 0.03:
            saved = engine.snapshot()
        elif chance.random() < 0.02:
            engine.restore(saved)
        if run.session.is_queuing:
            continue
        create()
        now = state(bare)
        changed += now != last
        for kind in kinds:
            run(f"SEARCH.REINDEX {kind}")
        last = state(bare)
        assert now == last, line
    assert changed > 10


@pytest.fixture
def strings(bare: Searching) -> Searching:
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
        from pytest_fakecloud.kv.engine.engine import KVEngine

        other = KVEngine(clock, Ids(1), KVConfig())
        other.restore(shop.run.engine.snapshot())
        there = Searching(Run(other, other.session()))
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

    def test_each_entry_of_a_stream_until_its_time(
        self, bare: Searching, clock: Timekeeper
    ) -> None:
        bare.run("SEARCH.CREATE i ON STREAM s SCHEMA t TEXT")
        bare.run.engine.databases[0].indexes.delay_ms = 2000
        for entry in ("1-0", "2-0", "3-0"):
            bare.run("XADD", "s", entry, "t", "x")
            clock.advance(1)
        assert bare.found({}) == {"1-0", "2-0"}
        bare.run("XDEL s 1-0")
        assert self.pending(bare) == 2
        assert [hit[0] for hit in bare.query({})] == [b"2-0"], "the entry has no content any more"
        clock.advance(2)
        assert bare.found({}) == {"2-0", "3-0"}

    def test_until_a_client_blocks(self, bare: Searching) -> None:
        engine = bare.run.engine
        engine.settings = KVConfig(**vars(engine.settings) | {"search_ready_after_ms": 3_600_000})
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
