"""Answers a client's request without a socket, if the request is simple enough.

Only requests that the server would certainly accept qualify. Requests that the server or a client
library would reject, and requests with connection options, use the socket, so that the results are
the same as without a shortcut.
"""

from __future__ import annotations

import io
import re
import weakref
from collections.abc import Awaitable, Callable, Sequence
from http.client import HTTPMessage
from typing import TYPE_CHECKING, Any

from ..http.encoding import http_date
from ..http.messages import Answer, Request

if TYPE_CHECKING:
    from ..http.mount import Mount

_BODILESS = frozenset({204, 304})
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_TARGET = re.compile(r"/[!-~]*")
_LONGEST_TARGET = 8 * 1024
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")
_LENGTH = re.compile(r"\d{1,12}")
# Limits for headers. Together, the headers stay far below the server's limit for a head.
_MOST_HEADERS = 64
_LONGEST_HEADER = 512
_LONG_HEADERS = 16 * 1024
_REMEMBERED = 1024
# Effects of a header on a request: none, a host, or the need for a socket. Other values are the
# announced length of the body.
_NOTHING, _HOST, _SOCKET = -1, -2, -3


class NoAnswer(ConnectionError):
    """Raised if the connection ended without a response. Each client library converts it to its own
    error.
    """


class Shortcut:
    """Answers requests for one mount without its socket.

    With ``lingers``, it also accepts requests to endpoints that may wait; callers set it if these
    waits take no real time. ``around``, if set, is an asynchronous function that is called for each
    asynchronous request with a function that sends the request, and returns the response.
    """

    def __init__(self, mount: Mount, *, lingers: bool = False) -> None:
        self.around: Callable[[Callable[[], Any]], Awaitable[Any]] | None = None
        # A weak reference, so that an unused fake can be garbage-collected.
        self._mount = weakref.ref(mount)
        self._lingers = lingers

    def takes(self, method: str, target: str, headers: list[tuple[str, str]]) -> int | None:
        """Return the body length of a request that may skip the socket; None if it may not."""
        mount = self._mount()
        if mount is None:
            return None
        app = mount.app
        if app.faults or method not in _METHODS or len(headers) > _MOST_HEADERS:
            return None
        if len(target) > _LONGEST_TARGET or _TARGET.fullmatch(target) is None:
            return None
        length = _body_length(headers)
        if length is None or length > _limit_of(mount):
            return None
        found = app.table.find(method, target.partition("?")[0])
        waits = isinstance(found, tuple) and found[0].lingers and not self._lingers
        return None if waits else length

    def send(
        self, method: str, target: str, headers: list[tuple[str, str]], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Return status, headers and body of the response as the server would send them.

        Raises ``NoAnswer`` if the server would close the connection without a response.
        """
        mount = self._mount()
        if mount is None:
            raise NoAnswer("the fake is gone")
        response = mount.app.answer(Request(method, target, headers, body, ("127.0.0.1", 0)))
        if not isinstance(response, Answer):
            raise NoAnswer("Remote end closed connection without response")
        payload = response.body
        assert isinstance(payload, bytes)
        out = [("Date", http_date()), *response.headers]
        if response.content_type is not None:
            out.append(("Content-Type", response.content_type))
        if response.status in _BODILESS:
            return response.status, out, b""
        out.append(("Content-Length", str(len(payload))))
        return response.status, out, b"" if method == "HEAD" else payload


def _limit_of(mount: Mount) -> int:
    own = mount.body_limit
    return _LARGEST_BODY if own is None else min(own, _LARGEST_BODY)


_LARGEST_BODY = 4 * 1024 * 1024
# Effects of recent headers, because clients send the same headers repeatedly.
_known: dict[tuple[str, str], int] = {}


def _body_length(headers: list[tuple[str, str]]) -> int | None:
    """Return the announced body length of a plain request; None if the request is not plain."""
    length: int | None = None
    hosts = long = 0
    for header in headers:
        says = _known.get(header)
        if says is None:
            says = _read(header)
            if len(header[0]) + len(header[1]) > _LONGEST_HEADER:
                long += len(header[1])  # a header that is never cached
        if says == _NOTHING:
            continue
        if says >= 0:
            if length is not None:
                return None
            length = says
        elif says == _HOST:
            hosts += 1
        else:
            return None
    if hosts != 1 or long > _LONG_HEADERS:
        return None
    return length or 0


def _read(header: tuple[str, str]) -> int:
    name, value = header
    if _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
        return _SOCKET
    says, lower = _NOTHING, name.lower()
    if lower == "content-length":
        says = int(value) if _LENGTH.fullmatch(value) else _SOCKET
    elif lower == "host":
        says = _HOST
    elif lower in ("transfer-encoding", "expect", "upgrade") or (
        lower == "connection" and value.lower() != "keep-alive"
    ):
        says = _SOCKET
    if len(name) + len(value) <= _LONGEST_HEADER:
        if len(_known) >= _REMEMBERED:
            _known.clear()
        _known[header] = says
    return says


def are_timeouts(*values: object) -> bool:
    """Return whether each timeout is None or a positive number."""
    for value in values:
        if value is not None and (type(value) not in _NUMBERS or value <= 0):  # type: ignore[operator]
            return False
    return True


_NUMBERS = frozenset({int, float})


class Whole(io.BytesIO):
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
