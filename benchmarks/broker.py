"""The cost of the broker: its engine compared with plain Python loops, long polls with plain
requests.

Run ``python -m benchmarks.broker``. Exits with 1 if a limit is missed.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import socket
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from multiprocessing.connection import Connection
from statistics import median
from time import perf_counter
from typing import Any

import httpx

from pytest_fakecloud.broker.engine.engine import MemoryEngine
from pytest_fakecloud.broker.fake import Broker
from pytest_fakecloud.broker.model import (
    ConsumeRequest,
    ProducerRecord,
    TopicConfig,
    TopicPartition,
)
from pytest_fakecloud.broker.settings import BrokerConfig
from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids

from .timing import Table, compare, limit, line

BATCH = 1000
MILLION = 1_000_000
PARKED = 200
WAKES = 300
EARLIEST = {"auto-offset-reset": "earliest", "enable-auto-commit": "false"}
Call = Callable[..., Any]
T0 = TopicPartition("t", 0)


def engine(partitions: int = 3) -> MemoryEngine:
    memory_engine = MemoryEngine(
        Timekeeper("2026-01-01T00:00:00Z"), Ids(1), BrokerConfig(), "broker"
    )
    memory_engine.topics.create("t", TopicConfig(partitions))
    return memory_engine


def producing_and_consuming() -> list[bool]:
    """Compare batches of a thousand records in the engine with loops that only build the same
    tuples.
    """
    keyless = [ProducerRecord("t", f"value number {n}") for n in range(BATCH)]
    keyed = [ProducerRecord("t", f"value number {n}", f"order-{n}") for n in range(BATCH)]
    target = engine()
    source = engine(1)
    for _ in range(10):
        source.records.produce(keyless[:500])
    source.groups.consume(ConsumeRequest("g", "i", ["t"], EARLIEST))
    instance = source.state.groups["g"].instances["i"]

    def bare_loop() -> list[tuple[object, ...]]:
        log: list[tuple[object, ...]] = []
        for message in keyless:
            log.append((message.topic, 0, len(log), 0, message.key, message.value, ()))
        return log

    def consume() -> None:
        # Always consume the same 500 records, by resetting the position as a rebalance does.
        instance.positions[T0] = 0
        assert len(source.groups.consume(ConsumeRequest("g", "i", ["t"], EARLIEST))) == 500

    table = compare(
        {
            "bare loop, 1,000 tuples": bare_loop,
            "produce 1,000 without keys": lambda: target.records.produce(keyless),
            "produce 1,000 with keys": lambda: target.records.produce(keyed),
            "consume 500": consume,
        },
        rounds=15,
    )
    show("engine", table)
    base = table.rows[0].name
    return [
        rate(
            "records/s produced without keys", BATCH, table, "produce 1,000 without keys", 300_000
        ),
        line("  that batch / bare loop of 1,000", table.ratio("produce 1,000 without keys", base)),
        rate("records/s produced with keys", BATCH, table, "produce 1,000 with keys", 150_000),
        line("  that batch / bare loop of 1,000", table.ratio("produce 1,000 with keys", base)),
        rate("records/s consumed", 500, table, "consume 500", 500_000),
        line("  two such answers / bare loop of 1,000", 2 * table.ratio("consume 500", base)),
    ]


def rate(title: str, count: int, table: Table, name: str, at_least: int) -> bool:
    """Print a throughput in thousands per second, from the median of all rounds."""
    return limit(f"1,000 {title}", count / table[name].p50 * 1e3, at_least=at_least / 1000)


def keeping_a_million() -> list[bool]:
    """Measure the bytes per record beyond the payload for a million records, and a search by time."""
    gc.collect()
    tracemalloc.start()
    large = engine(1)
    batch: list[ProducerRecord] = []
    before = tracemalloc.get_traced_memory()[0]
    payload = 0
    for first in range(0, MILLION, BATCH):
        batch = [
            ProducerRecord("t", f"value number {n}", f"key-{n % 1000}", 0, n + (n % 7) * 10)
            for n in range(first, first + BATCH)
        ]
        payload += sum(len(message.value) + len(message.key or "") for message in batch)
        large.records.produce(batch)
    del batch
    gc.collect()
    over = (tracemalloc.get_traced_memory()[0] - before - payload) / MILLION
    tracemalloc.stop()
    small = engine(1)
    small.records.produce(
        [ProducerRecord("t", "x", None, 0, n + (n % 7) * 10) for n in range(1000)]
    )
    table = compare(
        {
            "offset by time among 1,000": lambda: small.records.offsets(777, [T0]),
            f"offset by time among {MILLION:,}": lambda: large.records.offsets(
                MILLION * 7 // 9, [T0]
            ),
        },
        rounds=15,
    )
    show("a million records", table)
    return [
        limit("bytes a record over its payload", over, 400),
        line(
            f"offset by time at {MILLION:,} / at 1,000",
            table.ratio(*[r.name for r in table.rows[::-1]]),
            3,
        ),
    ]


class Client:
    """A connection of a client that does little work itself."""

    def __init__(self, port: int, authorization: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._authorization = authorization

    def send(self, method: str, path: str, body: object = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: h\r\nAuthorization: {self._authorization}\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        self._socket.sendall(head.encode() + data)

    def receive(self) -> bytes:
        data = self._socket.recv(65_536)
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        while len(body) < length:
            body += self._socket.recv(65_536)
        assert head.startswith(b"HTTP/1.1 200"), data
        return body

    def call(self, method: str, path: str, body: object = None) -> bytes:
        self.send(method, path, body)
        return self.receive()

    def close(self) -> None:
        self._socket.close()


def client_process(url: str, authorization: str, pipe: Connection) -> None:
    """Run the clients that wait, in a process of their own, and send their times through the pipe."""

    def until_parked(count: int) -> None:
        pipe.send(count)
        pipe.recv()

    port = int(url.rpartition(":")[2])
    plain, consumer = Client(port, authorization), Client(port, authorization)
    raw = waking(plain.call, consumer.call, "raw", until_parked)
    waiting = [Client(port, authorization) for _ in range(PARKED)]
    end = json.loads(plain.call("POST", "/offsets/latest", [{"topic": "t", "partition": 0}]))[0][
        "offset"
    ]
    alls: list[float] = []
    for offset in range(end, end + 10):
        for client in waiting:
            body = {"topic": "t", "partition": 0, "offset": offset, "timeout": 60_000}
            client.send("POST", "/fetch", body)
        until_parked(PARKED)
        started = perf_counter()
        plain.send("POST", "/produce/t", {"value": "x"})
        for client in waiting:
            assert b'"value":"x"' in client.receive()
        alls.append(perf_counter() - started)
        plain.receive()
    for client in [*waiting, plain, consumer]:
        client.close()

    options: dict[str, Any] = {
        "base_url": url,
        "headers": {"Authorization": authorization},
        "trust_env": False,
    }
    with httpx.Client(**options) as sender, httpx.Client(**options) as other:

        def caller(client: httpx.Client) -> Call:
            return lambda method, path, body=None: client.request(method, path, json=body).content

        by_httpx = waking(caller(sender), caller(other), "httpx", until_parked)
    pipe.send((raw, by_httpx, median(alls)))


def waking(
    call: Call, consume: Call, group: str, until_parked: Callable[[int], None]
) -> tuple[float, float, float]:
    """Return three times in seconds (p50).

    They are the times of GET /topics, of a produce request without a waiting consumer, and from a
    produce request to the answer of the consumer that waits for it.
    """
    plains: list[float] = []
    produces: list[float] = []
    wakes: list[float] = []
    woken: list[float] = []

    def wait_for_one() -> None:
        body = {"topic": "t", "timeout": 60_000}
        assert b'"value":"x"' in consume("POST", f"/consume/{group}/i", body)
        woken.append(perf_counter())

    for _ in range(WAKES):
        # Before a wake-up, both processes have slept for a moment; sleep before the other calls
        # too.
        until_parked(0)
        started = perf_counter()
        call("GET", "/topics")
        plains.append(perf_counter() - started)
        until_parked(0)
        started = perf_counter()
        call("POST", "/produce/idle", {"value": "x"})
        produces.append(perf_counter() - started)
        waiter = threading.Thread(target=wait_for_one)
        waiter.start()
        until_parked(1)
        started = perf_counter()
        call("POST", "/produce/t", {"value": "x"})
        waiter.join()
        wakes.append(woken[-1] - started)
    return median(plains), median(produces), median(wakes)


def waiting_over_http() -> list[bool]:
    """Measure the time from a produce request to the answers of waiting consumers in another
    process.
    """
    with Broker(Context.alone(), topics={"t": 1, "idle": 1}) as broker:
        here, there = multiprocessing.get_context("spawn").Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=client_process, args=(broker.url, broker.headers["Authorization"], there)
        )
        process.start()
        while isinstance(message := here.recv(), int):
            while len(broker._engine.records._waits.waiting) < message and process.is_alive():
                time.sleep(0.0002)
            # A consumer announces itself a moment before it sleeps.
            time.sleep(0.001)
            here.send(None)
        process.join()
    raw, by_httpx, everybody = message
    print("\nwaiting over HTTP, p50 in us: GET /topics, produce, produce to the waiting answer")
    for name, figures in {"raw client": raw, "httpx": by_httpx}.items():
        print(f"{name:12}" + "".join(f"{seconds * 1e6:9.0f}" for seconds in figures))
    print(f"to the last of {PARKED} waiting answers: {everybody * 1e6:.0f} us")
    return [
        line("wake-up / a plain produce, httpx", by_httpx[2] / by_httpx[1], 1.5),
        line("wake-up / GET /topics, httpx", by_httpx[2] / by_httpx[0]),
        line("wake-up / a plain produce, raw client", raw[2] / raw[1]),
        line(
            f"last of {PARKED} waiting answers / GET /topics, raw client", everybody / raw[0], 250
        ),
    ]


def show(title: str, table: Table) -> None:
    print(f"\n{title}\n{table}")


def main() -> int:
    holds = [*producing_and_consuming(), *waiting_over_http(), *keeping_a_million()]
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
