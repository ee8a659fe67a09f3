"""Sends requests to mounted fakes without their sockets (``transport="inprocess"``).

The sending functions of ``httpx``, ``httpx2``, ``requests`` and ``urllib3`` are wrapped while a cloud
uses this transport. A request for the origin of a mounted fake goes directly into the fake's pipeline,
with the same journal entries and responses. Everything that needs a socket still uses it: endpoints
that wait or stream, injected faults, unusual bodies, a client's own proxy, and invalid requests.

The same wrappers redirect origins that are hard-coded in an application (``intercept``) to a fake's
socket, where all features of the fake work. This also works while ``responses`` is active.
"""

from __future__ import annotations

import functools
import io
import ssl
import sys
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from http.client import HTTPMessage, RemoteDisconnected
from itertools import chain
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from ..core.errors import ContractError
from ..http.messages import Request
from ..http.server import phrase
from .replace import Change, Function, Hook
from .shortcut import (
    PORTS,
    Detour,
    NoAnswer,
    Origin,
    Shortcut,
    are_timeouts,
    head_of,
    origin_of,
    parse_origin,
)

_IF_UNPATCHED = "its requests to fakes are slower, and intercept() does not redirect its requests"


class Origins(Change):
    """The origins that are reached without a socket or redirected, while clients are patched."""

    def __init__(self) -> None:
        super().__init__()
        self._hooks = tuple(
            Hook(module, path, partial(wrap, self), without=_IF_UNPATCHED)
            for module, path, wrap in (
                ("httpx", "HTTPTransport.handle_request", wrap_handle_request),
                ("httpx", "AsyncHTTPTransport.handle_async_request", wrap_handle_async_request),
                ("httpx2", "HTTPTransport.handle_request", wrap_handle_request),
                ("httpx2", "AsyncHTTPTransport.handle_async_request", wrap_handle_async_request),
                ("requests.adapters", "HTTPAdapter.send", wrap_send),
                ("urllib3.connectionpool", "HTTPConnectionPool._make_request", wrap_make_request),
            )
        )
        self._mocks = Hook(
            "responses",
            "RequestsMock._on_request",
            partial(wrap_on_request, self),
            without="intercept() redirects nothing while responses is active",
        )
        self._added: dict[Origin, list[Shortcut]] = {}
        self.shortcuts: dict[Origin, Shortcut] = {}
        self.detours: dict[Origin, Detour] = {}

    def add(self, origin: Origin, shortcut: Shortcut) -> None:
        """Use a shortcut for an origin. The caller removes it, also after an exception."""
        with self._lock:
            self._added.setdefault(origin, []).append(shortcut)
            self.shortcuts[origin] = shortcut

    def remove(self, origin: Origin, shortcut: Shortcut) -> None:
        """Remove a shortcut, if it was added. Can be repeated, also after an exception at any place in
        it.
        """
        with self._lock:
            added = self._added.get(origin, ())
            remaining = [other for other in added if other is not shortcut]
            if remaining:
                self._added[origin] = remaining
                self.shortcuts[origin] = remaining[-1]
            else:
                self._added.pop(origin, None)
                self.shortcuts.pop(origin, None)

    def redirect(self, origin: Origin, detour: Detour) -> bool:
        """Redirect an origin to a fake; return False if it is already redirected."""
        with self._lock:
            if self.detours.setdefault(origin, detour) is not detour:
                return False
        self.enter(detour)
        self._mocks.enter(detour)
        return True

    def restore(self, origin: Origin, detour: Detour) -> None:
        """Stop redirecting an origin. Can be repeated, also after an exception at any place in it."""
        with self._lock:
            if self.detours.get(origin) is detour:
                del self.detours[origin]
        self.leave(detour)
        self._mocks.leave(detour)

    def _begin(self) -> None:
        for hook in self._hooks:
            hook.enter(self)

    def refresh(self) -> None:
        for hook in (*self._hooks, self._mocks):
            hook.refresh()

    def _end(self) -> None:
        for hook in self._hooks:
            hook.leave(self)


class Interception(AbstractContextManager["Interception"]):
    """Redirects one origin to a fake, from ``open()`` until ``close()``. A request that the service has
    no route for is reported like any unrouted request.
    """

    def __init__(self, url: str, origin: str, ca_file: str | None = None) -> None:
        self._key = parse_origin(origin)
        self.origin = origin.rstrip("/")
        self._detour = Detour(url, ca_file)

    def open(self) -> None:
        """Start intercepting. Raises ``ContractError`` if the origin is already intercepted."""
        try:
            is_new = origins.redirect(self._key, self._detour)
        except BaseException:
            self.close()  # A signal's handler may have interrupted it.
            raise
        if not is_new:
            raise ContractError(
                f"{self.origin} is already intercepted: end that interception first"
            )

    def close(self) -> None:
        """Stop intercepting. Can be called repeatedly."""
        origins.restore(self._key, self._detour)

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        is_open = origins.detours.get(self._key) is self._detour
        return f"<Interception of {self.origin}{'' if is_open else ' closed'}>"


_POOLS = frozenset({"ConnectionPool", "AsyncConnectionPool"})


# -- httpx and httpx2, its continuation with the same interface and classes of its own --------------


def wrap_handle_request(origins: Origins, original: Function, hook: Hook) -> Function:
    @functools.wraps(original)
    def handle_request(transport: Any, request: Any) -> Any:
        if not hook.users:
            return original(transport, request)
        simple, sending = _planned(origins, hook.library, "HTTPTransport", transport, request)
        if simple is None or len(body := request.read()) != simple.length:
            return original(*sending)
        return simple.exchange(body)

    return handle_request


def wrap_handle_async_request(origins: Origins, original: Function, hook: Hook) -> Function:
    from ..core.clock import checkpoint

    @functools.wraps(original)
    async def handle_async_request(transport: Any, request: Any) -> Any:
        if not hook.users:
            return await original(transport, request)
        simple, sending = _planned(origins, hook.library, "AsyncHTTPTransport", transport, request)
        if simple is None or len(body := await request.aread()) != simple.length:
            return await original(*sending)
        if simple.shortcut.around is not None:
            return await simple.shortcut.around(functools.partial(simple.exchange, body))
        # Let other tasks run, as they would while a client waits for a socket. Otherwise a
        # client that polls would block the loop and could not be cancelled.
        await checkpoint()
        return simple.exchange(body)

    return handle_async_request


def _planned(
    origins: Origins, library: ModuleType, kind: str, transport: Any, request: Any
) -> tuple[_HttpxRequest | None, tuple[Any, Any]]:
    """Return a request that may skip the socket, or None; and what to send through the socket."""
    url = request.url
    origin = origin_of(url.scheme, url.host, url.port)
    detour = origins.detours.get(origin)
    if detour is not None:
        return None, _httpx_redirected(library, kind, detour, request)
    shortcut, sending = origins.shortcuts.get(origin), (transport, request)
    if shortcut is None or not is_plain(transport, request):
        return None, sending
    target = url.raw_path.decode("ascii")
    head = head_of(
        [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]
    )
    if head is None or (planned := shortcut.plan(request.method, target, head)) is None:
        return None, sending
    is_async = kind == "AsyncHTTPTransport"
    return _HttpxRequest(library, shortcut, request, planned, head.length, is_async), sending


def _httpx_redirected(httpx: Any, kind: str, detour: Detour, request: Any) -> tuple[Any, Any]:
    """Return a transport of ``httpx`` that trusts the fake, and the request for its address."""
    limits = httpx.Limits(max_keepalive_connections=0)  # so that the transport needs no close()
    transport = getattr(httpx, kind)(verify=_context(detour), trust_env=False, limits=limits)
    parts = urlsplit(detour.url)
    moved = httpx.Request(
        request.method,
        request.url.copy_with(scheme=parts.scheme, host=parts.hostname, port=parts.port),
        headers=request.headers,
        stream=request.stream,
        extensions=request.extensions,
    )
    return transport, moved


def _context(detour: Detour) -> ssl.SSLContext:
    if detour.ca_file is not None:
        return ssl.create_default_context(cafile=detour.ca_file)
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # not used, but httpx's default loads files


@functools.lru_cache(maxsize=4)  # Nested runs of pytest import httpx again.
def _stream_classes(httpx: Any) -> tuple[Any, Any]:
    """Return the classes of the streams that responses of httpx's clients and of its asynchronous
    clients are read from. As over a socket, a response can only be closed in the way of its client.

    httpx wraps a response's stream in one that refers to the response. These, when closed, take the
    place of the wrapper, because only the garbage collector could free the two and their request.
    """

    class ResponseStream:
        response: weakref.ref[Any]

        def __init__(self, body: bytes) -> None:
            self.body = body

        def replace_wrapper(self) -> None:
            if (response := self.response()) is not None:
                response.stream = self

    class SyncStream(ResponseStream, httpx.SyncByteStream):  # type: ignore[misc]
        def __iter__(self) -> Iterator[bytes]:
            yield self.body

        def close(self) -> None:
            self.replace_wrapper()

    class AsyncStream(ResponseStream, httpx.AsyncByteStream):  # type: ignore[misc]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield self.body

        async def aclose(self) -> None:
            self.replace_wrapper()

    return SyncStream, AsyncStream


class _HttpxRequest(NamedTuple):
    """A request of a library that may skip the socket if its body has ``length`` bytes."""

    library: Any
    shortcut: Shortcut
    request: Any
    planned: Request
    length: int
    is_async: bool

    def exchange(self, body: bytes) -> Any:
        httpx = self.library
        try:
            status, headers, payload = self.shortcut.send(self.planned, body)
        except NoAnswer as error:
            text = "Server disconnected without sending a response."
            raise httpx.RemoteProtocolError(text, request=self.request) from error
        reason = phrase(status).encode("ascii")
        stream = _stream_classes(httpx)[self.is_async](payload)
        response = httpx.Response(
            status,
            headers=headers,
            stream=stream,
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": reason},
        )
        stream.response = weakref.ref(response)
        if all(map(str.isascii, chain.from_iterable(headers))):
            # Without a known encoding, httpx would try several, again for each copy of the headers.
            response.headers.encoding = "ascii"
        return response


def is_plain(transport: Any, request: Any) -> bool:
    """Return whether a request has no proxy, Unix socket, odd timeout or extension of its own."""
    pool = getattr(transport, "_pool", None)
    if type(pool).__name__ not in _POOLS or getattr(pool, "_uds", None) is not None:
        return False
    extensions = request.extensions
    timeouts = extensions.get("timeout")
    if timeouts is None:
        return not extensions
    return len(extensions) == 1 and are_timeouts(*timeouts.values())


_READING = ("preload_content", "decode_content", "enforce_content_length", "retries")
"""The options of ``_make_request`` that its response gets too."""
_BODIES = frozenset({bytes, str, type(None)})
"""The types of bodies that ``requests`` sends as they are."""
_EXPECT_NO_BODY = frozenset({"GET", "HEAD", "DELETE", "TRACE", "OPTIONS", "CONNECT"})


def _planned_exchange(
    shortcut: Shortcut, method: str, target: str, headers: list[tuple[str, str]], body: bytes
) -> Function | None:
    """Return a function that answers a request; None if the request needs the socket."""
    head = head_of(headers)
    if head is None or head.length != len(body):
        return None
    request = shortcut.plan(method, target, head)
    return None if request is None else partial(_exchange, shortcut, request, body)


def _exchange(shortcut: Shortcut, request: Request, body: bytes, **options: Any) -> Any:
    """Send a request without the socket; return a response of ``urllib3`` with these options."""
    import urllib3

    status, headers, payload = shortcut.send(request, body)
    collected = urllib3.HTTPHeaderDict()
    for name, value in headers:
        collected.add(name, value)
    complete = _CompleteBody(payload)
    if "connection" in options:
        # Only a pooled connection needs these attributes, and requests is slow to search them.
        complete.headers = headers
        options["original_response"] = complete
    response = urllib3.HTTPResponse(
        body=complete,
        headers=collected,
        status=status,
        version=11,
        reason=phrase(status),
        request_method=request.method,
        request_url=request.target,
        **options,
    )
    # Set after construction, because the constructor in niquests' fork does not accept it.
    response.version_string = "HTTP/1.1"
    return response


class _CompleteBody(io.BytesIO):
    """A response's body, which counts as closed once it is read to its end, as in ``http.client``.

    ``urllib3`` also checks it before it reuses a connection, and ``requests`` searches its cookies.
    """

    headers: Sequence[tuple[str, str]] = ()

    def isclosed(self) -> bool:
        return self.closed or self.tell() == len(self.getbuffer())

    @property
    def msg(self) -> HTTPMessage:
        message = HTTPMessage()
        for name, value in self.headers:
            message[name] = value
        return message


# -- urllib3 ---------------------------------------------------------------------------------------


def wrap_make_request(origins: Origins, original: Function, hook: Hook) -> Function:
    @functools.wraps(original)
    def make_request(
        pool: Any,
        conn: Any,
        method: str,
        url: str,
        body: Any = None,
        headers: Any = None,
        **options: Any,
    ) -> Any:
        simple = None
        if hook.users:
            origin = origin_of(pool.scheme, pool.host, pool.port)
            shortcut = origins.shortcuts.get(origin)
            if (detour := origins.detours.get(origin)) is not None:
                pool, conn, headers = _redirected(detour, pool, headers)
            elif shortcut is not None and not options.get("chunked"):
                simple = _simple_call(shortcut, pool, method, url, body, headers)
        if simple is None:
            return original(pool, conn, method, url, body=body, headers=headers, **options)
        pool.num_requests += 1
        reading = {name: options[name] for name in _READING if name in options}
        try:
            return simple(**reading, pool=pool, connection=options.get("response_conn"))
        except NoAnswer as error:
            raise RemoteDisconnected(str(error)) from error

    return make_request


def _simple_call(
    shortcut: Shortcut, pool: Any, method: str, target: str, body: Any, request_headers: Any
) -> Function | None:
    """Return a function that answers a call of ``_make_request``; None if it needs the socket."""
    body = body.encode() if isinstance(body, str) else body
    if not (body is None or isinstance(body, bytes)):
        return None
    headers = sent_headers(pool, method, request_headers or {}, body)
    whole = body or b""
    if headers is None:
        return None
    return _planned_exchange(shortcut, method, target, headers, whole)


def _redirected(detour: Detour, pool: Any, headers: Any) -> tuple[Any, Any, dict[str, str]]:
    """Return a pool, connection and headers that send a request to the fake instead."""
    import urllib3

    trusted = {} if detour.ca_file is None else {"ca_certs": detour.ca_file}
    target: Any = urllib3.connection_from_url(detour.url, **trusted)
    # Close the connection after its response, because it belongs to no pool.
    headers = {"Host": _host_of(pool), **(headers or {}), "Connection": "close"}
    return target, target._get_conn(), headers


def _host_of(pool: Any) -> str:
    """Return the Host header of a pool's requests, which omits the usual port of the scheme."""
    if pool.port in (None, PORTS[pool.scheme]):
        return str(pool.host)
    return f"{pool.host}:{pool.port}"


def sent_headers(
    pool: Any, method: str, request_headers: Mapping[str, str], body: bytes | None
) -> list[tuple[str, str]] | None:
    """Return the headers that ``urllib3`` would send; None if it would reject the given ones."""
    import urllib3
    from urllib3.util import SKIP_HEADER

    if not all(isinstance(value, str | bytes | int) for _, value in request_headers.items()):
        return None
    headers = _text_pairs(request_headers)
    names = {name.lower() for name, _ in headers}
    usual = {"Host": _host_of(pool), "Accept-Encoding": "identity"}
    if body is not None or method.upper() not in _EXPECT_NO_BODY:
        usual["Content-Length"] = str(len(body or b""))
    version: str = urllib3.__version__  # type: ignore[attr-defined]
    usual["User-Agent"] = f"python-urllib3/{version}"
    headers[:0] = [pair for pair in usual.items() if pair[0].lower() not in names]
    skipped = {name.lower() for name, value in headers if value == SKIP_HEADER}
    if not skipped:
        return headers
    if skipped - {"host", "accept-encoding", "user-agent"}:
        return None
    return [pair for pair in headers if pair[1] != SKIP_HEADER]


def _text_pairs(headers: Mapping[Any, Any]) -> list[tuple[str, str]]:
    return [(_as_text(name), _as_text(value)) for name, value in headers.items()]


def _as_text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


# -- requests --------------------------------------------------------------------------------------


def wrap_send(origins: Origins, original: Function, hook: Hook) -> Function:
    @functools.wraps(original)
    def send(
        adapter: Any,
        request: Any,
        stream: Any = False,
        timeout: Any = None,
        *args: Any,
        **options: Any,
    ) -> Any:
        simple = None
        if hook.users:
            parts = urlsplit(request.url)
            origin = _origin_of(parts)
            if (detour := origins.detours.get(origin)) is not None:
                # The original may be a function of responses, which replaced the real one.
                real = getattr(sys.modules.get("responses"), "_real_send", None) or original
                return _send_to_fake(real, detour, request, stream, timeout)
            shortcut = origins.shortcuts.get(origin)
            is_plain = not args and not options.get("proxies")
            if shortcut is not None and is_plain and _sends_normally(adapter, request, timeout):
                simple = _simple_request(shortcut, request, parts)
        if simple is None:
            # The request reaches the hook of urllib3, which may still skip the socket.
            return original(adapter, request, stream, timeout, *args, **options)
        try:
            answer = simple(preload_content=False)
        except NoAnswer as error:
            from requests.exceptions import ConnectionError
            from urllib3.exceptions import ProtocolError

            cause = ProtocolError("Connection aborted.", RemoteDisconnected(str(error)))
            raise ConnectionError(cause, request=request) from error
        return adapter.build_response(request, answer)

    return send


def _simple_request(shortcut: Shortcut, request: Any, parts: SplitResult) -> Function | None:
    """Return a function that answers a prepared request; None if it needs the socket."""
    body = request.body or b""
    body = body.encode() if isinstance(body, str) else body
    headers = [("Host", _host(parts)), *_text_pairs(request.headers)]
    target = _target(parts)
    names = [name for name, _ in headers]
    # urllib3 would add these headers. Older versions of requests send only one of two slashes.
    if "User-Agent" not in names or "Accept-Encoding" not in names or target.startswith("//"):
        return None
    return _planned_exchange(shortcut, request.method, target, headers, body)


def wrap_on_request(origins: Origins, original: Function, hook: Hook) -> Function:
    @functools.wraps(original)
    def on_request(mock: Any, adapter: Any, request: Any, **options: Any) -> Any:
        detour = origins.detours.get(_origin_of(urlsplit(request.url)))
        if detour is None or not hook.users:
            return original(mock, adapter, request, **options)
        real = sys.modules["responses"]._real_send
        return _send_to_fake(real, detour, request, options.get("stream"), options.get("timeout"))

    return on_request


def _send_to_fake(send: Function, detour: Detour, request: Any, stream: Any, timeout: Any) -> Any:
    """Send a request to the fake with ``HTTPAdapter.send``, without the client's proxies."""
    from requests.adapters import HTTPAdapter

    parts = urlsplit(request.url)
    moved = request.copy()
    moved.url = detour.url + _target(parts)
    moved.headers.setdefault("Host", _host(parts))
    verify = detour.ca_file or True
    with closing(HTTPAdapter()) as adapter:
        answer = send(adapter, moved, stream=stream, timeout=timeout, verify=verify, proxies={})
        if not stream:
            _ = answer.content  # read the body before the adapter is closed
    answer.url, answer.request = request.url, request
    return answer


def _origin_of(parts: SplitResult) -> Origin:
    return origin_of(parts.scheme, parts.hostname or "", parts.port)


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _target(parts: SplitResult) -> str:
    """Return the request target of a URL, as ``requests`` sends it."""
    path = parts.path or "/"
    return f"{path}?{parts.query}" if parts.query else path


def _sends_normally(adapter: Any, request: Any, timeout: Any) -> bool:
    """Return whether ``requests`` would send a request without retries or odd timeout."""
    if type(adapter).__module__ != "requests.adapters" or type(request.body) not in _BODIES:
        return False
    retries = adapter.max_retries
    if retries.total or retries.status_forcelist:
        return False
    if type(timeout) is tuple:
        return len(timeout) == 2 and are_timeouts(*timeout)
    return are_timeouts(timeout)


origins = Origins()
"""The origins of this process. Client libraries are patched for the whole process."""
