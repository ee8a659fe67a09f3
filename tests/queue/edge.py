"""Helpers for the tests of deliveries: raw servers, prepared deliveries and a destination table."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pytest_fakecloud.core.timers import finished
from pytest_fakecloud.queue.delivery.applications import Deadlines
from pytest_fakecloud.queue.delivery.destinations import Destinations, route_to
from pytest_fakecloud.queue.model import Delivery, HeaderList, Outcome

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Script = Callable[[socket.socket, bytes], bool]


APP = "https://app.example.com"


def delivery(
    url: str = APP + "/hook",
    body: bytes = b"body",
    headers: HeaderList | None = None,
    method: str = "POST",
    timeout_us: int = 30_000_000,
) -> Delivery:
    return Delivery("msg_1", url, method, headers or [], body, 2, timeout_us)


class RawServer:
    """A server that records the bytes of each request.

    ``script(sock, request)`` sends the response and returns whether to keep the connection.
    """

    def __init__(self, script: Script | None = None) -> None:
        self.script = script or self.answer(OK)
        self.requests: list[bytes] = []
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.open: list[socket.socket] = []
        threading.Thread(target=self.accept, daemon=True).start()

    @staticmethod
    def answer(data: bytes, *, stay: bool = True) -> Script:
        def script(sock: socket.socket, request: bytes) -> bool:
            sock.sendall(data)
            return stay

        return script

    def accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            self.open.append(sock)
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock: socket.socket) -> None:
        with sock:
            rest = b""
            try:
                while True:
                    while b"\r\n\r\n" not in rest:
                        data = sock.recv(65536)
                        if not data:
                            return
                        rest += data
                    head, _, rest = rest.partition(b"\r\n\r\n")
                    length = 0
                    for line in head.lower().split(b"\r\n"):
                        if line.startswith(b"content-length:"):
                            length = int(line.split(b":")[1])
                    while len(rest) < length:
                        rest += sock.recv(65536)
                    body, rest = rest[:length], rest[length:]
                    request = head + b"\r\n\r\n" + body
                    self.requests.append(request)
                    if not self.script(sock, request):
                        return
            except OSError:
                return

    def close(self) -> None:
        # On Linux, closing a listener does not end its ``accept()``. Each thread that stays makes later
        # explorations slower.
        for sock in (self.listener, *self.open):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def silent(sock: socket.socket, request: bytes) -> bool:
    sock.recv(1)
    return False


def dribble(sock: socket.socket, request: bytes) -> bool:
    sock.sendall(b"HTTP/1.1 200 OK\r\n")
    waiting = threading.Event()
    while True:
        sock.sendall(b"X-More: 1\r\n")
        waiting.wait(0.01)


def endless(sock: socket.socket, request: bytes) -> bool:
    sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    waiting = threading.Event()
    while True:
        sock.sendall(b"1\r\nx\r\n")
        waiting.wait(0.01)


def frozen(tool: str) -> Any:
    import freezegun
    import time_machine

    if tool == "freezegun":
        return freezegun.freeze_time("2030-01-01")
    return time_machine.travel("2030-01-01T00:00:00Z", tick=False)


class Table(Destinations):
    """The destination table under test; delivers synchronously or in an event loop."""

    def __init__(self, deadlines: Deadlines) -> None:
        super().__init__()
        self.deadlines = deadlines

    def deliver(self, sent: Delivery) -> Outcome:
        return finished(self.adeliver(sent, in_loop=False))

    async def adeliver(self, sent: Delivery, in_loop: bool = True) -> Outcome:
        route = route_to(self, sent.url)
        assert route is not None, f"no route for {sent.url}"
        return await route._take(sent, self.deadlines, in_loop)

    def status(self, url: str) -> int | None:
        return self.deliver(delivery(url)).status
