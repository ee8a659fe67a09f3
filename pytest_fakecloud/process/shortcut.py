"""The two ways to a fake besides its own address: shortcuts without a socket, and detours.

A shortcut answers a client's request without a socket, if the request is simple enough.
Requests that the server or a client library might reject, and requests with connection options, use
the socket, so that the results are the same as without a shortcut.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from ..core.calls import Headers
from ..core.errors import ContractError
from ..core.field_types import TOKEN
from ..http.app import FAULTS
from ..http.messages import Answer, Request
from ..http.server import BODILESS, http_date

if TYPE_CHECKING:
    from ..http.hub import Mount


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_TARGET = re.compile(r"/[!-~]*")
_VALUE = re.compile(r"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")
_NAME = re.compile(TOKEN)
# Limits in bytes. The target and the headers together stay below the server's limit for a head.
_MOST_TARGET_BYTES = 8 * 1024
_MOST_BODY_BYTES = 4 * 1024 * 1024
_MOST_HEADERS = 64
_MOST_HEADER_BYTES = 16 * 1024
_NUMBERS = frozenset({int, float})
_TO_SOCKET = frozenset({"expect", "transfer-encoding", "upgrade"})
"""Headers that rule out a shortcut."""


class Head(NamedTuple):
    """The headers of a request without a socket, and the length of the body that they announce."""

    headers: Headers
    fields: Mapping[str, str]
    length: int


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

    def plan(self, method: str, target: str, head: Head) -> Request | None:
        """Return a request that may skip the socket if it gets a body of ``head.length`` bytes; None
        if it may not.
        """
        mount = self._mount()
        # A forked child has a closed copy; there, the socket leads to the parent's fake.
        if mount is None or mount.closed:
            return None
        app = mount.app
        if app.chain.has(FAULTS) or method not in _METHODS:
            return None
        if head.length > min(mount.body_limit, _MOST_BODY_BYTES):
            return None
        if "text/event-stream" in head.fields.get("accept", "").lower():
            return None  # The response may be a stream.
        if len(target) > _MOST_TARGET_BYTES or _TARGET.fullmatch(target) is None:
            return None
        request = Request(method, target, head.headers)
        if not self._lingers:
            route = app.table.match(method, request.path).route
            if route is not None and route.lingers:
                return None
        return request

    def send(self, request: Request, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Return status, headers and body as the server would send them to a request from ``plan()``.
        Raises ``NoAnswer`` if the server would close the connection without a response.
        """
        mount = self._mount()
        if mount is None:
            raise NoAnswer("the fake is gone")
        request.body = body
        response = mount.app.respond(request, in_client=True)
        if not isinstance(response, Answer):
            raise NoAnswer("Remote end closed connection without response")
        payload = response.body
        out = [("Date", http_date()), *response.headers]
        if response.content_type is not None:
            out.append(("Content-Type", response.content_type))
        if response.status in BODILESS:
            return response.status, out, b""
        out.append(("Content-Length", str(len(payload))))
        return response.status, out, b"" if request.method == "HEAD" else payload


def head_of(pairs: Sequence[tuple[str, str]]) -> Head | None:
    """Return the headers of a request; None if they need the socket."""
    size = sum(len(name) + len(value) for name, value in pairs)
    if not 0 < len(pairs) <= _MOST_HEADERS or size > _MOST_HEADER_BYTES:
        return None
    names = [_simple_name(*pair) for pair in pairs]
    if "" in names or names.count("host") != 1 or names.count("content-length") > 1:
        return None
    # Reversed, so that the first value of a repeated header wins.
    fields = dict(zip(reversed(names), (value for _, value in reversed(pairs)), strict=True))
    return Head(Headers(tuple(pairs)), fields, int(fields.get("content-length", "0")))


@lru_cache(maxsize=256)  # because most headers of a client are the same for every fake
def _simple_name(name: str, value: str) -> str:
    """Return a header's name in lower case; "" if the header needs the socket."""
    lower = name.lower()
    if _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None or lower in _TO_SOCKET:
        return ""
    if lower == "connection" and value.lower() != "keep-alive":
        return ""
    if lower == "content-length" and re.fullmatch(r"\d{1,12}", value) is None:
        return ""
    return lower


def are_timeouts(*values: object) -> bool:
    """Return whether each timeout of a client is None or a positive number."""
    return all(
        type(value) in _NUMBERS and value > 0  # type: ignore[operator]
        for value in values
        if value is not None
    )


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
