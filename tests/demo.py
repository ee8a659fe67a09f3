"""A small service for tests of the server and the pipeline, and a raw client that exposes every
byte.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Self

from pytest_fakecloud.cloud.fake import Context, Fake
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.errors import ServiceError
from pytest_fakecloud.core.field_types import TEXT
from pytest_fakecloud.core.matching import Field
from pytest_fakecloud.core.recorder import Recorder
from pytest_fakecloud.core.violations import Violations
from pytest_fakecloud.http.app import App, Instruments
from pytest_fakecloud.http.messages import Answer, Request, Stream
from pytest_fakecloud.http.routing import Route
from pytest_fakecloud.http.server import Connection


def handled_by(receive: Callable[[Connection, bytes], bool]) -> Callable[[Connection], Any]:
    """Return a protocol whose handler receives bytes with a function."""
    return lambda connection: SimpleNamespace(
        receive=partial(receive, connection), end=lambda: None, close=lambda: None
    )


class Engine:
    """A list of words, with a signal for new ones."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.words: list[str] = []
        self.signal = clock.signal()
        self.parked = threading.Semaphore(0)

    def add(self, word: str) -> int:
        self.words.append(word)
        self.signal.notify()
        return len(self.words)

    def wait_for(self, count: int, timeout_us: int) -> list[str] | None:
        self.parked.release()
        return self.clock.wait(
            self.signal,
            lambda: list(self.words) if len(self.words) >= count else None,
            self.clock.now_us() + timeout_us,
        )

    def snapshot(self) -> list[str]:
        return list(self.words)

    def restore(self, snapshot: list[str]) -> None:
        self.words = list(snapshot)


class DemoApp(App):
    service = "demo"
    fact_fields: ClassVar[dict[str, Field]] = {"command": Field(TEXT, several=True)}

    def __init__(self, instruments: Instruments, engine: Engine) -> None:
        super().__init__(instruments)
        self.engine = engine
        self.seen: list[Request] = []
        self.closed_streams = threading.Semaphore(0)

    @classmethod
    def routes(cls) -> list[Route]:
        return [
            Route("GET POST PUT HEAD", "/echo/{tail*}", "echo", cls.echo),
            Route("POST", "/add/{word}", "add", cls.add),
            Route("GET", "/wait/{count}", "wait", cls.wait),
            Route("GET HEAD", "/status/{status}", "status", cls.status),
            Route("GET HEAD", "/stream", "stream", cls.stream),
            Route("GET", "/endless", "endless", cls.endless),
            Route("GET", "/break", "break", cls.break_off),
            Route("GET", "/bug", "bug", cls.bug_here),
            Route("GET", "/refuse", "refuse", cls.refuse),
            Route("GET", "/headers", "headers", cls.bad_headers),
        ]

    def facts(self, request: Request) -> dict[str, Any]:
        return {"command": [part for part in request.path.split("/") if part]}

    def authenticate(self, request: Request) -> object:
        if request.headers.get("Authorization") == "Bearer wrong":
            raise ServiceError(401, "wrong token")
        return "somebody"

    def echo(self, request: Request) -> object:
        self.seen.append(request)
        return {
            "method": request.method,
            "target": request.target,
            "headers": [list(pair) for pair in request.headers.pairs],
            "body": request.body.decode("latin-1"),
        }

    def add(self, request: Request) -> object:
        self.seen.append(request)
        return {"count": self.engine.add(request.params["word"])}

    def wait(self, request: Request) -> object:
        return {"words": self.engine.wait_for(int(request.params["count"]), 3_600_000_000)}

    def status(self, request: Request) -> Answer:
        return Answer(b"the body", int(request.params["status"]), (), "text/plain")

    def stream(self, request: Request) -> Stream:
        return Stream(iter([b"data: 1\n\n", b"", b"data: 2\n\n"]))

    def endless(self, request: Request) -> Stream:
        signal = self.engine.clock.signal()

        def chunks() -> Iterator[bytes]:
            try:
                yield b"data: first\n\n"
                deadline = self.engine.clock.now_us() + 3_600_000_000
                self.engine.parked.release()
                self.engine.clock.wait(signal, lambda: None, deadline)
                yield b"data: last\n\n"
            finally:
                self.closed_streams.release()

        return Stream(chunks(), on_close=signal.close)

    def break_off(self, request: Request) -> Stream:
        def chunks() -> Iterator[bytes]:
            yield b"data: 1\n\n"
            raise ZeroDivisionError("half way")

        return Stream(chunks())

    def bug_here(self, request: Request) -> object:
        raise ZeroDivisionError("a bug of the engine")

    def refuse(self, request: Request) -> object:
        raise ServiceError(418, "I'm a teapot", headers=[("X-Pot", "tea")])

    def bad_headers(self, request: Request) -> Answer:
        headers = [("X-Echo", "a\r\nX-Injected: 1"), ("X-Snow", "☃"), ("X-Bell", "a\0b")]
        headers += [("Content-Length", "99"), ("Transfer-Encoding", "chunked"), ("Date", "now")]
        return Answer(b"", 200, headers)


class FunctionApp(App):
    """An app without a fake that responds to every request with what a function returns."""

    service = "function"

    def __init__(self, respond_to: Callable[[Request], Answer]) -> None:
        clock, violations = Timekeeper(), Violations()
        super().__init__(Instruments(clock, Recorder(clock.now_us), violations))
        self._respond_to = respond_to

    @classmethod
    def routes(cls) -> list[Route]:
        return [Route("GET HEAD POST", "/{rest*}", "any", cls.endpoint)]

    def endpoint(self, request: Request) -> Answer:
        return self._respond_to(request)


class Demo(Fake):
    """A fake with a server of its own."""

    service = "demo"
    fixture = "demo"

    def __init__(self, context: Context | None = None, **settings: Any) -> None:
        self.context = context or Context.alone()
        super().__init__(self.context, **settings)
        self._mount.on_stop.append(self._engine.signal.close)

    def _make_app(self) -> DemoApp:
        self._engine = Engine(self._timekeeper)
        self.app = DemoApp(self._instruments, self._engine)
        return self.app

    @property
    def mount(self) -> Any:
        return self._mount

    @property
    def words(self) -> list[str]:
        """The words that requests have added."""
        return self._engine.words

    def park(self, raw: Raw, target: str = "/endless") -> None:
        """Send a request, and return when it waits in the engine."""
        raw.send(f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n")
        assert self._engine.parked.acquire(timeout=10)


@dataclass
class Response:
    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes
    interim: int = 0
    """Number of preceding 100 Continue responses."""
    chunks: list[bytes] = field(default_factory=list)
    complete: bool = True

    def header(self, name: str) -> str | None:
        return next((v for n, v in self.headers if n.lower() == name.lower()), None)


class Raw:
    """A client that sends exact bytes and reads one reply at a time."""

    def __init__(self, address: tuple[str, int], timeout: float = 10.0) -> None:
        self.sock = socket.create_connection(address, timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.sock.close()

    def send(self, data: bytes | str) -> None:
        self.sock.sendall(data.encode("latin-1") if isinstance(data, str) else data)

    def ask(self, data: bytes | str) -> Response:
        self.send(data)
        return self.reply()

    def get(self, target: str, *headers: str, method: str = "GET", body: bytes = b"") -> Response:
        lines = [f"{method} {target} HTTP/1.1", "Host: h", *headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        return self.reply(head_only=method == "HEAD")

    def _more(self) -> bool:
        data = self.sock.recv(65_536)
        self.buffer += data
        return bool(data)

    def _line(self) -> bytes:
        while b"\r\n" not in self.buffer:
            if not self._more():
                raise EOFError(f"the connection ended after {self.buffer!r}")
        line, _, self.buffer = self.buffer.partition(b"\r\n")
        return line

    def _exactly(self, size: int) -> bytes:
        while len(self.buffer) < size:
            if not self._more():
                raise EOFError(f"the connection ended after {self.buffer!r}")
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    def reply(self, head_only: bool = False) -> Response:
        interim = 0
        while True:
            _, status, reason = self._line().decode("latin-1").split(" ", 2)
            headers = []
            while line := self._line().decode("latin-1"):
                name, _, value = line.partition(": ")
                headers.append((name, value))
            if status != "100":
                break
            interim += 1
        reply = Response(int(status), reason, headers, b"", interim)
        if head_only or reply.status in (204, 304):
            return reply
        if (reply.header("Transfer-Encoding") or "") == "chunked":
            try:
                while size := int(self._line(), 16):
                    reply.chunks.append(self._exactly(size))
                    self._line()
                self._line()
            except EOFError:
                reply.complete = False
            reply.body = b"".join(reply.chunks)
        elif (length := reply.header("Content-Length")) is not None:
            try:
                reply.body = self._exactly(int(length))
            except EOFError:
                reply.body, reply.complete = self.buffer, False
        else:
            reply.body = self.rest()
        return reply

    def rest(self) -> bytes:
        """Read until the server closes."""
        while self._more():
            pass
        data, self.buffer = self.buffer, b""
        return data

    def is_closed(self) -> bool:
        """Return whether the server closes now without sending more."""
        try:
            return self.rest() == b""
        except ConnectionResetError:
            return True

    def is_silent(self, seconds: float = 0.05) -> bool:
        """Return whether nothing arrives for ``seconds``."""
        self.sock.settimeout(seconds)
        try:
            return not self.buffer and not self._more()
        except TimeoutError:
            return True
        finally:
            self.sock.settimeout(10.0)


def fetch(mount: Any, target: str = "/") -> Response:
    """Return the reply to a GET over a connection of its own."""
    with Raw(mount.address) as raw:
        return raw.get(target)
