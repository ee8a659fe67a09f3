"""Many clients at the same time: ``python -m benchmarks.load [--seconds 60] [--clients 64]``.

The clients run in other processes. Each keeps a connection open and sends its next request when the
last one is answered. The output shows requests per second, their times (p50, p99), errors, the
server's memory before and after, and how quickly a server exits under this load. If Redis or Valkey
is installed, the same is measured with it as the engine, behind 1, 2 and 4 server processes that
share a prefix. The factor between them depends on this machine, because clients and engine share
its cores.

Exits with 1 if a request fails, memory grows, or a server takes longer than 2 s to exit.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .timing import limit

TOKEN = "load"
KEYS = 500
JOURNAL = 500
"""Number of entries that journals keep, because a journal that fills up would look like a leak."""
WARM_UP = 15_000
"""Number of requests until pools and buffers have their size, after which memory must not grow."""
GROWTH = 8.0
"""Megabytes by which a server may grow afterwards, for pools and buffers."""
EXITS_WITHIN = 2.0
BUSY = 3.0
"""Seconds of load before a server or clients are ended."""


def requests(number: int) -> list[bytes]:
    """Return the requests that a client sends repeatedly: reads, writes, pipelines and a
    transaction.
    """
    key = f"load:{number}"
    bodies: list[tuple[str, Any]] = []
    for at in range(KEYS // 10):
        bodies += [
            ("/", ["SET", f"{key}:{at}", "x" * 100]),
            ("/", ["GET", f"{key}:{at}"]),
            ("/", ["INCR", f"{key}:n"]),
            ("/pipeline", [["HSET", f"{key}:h", str(at), "v"], ["HGET", f"{key}:h", str(at)]]),
            ("/multi-exec", [["INCR", f"{key}:m"], ["EXPIRE", f"{key}:m", 100]]),
        ]
    calls = []
    for path, body in bodies:
        content = json.dumps(body).encode()
        calls.append(
            f"POST {path} HTTP/1.1\r\nHost: load\r\nAuthorization: Bearer {TOKEN}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n".encode()
            + content
        )
    return calls


class Client:
    """A connection that sends a request, reads its whole answer and records the time."""

    def __init__(self, address: tuple[str, int], number: int) -> None:
        self.socket = socket.create_connection(address, 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._requests = requests(number)
        self._at = number % len(self._requests)
        self._answer = b""
        self._sent = 0.0

    def send(self) -> None:
        self._answer = b""
        self._at = (self._at + 1) % len(self._requests)
        self._sent = time.perf_counter()
        self.socket.sendall(self._requests[self._at])

    def receive(self) -> tuple[float, bool] | None:
        """Return the time in seconds and the success of a complete answer. Raises an error if the
        server has closed the connection.
        """
        part = self.socket.recv(65536)
        if not part:
            raise ConnectionError("the server closed the connection")
        self._answer += part
        head, blank, body = self._answer.partition(b"\r\n\r\n")
        if not blank:
            return None
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        if len(body) < length:
            return None
        good = head.startswith(b"HTTP/1.1 200") and b'"error"' not in body
        return time.perf_counter() - self._sent, good


def clients(addresses: list[tuple[str, int]], numbers: range, seconds: float, results: Any) -> None:
    """Run clients in this process, and put their times, errors and first wrong answer into the
    queue.
    """
    times: list[float] = []
    errors: list[str] = []
    selector = selectors.DefaultSelector()
    try:
        for number in numbers:
            client = Client(addresses[number % len(addresses)], number)
            selector.register(client.socket, selectors.EVENT_READ, client)
            client.send()
        until = time.perf_counter() + seconds
        while time.perf_counter() < until and not errors:
            for key, _ in selector.select(1):
                client = key.data
                measured = client.receive()
                if measured is None:
                    continue
                times.append(measured[0])
                if not measured[1]:
                    errors.append(client._answer.decode("latin-1")[-300:])
                client.send()
    except OSError as error:
        # Some runs end their server on purpose, in some cases before a client has connected.
        errors.append(repr(error))
    results.put((times, errors))


@dataclass
class Server:
    """A stand-alone server in a process of its own."""

    process: subprocess.Popen[str]
    address: tuple[str, int]

    @property
    def memory(self) -> float:
        """Return the resident memory in megabytes."""
        try:
            text = Path(f"/proc/{self.process.pid}/status").read_text()
            return int(text.split("VmRSS:")[1].split()[0]) / 1024
        except OSError:
            line = ["ps", "-o", "rss=", "-p", str(self.process.pid)]
            return int(subprocess.run(line, capture_output=True, check=True).stdout) / 1024

    def terminate(self) -> float:
        """End the server as a service manager does, and return the time in seconds that it takes."""
        started = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        return time.perf_counter() - started


@contextmanager
def serving(count: int, *options: str) -> Iterator[list[Server]]:
    """Start server processes with the same options."""
    servers: list[Server] = []
    try:
        for _ in range(count):
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest_fakecloud", "serve", "kv", "--random", "--json",
                 "--kv-token", TOKEN, "--journal-entries", str(JOURNAL), *options],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert process.stdout is not None
            summary = json.loads(process.stdout.readline())
            parts = urlsplit(summary["fakes"][0]["url"])
            servers.append(Server(process, (parts.hostname or "", parts.port or 0)))
        yield servers
    finally:
        for server in servers:
            if server.process.poll() is None:
                server.process.kill()
            server.process.wait()
            if server.process.stdout is not None:
                server.process.stdout.close()


@dataclass
class Load:
    """Clients at work in processes of their own."""

    processes: list[Any]
    results: Any
    seconds: float

    def finish(self) -> tuple[list[float], list[str]]:
        """Wait for the clients, and return all times and all errors."""
        times: list[float] = []
        errors: list[str] = []
        for _ in self.processes:
            more, bad = self.results.get(timeout=self.seconds + 60)
            times += more
            errors += bad
        for process in self.processes:
            process.join(10)
        return times, errors


def start(servers: list[Server], count: int, seconds: float, processes: int = 2) -> Load:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    addresses = [server.address for server in servers]
    share = -(-count // processes)
    started = [
        context.Process(
            target=clients, args=(addresses, range(at, min(at + share, count)), seconds, results)
        )
        for at in range(0, count, share)
    ]
    for process in started:
        process.start()
    return Load(started, results, seconds)


@dataclass
class Figures:
    """The result of one run."""

    count: int
    rate: float
    p50: float
    p99: float
    errors: list[str]
    before: float
    after: float
    grown: bool
    """Whether the servers' memory grew by more than pools and buffers; unknown in short runs."""

    @property
    def holds(self) -> bool:
        return not self.errors and not self.grown


def measure(servers: list[Server], count: int, seconds: float) -> Figures:
    """Load the servers until their journals are full, then for a number of seconds."""
    warm = 0
    while warm < WARM_UP * len(servers):
        times, errors = start(servers, count, BUSY).finish()
        warm += len(times)
        if errors or seconds < 30:
            break
    before = sum(server.memory for server in servers)
    started = time.perf_counter()
    times, errors = start(servers, count, seconds).finish()
    taken = min(seconds, time.perf_counter() - started)
    after = sum(server.memory for server in servers)
    times.sort()
    return Figures(
        len(times),
        len(times) / taken,
        times[len(times) // 2] * 1000,
        times[int(len(times) * 0.99)] * 1000,
        errors,
        before,
        after,
        # A short run ends before the journals are full.
        seconds >= 30 and after - before > GROWTH * len(servers),
    )


def show(label: str, figures: Figures) -> None:
    print(
        f"{label:34} {figures.rate:8,.0f}/s  p50 {figures.p50:6.1f} ms  p99 {figures.p99:6.1f} ms  "
        f"{len(figures.errors)} errors of {figures.count:,}  "
        f"memory {figures.before:5.0f} -> {figures.after:5.0f} MB",
        flush=True,
    )
    limit(f"{label}, requests/s", figures.rate)
    limit(f"{label}, p99, ms", figures.p99)
    for error in figures.errors[:3]:
        print(f"    {error}")


@contextmanager
def real_server() -> Iterator[str | None]:
    """Start a Redis or Valkey server and yield its address; None if neither is installed."""
    from tests.kv.comparison.servers import available

    servers = available()
    if not servers or os.name == "nt":
        yield None
        return
    name, binary = servers[-1]
    with tempfile.TemporaryDirectory(prefix="load") as folder:
        path = f"{folder}/s"
        process = subprocess.Popen(
            [binary, "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while not Path(path).exists():
                time.sleep(0.01)
            print(f"\nengine: {name}")
            yield f"unix://{path}"
        finally:
            process.kill()
            process.wait()


def exit_under_load(count: int) -> float:
    """Return the seconds from SIGTERM to the exit of a server that is busy with a number of
    clients.
    """
    with serving(1) as servers:
        load = start(servers, count, 30)
        time.sleep(BUSY)
        taken = servers[0].terminate()
        times, _ = load.finish()
        print(
            f"SIGTERM under {count} clients: exit in {taken:.2f} s, {len(times):,} answered before"
        )
        return taken


def killed_clients(count: int) -> bool:
    """Return whether a server continues after clients were killed during requests."""
    with serving(1) as servers:
        load = start(servers, count, 30)
        time.sleep(BUSY)
        for process in load.processes:
            process.kill()
        times, errors = start(servers, count, 1).finish()
        print(f"kill -9 of {count} clients: {len(times):,} answers to others, {len(errors)} errors")
        return bool(times) and not errors


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2, 4])
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, {options.clients} clients, {options.seconds:g} s each")
    holds = True
    with serving(1) as servers:
        figures = measure(servers, options.clients, options.seconds)
        show("in memory, 1 process", figures)
        holds = holds and figures.holds
    left = exit_under_load(options.clients)
    holds = limit("exit under load, s", left, EXITS_WITHIN) and holds
    holds = killed_clients(options.clients) and holds
    with real_server() as url:
        base = None
        for count in options.processes if url is not None else []:
            with serving(count, "--kv", f"engine={url}?prefix=load:") as servers:
                figures = measure(servers, options.clients, options.seconds)
            base = base or figures.rate
            show(f"real engine, {count} process(es), x{figures.rate / base:.2f}", figures)
            holds = holds and figures.holds
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
