"""The cost of the key-value service: its engine compared with fakeredis, its HTTP with its engine.

Run ``python -m benchmarks.kv``. Exits with 1 if a limit is missed.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import httpx
import redis

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.fake import KVServer
from pytest_fakecloud.kv.settings import KVConfig

from .load import real_server
from .timing import NOT_INSTALLED, compare, line

MEMBERS = 1_000_000
KEYS = 100_000
DUMPED = 350_000
SCRIPT = b"return redis.call('INCRBY', KEYS[1], ARGV[1])"
LINES: dict[str, list[bytes]] = {
    "SET": [b"SET", b"key", b"value"],
    "GET": [b"GET", b"key"],
    "INCR": [b"INCR", b"number"],
    "HSET": [b"HSET", b"hash", b"field", b"value"],
    "ZADD": [b"ZADD", b"zset", b"1.5", b"member"],
    "LPUSH": [b"LPUSH", b"list", b"item"],
    "XADD": [b"XADD", b"stream", b"*", b"field", b"value"],
    "EVAL": [b"EVAL", SCRIPT, b"1", b"counter", b"2"],
}


def peer() -> Callable[[list[bytes]], Any]:
    """Return a function that runs a command in fakeredis without a client, as its own socket does."""
    import fakeredis

    client = fakeredis.FakeRedis(server=fakeredis.FakeServer())
    connection = client.connection_pool.get_connection()
    connection.connect()
    fake = connection._sock

    def run(words: list[bytes], client: fakeredis.FakeRedis = client) -> Any:
        # Keep a reference to the client, because closing it also ends the server of fakeredis.
        fake._process_command(words)
        return fake.responses.get_nowait()

    return run


def commands() -> list[bool]:
    """Compare each command in process with fakeredis."""
    results = []
    there = importlib.util.find_spec("fakeredis") is not None
    for name, words in LINES.items():
        engine = KVEngine(Timekeeper(), Ids(1), KVConfig())
        session = engine.session()
        theirs = peer() if there else None

        def ours(
            words: list[bytes] = words, engine: KVEngine = engine, session: Any = session
        ) -> None:
            engine.execute(session, list(words))

        def other(words: list[bytes] = words, theirs: Any = theirs) -> None:
            theirs(list(words))

        if not there:
            print(compare({"ours": ours}, title=name, missing={"fakeredis": NOT_INSTALLED}))
            continue
        table = compare({"ours": ours, "fakeredis": other}, rounds=15, title=name)
        label = (
            f"{name}: fakeredis {table['fakeredis'].best:.1f} us, ours {table['ours'].best:.1f} us"
        )
        results.append(line(label, table.ratio("fakeredis", "ours"), at_least=2.0))
    return results


def sorted_sets() -> list[bool]:
    """Compare ZADD into a sorted set of a million members with one of a thousand."""
    adders: dict[str, Callable[[], object]] = {}
    for size in (1_000, MEMBERS):
        engine = KVEngine(Timekeeper(), Ids(1), KVConfig())
        session = engine.session()
        for start in range(0, size, 1000):
            pairs = [
                word
                for number in range(start, start + 1000)
                for word in (b"%d" % (number * 7919 % size), b"m%d" % number)
            ]
            engine.execute(session, [b"ZADD", b"z", *pairs])
        numbers = count()

        def add(
            engine: KVEngine = engine,
            session: Any = session,
            size: int = size,
            numbers: Any = numbers,
        ) -> None:
            number = next(numbers)
            member = b"m%d" % (number * 104729 % size)
            engine.execute(session, [b"ZADD", b"z", b"%d" % (number * 31337 % size), member])

        adders[f"{size:,}"] = add
    table = compare(adders, rounds=15)
    label = f"ZADD into {MEMBERS:,} members against into 1,000"
    return [line(label, table.ratio(f"{MEMBERS:,}", "1,000"), 3.0)]


def pipelines() -> list[bool]:
    """Compare a request of a thousand commands with the engine's own cost and with one small
    request.
    """
    lines = [["SET", f"key:{number}", f"value {number}"] for number in range(500)]
    lines += [["GET", f"key:{number}"] for number in range(500)]
    encoded = [[word.encode() for word in words] for words in lines]
    with (
        KVServer(Context.alone()) as server,
        httpx.Client(base_url=server.url, headers=server.headers, trust_env=False) as http,
    ):
        engine = server._engine
        assert isinstance(engine, KVEngine)
        # A session of REST, because that of the test makes fewer checks.
        session = engine.session(engine.users.default, "rest", "127.0.0.1:1")

        def alone() -> None:
            for words in encoded:
                engine.execute(session, words)

        body = httpx.Request("POST", server.url, json=lines).content
        table = compare(
            {
                "engine": alone,
                "request": lambda: http.post("/", content=b'["PING"]'),
                "pipeline": lambda: http.post("/pipeline", content=body),
            },
            rounds=15,
        )
    print(table)
    own = table["engine"].best + table["request"].best
    label = "pipeline of 1,000 over HTTP against the engine's cost for it plus one request"
    return [line(label, table["pipeline"].best / own, 1.5)]


def memory() -> None:
    """Compare the bytes per small key with the figure that a real server reports."""
    engine = KVEngine(Timekeeper(), Ids(1), KVConfig())
    session = engine.session()
    keys = [b"key:%d" % number for number in range(KEYS)]
    gc.collect()
    tracemalloc.start()
    for number, key in enumerate(keys):
        engine.execute(session, [b"SET", key, b"value:%d" % number])
    ours = tracemalloc.get_traced_memory()[0] / len(keys)
    tracemalloc.stop()
    reported = engine.execute(session, [b"MEMORY", b"USAGE", keys[0]])
    with real_server() as url:
        if url is None:
            print(f"     memory per small key: {ours:.0f} bytes; no real server to compare with")
            return
        with redis.Redis.from_url(url) as client:
            client.set(keys[0], b"value:0")
            real = int(client.memory_usage(keys[0]) or 0)
    print(
        f"     memory per small key: {ours:.0f} bytes (its own text not counted), a real server's "
        f"MEMORY USAGE {real}, ours reports {reported!r}"
    )


def dumps() -> None:
    """Measure ``dump_rdb()`` and ``load()`` in megabytes per second: strings, hashes and sorted
    sets.
    """
    random = Random(1)
    with tempfile.TemporaryDirectory() as folder, KVServer(Context.alone()) as server:
        for number in range(DUMPED):
            server.execute("SET", b"user:%d:profile" % number, random.randbytes(80))
            if number % 5 == 0:
                fields = [b"name", b"user %d" % number, b"mail", b"%d@example.com" % number]
                server.execute("HSET", b"user:%d" % number, *fields, b"age", random.randrange(99))
            if number % 50 == 0:
                scores = [part for n in range(50) for part in (random.randrange(10**6), f"m{n}")]
                server.execute("ZADD", b"board:%d" % number, *scores)
        file = Path(folder) / "dump.rdb"
        took = {}
        for name, run in {"written": server.dump_rdb, "loaded": server.load}.items():
            began = process_time()
            run(file)
            took[name] = process_time() - began
        size = file.stat().st_size / 1e6
    words = ", ".join(f"{name} at {size / seconds:.0f} MB/s" for name, seconds in took.items())
    print(f"     an .rdb file of {size:.0f} MB and {DUMPED * 1.22:.0f} keys: {words}")


def main() -> int:
    held = [*commands(), *sorted_sets(), *pipelines()]
    memory()
    dumps()
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
