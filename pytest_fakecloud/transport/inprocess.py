"""Requests to a mounted fake that skip the socket: ``transport="inprocess"``.

The functions that send in ``httpx``, ``requests`` and ``urllib3`` are wrapped while a cloud asks for
it. A request whose origin is a mounted fake goes straight into the fake's pipeline: the same journal
and the same answers. Everything else, and whatever only a socket can show (endpoints that wait or
stream, armed faults, bodies that are not plain bytes), takes the socket as before.
"""

from __future__ import annotations

import functools
import io
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from ..kernel.app import Answer, App, Request
from ..kernel.server import http_date
from .hooks import Hook

__all__ = ["Origin", "Origins", "origins"]

Origin = tuple[str, str, int]
"""Scheme, host and port."""
_PORTS = {"http": 80, "https": 443}
_BODILESS = frozenset({204, 304})


class Shortcut:
    """The in-process face of one fake."""

    def __init__(self, app: App) -> None:
        self.app = app

    def takes(self, method: str, target: str, *, forced: bool) -> bool:
        """Whether a request may skip the socket; ``forced`` where there is no socket to take."""
        if forced:
            return True
        if self.app.faults:
            return False
        path = target.partition("?")[0]
        found = self.app.table.find(method, path)
        return not (isinstance(found, tuple) and found[0].lingers)

    def send(
        self, method: str, target: str, headers: list[tuple[str, str]], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Status, headers and body of the answer, as the server would have sent them."""
        response = self.app.answer(Request(method, target, headers, body, ("127.0.0.1", 0)))
        if not isinstance(response, Answer):
            raise ConnectionResetError("the connection was ended by a fault, or would stream")
        payload = response.body
        assert isinstance(payload, bytes)
        out = [("Date", http_date()), *response.headers]
        if response.content_type is not None:
            out.append(("Content-Type", response.content_type))
        if response.status in _BODILESS:
            return response.status, out, b""
        out.append(("Content-Length", str(len(payload))))
        return response.status, out, b"" if method == "HEAD" else payload


class Origins:
    """All origins that can be reached in process, for the whole process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shortcuts: dict[Origin, Shortcut] = {}
        self._forced: set[Origin] = set()
        self.hooks = [
            Hook("httpx", "HTTPTransport.handle_request", self._httpx, saves="in-process httpx"),
            Hook(
                "httpx",
                "AsyncHTTPTransport.handle_async_request",
                self._httpx_async,
                saves="in-process asynchronous httpx",
            ),
            Hook(
                "requests.adapters", "HTTPAdapter.send", self._requests, saves="in-process requests"
            ),
            Hook(
                "urllib3.connectionpool",
                "HTTPConnectionPool._make_request",
                self._urllib3,
                saves="in-process urllib3",
            ),
        ]

    def add(self, origin: Origin, app: App, *, forced: bool = False) -> None:
        """Reach an app at an origin without a socket; ``forced`` when no server listens there."""
        with self._lock:
            self._shortcuts[origin] = Shortcut(app)
            if forced:
                self._forced.add(origin)
            for hook in self.hooks:
                hook.enter()

    def remove(self, origin: Origin) -> None:
        """Reach it by socket again."""
        with self._lock:
            if self._shortcuts.pop(origin, None) is not None:
                self._forced.discard(origin)
                for hook in self.hooks:
                    hook.leave()

    def refresh(self) -> None:
        """Wrap libraries imported since, and those another tool has put back."""
        with self._lock:
            for hook in self.hooks:
                hook.refresh()

    def find(
        self, scheme: str, host: str, port: int | None, method: str, target: str
    ) -> Shortcut | None:
        """The shortcut for a request, or None when it takes the socket."""
        origin = (scheme, host, port or _PORTS.get(scheme, 0))
        shortcut = self._shortcuts.get(origin)
        if shortcut is None or not shortcut.takes(method, target, forced=origin in self._forced):
            return None
        return shortcut

    # -- httpx -----------------------------------------------------------------------------------

    def _httpx(
        self, original: Callable[..., Any], active: Callable[[], bool]
    ) -> Callable[..., Any]:
        @functools.wraps(original)
        def handle_request(transport: Any, request: Any) -> Any:
            shortcut = self._for_httpx(request) if active() else None
            if shortcut is None:
                return original(transport, request)
            return _httpx_answer(shortcut, request, request.read())

        return handle_request

    def _httpx_async(
        self, original: Callable[..., Any], active: Callable[[], bool]
    ) -> Callable[..., Any]:
        @functools.wraps(original)
        async def handle_async_request(transport: Any, request: Any) -> Any:
            shortcut = self._for_httpx(request) if active() else None
            if shortcut is None:
                return await original(transport, request)
            return _httpx_answer(shortcut, request, await request.aread())

        return handle_async_request

    def _for_httpx(self, request: Any) -> Shortcut | None:
        url = request.url
        target = url.raw_path.decode("ascii")
        return self.find(url.scheme, url.host, url.port, request.method, target)

    # -- requests --------------------------------------------------------------------------------

    def _requests(
        self, original: Callable[..., Any], active: Callable[[], bool]
    ) -> Callable[..., Any]:
        @functools.wraps(original)
        def send(adapter: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            body = request.body
            if isinstance(body, str):
                body = body.encode("utf-8")
            shortcut = None
            if active() and (body is None or isinstance(body, bytes)):
                parts = urlsplit(request.url)
                target = _target(parts.path, parts.query)
                shortcut = self.find(
                    parts.scheme, parts.hostname or "", parts.port, request.method, target
                )
            if shortcut is None:
                return original(adapter, request, *args, **kwargs)
            headers = [(_text(n), _text(v)) for n, v in request.headers.items()]
            headers.insert(0, ("Host", parts.netloc.rpartition("@")[2]))
            status, out, payload = shortcut.send(request.method, target, headers, body or b"")
            return adapter.build_response(
                request, _urllib3_answer(request.method, status, out, payload)
            )

        return send

    # -- urllib3 ---------------------------------------------------------------------------------

    def _urllib3(
        self, original: Callable[..., Any], active: Callable[[], bool]
    ) -> Callable[..., Any]:
        @functools.wraps(original)
        def make_request(
            pool: Any, conn: Any, method: str, url: str, *args: Any, **kwargs: Any
        ) -> Any:
            body = kwargs.get("body", args[0] if args else None)
            if isinstance(body, str):
                body = body.encode("utf-8")
            plain = (body is None or isinstance(body, bytes)) and not kwargs.get("chunked")
            shortcut = None
            if active() and plain:
                shortcut = self.find(pool.scheme, pool.host, pool.port, method, url)
            if shortcut is None:
                return original(pool, conn, method, url, *args, **kwargs)
            given: Mapping[str, str] = (
                kwargs.get("headers", args[1] if len(args) > 1 else None) or {}
            )
            headers = [(_text(n), _text(v)) for n, v in given.items()]
            if not any(name.lower() == "host" for name, _ in headers):
                headers.insert(0, ("Host", f"{pool.host}:{pool.port}"))
            if body and not any(name.lower() == "content-length" for name, _ in headers):
                headers.append(("Content-Length", str(len(body))))
            status, out, payload = shortcut.send(method, url, headers, body or b"")
            return _urllib3_answer(
                method,
                status,
                out,
                payload,
                preload_content=kwargs.get("preload_content", True),
                retries=kwargs.get("retries"),
                pool=pool,
                connection=kwargs.get("response_conn"),
            )

        return make_request


def _target(path: str, query: str) -> str:
    return f"{path or '/'}?{query}" if query else path or "/"


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _httpx_answer(shortcut: Shortcut, request: Any, body: bytes) -> Any:
    import httpx

    headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in request.headers.raw]
    target = request.url.raw_path.decode("ascii")
    status, out, payload = shortcut.send(request.method, target, headers, body)
    return httpx.Response(
        status,
        headers=out,
        stream=httpx.ByteStream(payload),
        extensions={"http_version": b"HTTP/1.1"},
    )


def _urllib3_answer(
    method: str, status: int, headers: list[tuple[str, str]], body: bytes, **options: Any
) -> Any:
    import urllib3

    try:
        reason = HTTPStatus(status).phrase
    except ValueError:
        reason = ""
    collected = urllib3.HTTPHeaderDict()
    for name, value in headers:
        collected.add(name, value)
    return urllib3.HTTPResponse(
        body=io.BytesIO(body),
        headers=collected,
        status=status,
        version=11,
        version_string="HTTP/1.1",
        reason=reason,
        request_method=method,
        **{"preload_content": False, **options},
    )


origins = Origins()
"""The process's one table of origins: client libraries are patched per process."""
