"""Sends requests to mounted fakes without their sockets (``transport="inprocess"``).

Wraps the sending functions of ``httpx``, ``requests`` and ``urllib3`` while a cloud uses this
transport. A request for the origin of a mounted fake goes directly into the fake's pipeline, with
the same journal entries and the same responses. Everything that needs a socket still uses it:
endpoints that wait or stream, injected faults, bodies other than plain bytes, a client's own proxy,
and requests that the server would reject.

This module also redirects origins that are hard-coded in an application (``intercept``) to a fake's
socket.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from http.client import RemoteDisconnected
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..http.encoding import phrase
from .detour import Detour, target_of
from .hooks import Hook
from .shortcut import NoAnswer, Shortcut, Whole, are_timeouts

if TYPE_CHECKING:
    from ..http.mount import Mount

Origin = tuple[str, str, int]
"""Scheme, host and port."""
PORTS = {"http": 80, "https": 443}
_WITHOUT = "its requests to fakes are slower, and intercept() does not redirect its requests"
_EXPECT_NO_BODY = frozenset({"GET", "HEAD", "DELETE", "TRACE", "OPTIONS", "CONNECT"})


class Origins:
    """The origins of this process that are reached without a socket or redirected."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shortcuts: dict[Origin, Shortcut] = {}
        self._detours: dict[Origin, Detour] = {}
        self.hooks = [
            Hook(module, path, wrap, without=_WITHOUT)
            for module, path, wrap in (
                ("httpx", "HTTPTransport.handle_request", self._httpx),
                ("httpx", "AsyncHTTPTransport.handle_async_request", self._httpx_async),
                ("requests.adapters", "HTTPAdapter.send", self._requests),
                ("urllib3.connectionpool", "HTTPConnectionPool._make_request", self._urllib3),
            )
        ]
        self.mocks = Hook(
            "responses",
            "RequestsMock._on_request",
            self._responses,
            without="intercept() redirects nothing while responses is active",
        )

    def enter(self) -> None:
        """Wrap the functions of the client libraries."""
        with self._lock:
            for hook in self.hooks:
                hook.enter()

    def leave(self) -> None:
        """Stop wrapping the functions. The last caller restores the originals."""
        with self._lock:
            for hook in self.hooks:
                hook.leave()

    def add(self, mount: Mount, *, lingers: bool = False) -> Shortcut | None:
        """Make a mounted app reachable at its origin without a socket, while the libraries are
        wrapped.

        With ``lingers``, requests to endpoints that may wait skip the socket too. Returns the
        previous shortcut, for ``put_back()``.
        """
        with self._lock:
            before = self._shortcuts.get(mount.origin)
            self._shortcuts[mount.origin] = Shortcut(mount, lingers=lingers)
        return before

    def put_back(self, origin: Origin, before: Shortcut | None) -> None:
        """Restore the shortcut that ``add()`` replaced."""
        with self._lock:
            if before is None:
                self._shortcuts.pop(origin, None)
            else:
                self._shortcuts[origin] = before

    def remove(self, origin: Origin) -> None:
        """Make requests for this origin use the socket again."""
        with self._lock:
            self._shortcuts.pop(origin, None)

    def redirect(self, origin: Origin, detour: Detour) -> bool:
        """Redirect an origin to a fake; return False if it is already redirected."""
        with self._lock:
            if self._detours.setdefault(origin, detour) is not detour:
                return False
            for hook in (*self.hooks, self.mocks):
                hook.enter()
        return True

    def restore(self, origin: Origin) -> None:
        with self._lock:
            if self._detours.pop(origin, None) is not None:
                for hook in (*self.hooks, self.mocks):
                    hook.leave()

    def refresh(self) -> None:
        """Wrap libraries that were imported after ``enter()``, or whose functions another tool
        restored.
        """
        with self._lock:
            for hook in (*self.hooks, self.mocks):
                hook.refresh()

    def find(self, scheme: str, host: str, port: int | None) -> Shortcut | None:
        return self._shortcuts.get((scheme, host.rstrip("."), port or PORTS.get(scheme, 0)))

    def detour(self, scheme: str, host: str, port: int | None) -> Detour | None:
        # A final dot only marks a host name as fully qualified, so remove it.
        return self._detours.get((scheme, host.rstrip("."), port or PORTS.get(scheme, 0)))

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
            shortcut = self.find(*origin)
            if shortcut is None or not _is_plain(transport, request):
                return original(transport, request)
            target, headers = url.raw_path.decode("ascii"), _httpx_headers(request)
            length = shortcut.takes(request.method, target, headers)
            if length is None or len(body := request.read()) != length:
                return original(transport, request)
            return _httpx_exchange(shortcut, request, target, headers, body)

        return handle_request

    def _httpx_async(
        self, original: Callable[..., Any], active: Callable[[], bool]
    ) -> Callable[..., Any]:
        from ..core.concurrency.aio import checkpoint

        @functools.wraps(original)
        async def handle_async_request(transport: Any, request: Any) -> Any:
            if not active():
                return await original(transport, request)
            url = request.url
            origin = url.scheme, url.host, url.port
            detour = self.detour(*origin)
            if detour is not None:
                return await original(detour.httpx_async(), detour.httpx_request(request))
            shortcut = self.find(*origin)
            if shortcut is None or not _is_plain(transport, request):
                return await original(transport, request)
            target, headers = url.raw_path.decode("ascii"), _httpx_headers(request)
            length = shortcut.takes(request.method, target, headers)
            if length is None or len(body := await request.aread()) != length:
                return await original(transport, request)
            exchange = functools.partial(_httpx_exchange, shortcut, request, target, headers, body)
            if shortcut.around is not None:
                return await shortcut.around(exchange)
            # Let other tasks run, as they would while a client waits for a socket. Otherwise a
            # client that polls would block the loop and could not be cancelled.
            await checkpoint()
            return exchange()

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
            shortcut = self.find(parts.scheme, parts.hostname or "", parts.port)
            # A request that is passed on reaches the hook of urllib3, which may still skip the
            # socket.
            if shortcut is None or args or not _is_usual(adapter, request, kwargs):
                return original(adapter, request, *args, **kwargs)
            body = request.body or b""
            if isinstance(body, str):
                body = body.encode("utf-8")
            headers = [(_text(n), _text(v)) for n, v in request.headers.items()]
            headers.insert(0, ("Host", parts.netloc.rpartition("@")[2]))
            target = target_of(parts.path, parts.query)
            # Use the socket if urllib3 would add headers, or if the target begins with two slashes,
            # of which older versions of requests send only one.
            names = [name for name, _ in headers]
            if (
                target.startswith("//")
                or "User-Agent" not in names
                or "Accept-Encoding" not in names
                or shortcut.takes(request.method, target, headers) != len(body)
            ):
                return original(adapter, request, **kwargs)
            try:
                status, out, payload = shortcut.send(request.method, target, headers, body)
            except NoAnswer as error:
                raise _requests_error(error, request) from error
            return adapter.build_response(
                request, _urllib3_answer(request.method, target, status, out, payload)
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
                    if pool.port in (None, PORTS[pool.scheme])
                    else f"{pool.host}:{pool.port}"
                )
                # Close the connection after its response, because it belongs to no pool.
                options["headers"] = {
                    "Host": host, **(options.get("headers") or {}), "Connection": "close",
                }  # fmt: skip
                return original(target, target._get_conn(), method, url, **options)
            shortcut = self.find(pool.scheme, pool.host, pool.port)
            if shortcut is None or len(args) > 2:
                return original(pool, conn, method, url, *args, **kwargs)
            body = kwargs.get("body", args[0] if args else None)
            if isinstance(body, str):
                body = body.encode("utf-8")
            given: Mapping[str, str] = (
                kwargs.get("headers", args[1] if len(args) > 1 else None) or {}
            )
            headers = None
            if (body is None or isinstance(body, bytes)) and not kwargs.get("chunked"):
                headers = _urllib3_headers(pool, method, given, body)
            if headers is None or shortcut.takes(method, url, headers) != len(body or b""):
                return original(pool, conn, method, url, *args, **kwargs)
            pool.num_requests += 1
            try:
                status, out, payload = shortcut.send(method, url, headers, body or b"")
            except NoAnswer as error:
                raise RemoteDisconnected(str(error)) from error
            options = {name: kwargs[name] for name in _READING if name in kwargs}
            return _urllib3_answer(
                method,
                url,
                status,
                out,
                payload,
                **{"preload_content": True, **options},
                retries=kwargs.get("retries"),
                pool=pool,
                connection=kwargs.get("response_conn"),
            )

        return make_request


_READING = ("preload_content", "decode_content", "enforce_content_length")


def _is_plain(transport: Any, request: Any) -> bool:
    """Return whether a transport of ``httpx`` would send a request in the usual way.

    It would not if it has its own proxy or Unix socket, or if the request has a timeout of zero or
    less or an extension other than timeouts.
    """
    pool = getattr(transport, "_pool", None)
    if type(pool).__name__ not in _POOLS or getattr(pool, "_uds", None) is not None:
        return False
    extensions = request.extensions
    timeouts = extensions.get("timeout")
    if timeouts is None:
        return not extensions
    return len(extensions) == 1 and are_timeouts(*timeouts.values())


_POOLS = frozenset({"ConnectionPool", "AsyncConnectionPool"})
_BODIES = frozenset({bytes, str, type(None)})


def _is_usual(adapter: Any, request: Any, options: Mapping[str, Any]) -> bool:
    """Return whether ``requests`` would send a request in the usual way.

    It would not with retries, a proxy, an unusual timeout, or a subclass of the adapter.
    """
    if type(adapter).__module__ != "requests.adapters" or options.get("proxies"):
        return False
    if type(request.body) not in _BODIES:
        return False
    retries, timeout = adapter.max_retries, options.get("timeout")
    if retries.total or retries.status_forcelist:
        return False
    if type(timeout) is tuple:
        return len(timeout) == 2 and are_timeouts(*timeout)
    return are_timeouts(timeout)


def _urllib3_headers(
    pool: Any, method: str, given: Mapping[str, str], body: bytes | None
) -> list[tuple[str, str]] | None:
    """Return the headers that ``urllib3`` would send: the given headers and its defaults.

    Returns None if ``urllib3`` would reject the given headers.
    """
    from urllib3.util import SKIP_HEADER

    if not all(isinstance(value, str | bytes | int) for _, value in given.items()):
        return None
    headers = [(_text(n), _text(v)) for n, v in given.items()]
    names = {name.lower() for name, _ in headers}
    host = pool.host if pool.port == PORTS[pool.scheme] else f"{pool.host}:{pool.port}"
    usual = {"Host": host, "Accept-Encoding": "identity"}
    if body is not None or method.upper() not in _EXPECT_NO_BODY:
        usual["Content-Length"] = str(len(body or b""))
    usual["User-Agent"] = _urllib3_name()
    headers[:0] = [pair for pair in usual.items() if pair[0].lower() not in names]
    skipped = {name.lower() for name, value in headers if value == SKIP_HEADER}
    if not skipped:
        return headers
    if skipped - {"host", "accept-encoding", "user-agent"}:
        return None
    return [pair for pair in headers if pair[1] != SKIP_HEADER]


@functools.cache
def _urllib3_name() -> str:
    from importlib.metadata import version

    return f"python-urllib3/{version('urllib3')}"


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _httpx_headers(request: Any) -> list[tuple[str, str]]:
    return [_decoded.get(pair) or _decode(pair) for pair in request.headers.raw]


_decoded: dict[tuple[bytes, bytes], tuple[str, str]] = {}
# Limits of the cache of decoded headers. Clients send the same headers repeatedly.
_MOST_DECODED = 1024
_LONGEST_DECODED = 512


def _decode(pair: tuple[bytes, bytes]) -> tuple[str, str]:
    name, value = pair
    decoded = name.decode("latin-1"), value.decode("latin-1")
    if len(value) <= _LONGEST_DECODED:
        if len(_decoded) >= _MOST_DECODED:
            _decoded.clear()
        _decoded[pair] = decoded
    return decoded


def _httpx_exchange(
    shortcut: Shortcut, request: Any, target: str, headers: list[tuple[str, str]], body: bytes
) -> Any:
    try:
        return _httpx_answer(shortcut.send(request.method, target, headers, body))
    except NoAnswer as error:
        import httpx

        text = "Server disconnected without sending a response."
        raise httpx.RemoteProtocolError(text, request=request) from error


def _requests_error(error: NoAnswer, request: Any) -> Exception:
    """Return the error that ``requests`` raises for a connection that ended without a response."""
    from requests.exceptions import ConnectionError
    from urllib3.exceptions import ProtocolError

    cause = ProtocolError("Connection aborted.", RemoteDisconnected(str(error)))
    return ConnectionError(cause, request=request)


def _httpx_answer(answer: tuple[int, list[tuple[str, str]], bytes]) -> Any:
    import httpx

    status, headers, body = answer
    response = httpx.Response(
        status,
        headers=headers,
        stream=httpx.ByteStream(body),
        extensions={"http_version": b"HTTP/1.1", "reason_phrase": phrase(status).encode("ascii")},
    )
    if all(name.isascii() and value.isascii() for name, value in headers):
        # Without a known encoding, httpx would try several, again for each copy of the headers.
        response.headers.encoding = "ascii"
    return response


def _urllib3_answer(
    method: str,
    target: str,
    status: int,
    headers: list[tuple[str, str]],
    body: bytes,
    **options: Any,
) -> Any:
    import urllib3

    collected = urllib3.HTTPHeaderDict()
    for name, value in headers:
        collected.add(name, value)
    whole = Whole(body)
    if "connection" in options:
        # Only a pooled connection needs these attributes, to be returned to its pool. They are
        # slow, because requests searches them for cookies.
        whole.headers = headers
        options["original_response"] = whole
    response = urllib3.HTTPResponse(
        body=whole,
        headers=collected,
        status=status,
        version=11,
        reason=phrase(status),
        request_method=method,
        request_url=target,
        **{"preload_content": False, **options},
    )
    # Set after construction, because the constructor of the urllib3 fork in niquests does not
    # accept it.
    response.version_string = "HTTP/1.1"
    return response


origins = Origins()
"""The origins of this process. There is only one table, because client libraries are patched for
the whole process.
"""
