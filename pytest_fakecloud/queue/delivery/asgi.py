"""Delivery to ASGI applications in process, without a socket.

The application receives the same request as from a server: the raw target in ``raw_path``, ``path``
with escapes decoded once, all headers, and ``Host`` from the URL. An exception raised by the
application becomes a 500 response and is kept, and so is an exception that Django converted to a
500.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

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
from .lifespans import AsgiApp, Event


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
            if not answer.complete and answer.status < 500:
                return failed(error)
            handled = answer.response()
            handled.exception = error
            return handled
        finally:
            answer.finished.set()
    if not answer.complete:
        what = "completing its response" if answer.status else "a response"
        return failed(AssertionError(f"the ASGI application ended without {what}"))
    return with_caught(answer.response(), seen)


class _AsgiAnswer:
    """The two callables that an application gets for one request, and the response it sends."""

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

    def response(self) -> AppAnswer:
        return AppAnswer(self.status, self.headers, bytes(self.body))


def _scope(delivery: Delivery, state: Mapping[str, Any]) -> dict[str, Any]:
    address = Address.of(delivery.url)
    headers = [(b"host", address.netloc.encode("latin-1", "replace"))]
    headers += [
        (name.lower().encode("latin-1", "replace"), _header_bytes(value))
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


def _header_bytes(value: str) -> bytes:
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
