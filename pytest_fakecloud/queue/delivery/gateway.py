"""Calling a WSGI or ASGI application with a delivery, without a socket.

The request an application sees is the one a server would build: the raw target in `RAW_URI` and
`raw_path`, escapes decoded once in `PATH_INFO` and `path`, all headers, `Host` from the URL.  An
exception that leaves the application is a 500 and is kept; so is one that Flask or Django turned
into a 500 by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
import threading
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
)
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import CellType, CoroutineType, FrameType, FunctionType
from typing import Any, Protocol, TypeAlias, TypeVar
from urllib.parse import unquote_to_bytes, urlsplit

from ..model import Delivery, Headers
from .deadlines import Deadlines

__all__ = ["AsgiApp", "AsgiRunner", "Handled", "WsgiApp", "call_asgi", "call_wsgi"]

T = TypeVar("T")
WsgiApp: TypeAlias = Callable[..., Iterable[bytes]]
Event: TypeAlias = MutableMapping[str, Any]
AsgiApp: TypeAlias = Callable[..., Awaitable[None]]
_CLIENT = ("127.0.0.1", 0)


@dataclass
class Handled:
    """What an application answered; `exception` is what left it, or what its framework caught."""

    status: int
    headers: Headers = field(default_factory=list)
    body: bytes = b""
    exception: BaseException | None = None


def failed(exception: BaseException) -> Handled:
    """Return the 500 of a handler that raised."""
    headers = [("Content-Type", "text/plain; charset=utf-8")]
    return Handled(500, headers, b"Internal Server Error", exception)


@dataclass(frozen=True)
class _Address:
    scheme: str
    host: str
    port: int
    netloc: str
    target: str
    raw_path: str
    query: str

    @classmethod
    def of(cls, url: str) -> _Address:
        parts = urlsplit(url)
        scheme = parts.scheme.lower()
        target = parts.path or "/"
        return cls(
            scheme,
            parts.hostname or "",
            parts.port or (443 if scheme == "https" else 80),
            parts.netloc.rpartition("@")[2],
            target + (f"?{parts.query}" if parts.query else ""),
            target,
            parts.query,
        )


# -- WSGI ----------------------------------------------------------------------------------------


def call_wsgi(app: WsgiApp, delivery: Delivery) -> Handled:
    """Return what a WSGI application answers; it runs in the calling thread."""
    status_line = ""
    headers: Headers = []
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
            code = _status(int(status_line.split(None, 1)[0]))
            handled = Handled(code, headers, b"".join(written))
        except Exception as error:
            return failed(error)
    return _with_caught(handled, seen)


def _native(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return response headers when they are pairs of text, which WSGI calls native strings."""
    pairs = [(name, value) for name, value in headers]
    for pair in pairs:
        if not all(isinstance(part, str) for part in pair):
            raise AssertionError(f"the WSGI application's header {pair!r} is not two texts")
    return pairs


def _status(code: int) -> int:
    if not 100 <= code <= 999:
        raise AssertionError(f"the application answered {code}, which is no HTTP status")
    return code


def environ_of(method: str, url: str, headers: Headers, body: bytes) -> dict[str, Any]:
    """Return the WSGI environment of a request, as a server would build it."""
    address = _Address.of(url)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(address.raw_path.encode("latin-1", "replace")).decode(
            "latin-1"
        ),
        "QUERY_STRING": address.query,
        "RAW_URI": address.target,
        "REQUEST_URI": address.target,
        "SERVER_NAME": address.host,
        "SERVER_PORT": str(address.port),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": _CLIENT[0],
        "REMOTE_PORT": str(_CLIENT[1]),
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


# -- exceptions that a framework answers with a 500 of its own -------------------------------------

_caught: ContextVar[list[BaseException] | None] = ContextVar("caught", default=None)
_connected: set[str] = set()


@contextlib.contextmanager
def caught_by_framework() -> Iterator[list[BaseException]]:
    """Collect what Flask and Django report as unhandled while they answer 500 themselves."""
    seen: list[BaseException] = []
    for name, signal in _signals():
        # Once and for good: two deliveries at a time must not disconnect each other's ear.
        if name not in _connected:
            signal.connect(_heard, weak=False)
            _connected.add(name)
    token = _caught.set(seen)
    try:
        yield seen
    finally:
        _caught.reset(token)


class _FrameworkSignal(Protocol):
    def connect(self, receiver: Callable[..., None], *, weak: bool) -> object: ...


def _signals() -> Iterator[tuple[str, _FrameworkSignal]]:
    # Looked up among the loaded modules: whoever uses a framework has imported it already.
    for module in ("flask.signals", "django.core.signals"):
        loaded = sys.modules.get(module)
        signal = getattr(loaded, "got_request_exception", None)
        if signal is not None:
            yield module, signal


def _heard(sender: object, **details: Any) -> None:
    seen = _caught.get()
    exception = details.get("exception") or sys.exc_info()[1]
    if seen is not None and isinstance(exception, BaseException):
        seen.append(exception)


def _with_caught(handled: Handled, seen: list[BaseException]) -> Handled:
    if handled.exception is None and handled.status >= 500 and seen:
        handled.exception = seen[-1]
    return handled


# -- ASGI ----------------------------------------------------------------------------------------


async def call_asgi(app: AsgiApp, delivery: Delivery, state: Mapping[str, Any]) -> Handled:
    """Return what an ASGI application answers; it runs in the running loop (asyncio or trio).

    `state` is the lifespan's state.  When an application raises after a complete answer (a
    background task), the answer counts, as it would for a client, and the exception is kept.
    """
    answer = _AsgiAnswer(delivery)
    with caught_by_framework() as seen:
        try:
            await app(_scope(delivery, state), answer.receive, answer.send)
        except Exception as error:
            handled = answer.handled() if answer.complete else failed(error)
            if answer.complete or answer.status >= 500:
                handled = answer.handled()
                handled.exception = error
            return handled
        finally:
            answer.finished.set()
    if not answer.complete:
        what = "the whole of its answer" if answer.status else "an answer"
        return failed(AssertionError(f"the ASGI application ended without {what}"))
    return _with_caught(answer.handled(), seen)


class _AsgiAnswer:
    def __init__(self, delivery: Delivery) -> None:
        self.status = 0
        self.headers: Headers = []
        self.body = bytearray()
        self.complete = False
        self.finished = new_event()
        self._request: Event | None = {
            "type": "http.request",
            "body": delivery.body,
            "more_body": False,
        }

    async def receive(self) -> Event:
        request, self._request = self._request, None
        if request is not None:
            return request
        # An application that watches for a client that went away must not see one too early.
        await self.finished.wait()
        return {"type": "http.disconnect"}

    async def send(self, event: Event) -> None:
        kind = event["type"]
        if kind == "http.response.start":
            if self.status:
                raise AssertionError("the ASGI application started its answer twice")
            self.status = _status(int(event["status"]))
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

    def handled(self) -> Handled:
        return Handled(self.status, self.headers, bytes(self.body))


def _scope(delivery: Delivery, state: Mapping[str, Any]) -> dict[str, Any]:
    address = _Address.of(delivery.url)
    headers = [(b"host", address.netloc.encode("latin-1", "replace"))]
    headers += [
        (name.lower().encode("latin-1", "replace"), _wire(value))
        for name, value in delivery.headers
        if name.lower() not in ("host", "content-length")
    ]
    headers.append((b"content-length", b"%d" % len(delivery.body)))
    raw_path = address.raw_path.encode("latin-1", "replace")
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
        "client": _CLIENT,
        "server": (address.host, address.port),
        "extensions": {},
        "state": dict(state),
    }


def _wire(value: str) -> bytes:
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode()


class AsyncEvent(Protocol):
    """What asyncio's and trio's events have in common."""

    def set(self) -> None: ...

    async def wait(self) -> object: ...


def new_event() -> AsyncEvent:
    """Return an event of the library whose loop is running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        trio = sys.modules["trio"]
        event: AsyncEvent = trio.Event()
        return event
    return asyncio.Event()


class AsgiRunner:
    """A loop in a thread of its own, for coroutines that no running loop drives.

    It starts each application's lifespan before the first request and ends them in `close()`, as a
    server would; an application without lifespan support is called without.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lifespans: dict[int, _Lifespan] = {}
        self._elsewhere: dict[int, Elsewhere] = {}
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="fakecloud queue loop", daemon=True
        )
        self._thread.start()

    def run(
        self,
        work: Coroutine[Any, Any, T],
        deadlines: Deadlines,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> T | None:
        """Return what the coroutine returns, or None when it exceeds the real-time cap.

        It runs in the given loop, when that is there and not this very thread's.
        """
        if loop is None or not loop.is_running() or loop is _running_loop():
            loop = self._loop
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            # Waits in C: freezing tools do not move this timeout.
            return future.result(deadlines.cap)
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            return None

    def elsewhere(self, app: AsgiApp) -> Elsewhere | None:
        """Return the lifespan of an application that runs outside of this runner, or None."""
        if id(app) in self._lifespans:
            return None
        found = self._elsewhere.get(id(app))
        if found is None or not found.runs:
            found = lifespan_elsewhere(app)
            if found is not None:
                self._elsewhere[id(app)] = found
        return found

    async def lifespan(self, app: AsgiApp) -> Mapping[str, Any]:
        """Return the application's lifespan state, starting it when this is the first request."""
        if id(app) not in self._lifespans:
            self._lifespans[id(app)] = _Lifespan(app)
        return await self._lifespans[id(app)].started()

    def close(self) -> None:
        """End all lifespans, then the loop; waits at most two real seconds."""
        ending = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        with contextlib.suppress(TimeoutError):
            ending.result(2)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(2)
        if not self._thread.is_alive():
            self._loop.close()

    async def _end(self) -> None:
        for lifespan in self._lifespans.values():
            await lifespan.stop()
        me = asyncio.current_task()
        left = [task for task in asyncio.all_tasks() if task is not me]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


@dataclass(frozen=True)
class Elsewhere:
    """A lifespan that somebody else runs: the application's coroutine, its state and its loop."""

    coroutine: CoroutineType[Any, Any, Any]
    state: Mapping[str, Any]
    loop: asyncio.AbstractEventLoop

    @property
    def runs(self) -> bool:
        """Whether it still does."""
        return self.coroutine.cr_frame is not None


def lifespan_elsewhere(app: AsgiApp) -> Elsewhere | None:
    """Return the lifespan of an application that runs right now in a loop of asyncio, or None.

    The protocol does not tell.  But as long as a lifespan runs, the application's own coroutine is
    suspended in a task, called with a scope of type "lifespan".
    """
    for loop in _running_loops():
        for task in asyncio.all_tasks(loop):
            coroutine: object = task.get_coro()
            while isinstance(coroutine, CoroutineType):
                frame = coroutine.cr_frame
                scope = None if frame is None else _lifespan_scope(app, frame)
                if scope is not None:
                    return Elsewhere(coroutine, scope.get("state") or {}, loop)
                coroutine = coroutine.cr_await
    return None


def _running_loops() -> set[asyncio.AbstractEventLoop]:
    """Return the loops that run in the threads of this process, as their stacks show."""
    found: set[asyncio.AbstractEventLoop] = set()
    for top in sys._current_frames().values():
        frame: FrameType | None = top
        while frame is not None:
            if frame.f_code.co_name in ("run", "run_until_complete", "run_forever"):
                for value in list(frame.f_locals.values()):
                    if isinstance(value, asyncio.AbstractEventLoop):
                        found.add(value)
                    elif isinstance(value, asyncio.Task):
                        # A loop that is not written in Python has no frame of its own.
                        found.add(value.get_loop())
            frame = frame.f_back
    return found


def _lifespan_scope(app: Any, frame: FrameType) -> Mapping[str, Any] | None:
    """Return the scope when a frame is the application's call for its lifespan."""
    function = getattr(app, "__func__", app)
    code = getattr(function, "__code__", None) or getattr(type(app).__call__, "__code__", None)
    if frame.f_code is not code:
        return None
    inside = frame.f_locals
    owner = getattr(app, "__self__", None if function.__class__ is FunctionType else app)
    names = code.co_varnames
    if owner is not None and inside.get(names[0]) is not owner:
        return None
    # Applications that one function made have their code in common, but not what it is about.
    about = zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=False)
    if any(inside.get(name) is not _content(cell) for name, cell in about):
        return None
    for value in list(inside.values()):
        if isinstance(value, MutableMapping) and value.get("type") == "lifespan":
            return value
    return None


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class _Lifespan:
    def __init__(self, app: AsgiApp) -> None:
        self.app = app
        self.state: dict[str, Any] = {}
        self._startup = asyncio.Event()
        self._shutdown = asyncio.Event()
        self._done = asyncio.Event()
        self._told = False
        self._error: BaseException | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def started(self) -> Mapping[str, Any]:
        await self._startup.wait()
        if self._error is not None:
            raise self._error
        return self.state

    async def stop(self) -> None:
        self._shutdown.set()
        await self._done.wait()

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": self.state}
        try:
            await self.app(scope, self._receive, self._send)
        except Exception:
            # By the protocol an application without lifespan support raises here.
            pass
        finally:
            self._startup.set()
            self._done.set()

    async def _receive(self) -> Event:
        if not self._told:
            self._told = True
            return {"type": "lifespan.startup"}
        await self._shutdown.wait()
        return {"type": "lifespan.shutdown"}

    async def _send(self, event: Event) -> None:
        if event["type"] == "lifespan.startup.failed":
            text = event.get("message") or "no reason given"
            self._error = RuntimeError(f"the application's lifespan did not start: {text}")
        if event["type"].startswith("lifespan.startup"):
            self._startup.set()
        else:
            self._done.set()
