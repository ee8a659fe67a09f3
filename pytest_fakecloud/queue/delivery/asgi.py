"""Delivery to ASGI applications in process, without a socket.

The application receives the same request as from a server: the raw target in ``raw_path``, ``path``
with escapes decoded once, all headers, and ``Host`` from the URL. An exception raised by the
application becomes a 500 response and is kept, and so is an exception that Django converted to a
500.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import CancelledError
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

from ...core.fatal_errors import ends_the_test
from ..model import Delivery, HeaderList
from .app_answer import (
    CLIENT,
    Address,
    AppAnswer,
    caught_by_framework,
    checked_status,
    failed,
    with_caught,
)
from .deadlines import Deadlines
from .lifespans import AsgiApp, AsyncioHost, Event, Host, Lifespan

T = TypeVar("T")


async def call_asgi(app: AsgiApp, delivery: Delivery, state: Mapping[str, Any]) -> AppAnswer:
    """Return the response of an ASGI application, called in the running loop (asyncio or trio).

    ``state`` is the state of the lifespan. If the application raises after a complete response (in
    a background task), the response counts, as it would for a client, and the exception is kept.
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
        what = "completing its response" if answer.status else "a response"
        return failed(AssertionError(f"the ASGI application ended without {what}"))
    return with_caught(answer.handled(), seen)


class _AsgiAnswer:
    def __init__(self, delivery: Delivery) -> None:
        self.status = 0
        self.headers: HeaderList = []
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
        # Report a disconnect only after the response is complete, because applications watch for
        # it.
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

    def handled(self) -> AppAnswer:
        return AppAnswer(self.status, self.headers, bytes(self.body))


def _scope(delivery: Delivery, state: Mapping[str, Any]) -> dict[str, Any]:
    address = Address.of(delivery.url)
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
        "client": CLIENT,
        "server": (address.host, address.port),
        "extensions": {},
        "state": dict(state),
    }


def _wire(value: str) -> bytes:
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode()


def new_event() -> Any:
    """Return an event of the library (asyncio or trio) whose loop is running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return sys.modules["trio"].Event()
    return asyncio.Event()


async def _held(work: Coroutine[Any, Any, T]) -> tuple[T | None, BaseException | None]:
    """Return a coroutine's result, or the exception by which it ends the test.

    If the coroutine raised such an exception, it would also end the event loop.
    """
    try:
        return await work, None
    except BaseException as error:
        ending = None if _is_cancellation(error) else ends_the_test(error)
        if ending is None:
            raise
        return None, ending


def _is_cancellation(error: BaseException) -> bool:
    trio = sys.modules.get("trio")
    cancelled = (
        (asyncio.CancelledError,) if trio is None else (asyncio.CancelledError, trio.Cancelled)
    )
    if isinstance(error, BaseExceptionGroup):
        return error.split(cancelled)[1] is None
    return isinstance(error, cancelled)


class LoopEnded(RuntimeError):
    """Raised if an event loop ends while a coroutine runs in it."""


class AsgiRunner:
    """An event loop in its own thread, for coroutines that no running loop awaits.

    Like a server, it starts each application's lifespan before the first request and ends it in
    ``close()``. Applications without lifespan support are called without one.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lifespans: dict[int, Lifespan] = {}
        self._host = AsyncioHost(self._loop)
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="fakecloud queue loop", daemon=True
        )
        self._thread.start()

    def run(
        self,
        work: Coroutine[Any, Any, T],
        deadlines: Deadlines,
        host: Host | None = None,
    ) -> T | None:
        """Return the coroutine's result, or None if it takes longer than the real-time cap.

        The coroutine runs in ``host`` if that loop is running in another thread, otherwise in this
        runner's own loop. Raises ``LoopEnded`` if the loop ends first.
        """
        if host is None or not host.runs or host.is_here:
            host = self._host
        future = host.submit(_held(work))
        try:
            # result() waits in C code, so tools that freeze time do not change its timeout.
            result, ending = future.result(deadlines.cap)
            if ending is not None:
                raise ending
            return result
        except CancelledError:
            raise LoopEnded("the application's event loop ended before the response") from None
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            return None

    def has(self, app: AsgiApp) -> bool:
        """Return whether this runner runs the application's lifespan."""
        return id(app) in self._lifespans

    async def lifespan(self, app: AsgiApp) -> Mapping[str, Any]:
        """Return the application's lifespan state. The first call starts the lifespan."""
        if id(app) not in self._lifespans:
            self._lifespans[id(app)] = Lifespan(app)
        return await self._lifespans[id(app)].started()

    def close(self) -> None:
        """End all lifespans, then the loop. Waits at most two real seconds for each of these steps."""
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
