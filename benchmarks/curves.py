"""The cost of one operation as the number of keys, vectors, records, messages and clients grows.

Run ``python -m benchmarks.curves``. There are no limits here; the parts of the services limit
growth. ``python -m benchmarks curves --json FILE`` writes the points.
"""

from __future__ import annotations

import gc
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from pytest_fakecloud import Cloud
from pytest_fakecloud.broker.engine.engine import MemoryEngine
from pytest_fakecloud.broker.model import ProducerRecord, TopicConfig, TopicPartition
from pytest_fakecloud.broker.settings import BrokerConfig
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.engine.sessions import Session
from pytest_fakecloud.kv.settings import KVConfig
from pytest_fakecloud.vector.engine.engine import VectorEngine
from pytest_fakecloud.vector.model import Include, VectorQuery, VectorRecord

from .timing import curve

MOST = 100_000
"""Maximum number of keys, vectors, records and messages."""
CLIENTS = (1, 2, 4, 8, 16, 32, 64)
CALLS = 200
"""Number of calls whose median is a figure, and number of calls of each client."""
DIMENSION = 128
Point = tuple[float, float]


def sizes() -> list[int]:
    return [10**power for power in range(2, 7) if 10**power <= MOST]


def typical(call: Callable[[int], object]) -> float:
    """Return the median time in microseconds of a call, which receives its number."""
    gc.collect()
    taken = []
    for number in range(CALLS):
        started = perf_counter()
        call(number)
        taken.append(perf_counter() - started)
    return median(taken) * 1e6


def keys() -> None:
    series: dict[str, list[Point]] = {"GET": [], "SET": [], "ZADD": [], "SCAN 10": []}
    for size in sizes():
        engine = KVEngine(Timekeeper(), Ids(1), KVConfig())
        session = engine.session()
        for number in range(size):
            engine.execute(session, [b"SET", b"key:%d" % number, b"value"])
            engine.execute(
                session, [b"ZADD", b"z", b"%d" % (number * 7919 % size), b"m%d" % number]
            )

        def at(number: int, size: int = size) -> bytes:
            return b"%d" % (number * 104_729 % size)

        lines: dict[str, Callable[[int], list[bytes]]] = {
            "GET": lambda number: [b"GET", b"key:" + at(number)],
            "SET": lambda number: [b"SET", b"key:" + at(number), b"other"],
            "ZADD": lambda number: [b"ZADD", b"z", at(number + 1), b"m" + at(number)],
            "SCAN 10": lambda number: [b"SCAN", b"0", b"COUNT", b"10"],
        }
        for name, line_of in lines.items():
            call = partial(_run, engine, session, line_of)
            series[name].append((size, typical(call)))
    curve("key-value commands", "keys", series)


def _run(
    engine: KVEngine, session: Session, line_of: Callable[[int], list[bytes]], number: int
) -> object:
    return engine.execute(session, line_of(number))


def vectors() -> None:
    chance = np.random.default_rng(1)
    series: dict[str, list[Point]] = {"upsert": [], "query, top 10": []}
    for size in sizes():
        rows = chance.standard_normal((size, DIMENSION), np.float32)
        engine = VectorEngine(Timekeeper(), Ids(0), dimension=DIMENSION)
        engine.upsert("", [VectorRecord(str(number), row) for number, row in enumerate(rows)])
        queries = [VectorQuery(vector=rows[0], top_k=10, include=Include())]

        def upsert(number: int, engine: VectorEngine = engine, rows: Any = rows) -> None:
            at = number * 104_729 % len(rows)
            engine.upsert("", [VectorRecord(str(at), rows[at - 1])])

        def query(number: int, engine: VectorEngine = engine, queries: Any = queries) -> None:
            assert engine.query("", queries)

        series["upsert"].append((size, typical(upsert)))
        series["query, top 10"].append((size, typical(query)))
    curve(f"vectors of {DIMENSION} numbers", "vectors", series)


def records() -> None:
    series: dict[str, list[Point]] = {"produce": [], "offset by time": []}
    place = TopicPartition("t", 0)
    for size in sizes():
        engine = MemoryEngine(Timekeeper("2026-01-01T00:00:00Z"), Ids(1), BrokerConfig(), "broker")
        engine.topics.create("t", TopicConfig(1))
        for first in range(0, size, 100):
            engine.records.produce(
                [ProducerRecord("t", "x", None, 0, first + n) for n in range(100)]
            )

        def produce(number: int, engine: MemoryEngine = engine) -> None:
            engine.records.produce([ProducerRecord("t", "x")])

        def find_offset(number: int, engine: MemoryEngine = engine, size: int = size) -> None:
            engine.records.offsets(number * 104_729 % size, [place])

        series["produce"].append((size, typical(produce)))
        series["offset by time"].append((size, typical(find_offset)))
    curve("broker", "records", series)


def messages() -> None:
    series: dict[str, list[Point]] = {"publish": [], "publish and deliver": []}
    url = "https://app.example.com/hook"
    for size in sizes():
        with Cloud(seed=1, now="2026-01-01T00:00:00Z", delivery="driven") as cloud:
            queue = cloud.queue()
            queue.destinations.accept()
            for _ in range(size):
                queue.publish(url, body=b"x", delay="30d")

            def publish(number: int, queue: object = queue) -> None:
                queue.publish(url, body=b"x", delay="30d")  # type: ignore[attr-defined]

            def deliver(number: int, queue: object = queue) -> None:
                queue.publish(url, body=b"x")  # type: ignore[attr-defined]
                assert len(queue.clock.advance("1s")) == 1  # type: ignore[attr-defined]

            series["publish"].append((size, typical(publish)))
            series["publish and deliver"].append((size, typical(deliver)))
    curve("queue", "pending messages", series)


def clients() -> None:
    """Measure a GET over HTTP with a number of simultaneous connections: the time of a client, and
    the cost of each.
    """
    waits: list[Point] = []
    costs: list[Point] = []
    with Cloud(seed=1) as cloud:
        kv = cloud.kv_server()
        port = int(kv.url.rpartition(":")[2])
        token = kv.headers["Authorization"]
        head = f"GET /get/key HTTP/1.1\r\nHost: h\r\nAuthorization: {token}\r\n\r\n"
        request = head.encode()
        for count in CLIENTS:
            taken: list[float] = []
            start = threading.Barrier(count + 1)

            def ask(sock: socket.socket, taken: list[float], start: threading.Barrier) -> None:
                mine = []
                start.wait(30)
                for _ in range(CALLS):
                    began = perf_counter()
                    sock.sendall(request)
                    assert sock.recv(65_536).startswith(b"HTTP/1.1 200")
                    mine.append(perf_counter() - began)
                taken += mine

            with ExitStack() as stack:
                threads = []
                for _ in range(count):
                    sock = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threads.append(threading.Thread(target=ask, args=(sock, taken, start)))
                    threads[-1].start()
                start.wait(30)
                began = perf_counter()
                for thread in threads:
                    thread.join()
                whole = perf_counter() - began
            assert len(taken) == count * CALLS, "a client was not answered"
            waits.append((count, median(taken) * 1e6))
            costs.append((count, whole / len(taken) * 1e6))
    curve("GET over HTTP", "clients", {"each waits": waits, "time per request": costs})


def main() -> int:
    for measure in (keys, vectors, records, messages, clients):
        measure()
    return 0


if __name__ == "__main__":
    sys.exit(main())
