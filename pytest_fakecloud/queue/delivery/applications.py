"""Delivery to WSGI and ASGI applications in process, without a socket.

An application receives the same request as from a server: the raw target (``RAW_URI``,
``raw_path``), the path with escapes decoded once, all headers, and ``Host`` from the URL. An
exception raised by the application becomes a 500 response and is kept, and so is an exception that
Flask or Django converted to a 500.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes, urlsplit

from ..model import Delivery, HeaderList, Outcome
from .deadlines import asyncio_is_running

WsgiApp: TypeAlias = Callable[..., Iterable[bytes]]
AsgiApp: TypeAlias = Callable[..., Awaitable[None]]
Event: TypeAlias = MutableMapping[str, Any]
CLIENT = ("127.0.0.1", 0)
"""The client address that an application sees."""
_caught: ContextVar[list[BaseException] | None] = ContextVar("caught", default=None)
_connected: dict[str, Any] = {}


def failed(exception: BaseException) -> Outcome:
    headers = [("Content-Type", "text/plain; charset=utf-8")]
    return Outcome(500, headers, b"Internal Server Error", exception)


class Address(NamedTuple):
    """The parts of a URL that a request contains. ``netloc`` is the host as published."""

    scheme: str
    host: str
    port: int
    netloc: str
    path: str
    query: str

    @classmethod
    def of(cls, url: str) -> Address:
        parts = urlsplit(url)
        scheme = parts.scheme.lower()
        return cls(
            scheme=scheme,
            host=parts.hostname or "",
            port=parts.port or (443 if scheme == "https" else 80),
            netloc=parts.netloc.rpartition("@")[2],
            path=parts.path or "/",
            query=parts.query,
        )

    @property
    def target(self) -> str:
        return f"{self.path}?{self.query}" if self.query else self.path


def checked_status(code: int) -> int:
    """Return a valid HTTP status; raise ``AssertionError`` for any other number."""
    if not 100 <= code <= 999:
        raise AssertionError(f"the application answered {code}, which is not an HTTP status")
    return code


@contextlib.contextmanager
def caught_by_framework() -> Iterator[list[BaseException]]:
    """Collect the exceptions that Flask and Django catch and convert to a 500."""
    seen: list[BaseException] = []
    for name, signal in _signals():
        # Never disconnect the receiver, because another delivery may be using it. If the module was
        # removed from ``sys.modules`` and imported again, connect it to the new signal.
        if _connected.get(name) is not signal:
            signal.connect(_keep_exception, weak=False)
            _connected[name] = signal
    token = _caught.set(seen)
    try:
        yield seen
    finally:
        _caught.reset(token)


def _signals() -> Iterator[tuple[str, Any]]:
    # Look among the loaded modules only, because a framework that is in use is already imported.
    for module in ("flask.signals", "django.core.signals"):
        signal = getattr(sys.modules.get(module), "got_request_exception", None)
        if signal is not None:
            yield module, signal


def _keep_exception(sender: object, **details: Any) -> None:
    seen = _caught.get()
    exception = details.get("exception") or sys.exc_info()[1]
    if seen is not None and isinstance(exception, BaseException):
        seen.append(exception)


def with_caught(outcome: Outcome, seen: list[BaseException]) -> Outcome:
    """Add the exception that the framework caught to a 5xx response that has no exception."""
    if outcome.exception is None and outcome.status_or(0) >= 500 and seen:
        return outcome._replace(exception=seen[-1])
    return outcome


def call_wsgi(app: WsgiApp, delivery: Delivery) -> Outcome:
    status_line = ""
    headers: HeaderList = []
    written: list[bytes] = []

    def start_response(
        status: str, response_headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], object]:
        nonlocal status_line, headers
        if status_line and exc_info is None:
            raise AssertionError("start_response() was called twice without exc_info")
        status_line, headers = status, _native(response_headers)
        return written.append

    with caught_by_framework() as seen:
        try:
            environ = environ_of(delivery.method, delivery.url, delivery.headers, delivery.body)
            result = app(environ, start_response)
            try:
                written.extend(result)
            finally:
                close = getattr(result, "close", None)
                if close is not None:
                    close()
            if not status_line:
                raise AssertionError("the WSGI application never called start_response()")
            code = checked_status(int(status_line.split(None, 1)[0]))
            outcome = Outcome(code, headers, b"".join(written))
        except Exception as error:
            return failed(error)
    return with_caught(outcome, seen)


def _native(headers: Iterable[tuple[str, str]]) -> HeaderList:
    pairs: HeaderList = []
    for pair in headers:
        name, value = pair
        if not isinstance(name, str) or not isinstance(value, str):
            raise AssertionError(f"the WSGI application's header {pair!r} is not a pair of strings")
        pairs.append((name, value))
    return pairs


def environ_of(method: str, url: str, headers: HeaderList, body: bytes) -> dict[str, Any]:
    address = Address.of(url)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(address.path.encode("latin-1", "replace")).decode("latin-1"),
        "QUERY_STRING": address.query,
        "RAW_URI": address.target,
        "REQUEST_URI": address.target,
        "SERVER_NAME": address.host,
        "SERVER_PORT": str(address.port),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": CLIENT[0],
        "REMOTE_PORT": str(CLIENT[1]),
        "HTTP_HOST": address.netloc,
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": address.scheme,
        "wsgi.input": io.BytesIO(body),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in headers:
        key = name.upper().replace("-", "_")
        if key == "CONTENT_TYPE":
            environ[key] = value
        elif key not in ("CONTENT_LENGTH", "HOST"):
            key = "HTTP_" + key
            environ[key] = f"{environ[key]},{value}" if key in environ else value
    return environ


async def call_asgi(app: AsgiApp, delivery: Delivery, state: Mapping[str, Any]) -> Outcome:
    """Return the response of an ASGI application, called in the running loop (asyncio or trio).

    ``state`` is the state of the lifespan. If the application raises after a complete response (in
    a background task), the response counts, as it would for a client, and the exception is kept.
    """
    answer = _AsgiAnswer(delivery)
    with caught_by_framework() as seen:
        try:
            await app(_scope(delivery, state), answer.receive, answer.send)
        except Exception as error:
            if not answer.complete and answer.status < 500:
                return failed(error)
            return answer.outcome()._replace(exception=error)
        finally:
            answer.finished.set()
    if not answer.complete:
        what = "completing its response" if answer.status else "a response"
        return failed(AssertionError(f"the ASGI application ended without {what}"))
    return with_caught(answer.outcome(), seen)


class _AsgiAnswer:
    def __init__(self, delivery: Delivery) -> None:
        self.status = 0
        self.headers: HeaderList = []
        self.body = bytearray()
        self.complete = False
        self.finished = _new_event()
        self._request: Event | None = {
            "type": "http.request",
            "body": delivery.body,
            "more_body": False,
        }

    async def receive(self) -> Event:
        request, self._request = self._request, None
        if request is not None:
            return request
        # Report a disconnect only after the response, because applications watch for it.
        await self.finished.wait()
        return {"type": "http.disconnect"}

    async def send(self, event: Event) -> None:
        kind = event["type"]
        if kind == "http.response.start":
            if self.status:
                raise AssertionError("the ASGI application started its response twice")
            self.status = checked_status(int(event["status"]))
            self.headers = [
                (bytes(name).decode("latin-1"), bytes(value).decode("latin-1"))
                for name, value in event.get("headers", ())
            ]
        elif kind == "http.response.body":
            if not self.status:
                raise AssertionError("the ASGI application sent a body before its status")
            self.body += event.get("body", b"")
            if not event.get("more_body", False):
                self.complete = True
                self.finished.set()

    def outcome(self) -> Outcome:
        return Outcome(self.status, self.headers, bytes(self.body))


def _scope(delivery: Delivery, state: Mapping[str, Any]) -> dict[str, Any]:
    address = Address.of(delivery.url)
    headers = [(b"host", address.netloc.encode("latin-1", "replace"))]
    headers += [
        (name.lower().encode("latin-1", "replace"), header_bytes(value))
        for name, value in delivery.headers
        if name.lower() not in ("host", "content-length")
    ]
    headers.append((b"content-length", b"%d" % len(delivery.body)))
    raw_path = address.path.encode("latin-1", "replace")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": delivery.method,
        "scheme": address.scheme,
        "path": unquote_to_bytes(raw_path).decode("utf-8", "replace"),
        "raw_path": raw_path,
        "query_string": address.query.encode("latin-1", "replace"),
        "root_path": "",
        "headers": headers,
        "client": CLIENT,
        "server": (address.host, address.port),
        "extensions": {},
        "state": dict(state),
    }


def header_bytes(value: str) -> bytes:
    """Encode a header value as Latin-1, or as UTF-8 if it has other characters."""
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode()


def _new_event() -> Any:
    """Return an event of the library (asyncio or trio) whose loop is running."""
    return sys.modules["asyncio" if asyncio_is_running() else "trio"].Event()
