"""Sends the requests of ``httpx`` to mounted fakes without a socket, or redirects them."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from ..http.server import phrase
from .hooks import Function
from .shortcut import Detour, NoAnswer, Shortcut, are_timeouts, origin_of

if TYPE_CHECKING:
    from .inprocess import Origins

_POOLS = frozenset({"ConnectionPool", "AsyncConnectionPool"})


def wrap_handle_request(
    origins: Origins, original: Function, active: Callable[[], bool]
) -> Function:
    @functools.wraps(original)
    def handle_request(transport: Any, request: Any) -> Any:
        if not active():
            return original(transport, request)
        simple, sending = _planned(origins, "HTTPTransport", transport, request)
        if simple is None or len(body := request.read()) != simple.length:
            return original(*sending)
        return simple.exchange(body)

    return handle_request


def wrap_handle_async_request(
    origins: Origins, original: Function, active: Callable[[], bool]
) -> Function:
    from ..core.clock import checkpoint

    @functools.wraps(original)
    async def handle_async_request(transport: Any, request: Any) -> Any:
        if not active():
            return await original(transport, request)
        simple, sending = _planned(origins, "AsyncHTTPTransport", transport, request)
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
    origins: Origins, kind: str, transport: Any, request: Any
) -> tuple[_SimpleRequest | None, tuple[Any, Any]]:
    """Return a request that may skip the socket, or None; and what to send through the socket."""
    url = request.url
    origin = origin_of(url.scheme, url.host, url.port)
    detour = origins.detours.get(origin)
    if detour is not None:
        return None, _redirected(kind, detour, request)
    shortcut, sending = origins.shortcuts.get(origin), (transport, request)
    if shortcut is None or not is_plain(transport, request):
        return None, sending
    target = url.raw_path.decode("ascii")
    headers = [_decoded(pair) for pair in request.headers.raw]
    length = shortcut.body_length(request.method, target, headers)
    if length is None:
        return None, sending
    return _SimpleRequest(shortcut, request, target, headers, length), sending


def _redirected(kind: str, detour: Detour, request: Any) -> tuple[Any, Any]:
    """Return a transport of ``httpx`` that trusts the fake, and the request for its address."""
    import httpx

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


class _SimpleRequest(NamedTuple):
    """A request that may skip the socket if its body has ``length`` bytes."""

    shortcut: Shortcut
    request: Any
    target: str
    headers: list[tuple[str, str]]
    length: int

    def exchange(self, body: bytes) -> Any:
        """Send the request with its body; return the response."""
        import httpx

        try:
            status, headers, payload = self.shortcut.send(
                self.request.method, self.target, self.headers, body
            )
        except NoAnswer as error:
            text = "Server disconnected without sending a response."
            raise httpx.RemoteProtocolError(text, request=self.request) from error
        reason = phrase(status).encode("ascii")
        response = httpx.Response(
            status,
            headers=headers,
            stream=httpx.ByteStream(payload),
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": reason},
        )
        if all(name.isascii() and value.isascii() for name, value in headers):
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


@functools.lru_cache(maxsize=512)  # because clients send the same headers repeatedly
def _decoded(pair: tuple[bytes, bytes]) -> tuple[str, str]:
    name, value = pair
    return name.decode("latin-1"), value.decode("latin-1")
