"""Sends the requests of ``urllib3`` and ``requests`` without a socket, or redirects them."""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from http.client import HTTPMessage, RemoteDisconnected
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from ..http.encoding import phrase
from .hooks import Function
from .shortcut import PORTS, Detour, NoAnswer, Origin, Shortcut, are_timeouts, origin_of

if TYPE_CHECKING:
    from .inprocess import Origins

_PARAMETERS = ("body", "headers", "retries", "timeout", "chunked", "response_conn")
"""The parameters of ``_make_request`` after the target, in order."""
_READING = ("preload_content", "decode_content", "enforce_content_length")
_BODIES = frozenset({bytes, str, type(None)})
"""The types of bodies that ``requests`` sends as they are."""
_EXPECT_NO_BODY = frozenset({"GET", "HEAD", "DELETE", "TRACE", "OPTIONS", "CONNECT"})


# -- urllib3 ---------------------------------------------------------------------------------------


def wrap_make_request(origins: Origins, original: Function, active: Callable[[], bool]) -> Function:
    @functools.wraps(original)
    def make_request(pool: Any, conn: Any, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
        if not active():
            return original(pool, conn, method, url, *args, **kwargs)
        origin = origin_of(pool.scheme, pool.host, pool.port)
        options = {**dict(zip(_PARAMETERS, args, strict=False)), **kwargs}
        if (detour := origins.detours.get(origin)) is not None:
            return _redirected(original, detour, pool, method, url, options)
        shortcut = origins.shortcuts.get(origin)
        simple = None
        # urllib3 itself passes at most the body and the headers by position.
        if shortcut is not None and len(args) <= 2:
            simple = _simple_call(shortcut, pool, method, url, options)
        if shortcut is None or simple is None:
            return original(pool, conn, method, url, *args, **kwargs)
        pool.num_requests += 1
        try:
            status, out, payload = shortcut.send(method, url, *simple)
        except NoAnswer as error:
            raise RemoteDisconnected(str(error)) from error
        reading = {name: options[name] for name in _READING if name in options}
        reading = {"preload_content": True, **reading, "retries": options.get("retries")}
        connection = options.get("response_conn")
        return _response(
            method, url, status, out, payload, **reading, pool=pool, connection=connection
        )

    return make_request


def _simple_call(
    shortcut: Shortcut, pool: Any, method: str, url: str, options: Mapping[str, Any]
) -> tuple[list[tuple[str, str]], bytes] | None:
    """Return the headers and the body of a request that may skip the socket; None if it may not."""
    body = options.get("body")
    body = body.encode() if isinstance(body, str) else body
    if not (body is None or isinstance(body, bytes)) or options.get("chunked"):
        return None
    headers = sent_headers(pool, method, options.get("headers") or {}, body)
    body_bytes = body or b""
    if headers is None or shortcut.body_length(method, url, headers) != len(body_bytes):
        return None
    return headers, body_bytes


def _redirected(
    original: Function, detour: Detour, pool: Any, method: str, url: str, options: dict[str, Any]
) -> Any:
    """Send a request to the fake, over a connection of its own."""
    import urllib3

    trusted = {} if detour.ca_file is None else {"ca_certs": detour.ca_file}
    target: Any = urllib3.connection_from_url(detour.url, **trusted)
    # Close the connection after its response, because it belongs to no pool.
    given = options.get("headers") or {}
    options["headers"] = {"Host": _host_of(pool), **given, "Connection": "close"}
    return original(target, target._get_conn(), method, url, **options)


def _host_of(pool: Any) -> str:
    """Return the Host header of a pool's requests, which omits the usual port of the scheme."""
    if pool.port in (None, PORTS[pool.scheme]):
        return str(pool.host)
    return f"{pool.host}:{pool.port}"


def sent_headers(
    pool: Any, method: str, given: Mapping[str, str], body: bytes | None
) -> list[tuple[str, str]] | None:
    """Return the headers that ``urllib3`` would send; None if it would reject the given ones."""
    from urllib3.util import SKIP_HEADER

    if not all(isinstance(value, str | bytes | int) for _, value in given.items()):
        return None
    headers = [(_as_text(n), _as_text(v)) for n, v in given.items()]
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


def _as_text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _response(
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
    whole = _CompleteBody(body)
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
    # Set after construction, because the constructor in niquests' fork does not accept it.
    response.version_string = "HTTP/1.1"
    return response


class _CompleteBody(io.BytesIO):
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


# -- requests --------------------------------------------------------------------------------------


def wrap_send(origins: Origins, original: Function, active: Callable[[], bool]) -> Function:
    @functools.wraps(original)
    def send(adapter: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        if not active():
            return original(adapter, request, *args, **kwargs)
        parts = urlsplit(request.url)
        origin = _origin_of(parts)
        if (detour := origins.detours.get(origin)) is not None:
            return _send_to_fake(original, detour, request, *args, **kwargs)
        shortcut = origins.shortcuts.get(origin)
        simple = None
        if shortcut is not None and not args and _sends_normally(adapter, request, kwargs):
            simple = _simple_request(shortcut, request, parts)
        if shortcut is None or simple is None:
            # The request reaches the hook of urllib3, which may still skip the socket.
            return original(adapter, request, *args, **kwargs)
        try:
            status, out, payload = shortcut.send(request.method, *simple)
        except NoAnswer as error:
            from requests.exceptions import ConnectionError
            from urllib3.exceptions import ProtocolError

            cause = ProtocolError("Connection aborted.", RemoteDisconnected(str(error)))
            raise ConnectionError(cause, request=request) from error
        answer = _response(request.method, simple[0], status, out, payload)
        return adapter.build_response(request, answer)

    return send


def _simple_request(
    shortcut: Shortcut, request: Any, parts: SplitResult
) -> tuple[str, list[tuple[str, str]], bytes] | None:
    """Return the target, headers and body if a request may skip the socket; otherwise None."""
    body = request.body or b""
    body = body.encode() if isinstance(body, str) else body
    headers = [(_as_text(n), _as_text(v)) for n, v in request.headers.items()]
    headers.insert(0, ("Host", _host(parts)))
    target = _target(parts)
    names = [name for name, _ in headers]
    # urllib3 would add these headers. Older versions of requests send only one of two slashes.
    if "User-Agent" not in names or "Accept-Encoding" not in names or target.startswith("//"):
        return None
    if shortcut.body_length(request.method, target, headers) != len(body):
        return None
    return target, headers, body


def wrap_on_request(origins: Origins, original: Function, active: Callable[[], bool]) -> Function:
    @functools.wraps(original)
    def on_request(mock: Any, adapter: Any, request: Any, **kwargs: Any) -> Any:
        detour = origins.detours.get(_origin_of(urlsplit(request.url)))
        if detour is None or not active():
            return original(mock, adapter, request, **kwargs)
        kwargs.pop("retries", None)
        return _send_to_fake(None, detour, request, **kwargs)

    return on_request


def _send_to_fake(
    send: Function | None, detour: Detour, request: Any, *args: Any, **kwargs: Any
) -> Any:
    """Send a request to the fake, with the original that ``responses`` saved or with ``send``."""
    from requests.adapters import HTTPAdapter

    send = getattr(sys.modules.get("responses"), "_real_send", None) or send
    assert send is not None
    options = {**dict(zip(("stream", "timeout", "verify", "cert"), args, strict=False)), **kwargs}
    options.update(verify=detour.ca_file or True, cert=None, proxies={})
    parts = urlsplit(request.url)
    moved = request.copy()
    moved.url = detour.url + _target(parts)
    moved.headers.setdefault("Host", _host(parts))
    with closing(HTTPAdapter()) as adapter:
        answer = send(adapter, moved, **options)
        if not options.get("stream"):
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


def _sends_normally(adapter: Any, request: Any, options: Mapping[str, Any]) -> bool:
    """Return whether ``requests`` would send a request without retries, proxy or odd timeout."""
    if type(adapter).__module__ != "requests.adapters" or options.get("proxies"):
        return False
    if type(request.body) not in _BODIES:
        return False
    retries = adapter.max_retries
    if retries.total or retries.status_forcelist:
        return False
    timeout = options.get("timeout")
    if type(timeout) is tuple:
        return len(timeout) == 2 and are_timeouts(*timeout)
    return are_timeouts(timeout)
