"""The two ways to a fake besides its own address: shortcuts without a socket, and detours.

A shortcut answers a client's request without a socket, if the request is simple enough.
Requests that the server or a client library might reject, and requests with connection options, use
the socket, so that the results are the same as without a shortcut.
"""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Awaitable, Callable
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

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

    def body_length(self, method: str, target: str, headers: list[tuple[str, str]]) -> int | None:
        """Return the body length of a request that may skip the socket; None if it may not."""
        mount = self._mount()
        if mount is None:
            return None
        app = mount.app
        if app.faults or method not in _METHODS or len(headers) > _MOST_HEADERS:
            return None
        if len(target) > _MOST_TARGET_BYTES or _TARGET.fullmatch(target) is None:
            return None
        length = _announced_length(headers)
        if length is None or length > min(mount.body_limit, _MOST_BODY_BYTES):
            return None
        if self._lingers:
            return length
        found = app.table.find(method, target.partition("?")[0])
        may_wait = isinstance(found, tuple) and found[0].lingers  # the matched route
        return None if may_wait else length

    def send(
        self, method: str, target: str, headers: list[tuple[str, str]], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Return status, headers and body as the server would send them. Raises ``NoAnswer`` if the
        server would close the connection without a response.
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
        if response.status in BODILESS:
            return response.status, out, b""
        out.append(("Content-Length", str(len(payload))))
        return response.status, out, b"" if method == "HEAD" else payload


def _announced_length(headers: list[tuple[str, str]]) -> int | None:
    """Return the announced body length of a plain request; None if the request is not plain."""
    effects = list(map(_effect_of, headers))
    lengths = effects.count("length")
    if "socket" in effects or effects.count("host") != 1 or lengths > 1:
        return None
    if sum(map(len, chain.from_iterable(headers))) > _MOST_HEADER_BYTES:
        return None
    return int(headers[effects.index("length")][1]) if lengths else 0


@functools.lru_cache(maxsize=512)  # because clients send the same headers repeatedly
def _effect_of(header: tuple[str, str]) -> _Effect:
    name, value = header
    if re.fullmatch(TOKEN, name) is None or _VALUE.fullmatch(value) is None:
        return "socket"
    lower = name.lower()
    if lower == "content-length":
        return "length" if _LENGTH.fullmatch(value) else "socket"
    if lower in ("transfer-encoding", "expect", "upgrade"):
        return "socket"
    if lower == "connection" and value.lower() != "keep-alive":
        return "socket"
    return "host" if lower == "host" else "none"


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
