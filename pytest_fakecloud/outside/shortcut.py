"""The two ways to a fake besides its own address: shortcuts without a socket, and detours.

A shortcut answers a client's request without a socket, if the request is simple enough.
Requests that the server or a client library might reject, and requests with connection options, use
the socket, so that the results are the same as without a shortcut.
"""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from ..core.calls import Headers
from ..core.errors import ContractError
from ..core.field_types import TOKEN
from ..http.messages import Answer, Request
from ..http.server import BODILESS, http_date

if TYPE_CHECKING:
    from ..http.hub import Mount


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_TARGET = re.compile(r"/[!-~]*")
_VALUE = re.compile(r"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")
_LENGTH = re.compile(r"\d{1,12}")
# Limits in bytes. The target and the headers together stay below the server's limit for a head.
_MOST_TARGET_BYTES = 8 * 1024
_MOST_BODY_BYTES = 4 * 1024 * 1024
_MOST_HEADERS = 64
_MOST_HEADER_BYTES = 16 * 1024
_NUMBERS = frozenset({int, float})


_Effect: TypeAlias = Literal["none", "host", "length", "socket"]
"""The effect of a header: ``"length"`` announces a body, ``"socket"`` rules out a shortcut."""
_EFFECTS: Mapping[str, _Effect] = {
    "content-length": "length",
    "expect": "socket",
    "host": "host",
    "transfer-encoding": "socket",
    "upgrade": "socket",
}
"""The effects of headers by their names, if the values are valid."""
Header: TypeAlias = tuple[tuple[str, str], tuple[str, str], int, _Effect]
"""A header as sent and with its name in lower case, its number of bytes, and its effect."""


class NoAnswer(ConnectionError):
    """Raised if the connection ended without a response. The hooks convert it."""


class Shortcut:
    """Answers requests for one mount without its socket.

    With ``lingers``, it also accepts requests to endpoints that may wait; callers set it if these
    waits take no real time. ``around`` decides when a task's request is sent (used by ``explore()``):
    an asynchronous function that gets a function that sends the request, and returns the response.
    """

    def __init__(
        self,
        mount: Mount,
        *,
        lingers: bool = False,
        around: Callable[[Callable[[], Any]], Awaitable[Any]] | None = None,
    ) -> None:
        self.around = around
        # A weak reference, so that an unused fake can be garbage-collected.
        self._mount = weakref.ref(mount)
        self._lingers = lingers

    def plan(
        self, method: str, target: str, headers: Sequence[Header]
    ) -> tuple[Request, int] | None:
        """Return a request that may skip the socket if it gets a body of the returned length; None if
        it may not.
        """
        mount = self._mount()
        if mount is None:
            return None
        app = mount.app
        if app.faults or method not in _METHODS or not 0 < len(headers) <= _MOST_HEADERS:
            return None
        if len(target) > _MOST_TARGET_BYTES or _TARGET.fullmatch(target) is None:
            return None
        pairs, fields, sizes, effects = zip(*headers, strict=True)
        lengths = effects.count("length")
        if "socket" in effects or effects.count("host") != 1 or lengths > 1:
            return None
        length = int(pairs[effects.index("length")][1]) if lengths else 0
        if length > min(mount.body_limit, _MOST_BODY_BYTES) or sum(sizes) > _MOST_HEADER_BYTES:
            return None
        # Reversed, so that the first value of a repeated header wins.
        first = dict(reversed(fields))
        request = Request(method, target, Headers(pairs), b"", ("127.0.0.1", 0), first)
        if not self._lingers:
            found = app.table.find(method, request.path)
            if isinstance(found, tuple) and found[0].lingers:  # the matched route
                return None
        return request, length

    def send(self, request: Request, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Return status, headers and body as the server would send them to a request from ``plan()``.
        Raises ``NoAnswer`` if the server would close the connection without a response.
        """
        mount = self._mount()
        if mount is None:
            raise NoAnswer("the fake is gone")
        request.body = body
        response = mount.app.answer(request)
        if not isinstance(response, Answer):
            raise NoAnswer("Remote end closed connection without response")
        payload = response.body
        assert isinstance(payload, bytes)
        out = [("Date", http_date()), *response.headers]
        if response.content_type is not None:
            out.append(("Content-Type", response.content_type))
        if response.status in BODILESS:
            return response.status, out, b""
        out.append(("Content-Length", str(len(payload))))
        return response.status, out, b"" if request.method == "HEAD" else payload


def header_of(pair: tuple[str, str]) -> Header:
    """Return a name and a value with what ``Shortcut.plan()`` needs of them. Callers cache it."""
    name, value = pair
    lower, effect = _name_of(name)
    if (
        _VALUE.fullmatch(value) is None
        or (effect == "length" and _LENGTH.fullmatch(value) is None)
        or (lower == "connection" and value.lower() != "keep-alive")
    ):
        effect = "socket"
    return pair, (lower, value), len(name) + len(value), effect


@functools.lru_cache(maxsize=512)
def _name_of(name: str) -> tuple[str, _Effect]:
    """Return the name of a header in lower case, and its effect if its value is valid."""
    lower = name.lower()
    return lower, _EFFECTS.get(lower, "none") if re.fullmatch(TOKEN, name) else "socket"


def are_timeouts(*values: object) -> bool:
    """Return whether each timeout of a client is None or a positive number."""
    for value in values:
        if value is not None and not (type(value) in _NUMBERS and value > 0):  # type: ignore[operator]
            return False
    return True


# -- origins and detours ---------------------------------------------------------------------------

Origin = tuple[str, str, int]
"""Scheme, host and port."""
PORTS = {"http": 80, "https": 443}


class Detour(NamedTuple):
    """The fake that an origin is redirected to, and the file of its certificate authority.

    Client libraries then connect to the fake without the client's own proxies and certificates.
    """

    url: str
    ca_file: str | None = None


def origin_of(scheme: str, host: str, port: int | None) -> Origin:
    """Return an origin with the usual port of the scheme if none is given."""
    # A final dot only marks a host name as fully qualified, so remove it.
    return scheme, host.rstrip("."), port or PORTS.get(scheme, 0)


def parse_origin(text: str) -> Origin:
    """Parse an origin; raise ``ContractError`` for any other string."""
    try:
        parts = urlsplit(text)
        origin = origin_of(parts.scheme, parts.hostname or "", parts.port)
        is_origin = parts.scheme in PORTS and origin[1] and parts.path in ("", "/")
        if is_origin and not parts.query and not parts.fragment:
            return origin
    except (AttributeError, TypeError, ValueError):
        pass  # The text is not a string, or its port is invalid.
    raise ContractError(
        f"{text!r} is not an origin: pass scheme and host, such as 'https://kv.example.com'"
    )
