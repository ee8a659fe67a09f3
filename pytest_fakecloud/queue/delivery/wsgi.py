"""Delivery to WSGI applications in process, without a socket.

The application receives the same request as from a server: the raw target in ``RAW_URI``,
``PATH_INFO`` with escapes decoded once, all headers, and ``Host`` from the URL. An exception raised
by the application becomes a 500 response and is kept, and so is an exception that Flask or Django
converted to a 500.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias
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

WsgiApp: TypeAlias = Callable[..., Iterable[bytes]]


def call_wsgi(app: WsgiApp, delivery: Delivery) -> AppAnswer:
    """Return the response of a WSGI application, called in this thread."""
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
            handled = AppAnswer(code, headers, b"".join(written))
        except Exception as error:
            return failed(error)
    return with_caught(handled, seen)


def _native(headers: Iterable[tuple[str, str]]) -> HeaderList:
    """Return a response's headers; raise ``AssertionError`` unless they are pairs of strings."""
    pairs = [(name, value) for name, value in headers]
    for pair in pairs:
        if not all(isinstance(part, str) for part in pair):
            raise AssertionError(f"the WSGI application's header {pair!r} is not a pair of strings")
    return pairs


def environ_of(method: str, url: str, headers: HeaderList, body: bytes) -> dict[str, Any]:
    """Return the WSGI environment of a request, as a server would build it."""
    address = Address.of(url)
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
