"""Sends the requests of ``urllib3`` to mounted fakes without a socket, or redirects them."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPMessage, RemoteDisconnected
from typing import TYPE_CHECKING, Any

from ..http.encoding import phrase
from .detour import Detour
from .origin import PORTS
from .shortcut import NoAnswer

if TYPE_CHECKING:
    from .inprocess import Origins

_PARAMETERS = ("body", "headers", "retries", "timeout", "chunked", "response_conn")
"""The parameters of ``_make_request`` after the target, in order."""
_READING = ("preload_content", "decode_content", "enforce_content_length")
_EXPECT_NO_BODY = frozenset({"GET", "HEAD", "DELETE", "TRACE", "OPTIONS", "CONNECT"})


def wrap_make_request(
    origins: Origins, original: Callable[..., Any], active: Callable[[], bool]
) -> Callable[..., Any]:
    @functools.wraps(original)
    def make_request(pool: Any, conn: Any, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
        if not active():
            return original(pool, conn, method, url, *args, **kwargs)
        detour = origins.detour(pool.scheme, pool.host, pool.port)
        options = {**dict(zip(_PARAMETERS, args, strict=False)), **kwargs}
        if detour is not None:
            return _redirected(original, detour, pool, method, url, options)
        shortcut = origins.find(pool.scheme, pool.host, pool.port)
        if shortcut is None or len(args) > 2:
            return original(pool, conn, method, url, *args, **kwargs)
        body = options.get("body")
        if isinstance(body, str):
            body = body.encode("utf-8")
        headers = None
        if (body is None or isinstance(body, bytes)) and not options.get("chunked"):
            headers = sent_headers(pool, method, options.get("headers") or {}, body)
        if headers is None or shortcut.body_length(method, url, headers) != len(body or b""):
            return original(pool, conn, method, url, *args, **kwargs)
        pool.num_requests += 1
        try:
            status, out, payload = shortcut.send(method, url, headers, body or b"")
        except NoAnswer as error:
            raise RemoteDisconnected(str(error)) from error
        reading = {name: options[name] for name in _READING if name in options}
        return response_of(
            method,
            url,
            status,
            out,
            payload,
            **{"preload_content": True, **reading},
            retries=options.get("retries"),
            pool=pool,
            connection=options.get("response_conn"),
        )

    return make_request


def _redirected(
    original: Callable[..., Any],
    detour: Detour,
    pool: Any,
    method: str,
    url: str,
    options: dict[str, Any],
) -> Any:
    """Send a request to the detour's address, over a connection of its own."""
    target = detour.urllib3_pool()
    # Close the connection after its response, because it belongs to no pool.
    options["headers"] = {
        "Host": _host_of(pool), **(options.get("headers") or {}), "Connection": "close",
    }  # fmt: skip
    return original(target, target._get_conn(), method, url, **options)


def _host_of(pool: Any) -> str:
    """Return the Host header of a pool's requests, which omits the usual port of the scheme."""
    if pool.port in (None, PORTS[pool.scheme]):
        return str(pool.host)
    return f"{pool.host}:{pool.port}"


def sent_headers(
    pool: Any, method: str, given: Mapping[str, str], body: bytes | None
) -> list[tuple[str, str]] | None:
    """Return the headers that ``urllib3`` would send: the given headers and its defaults.

    Returns None if ``urllib3`` would reject the given headers.
    """
    from urllib3.util import SKIP_HEADER

    if not all(isinstance(value, str | bytes | int) for _, value in given.items()):
        return None
    headers = [(as_text(n), as_text(v)) for n, v in given.items()]
    names = {name.lower() for name, _ in headers}
    usual = {"Host": _host_of(pool), "Accept-Encoding": "identity"}
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


def as_text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def response_of(
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
    whole = CompleteBody(body)
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


class CompleteBody(io.BytesIO):
    """The body of a response. It counts as closed when it has been read to its end, as in
    ``http.client``.

    It also replaces the standard library's response object: ``urllib3`` checks it before it reuses
    a connection, and ``requests`` searches it for cookies.
    """

    headers: Sequence[tuple[str, str]] = ()

    def isclosed(self) -> bool:
        """Return whether everything has been read."""
        return self.closed or self.tell() == len(self.getbuffer())

    @property
    def msg(self) -> HTTPMessage:
        message = HTTPMessage()
        for name, value in self.headers:
            message[name] = value
        return message
