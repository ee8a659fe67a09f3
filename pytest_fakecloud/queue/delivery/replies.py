"""The requests that destination handlers receive, and the answers that they return."""

from __future__ import annotations

import json as jsonlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from ...core.calls import Headers
from ...core.errors import ContractError, FakecloudError
from ...core.field_types import JSON, MESSAGE_ID, METHOD, URL, Shaped
from ...core.matching import HEADERS, Field, fields_of
from ...core.timeparse import Duration, duration_us
from ..arguments import bytes_of, json_bytes
from ..fields import json_of
from ..model import Delivery, HeaderList, Outcome, first
from ..wire.text import as_text

Ending = Literal["answer", "hang", "refuse"]


class DestinationTimeoutError(FakecloudError, TimeoutError):
    """Raised if a destination does not answer in time, on the queue's clock or in real time."""

    __module__ = "pytest_fakecloud"


@dataclass(frozen=True)
class Response:
    """A prepared answer of a destination.

    ``body`` is bytes, a string, or any JSON value. The latter two also set the content type.
    ``after`` is the time that the destination takes on the queue's clock. ``Response.hang()`` never
    answers, ``Response.refuse()`` refuses the connection. Raises ``ContractError`` for an invalid
    status, invalid headers, a body that cannot be encoded, or an invalid duration.
    """

    status: int = 200
    body: Any = b""
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = ()
    after: Duration = 0
    ending: Ending = "answer"

    def __post_init__(self) -> None:
        status: object = self.status
        if isinstance(status, bool) or not isinstance(status, int) or not 100 <= status <= 599:
            raise ContractError(f"{status!r} is not an HTTP status; pass a number from 100 to 599")
        duration_us(self.after)
        # Read the headers now, because an iterator would be empty when the answer is used again.
        object.__setattr__(self, "headers", tuple(_header_pairs(self.headers, self.body)))
        self._typed_body()

    @classmethod
    def hang(cls) -> Response:
        """Return a reply that never answers the request, so that the attempt times out."""
        return cls(ending="hang")

    @classmethod
    def refuse(cls) -> Response:
        """Return a reply that refuses the connection, as if no server listened."""
        return cls(ending="refuse")

    def _encoded(self) -> tuple[HeaderList, bytes]:
        headers: HeaderList = list(cast("Iterable[tuple[str, str]]", self.headers))
        kind, body = self._typed_body()
        if kind is not None and first(headers, "Content-Type") is None:
            headers.append(("Content-Type", kind))
        return headers, body

    def _typed_body(self) -> tuple[str | None, bytes]:
        if self.body is None:
            return None, b""
        if isinstance(self.body, bytes | bytearray | memoryview):
            return None, bytes(self.body)
        if isinstance(self.body, str):
            return "text/plain; charset=utf-8", bytes_of(self.body)
        return "application/json", json_bytes("body", self.body)


def outcome_of(reply: Response, delivery: Delivery) -> Outcome:
    if reply.ending == "refuse":
        text = f"{_origin_text(delivery.url)} refuses connections"
        return Outcome(exception=ConnectionRefusedError(text))
    took = duration_us(reply.after)
    if reply.ending == "hang" or (delivery.timeout_us and took > delivery.timeout_us):
        return timed_out(delivery)
    headers, body = reply._encoded()
    return Outcome(reply.status, headers, body, virtual_us=took)


Answer: TypeAlias = (
    int
    | tuple[Any, ...]
    | Response
    | str
    | bytes
    | dict[str, Any]
    | list[Any]
    | BaseException
    | None
)
"""An answer of a destination: a status, ``(status, body)``, ``(status, body, headers)``, a
``Response``, a body, None for 200, or an exception to raise.
"""


def timed_out(delivery: Delivery, text: str | None = None) -> Outcome:
    """Return the outcome for a destination that did not answer.

    Without ``text``, the delivery's whole timeout passes on the queue's clock. ``text`` is the
    error message if the real-time limit was reached. In that case the problem is in the test, so no
    time passes on the queue's clock.
    """
    virtual_us = delivery.timeout_us if text is None else 0
    text = text or f"no answer within {delivery.timeout_us / 1e6:g} s on the queue's clock"
    error = DestinationTimeoutError(f"{_origin_text(delivery.url)}: {text}")
    return Outcome(exception=error, virtual_us=virtual_us)


@dataclass(frozen=True)
class DeliveredRequest:
    """A delivery as a request, which is the argument of destination handlers."""

    delivery: Delivery

    def __repr__(self) -> str:
        more = "…" if len(self.body) > 60 else ""
        body = self.body[:60].decode("utf-8", "replace")
        return f"<DeliveredRequest {self.method} {self.url} {body}{more}>"

    @property
    def method(self) -> str:
        """The HTTP method."""
        return self.delivery.method

    @property
    def url(self) -> str:
        """The full URL, as published."""
        return as_text(self.delivery.url)

    @property
    def path(self) -> str:
        """The raw path, with percent-escapes."""
        return urlsplit(self.url).path or "/"

    @property
    def query(self) -> str:
        """The raw query, without the question mark."""
        return urlsplit(self.url).query

    @property
    def headers(self) -> Headers:
        """All headers, including the signature."""
        return Headers(tuple(self.delivery.headers))

    @property
    def body(self) -> bytes:
        """The raw body."""
        return self.delivery.body

    @property
    def text(self) -> str:
        """The body as a string, decoded as UTF-8."""
        return self.delivery.body.decode()

    @property
    def message_id(self) -> str:
        """The id of the message, which is the same for every attempt."""
        return self.delivery.message_id

    @property
    def retried(self) -> int:
        """The number of earlier attempts; 0 for the first attempt."""
        return self.delivery.attempt

    def json(self) -> Any:
        """Return the body parsed as JSON; raise ``ValueError`` if it is not JSON."""
        return jsonlib.loads(self.delivery.body)


DELIVERIES: Mapping[str, Field] = {
    **fields_of(DeliveredRequest),
    "message_id": Field(MESSAGE_ID, optional=False),
    "method": Field(METHOD, optional=False),
    "url": Field(URL, optional=False),
    "path": Field(
        Shaped("a path without a query", "/hook", begins=("/",), never="[ ?#]"), optional=False
    ),
    "headers": Field(HEADERS, optional=False),
    "json": Field(JSON, json_of(DeliveredRequest.json, lambda one: one.body)),
}
"""Fields of a delivery, by name."""
Handler: TypeAlias = Callable[[DeliveredRequest], Any]


def _header_pairs(headers: object, body: object) -> HeaderList:
    """Return headers as pairs; raise ``ContractError`` unless they are strings or numbers."""
    given = headers.items() if isinstance(headers, Mapping) else headers
    try:
        if isinstance(given, str | bytes):
            raise TypeError
        pairs = [(name, value) for name, value in cast("Iterable[tuple[Any, Any]]", given)]
    except (TypeError, ValueError):
        swapped = isinstance(body, Mapping | list | tuple) and isinstance(headers, str | bytes)
        hint = ", so body and headers seem to be swapped" if swapped else ""
        raise ContractError(
            f"{headers!r} are not headers{hint}; pass a dict or a list of (name, value), in a tuple"
            " as (status, body, headers)"
        ) from None
    for name, value in pairs:
        if not isinstance(name, str) or not name or not isinstance(value, str | int | float):
            raise ContractError(
                f"{(name, value)!r} is not a header; pass a name and a value, both strings"
            )
        if re.search(r"[\r\n]", f"{name}{value}"):
            raise ContractError(f"{(name, value)!r} is not a header: it contains a line break")
    return [(name, str(value)) for name, value in pairs]


def as_reply(value: object) -> Response:
    """Convert a handler's result or an answer to a ``Response``; raise ``ContractError`` if invalid."""
    if isinstance(value, Response):
        return value
    if value is None:
        return Response()
    if isinstance(value, int) and not isinstance(value, bool):
        return Response(value)
    if isinstance(value, tuple) and 1 <= len(value) <= 3 and isinstance(value[0], int):
        return Response(*value)
    if isinstance(value, str | bytes | dict | list):
        return Response(body=value)
    raise ContractError(
        f"{value!r} is not an answer; pass a status, (status, body), (status, body, headers), "
        "a Response, a body (string, bytes, dict or list), or None for 200"
    )


def _origin_text(url: str) -> str:
    scheme, _, rest = as_text(url).partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"
