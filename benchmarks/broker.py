"""What the broker costs: the engine against bare Python loops, waiting against plain requests.

Run from the repository: ``python -m benchmarks.broker``. Exits with 1 when a limit is missed.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import socket
import sys
import time
import tracemalloc
from multiprocessing.connection import Connection
from statistics import median
from time import perf_counter

from pytest_fakecloud.broker.engine import Engine
from pytest_fakecloud.broker.handle import Broker
from pytest_fakecloud.broker.model import Message, TopicPartition
from pytest_fakecloud.kernel.clock import Clock
from pytest_fakecloud.kernel.handle import Context
from pytest_fakecloud.kernel.ids import Ids

from .timing import Table, compare, line

BATCH = 1000
MILLION = 1_000_000
PARKED = 200
EARLIEST = {"auto-offset-reset": "earliest", "enable-auto-commit": "false"}
T0 = TopicPartition("t", 0)


def engine(partitions: int = 3) -> Engine:
    """An engine with one topic."""
    made = Engine(Clock("2026-01-01T00:00:00Z"), Ids(1))
    made.create_topic("t", partitions)
    return made


def producing_and_consuming() -> list[bool]:
    """Batches of a thousand through the engine, against loops that only build the same tuples."""
    keyless = [Message("t", f"value number {n}") for n in range(BATCH)]
    keyed = [Message("t", f"value number {n}", f"order-{n}") for n in range(BATCH)]
    target = engine()
    source = engine(1)
    for _ in range(10):
        source.produce(keyless[:500])
    source.consume("g", "i", ["t"], 0, EARLIEST)
    instance = source.table.groups["g"].instances["i"]

    def bare_loop() -> list[tuple[object, ...]]:
        log: list[tuple[object, ...]] = []
        for message in keyless:
            log.append((message.topic, 0, len(log), 0, message.key, message.value, ()))
        return log

    def consume() -> None:
        # Always the same 500 records: a position put back is what a rebalance does.
        instance.positions[T0] = 0
        assert len(source.consume("g", "i", ["t"], 0, EARLIEST)) == 500

    table = compare(
        {
            "bare loop, 1,000 tuples": bare_loop,
            "produce 1,000 without keys": lambda: target.produce(keyless),
            "produce 1,000 with keys": lambda: target.produce(keyed),
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
    """A throughput, from the median of all rounds."""
    return line(title, count / table[name].p50 * 1e6, at_least=at_least)


def keeping_a_million() -> list[bool]:
    """Bytes for each of a million records beyond its payload, and finding one by its time."""
    gc.collect()
    tracemalloc.start()
    large = engine(1)
    before = tracemalloc.get_traced_memory()[0]
    payload = 0
    for first in range(0, MILLION, BATCH):
        batch = [
            Message("t", f"value number {n}", f"key-{n % 1000}", 0, n + (n % 7) * 10)
            for n in range(first, first + BATCH)
        ]
        payload += sum(len(message.value) + len(message.key or "") for message in batch)
        large.produce(batch)
    del batch
    gc.collect()
    over = (tracemalloc.get_traced_memory()[0] - before - payload) / MILLION
    tracemalloc.stop()
    small = engine(1)
    small.produce([Message("t", "x", None, 0, n + (n % 7) * 10) for n in range(1000)])
    table = compare(
        {
            "offset by time among 1,000": lambda: small.offsets(777, [T0]),
            "offset by time among 1,000,000": lambda: large.offsets(777_777, [T0]),
        },
        rounds=15,
    )
    show("a million records", table)
    return [
        line("bytes a record over its payload", over, 400),
        line(
            "offset by time at 1,000,000 / at 1,000",
            table.ratio(*[r.name for r in table.rows[::-1]]),
            3,
        ),
    ]


class Client:
    """One connection of a client that does next to nothing itself."""

    def __init__(self, port: int, authorization: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._authorization = authorization

    def send(self, method: str, path: str, body: object = None) -> None:
        """Send a request without waiting for its answer."""
        data = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: h\r\nAuthorization: {self._authorization}\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        self._socket.sendall(head.encode() + data)

    def receive(self) -> bytes:
        """The body of the next answer."""
        data = self._socket.recv(65_536)
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        while len(body) < length:
            body += self._socket.recv(65_536)
        assert head.startswith(b"HTTP/1.1 200"), data
        return body

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def client_process(port: int, authorization: str, pipe: Connection) -> None:
    """The clients' side of waiting, in a process of its own; sends its figures through the pipe."""

    def until_parked(count: int) -> None:
        pipe.send(count)
        pipe.recv()

    plain, consumer = Client(port, authorization), Client(port, authorization)
    position = 0
    plains: list[float] = []
    produces: list[float] = []
    wakes: list[float] = []
    for _ in range(500):
        started = perf_counter()
        plain.send("GET", "/topics")
        plain.receive()
        plains.append(perf_counter() - started)
        started = perf_counter()
        plain.send("POST", "/produce/idle", {"value": "x"})
        plain.receive()
        produces.append(perf_counter() - started)
        consumer.send("POST", "/consume/g/i", {"topic": "t", "timeout": 60_000})
        until_parked(1)
        started = perf_counter()
        plain.send("POST", "/produce/t", {"value": "x"})
        assert b'"value":"x"' in consumer.receive()
        wakes.append(perf_counter() - started)
        plain.receive()
        position += 1
    alls: list[float] = []
    waiting = [Client(port, authorization) for _ in range(PARKED)]
    for _ in range(10):
        for client in waiting:
            body = {"topic": "t", "partition": 0, "offset": position, "timeout": 60_000}
            client.send("POST", "/fetch", body)
        until_parked(PARKED)
        started = perf_counter()
        plain.send("POST", "/produce/t", {"value": "x"})
        for client in waiting:
            assert b'"value":"x"' in client.receive()
        alls.append(perf_counter() - started)
        plain.receive()
        position += 1
    for client in [*waiting, plain, consumer]:
        client.close()
    pipe.send((median(plains), median(produces), median(wakes), median(alls)))


def waiting_over_http() -> list[bool]:
    """From a produce to the answers of those who wait for it, clients in another process."""
    with Broker(Context.alone(), topics={"t": 1, "idle": 1}) as broker:
        here, there = multiprocessing.get_context("spawn").Pipe()
        port = int(broker.url.rpartition(":")[2])
        process = multiprocessing.get_context("spawn").Process(
            target=client_process, args=(port, broker.headers["Authorization"], there)
        )
        process.start()
        while isinstance(message := here.recv(), int):
            while len(broker.engine.waiting) < message:
                time.sleep(0.0002)
            # What waits has announced itself a moment before it sleeps.
            time.sleep(0.001)
            here.send(None)
        process.join()
    plain, produce, wake, everybody = message
    print(
        f"\nwaiting over HTTP (p50): GET /topics {plain * 1e6:.0f} us, produce {produce * 1e6:.0f} us, "
        f"produce to a waiting consumer's answer {wake * 1e6:.0f} us, "
        f"to the last of {PARKED} {everybody * 1e6:.0f} us"
    )
    return [
        line("produce to the waiting consumer's answer / plain produce", wake / produce, 1.5),
        line("produce to the waiting consumer's answer / GET /topics", wake / plain),
        line(
            f"produce to the last of {PARKED} waiting answers / GET /topics", everybody / plain, 250
        ),
    ]


def show(title: str, table: Table) -> None:
    """Print a table under its title."""
    print(f"\n{title}\n{table}")


def main() -> int:
    """Run all of it; 0 when every limit holds."""
    holds = [*producing_and_consuming(), *waiting_over_http(), *keeping_a_million()]
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
