"""The cost of the kernel, compared with the minimum of the platform and with other libraries.

Run ``python -m benchmarks.kernel``. Exits with 1 if a limit is missed. The process runs on one
processor (``stay_on_one_processor()``).
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import Any

import httpx
import requests
from pytest_httpserver import HTTPServer
from werkzeug.serving import make_server

from pytest_fakecloud.cloud.fake import Context, Fake
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.http.app import App, Instruments
from pytest_fakecloud.http.hub import Hub
from pytest_fakecloud.http.messages import Request
from pytest_fakecloud.http.routing import Route

from .raw import raw_server
from .timing import Table, compare, line, stay_on_one_processor

BODY = b'{"result":"OK"}'
REQUEST = (
    b"GET /set/key/value HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\nAccept: */*\r\n\r\n"
)
REPLY = (
    b"HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n"
    b"Content-Type: application/json\r\nContent-Length: 15\r\n\r\n" + BODY
)


class NoEngine:
    """An engine without data, which leaves only the cost of the kernel."""

    def __init__(self, clock: Timekeeper) -> None:
        self.clock = clock
        self.signal = clock.signal()
        self.parked = threading.Semaphore(0)

    def snapshot(self) -> None:
        """Nothing to keep."""

    def restore(self, snapshot: None) -> None:
        """Nothing to put back."""


class BareApp(App):
    """An application that answers every request with the same small JSON."""

    service = "bare"

    def __init__(self, instruments: Instruments, engine: NoEngine) -> None:
        super().__init__(instruments)
        self.engine = engine

    @classmethod
    def routes(cls) -> list[Route]:
        return [
            Route("GET", "/set/{tail*}", "set", cls.set),
            Route("GET", "/wait", "wait", cls.wait),
        ]

    def set(self, request: Request) -> object:
        return {"result": "OK"}

    def wait(self, request: Request) -> object:
        clock = self.clock
        self.engine.parked.release()
        return clock.wait(self.engine.signal, lambda: None, clock.now_us() + 60_000_000)


class Bare(Fake):
    """A fake without an engine."""

    service = fixture = "bare"

    def __init__(self) -> None:
        super().__init__(Context.alone())
        self._mount.on_stop.append(self._engine.signal.close)

    def _make_app(self) -> App:
        self._engine = NoEngine(self._timekeeper)
        return BareApp(self._instruments, self._engine)


def wsgi(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    """Return the same answer as a WSGI application."""
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", "15")])
    return [BODY]


def same_answer(sock: socket.socket) -> None:
    """Answer every packet with the same bytes, which is the minimum that the platform allows."""
    while sock.recv(65_536):
        sock.sendall(REPLY)


@contextmanager
def werkzeug_server() -> Iterator[int]:
    """Run werkzeug's threaded server with its defaults, without its log."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, wsgi, threaded=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class RawClient:
    """A client that sends a packet and reads an answer, and connects again if the server has
    closed.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.sock: socket.socket | None = None

    def __call__(self) -> None:
        sock = self.sock
        if sock is None:
            sock = self.sock = socket.create_connection(("127.0.0.1", self.port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(REQUEST)
        answer = sock.recv(65_536)
        while not answer.endswith(BODY):
            more = sock.recv(65_536)
            if not more:
                raise AssertionError(f"not the whole answer: {answer!r}")
            answer += more
        if b"Connection: close" in answer:
            self.close()

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()
            self.sock = None


def mounting() -> list[bool]:
    """Measure mounting and closing a server, as for one test."""
    hub = Hub()
    hub.mount(None).close()

    def raw() -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            sock.listen(1024)

    def mount() -> None:
        hub.mount(None).close()

    def fake() -> None:
        Bare().close()

    def httpserver() -> None:
        with HTTPServer():
            pass

    table = compare(
        {"raw listener": raw, "mount + close": mount, "a whole fake": fake}, rounds=40, calls=300
    )
    print(table)
    slow = compare({"mount + close": mount, "pytest-httpserver": httpserver}, rounds=1, calls=3)
    hub.stop()
    return [
        line("mount + close / raw listener", table.ratio("mount + close", "raw listener"), 3),
        line("a whole fake / raw listener", table.ratio("a whole fake", "raw listener")),
        line(
            "a fresh pytest-httpserver / mount + close",
            slow.ratio("pytest-httpserver", "mount + close"),
            at_least=1000,
        ),
    ]


def requesting() -> list[bool]:
    """Measure a request on an open connection."""
    with ExitStack() as stack:
        bare = stack.enter_context(Bare())
        fake = int(bare.url.rpartition(":")[2])
        floor = stack.enter_context(raw_server(same_answer))
        werkzeug = stack.enter_context(werkzeug_server())
        ports = {"raw server": floor, "fake": fake, "werkzeug": werkzeug}

        clients = {name: RawClient(port) for name, port in ports.items()}
        for client in clients.values():
            stack.callback(client.close)
        raw = compare(clients, rounds=30, calls=200)
        show("raw keep-alive client", raw)

        https = stack.enter_context(httpx.Client(trust_env=False))
        by_httpx = compare(_getters(https.get, ports), rounds=40, calls=50)
        show("httpx.Client", by_httpx)

        session = stack.enter_context(requests.Session())
        session.trust_env = False
        by_requests = compare(_getters(session.get, ports), rounds=40, calls=50)
        show("requests.Session", by_requests)
        bare.journal.clear()
    return [
        line(
            "request by httpx / raw server, p50", by_httpx.typical_ratio("fake", "raw server"), 1.15
        ),
        line(
            "request by requests / raw server, p50",
            by_requests.typical_ratio("fake", "raw server"),
            1.15,
        ),
        line("request by a raw client / raw server", raw.ratio("fake", "raw server")),
        line(
            "default threaded werkzeug / fake, raw client",
            raw.ratio("werkzeug", "fake"),
            at_least=5,
        ),
    ]


def _getters(get: Callable[..., Any], ports: dict[str, int]) -> dict[str, Callable[[], object]]:
    def getter(url: str) -> Callable[[], object]:
        return lambda: get(url).content

    return {name: getter(f"http://127.0.0.1:{port}/set/key/value") for name, port in ports.items()}


def tearing_down() -> list[bool]:
    """Measure closing a fake while ten long polls wait in it."""
    taken: list[float] = []

    def close_with_ten() -> None:
        bare = Bare()
        port = int(bare.url.rpartition(":")[2])
        socks = [socket.create_connection(("127.0.0.1", port)) for _ in range(10)]
        for sock in socks:
            sock.sendall(b"GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
        for _ in socks:
            bare._engine.parked.acquire()
        started = perf_counter()
        bare.close()
        taken.append(perf_counter() - started)
        for sock in socks:
            sock.close()

    for _ in range(20):
        close_with_ten()
    worst = max(taken) * 1000
    middle = sorted(taken)[10] * 1000
    print(f"\nclose with ten parked long polls: median {middle:.2f} ms, worst {worst:.2f} ms")
    return [line("that, worst of twenty, in units of 50 ms", worst / 50, 1)]


def show(title: str, table: Table) -> None:
    print(f"\n{title}\n{table}")


def main() -> int:
    stay_on_one_processor()
    holds = [*mounting(), *requesting(), *tearing_down()]
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
