"""Requests to a mounted fake that skip the socket: ``transport="inprocess"``.

The functions that send in ``httpx``, ``requests`` and ``urllib3`` are wrapped while a cloud asks for
it. A request whose origin is a mounted fake goes straight into the fake's pipeline: the same journal
and the same answers. Everything else, and whatever only a socket can show (endpoints that wait or
stream, armed faults, bodies that are not plain bytes), takes the socket as before.

An origin that is hard-coded in an application is redirected here too (``intercept``): its requests
go to a fake, over the fake's socket.
"""

from __future__ import annotations

import functools
import io
import ssl
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from ..kernel.app import Answer, App, Request
from ..kernel.server import http_date
from .hooks import Hook

__all__ = ["Detour", "Origin", "Origins", "origins"]

Origin = tuple[str, str, int]
"""Scheme, host and port."""
_PORTS = {"http": 80, "https": 443}
_BODILESS = frozenset({204, 304})
_EXPECT_NO_BODY = frozenset({"GET", "HEAD", "DELETE", "TRACE", "OPTIONS", "CONNECT"})


class Shortcut:
    """The in-process face of one fake."""

    def __init__(self, app: App) -> None:
        self.app = app

    def takes(self, method: str, target: str) -> bool:
        """Whether a request may skip the socket."""
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


class Detour:
    """Another address for the requests to an origin: a fake's, over its socket.

    Each client library gets connections of its own here, past the proxies and certificates of the
    client that sent the request, and none outlives its request.
    """

    def __init__(self, url: str, ca_file: str | None = None) -> None:
        self.url = url
        self._ca_file = ca_file

    def _context(self) -> ssl.SSLContext:
        if self._ca_file is not None:
            return ssl.create_default_context(cafile=self._ca_file)
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def httpx(self) -> Any:
        """A transport of ``httpx``."""
        import httpx

        limits = httpx.Limits(max_keepalive_connections=0)
        return httpx.HTTPTransport(verify=self._context(), trust_env=False, limits=limits)

    def httpx_async(self) -> Any:
        """An asynchronous transport of ``httpx``."""
        import httpx

        limits = httpx.Limits(max_keepalive_connections=0)
        return httpx.AsyncHTTPTransport(verify=self._context(), trust_env=False, limits=limits)

    def httpx_request(self, request: Any) -> Any:
        """The request of ``httpx``, to the other address."""
        import httpx

        parts = urlsplit(self.url)
        return httpx.Request(
            request.method,
            request.url.copy_with(scheme=parts.scheme, host=parts.hostname, port=parts.port),
            headers=request.headers,
            stream=request.stream,
            extensions=request.extensions,
        )

    def requests(
        self, send: Callable[..., Any] | None, request: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Send a prepared request of ``requests``; ``send`` is how adapters send.

        Where ``responses`` is about, that is what sent before it came.
        """
        from requests.adapters import HTTPAdapter

        send = getattr(sys.modules.get("responses"), "_real_send", None) or send
        assert send is not None
        options = {
            **dict(zip(("stream", "timeout", "verify", "cert"), args, strict=False)),
            **kwargs,
        }
        options.update(verify=self._ca_file or True, cert=None, proxies={})
        parts = urlsplit(request.url)
        moved = request.copy()
        moved.url = self.url + _target(parts.path, parts.query)
        moved.headers.setdefault("Host", parts.netloc.rpartition("@")[2])
        with closing(HTTPAdapter()) as adapter:
            answer = send(adapter, moved, **options)
            if not options.get("stream"):
                assert answer.content is not None
        answer.url, answer.request = request.url, request
        return answer

    def urllib3(self) -> Any:
        """A connection pool of ``urllib3``."""
        import urllib3

        options: dict[str, Any] = {} if self._ca_file is None else {"ca_certs": self._ca_file}
        return urllib3.connection_from_url(self.url, **options)


class Origins:
    """All origins that can be reached in process, for the whole process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shortcuts: dict[Origin, Shortcut] = {}
        self._detours: dict[Origin, Detour] = {}
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
        self.mocks = Hook(
            "responses",
            "RequestsMock._on_request",
            self._responses,
            saves="intercept() while responses is active",
        )

    def enter(self) -> None:
        """Wrap the client libraries from now on."""
        with self._lock:
            for hook in self.hooks:
                hook.enter()

    def leave(self) -> None:
        """Wrap them no more; the last one out puts the originals back."""
        with self._lock:
            for hook in self.hooks:
                hook.leave()

    def add(self, origin: Origin, app: App) -> None:
        """Reach an app at an origin without a socket, while the libraries are wrapped."""
        with self._lock:
            self._shortcuts[origin] = Shortcut(app)

    def remove(self, origin: Origin) -> None:
        """Reach it by socket again."""
        with self._lock:
            self._shortcuts.pop(origin, None)

    def redirect(self, origin: Origin, detour: Detour) -> bool:
        """Send what is for an origin to a fake; False when another one has the origin already."""
        with self._lock:
            if self._detours.setdefault(origin, detour) is not detour:
                return False
            for hook in (*self.hooks, self.mocks):
                hook.enter()
        return True

    def restore(self, origin: Origin) -> None:
        """Send what is for an origin to where it went before."""
        with self._lock:
            if self._detours.pop(origin, None) is not None:
                for hook in (*self.hooks, self.mocks):
                    hook.leave()

    def refresh(self) -> None:
        """Wrap libraries imported since, and those another tool has put back."""
        with self._lock:
            for hook in (*self.hooks, self.mocks):
                hook.refresh()

    def find(
        self, scheme: str, host: str, port: int | None, method: str, target: str
    ) -> Shortcut | None:
        """The shortcut for a request, or None when it takes the socket."""
        shortcut = self._shortcuts.get((scheme, host, port or _PORTS.get(scheme, 0)))
        return shortcut if shortcut is not None and shortcut.takes(method, target) else None

    def detour(self, scheme: str, host: str, port: int | None) -> Detour | None:
        """Where else a request goes, or None."""
        return self._detours.get((scheme, host, port or _PORTS.get(scheme, 0)))

    # -- httpx -----------------------------------------------------------------------------------

    def _httpx(
        self, original: Callable[..., Any], active: Callable[[], bool]
    ) -> Callable[..., Any]:
        @functools.wraps(original)
        def handle_request(transport: Any, request: Any) -> Any:
            if not active():
                return original(transport, request)
            url = request.url
            origin = url.scheme, url.host, url.port
            detour = self.detour(*origin)
            if detour is not None:
                return original(detour.httpx(), detour.httpx_request(request))
            target = url.raw_path.decode("ascii")
            shortcut = self.find(*origin, request.method, target)
            if shortcut is None:
                return original(transport, request)
            return _httpx_answer(shortcut, request, target, request.read())

        return handle_request

    def _httpx_async(
        self, original: Callable[..., Any], active: Callable[[], bool]
    ) -> Callable[..., Any]:
        @functools.wraps(original)
        async def handle_async_request(transport: Any, request: Any) -> Any:
            if not active():
                return await original(transport, request)
            url = request.url
            origin = url.scheme, url.host, url.port
            detour = self.detour(*origin)
            if detour is not None:
                return await original(detour.httpx_async(), detour.httpx_request(request))
            target = url.raw_path.decode("ascii")
            shortcut = self.find(*origin, request.method, target)
            if shortcut is None:
                return await original(transport, request)
            return _httpx_answer(shortcut, request, target, await request.aread())

        return handle_async_request

    # -- requests --------------------------------------------------------------------------------

    def _requests(
        self, original: Callable[..., Any], active: Callable[[], bool]
    ) -> Callable[..., Any]:
        @functools.wraps(original)
        def send(adapter: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            if not active():
                return original(adapter, request, *args, **kwargs)
            parts = urlsplit(request.url)
            detour = self.detour(parts.scheme, parts.hostname or "", parts.port)
            if detour is not None:
                return detour.requests(original, request, *args, **kwargs)
            body = request.body
            if isinstance(body, str):
                body = body.encode("utf-8")
            shortcut = None
            if body is None or isinstance(body, bytes):
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

    def _responses(
        self, original: Callable[..., Any], active: Callable[[], bool]
    ) -> Callable[..., Any]:
        @functools.wraps(original)
        def on_request(mock: Any, adapter: Any, request: Any, **kwargs: Any) -> Any:
            if active():
                parts = urlsplit(request.url)
                detour = self.detour(parts.scheme, parts.hostname or "", parts.port)
                if detour is not None:
                    kwargs.pop("retries", None)
                    return detour.requests(None, request, **kwargs)
            return original(mock, adapter, request, **kwargs)

        return on_request

    # -- urllib3 ---------------------------------------------------------------------------------

    def _urllib3(
        self, original: Callable[..., Any], active: Callable[[], bool]
    ) -> Callable[..., Any]:
        @functools.wraps(original)
        def make_request(
            pool: Any, conn: Any, method: str, url: str, *args: Any, **kwargs: Any
        ) -> Any:
            if not active():
                return original(pool, conn, method, url, *args, **kwargs)
            detour = self.detour(pool.scheme, pool.host, pool.port)
            if detour is not None:
                target = detour.urllib3()
                names = ("body", "headers", "retries", "timeout", "chunked", "response_conn")
                options = {**dict(zip(names, args, strict=False)), **kwargs}
                host = (
                    pool.host
                    if pool.port in (None, _PORTS[pool.scheme])
                    else f"{pool.host}:{pool.port}"
                )
                # The connection is nobody's to keep, so it ends with its answer.
                options["headers"] = {
                    "Host": host, **(options.get("headers") or {}), "Connection": "close",
                }  # fmt: skip
                return original(target, target._get_conn(), method, url, **options)
            body = kwargs.get("body", args[0] if args else None)
            if isinstance(body, str):
                body = body.encode("utf-8")
            plain = (body is None or isinstance(body, bytes)) and not kwargs.get("chunked")
            shortcut = None
            if plain:
                shortcut = self.find(pool.scheme, pool.host, pool.port, method, url)
            if shortcut is None:
                return original(pool, conn, method, url, *args, **kwargs)
            given: Mapping[str, str] = (
                kwargs.get("headers", args[1] if len(args) > 1 else None) or {}
            )
            headers = _urllib3_headers(pool, method, given, body)
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


def _urllib3_headers(
    pool: Any, method: str, given: Mapping[str, str], body: bytes | None
) -> list[tuple[str, str]]:
    """The headers a connection of ``urllib3`` would send: the given ones and those it adds."""
    from urllib3.util import SKIP_HEADER

    headers = [(_text(n), _text(v)) for n, v in given.items()]
    names = {name.lower() for name, _ in headers}
    usual = {"Host": f"{pool.host}:{pool.port}", "Accept-Encoding": "identity"}
    if body is not None or method.upper() not in _EXPECT_NO_BODY:
        usual["Content-Length"] = str(len(body or b""))
    usual["User-Agent"] = _urllib3_name()
    headers[:0] = [pair for pair in usual.items() if pair[0].lower() not in names]
    return [pair for pair in headers if pair[1] != SKIP_HEADER]


@functools.cache
def _urllib3_name() -> str:
    from importlib.metadata import version

    return f"python-urllib3/{version('urllib3')}"


def _target(path: str, query: str) -> str:
    return f"{path or '/'}?{query}" if query else path or "/"


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _httpx_answer(shortcut: Shortcut, request: Any, target: str, body: bytes) -> Any:
    import httpx

    headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in request.headers.raw]
    status, out, payload = shortcut.send(request.method, target, headers, body)
    response = httpx.Response(
        status,
        headers=out,
        stream=httpx.ByteStream(payload),
        extensions={"http_version": b"HTTP/1.1"},
    )
    if all(name.isascii() and value.isascii() for name, value in out):
        # What httpx would find out by trying, again for each copy it makes.
        response.headers.encoding = "ascii"
    return response


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
