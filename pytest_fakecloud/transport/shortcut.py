"""The in-process face of one fake: which requests may skip its socket, and their answers.

Only a request that the server would take as it stands may: whatever it would refuse, what a client
library would refuse to write, and how a connection is asked to behave, takes the socket, so that
both ways agree.
"""

from __future__ import annotations

import functools
import io
import re
import weakref
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from http.client import HTTPMessage
from typing import TYPE_CHECKING

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
# Together far below the server's limit of a head.
_MOST_HEADERS = 64
_LONGEST_HEADER = 512
_LONG_HEADERS = 16 * 1024
_REMEMBERED = 1024
# What a header says about its request; other numbers are lengths of bodies.
_NOTHING, _HOST, _SOCKET = -1, -2, -3


class NoAnswer(ConnectionError):
    """The connection ended without an answer; each client library has its own words for it."""


class Shortcut:
    """The in-process face of what is mounted at an address.

    ``lingers`` lets requests in that may wait for something to come, where no wait is a real one.
    ``leaves`` and ``arrives``, where set, are awaited before an asynchronous request and after its
    answer.
    """

    def __init__(self, mount: Mount, *, lingers: bool = False) -> None:
        self.leaves: Callable[[], Awaitable[object]] | None = None
        self.arrives: Callable[[], Awaitable[object]] | None = None
        # Weakly: it must not keep a fake that nothing else holds any more.
        self._mount = weakref.ref(mount)
        self._lingers = lingers

    def takes(self, method: str, target: str, headers: list[tuple[str, str]]) -> int | None:
        """How long the body of a request must be that may skip the socket; None when it may not."""
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
        """Status, headers and body of the answer, as the server would have sent them.

        Raises ``NoAnswer`` where the server would have closed the connection without one.
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
# By name and value: clients send the same headers again and again.
_known: dict[tuple[str, str], int] = {}


def _body_length(headers: list[tuple[str, str]]) -> int | None:
    """The length that a plain request announces for its body; None when the request is not plain."""
    length: int | None = None
    hosts = long = 0
    for header in headers:
        says = _known.get(header)
        if says is None:
            says = _read(header)
            long += len(header[1])
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
    """Return whether each timeout leaves time for an answer: it is None, or a real span."""
    for value in values:
        if value is not None and (type(value) not in _NUMBERS or value <= 0):  # type: ignore[operator]
            return False
    return True


_NUMBERS = frozenset({int, float})


@functools.cache
def phrase(status: int) -> str:
    """The reason phrase that the server sends with a status."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"Status {status}"


class Whole(io.BytesIO):
    """The body of an answer; at its end it counts as closed, as a connection's does.

    Stands for the standard library's response too, of which ``urllib3`` asks whether its connection
    is free again, and ``requests`` for cookies.
    """

    headers: Sequence[tuple[str, str]] = ()

    def isclosed(self) -> bool:
        """Return whether nothing is left to be read."""
        return self.closed or self.tell() == len(self.getbuffer())

    @property
    def msg(self) -> HTTPMessage:
        """The headers, as the standard library has them."""
        message = HTTPMessage()
        for name, value in self.headers:
            message[name] = value
        return message
