"""Delivery to WSGI and ASGI applications in process, without a socket.

An application receives the same request as from a server: the raw target (``RAW_URI``,
``raw_path``), the path with escapes decoded once, all headers, and ``Host`` from the URL. An
exception raised by the application becomes a 500 response and is kept, and so is an exception that
Flask or Django converted to a 500.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import math
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import unquote_to_bytes, urlsplit

from ...core.clock import asyncio_is_running, loop_is_running
from ...core.errors import FakecloudError
from ...core.signals import Signal
from ...core.threads import DaemonThread
from ...core.timers import monotonic
from ..model import Delivery, HeaderList, Outcome
from ..wire.values import as_text

T = TypeVar("T")


class CapReached(Exception):
    """Raised if a destination takes longer than the real-time cap. Its text is the error to report."""


class Deadlines:
    """Calls functions after a real-time delay.

    ``cap`` is the limit of one attempt in seconds, even if its timeout is longer. While
    ``time_passes()`` is true, the queue's clock runs with the real one.
    """

    def __init__(self, cap: float, time_passes: Callable[[], bool] = lambda: False) -> None:
        self.cap = cap
        self._time_passes = time_passes
        self._lock = threading.RLock()
        self._changed = Signal()
        self._planned: dict[int, tuple[float, Callable[[], object]]] = {}
        self._awaited = math.inf
        """The time until which the thread sleeps."""
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    def start(self, callback: Callable[[], object], seconds: float | None = None) -> int:
        """Call a function after a delay (default: the cap). Returns a number for ``cancel()``."""
        due = monotonic() + (self.cap if seconds is None else seconds)
        with self._lock:
            number = next(self._numbers)
            self._planned[number] = due, callback
            if self._thread is None and not self._closed:
                self._thread = DaemonThread("queue-deadlines", self._watch)
                self._thread.start()
            elif due < self._awaited:
                self._changed.notify()
        return number

    def cancel(self, number: int) -> bool:
        """Cancel a callback; return False if it has already been called."""
        with self._lock:
            return self._planned.pop(number, None) is not None

    def close(self) -> None:
        """End the thread and forget all callbacks, also those that are started later."""
        with self._lock:
            self._closed = True
            self._planned.clear()
            self._changed.notify()
            thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(2)

    def limit(self, timeout_us: int) -> float | None:
        """Return an attempt's timeout in real seconds, or None if only the cap limits it."""
        limit = timeout_us / 1_000_000
        return limit if 0 < limit < self.cap and self._time_passes() else None

    def timeout_text(self, why: str = "") -> str:
        """Return the error at the cap, with advice if what ``why`` says blocked an event loop."""
        text = f"no answer within {self.cap:g} s of real time"
        if why and loop_is_running():
            text += (
                f"; {why}, which blocked this thread's event loop. If the destination needs that "
                "loop, use an awaitable method (await queue.aio.run_until_idle())"
            )
        return text

    async def within_cap(self, work: Awaitable[T]) -> T:
        """Await work in the running loop (asyncio or trio); raise ``CapReached`` at the cap."""
        if not asyncio_is_running():
            return await self._within_cap_trio(work)
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(work)
        # Cancel the task from this thread: a tool may have frozen the loop's own timers.
        planned = self.start(lambda: loop.call_soon_threadsafe(task.cancel))
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            in_time = self.cancel(planned)
        if task.cancelled() and not in_time:
            raise CapReached(self.timeout_text())
        return task.result()

    async def _within_cap_trio(self, work: Awaitable[T]) -> T:
        trio = sys.modules["trio"]
        token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as scope:
            planned = self.start(lambda: token.run_sync_soon(scope.cancel))
            try:
                return await work
            finally:
                self.cancel(planned)
        raise CapReached(self.timeout_text())

    def _watch(self) -> None:
        while True:
            version = self._changed.version
            with self._lock:
                if self._closed:
                    return
                # Few deadlines are planned at a time, so a search is fast enough.
                self._awaited, number = min(
                    ((due, number) for number, (due, _) in self._planned.items()),
                    default=(math.inf, 0),
                )
                left = self._awaited - monotonic()
                callback = None if left > 0 else self._planned.pop(number)[1]
            if callback is None:
                self._changed.sleep(version, min(left, threading.TIMEOUT_MAX))
                continue
            try:
                callback()
            except Exception:
                # Ignore the error: the attempt that the callback should end has already ended.
                continue


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


class DestinationTimeoutError(FakecloudError, TimeoutError):
    """Raised if a destination does not answer in time, on the queue's clock or in real time."""

    __module__ = "pytest_fakecloud"


def timed_out(delivery: Delivery, text: str | None = None) -> Outcome:
    """Return the outcome for a destination that did not answer.

    Without ``text``, the delivery's whole timeout passes on the queue's clock. ``text`` is the
    error message if the real-time limit was reached. In that case the problem is in the test, so no
    time passes on the queue's clock.
    """
    virtual_us = delivery.timeout_us if text is None else 0
    text = text or f"no answer within {delivery.timeout_us / 1e6:g} s on the queue's clock"
    error = DestinationTimeoutError(f"{origin_text(delivery.url)}: {text}")
    return Outcome(exception=error, virtual_us=virtual_us)


def origin_text(url: str) -> str:
    scheme, _, rest = as_text(url).partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


class Address(NamedTuple):
    """The parts of a URL that a request contains. ``netloc`` is the host as published."""

    scheme: str
    host: str
    port: int
    netloc: str
    path: str
    query: str
    target: str

    @classmethod
    def of(cls, url: str) -> Address:
        parts = urlsplit(url)
        scheme = parts.scheme.lower()
        path = parts.path or "/"
        return cls(
            scheme=scheme,
            host=parts.hostname or "",
            port=parts.port or (443 if scheme == "https" else 80),
            netloc=parts.netloc.rpartition("@")[2],
            path=path,
            query=parts.query,
            target=f"{path}?{parts.query}" if parts.query else path,
        )


def checked_status(code: int) -> int:
    if not 100 <= code <= 999:
        raise AssertionError(f"the application answered {code}, which is not an HTTP status")
    return code


@contextlib.contextmanager
def caught_by_framework() -> Iterator[list[BaseException]]:
    """Collect the exceptions that Flask and Django catch and convert to a 500."""
    errors: list[BaseException] = []
    # Look among the loaded modules only, because a framework that is in use is already imported.
    for name in ("flask.signals", "django.core.signals"):
        signal = getattr(sys.modules.get(name), "got_request_exception", None)
        # Never disconnect the receiver, because another delivery may be using it. If the module was
        # removed from ``sys.modules`` and imported again, connect it to the new signal.
        if signal is not None and _connected.get(name) is not signal:
            signal.connect(_keep_exception, weak=False)
            _connected[name] = signal
    token = _caught.set(errors)
    try:
        yield errors
    finally:
        _caught.reset(token)


def _keep_exception(sender: object, **details: Any) -> None:
    errors = _caught.get()
    exception = details.get("exception") or sys.exc_info()[1]
    if errors is not None and isinstance(exception, BaseException):
        errors.append(exception)


def with_caught(outcome: Outcome, errors: list[BaseException]) -> Outcome:
    """Add the exception that the framework caught to a 5xx response that has no exception."""
    if outcome.exception is None and outcome.status_or(0) >= 500 and errors:
        return outcome._replace(exception=errors[-1])
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

    with caught_by_framework() as errors:
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
    return with_caught(outcome, errors)


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


class MissingState(dict[str, Any]):
    """The state of an application that was not started. ``advice`` is added to its exception."""

    def __init__(self, advice: str) -> None:
        super().__init__()
        self._advice = advice
        self._missing: list[str] = []

    def __missing__(self, name: str) -> Any:
        self._missing.append(name)
        raise KeyError(name)

    def explained(self, error: Exception) -> Exception:
        """Return an application's exception; if it lacked an entry of the state, one that says so."""
        if not self._missing:
            return error
        text = f"the lifespan state has no {self._missing[-1]!r}, because {self._advice}"
        explained = RuntimeError(text).with_traceback(error.__traceback__)
        explained.__cause__ = error
        return explained


async def call_asgi(app: AsgiApp, delivery: Delivery, state: Mapping[str, Any]) -> Outcome:
    """Return the response of an ASGI application, called in the running loop (asyncio or trio).

    ``state`` is the state of the lifespan. If the application raises after a complete response (in
    a background task), the response counts, as it would for a client, and the exception is kept.
    """
    answer = _AsgiAnswer(delivery)
    with caught_by_framework() as errors:
        try:
            await app(_scope(delivery, state), answer.receive, answer.send)
        except Exception as raised:
            error = state.explained(raised) if isinstance(state, MissingState) else raised
            if not answer.complete and answer.status < 500:
                return failed(error)
            return answer.outcome()._replace(exception=error)
        finally:
            answer.finished.set()
    if not answer.complete:
        what = "completing its response" if answer.status else "a response"
        return failed(AssertionError(f"the ASGI application ended without {what}"))
    return with_caught(answer.outcome(), errors)


class _AsgiAnswer:
    def __init__(self, delivery: Delivery) -> None:
        self.status = 0
        self.headers: HeaderList = []
        self.body = bytearray()
        self.complete = False
        # An event of the library whose loop is running.
        self.finished: Any = (asyncio if asyncio_is_running() else sys.modules["trio"]).Event()
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
        "state": state if isinstance(state, MissingState) else dict(state),
    }


def header_bytes(value: str) -> bytes:
    """Encode a header value as Latin-1, or as UTF-8 if it has other characters."""
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode()
