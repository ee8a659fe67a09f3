"""The requests that destination handlers receive, and the responses that they return."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from ...core.calls import Headers
from ...core.errors import ContractError, FakecloudError
from ...core.field_types import JSON, MESSAGE_ID, METHOD, URL, Shaped
from ...core.matching import HEADERS, Field, fields_of
from ...faults.answers import Response
from ..model import Delivery, Outcome
from ..views import json_of
from ..wire.values import as_text


class DestinationTimeoutError(FakecloudError, TimeoutError):
    """Raised if a destination does not answer in time, on the queue's clock or in real time."""

    __module__ = "pytest_fakecloud"


def outcome_of(reply: Response, delivery: Delivery) -> Outcome:
    if reply.ending == "refuse":
        text = f"{_origin_text(delivery.url)} refuses connections"
        return Outcome(exception=ConnectionRefusedError(text))
    took = reply._after_us
    if reply.ending == "hang" or (delivery.timeout_us and took > delivery.timeout_us):
        return timed_out(delivery)
    headers, body = reply._encoded
    return Outcome(reply.status, list(headers), body, virtual_us=took)


ResponseLike: TypeAlias = (
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
"""A response of a destination: a status, ``(status, body)``, ``(status, body, headers)``, a
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


def as_reply(value: object) -> Response:
    """Return a handler's result as a ``Response``; raise ``ContractError`` if it is invalid."""
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
        f"{value!r} is not a response; pass a status, (status, body), (status, body, headers), "
        "a Response, a body (string, bytes, dict or list), or None for 200"
    )


def _origin_text(url: str) -> str:
    scheme, _, rest = as_text(url).partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"
