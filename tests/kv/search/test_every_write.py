"""After any sequence of writes an index equals a fresh scan."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pytest_fakecloud.core.timekeeper import Timekeeper
from pytest_fakecloud.kv.errors import CommandError
from tests.budget import cases

from .conftest import Searching

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


def a_line(chance: random.Random) -> list[str]:
    words = {"k": KEYS, "j": KEYS, "f": FIELDS, "d": DOC}
    return [
        chance.choice(words[word]) if word in words else word
        for word in chance.choice(LINES).split()
    ]


def state(shop: Searching) -> dict[str, Any]:
    """Return the contents of each index, independent of the order of indexing."""
    indexes = shop.run.engine.databases[0].indexes
    known = {}
    for name, index in indexes.named.items():
        index.refresh(shop.run.engine.databases[0])
        known[name] = {document.key: document.fields for document in index.documents.values()}
    return known


@pytest.mark.parametrize("seed", range(cases(5)))
def test_it_is_what_a_fresh_scan_finds(bare: Searching, clock: Timekeeper, seed: int) -> None:
    chance = random.Random(seed)
    run, engine = bare.run, bare.run.engine
    kinds = ("JSON", "HASH", "STRING")

    def create() -> None:
        for kind in kinds:
            run(f"SEARCH.CREATE {kind} ON {kind} PREFIX 2 p: q: EXISTSOK SCHEMA n F64 FAST t TEXT")

    create()
    changed, last = 0, state(bare)
    saved = engine.snapshot()
    for _ in range(250):
        try:
            line = a_line(chance)
            if run.session.queue is not None and chance.random() < 0.4:
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
        if run.session.queue is not None:
            continue
        create()
        now = state(bare)
        changed += now != last
        for kind in kinds:
            run(f"SEARCH.REINDEX {kind}")
        last = state(bare)
        assert now == last, line
    assert changed > 10
