"""Sends the requests of ``httpx`` to mounted fakes without a socket, or redirects them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..http.encoding import phrase
from .shortcut import NoAnswer, Shortcut
from .timeouts import are_timeouts

if TYPE_CHECKING:
    from .inprocess import Origins

_POOLS = frozenset({"ConnectionPool", "AsyncConnectionPool"})
# Limits of the cache of decoded headers. Clients send the same headers repeatedly.
_MOST_DECODED = 1024
_LONGEST_DECODED = 512
_decoded: dict[tuple[bytes, bytes], tuple[str, str]] = {}


def wrap_handle_request(
    origins: Origins, original: Callable[..., Any], active: Callable[[], bool]
) -> Callable[..., Any]:
    @functools.wraps(original)
    def handle_request(transport: Any, request: Any) -> Any:
        if not active():
            return original(transport, request)
        url = request.url
        origin = url.scheme, url.host, url.port
        detour = origins.detour(*origin)
        if detour is not None:
            return original(detour.httpx_transport(), detour.httpx_request(request))
        shortcut = origins.find(*origin)
        if shortcut is None or not is_plain(transport, request):
            return original(transport, request)
        target, headers = url.raw_path.decode("ascii"), _headers_of(request)
        length = shortcut.body_length(request.method, target, headers)
        if length is None or len(body := request.read()) != length:
            return original(transport, request)
        return _exchange(shortcut, request, target, headers, body)

    return handle_request


def wrap_handle_async_request(
    origins: Origins, original: Callable[..., Any], active: Callable[[], bool]
) -> Callable[..., Any]:
    from ..core.concurrency.aio import checkpoint

    @functools.wraps(original)
    async def handle_async_request(transport: Any, request: Any) -> Any:
        if not active():
            return await original(transport, request)
        url = request.url
        origin = url.scheme, url.host, url.port
        detour = origins.detour(*origin)
        if detour is not None:
            return await original(detour.httpx_async_transport(), detour.httpx_request(request))
        shortcut = origins.find(*origin)
        if shortcut is None or not is_plain(transport, request):
            return await original(transport, request)
        target, headers = url.raw_path.decode("ascii"), _headers_of(request)
        length = shortcut.body_length(request.method, target, headers)
        if length is None or len(body := await request.aread()) != length:
            return await original(transport, request)
        exchange = functools.partial(_exchange, shortcut, request, target, headers, body)
        if shortcut.around is not None:
            return await shortcut.around(exchange)
        # Let other tasks run, as they would while a client waits for a socket. Otherwise a
        # client that polls would block the loop and could not be cancelled.
        await checkpoint()
        return exchange()

    return handle_async_request


def is_plain(transport: Any, request: Any) -> bool:
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


def _headers_of(request: Any) -> list[tuple[str, str]]:
    return [_decoded.get(pair) or _decode(pair) for pair in request.headers.raw]


def _decode(pair: tuple[bytes, bytes]) -> tuple[str, str]:
    name, value = pair
    decoded = name.decode("latin-1"), value.decode("latin-1")
    if len(value) <= _LONGEST_DECODED:
        if len(_decoded) >= _MOST_DECODED:
            _decoded.clear()
        _decoded[pair] = decoded
    return decoded


def _exchange(
    shortcut: Shortcut, request: Any, target: str, headers: list[tuple[str, str]], body: bytes
) -> Any:
    try:
        return _response(shortcut.send(request.method, target, headers, body))
    except NoAnswer as error:
        import httpx

        text = "Server disconnected without sending a response."
        raise httpx.RemoteProtocolError(text, request=request) from error


def _response(answer: tuple[int, list[tuple[str, str]], bytes]) -> Any:
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
