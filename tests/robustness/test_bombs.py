"""Small inputs that request a lot of work are rejected or answered quickly, with little memory."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from typing import Any

import pytest

from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.core.timekeeper import Timekeeper
from pytest_fakecloud.kv.engine.engine import Engine
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.rdb.source import crc64
from tests.budget import cases
from tests.kv import fuzzing

SECONDS = 2.0
"""Maximum processor time of one input, in seconds; an unbounded search would take minutes."""


class Asked:
    """An engine with some keys, and a function that runs a command and returns errors as values."""

    def __init__(self) -> None:
        self.engine = Engine(Timekeeper(), Ids(1))
        self.session = self.engine.session()

    def __call__(self, *words: str | bytes) -> Any:
        line = [word.encode() if isinstance(word, str) else word for word in words]
        began = time.thread_time()
        try:
            return self.engine.execute(self.session, line)
        except CommandError as error:
            return error
        finally:
            taken = time.thread_time() - began
            assert taken < SECONDS, (taken, [word[:80] for word in line])


@pytest.fixture
def ask() -> Asked:
    return Asked()


# -- dumps ----------------------------------------------------------------------------------------

LINES = (
    "SET string text", "SET number 12345", "RPUSH list a b 3", "SADD ints 1 2 3", "SADD set a b c",
    "ZADD zset 1 a 2.5 b", "HSET hash f v g 2", "XADD stream 1-1 a 1", "XADD stream 2-1 b 2",
    "XGROUP CREATE stream g 0", "PFADD hll a b c", "JSON.SET json $ {\"a\":[1,2,{\"b\":null}]}",
)  # fmt: skip


def damaged(data: bytes, luck: random.Random) -> bytes:
    """Return the bytes with a few changes, often with a corrected checksum."""
    changed = bytearray(data)
    for _ in range(luck.choice([1, 1, 2, 5])):
        at = luck.randrange(len(changed) or 1)
        if changed and luck.random() < 0.6:
            changed[at] = luck.choice([0, 1, 0x7F, 0x80, 0xFF, luck.randrange(256)])
        else:
            changed[at : at + luck.choice([0, 1, 4])] = luck.randbytes(luck.choice([0, 1, 4]))
    return bytes(changed)


def restore_damaged(ask: Asked, seed: int, rounds: int) -> tuple[int, int]:
    """Restore damaged dumps of keys and functions; return how many were rejected and how many
    accepted.
    """
    luck = random.Random(seed)
    ask("FLUSHALL")
    for line in LINES:
        assert not isinstance(ask(*line.split(" ")), CommandError), line
    ask("FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 1 end)")
    names = ["string", "number", "list", "ints", "set", "zset", "hash", "stream", "hll", "json"]
    dumps = [ask("DUMP", name) for name in names]
    functions = ask("FUNCTION", "DUMP")
    refused = taken = 0
    for _ in range(rounds):
        if luck.random() < 0.2:
            reply = ask("FUNCTION", "RESTORE", _damaged_dump(functions, luck), "REPLACE")
        else:
            data = _damaged_dump(luck.choice(dumps), luck)
            reply = ask("RESTORE", "copy", "0", data, "REPLACE")
            if reply == "OK" or not isinstance(reply, CommandError):
                _use(ask)
        if isinstance(reply, CommandError):
            refused += 1
        else:
            taken += 1
    assert ask("PING") is not None
    return refused, taken


FOOTER = 10
"""The number of bytes of version and checksum at the end of a dump."""


def _damaged_dump(data: bytes, luck: random.Random) -> bytes:
    """Damage a dump, usually with a corrected checksum, because otherwise only the checksum would
    be tested.
    """
    if luck.random() < 0.2:
        return damaged(data, luck)
    body = damaged(data[:-FOOTER], luck) + data[-FOOTER:-8]
    return body + crc64(body).to_bytes(8, "little")


def _use(ask: Asked) -> None:
    """Check that everything that was restored can be read, changed and dumped."""
    for line in ("TYPE copy", "DUMP copy", "OBJECT ENCODING copy", "COPY copy other REPLACE", "TTL copy",
                 "GET copy", "LRANGE copy 0 -1", "SMEMBERS copy", "ZRANGE copy 0 -1 WITHSCORES",
                 "HGETALL copy", "XRANGE copy - +", "XINFO STREAM copy FULL", "PFCOUNT copy",
                 "JSON.GET copy", "DEL copy"):  # fmt: skip
        ask(*line.split())


@pytest.mark.slow
def test_damaged_dumps(ask: Asked) -> None:
    refused, taken = restore_damaged(ask, 1, rounds := cases(1500))
    assert refused > rounds / 5
    assert taken > rounds / 30, "only check sums were tried"


@pytest.mark.long
def test_damaged_dumps_for_long(ask: Asked) -> None:
    for seed in range(100):
        restore_damaged(ask, random.randrange(2**32) + seed, 5000)


# -- patterns -------------------------------------------------------------------------------------

GLOBS = (
    "*a" * 40 + "b",
    "*" * 5000,
    "[" * 3000,
    "?*" * 300,
    "[^" * 1000 + "]",
    "\\" * 5001,
    "*?" * 200,
)


@pytest.mark.parametrize("glob", GLOBS, ids=range(len(GLOBS)))
def test_globs(ask: Asked, glob: str) -> None:
    ask("SET", "a" * 5000, "1")
    for line in (("KEYS", glob), ("SCAN", "0", "MATCH", glob), ("ACL", "SETUSER", "u", f"~{glob}")):
        ask(*line)
    ask("PUBSUB", "CHANNELS", glob)


PATHS = (
    "$" + "..a" * 2000, "$" + "[*]" * 500, "$" + "..*" * 12, "$[?(@.a" + "==@.a" * 500 + ")]",
    "$[" + "0," * 20_000 + "0]", "$[?(" + "(" * 5000, "$[?(@.a=~'(a+)+$')]",
    "$." + "a." * 5000, "$[0:9999999999:-1]",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS, ids=range(len(PATHS)))
def test_paths(ask: Asked, path: str) -> None:
    deep = '{"a":' * 60 + "1" + "}" * 60
    ask("JSON.SET", "j", "$", deep)
    ask("JSON.SET", "w", "$", "[" + ",".join(['{"a":"' + "a" * 40 + '!"}'] * 200) + "]")
    for key in ("j", "w"):
        for line in (("JSON.GET", key, path), ("JSON.DEL", key, path), ("JSON.TYPE", key, path)):
            ask(*line)


def test_documents(ask: Asked) -> None:
    for text in (
        "[" * 100_000,
        '{"a":' * 100_000,
        "1" * 100_000,
        '"' + "\\u0000" * 50_000 + '"',
        "1e" + "9" * 999,
    ):
        ask("JSON.SET", "j", "$", text)
        ask("JSON.MERGE", "j", "$", text)
        ask("JSON.NUMMULTBY", "j", "$", "1e308")


FILTERS = (
    "(" * 5000 + "a = 1", "a = 1" + " AND a = 1" * 5000, "NOT " * 5000 + "a = 1",
    "a IN (" + "1," * 20_000 + "1)", "a GLOB '" + "*a" * 60 + "b'", "a" + ".b" * 5000 + " = 1",
    "a[" * 3000,
    "a = '" + "x" * 200_000 + "'",
)  # fmt: skip


@pytest.mark.parametrize("text", FILTERS, ids=range(len(FILTERS)))
def test_filters(text: str) -> None:
    from pytest_fakecloud import Cloud

    with Cloud(seed=1) as cloud:
        index = cloud.vector_index(dimension=2)
        index.load(
            [{"id": str(n), "vector": [1, n], "metadata": {"a": "a" * 200}} for n in range(50)]
        )
        import requests

        began = time.process_time()
        answer = requests.post(
            f"{index.url}/query",
            json={"vector": [1, 1], "topK": 3, "filter": text},
            headers=index.headers,
            timeout=30,
        )
        assert answer.status_code in (200, 400, 422)
        assert time.process_time() - began < SECONDS


# -- frames and scripts, for long -----------------------------------------------------------------


@pytest.mark.long
def test_hostile_frames_for_long() -> None:
    """Parse 250,000 frames with the reader, and send thousands to a port."""
    fuzzing.main(250_000, 10_000, random.randrange(2**32))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_hostile_scripts_for_long(seed: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.kv.scripting.hostile", str(seed + 100), "200"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout.splitlines()[1].split()[0]) < SECONDS
