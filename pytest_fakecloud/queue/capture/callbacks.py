"""A received callback, the fields by which callbacks can be filtered, and how long a wait lasts."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from ...core.calls import Headers, parsed_body
from ...core.field_types import JSON, MAPPING, MESSAGE_ID, URL
from ...core.journal import check_predicate
from ...core.matching import HEADERS, Field, ItemFields, Query
from ...core.settings import number
from ...core.timers import monotonic, to_datetime
from ..model import NON_RETRYABLE, SUCCESS
from ..views import DLQ_ID, PublishedMessage, json_of

if TYPE_CHECKING:
    from werkzeug import Request as WerkzeugRequest


DEFAULT_TIMEOUT = 5.0

Predicate: TypeAlias = "Callable[[Callback], object]"


@dataclass(frozen=True, eq=False)
class Callback:
    """A received callback or failure callback, with its decoded fields.

    ``payload`` is the callback's own JSON, with the service's field names. ``request_*`` is what the
    queue delivered to the destination, and ``response_*`` what the destination responded.
    ``headers`` and ``http_request`` are those of the callback itself. ``problem`` is the reason why
    the signature does not verify, or None if it does. If the request is not a callback, the payload
    is empty, the decoded fields are None, and the bodies empty.
    """

    payload: dict[str, Any]
    headers: Headers
    problem: str | None
    at_us: int
    failure: bool
    http_request: WerkzeugRequest

    @property
    def status(self) -> int | None:
        """The status of the destination's response; 0 if there was no response."""
        return _number(self.payload.get("status"))

    @property
    def response_headers(self) -> Headers:
        """The headers of the destination's response."""
        return _headers(self.payload.get("header"))

    @property
    def response_body(self) -> bytes:
        """The body of the destination's response."""
        return _decoded(self.payload.get("body"))

    def response_json(self) -> Any:
        """Return the destination's response parsed as JSON; raise ``ValueError`` if it is not JSON."""
        return parsed_body(self.response_body)

    @property
    def request_headers(self) -> Headers:
        """The headers of the message that the callback reports on."""
        return _headers(self.payload.get("sourceHeader"))

    @property
    def request_body(self) -> bytes:
        """The body of the message that the callback reports on."""
        return _decoded(self.payload.get("sourceBody"))

    def request_json(self) -> Any:
        """Return the message's body parsed as JSON; raise ``ValueError`` if it is not JSON."""
        return parsed_body(self.request_body)

    @property
    def source_message_id(self) -> str | None:
        """The id of the message that the callback reports on."""
        # The second name is the one in the vendor's specification.
        return _string(self.payload.get("sourceMessageId", self.payload.get("sourceMessasgeId")))

    @property
    def retried(self) -> int | None:
        """The number of attempts before the one that the callback reports on."""
        return _number(self.payload.get("retried"))

    @property
    def max_retries(self) -> int | None:
        """The maximum number of retries of the message."""
        return _number(self.payload.get("maxRetries"))

    @property
    def dlq_id(self) -> str | None:
        """The id of the dead letter; None unless this is a failure callback."""
        return _string(self.payload.get("dlqId"))

    @property
    def url(self) -> str | None:
        """The destination of the message that the callback reports on."""
        return _string(self.payload.get("url"))

    @property
    def is_final(self) -> bool:
        """Whether no further attempt follows, because the message was delivered or dead-lettered."""
        if self.failure or self.status in SUCCESS:
            return True
        if self.status == NON_RETRYABLE and self._refuses_retries:
            return True
        return self.retried is not None and self.retried == self.max_retries

    @property
    def _refuses_retries(self) -> bool:
        header = self.payload.get("header")
        return isinstance(header, dict) and any(
            name.lower().endswith("-nonretryable-error") and "true" in str(values).lower()
            for name, values in header.items()
        )

    @property
    def verified(self) -> bool:
        """Whether a queue of this cloud signed this URL and this body."""
        return self.problem is None

    @property
    def at(self) -> datetime:
        """The time at which the callback was received on the cloud's clock, as an aware UTC
        datetime.
        """
        return to_datetime(self.at_us)

    def __repr__(self) -> str:
        kind = "failure callback" if self.failure else "callback"
        signature = "verified" if self.verified else f"not verified: {self.problem}"
        final = ", final" if self.is_final else ""
        return (
            f"<{kind} of {self.source_message_id} at {self.at.isoformat()}: status {self.status}, "
            f"retried {self.retried} of {self.max_retries}{final}, {signature}>"
        )


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _headers(value: object) -> Headers:
    """Return headers that a callback lists as ``{name: [value, ...]}``."""
    listed = value if isinstance(value, dict) else {}
    several = ((name, each if isinstance(each, list) else [each]) for name, each in listed.items())
    return Headers([(name, one) for name, each in several for one in each if isinstance(one, str)])


def _decoded(value: object) -> bytes:
    try:
        return base64.b64decode(value) if isinstance(value, str) else b""
    except ValueError:
        return b""


FIELDS = ItemFields(
    Callback,
    source_message_id=Field(MESSAGE_ID),
    dlq_id=Field(DLQ_ID),
    url=Field(URL),
    payload=Field(MAPPING, optional=False),
    headers=Field(HEADERS, optional=False),
    request_headers=Field(HEADERS, optional=False),
    response_headers=Field(HEADERS, optional=False),
    request_json=Field(
        JSON, json_of(Callback.request_json, lambda callback: callback.request_body)
    ),
    response_json=Field(
        JSON, json_of(Callback.response_json, lambda callback: callback.response_body)
    ),
)
"""Fields of a callback, by name."""
_PREDICATE = {"callback": Field(read=lambda item: item, bare=True)}


def query_of(conditions: Mapping[str, Any], predicate: Predicate | None = None) -> Query:
    """Return the conditions of an assertion or a wait; raise ``ContractError`` for invalid ones."""
    check_predicate(predicate)
    fields = dict(conditions)
    message = fields.get("source_message_id")
    if isinstance(message, PublishedMessage):
        fields["source_message_id"] = message.id
    if predicate is None:
        return Query(fields, FIELDS, "callback")
    return Query({**fields, "callback": predicate}, {**FIELDS, **_PREDICATE}, "callback")


class Patience:
    """The real seconds that a wait may spend on background deliveries, from when it first sleeps."""

    def __init__(self, timeout: float) -> None:
        number(0).read("timeout", timeout)
        # Limit the timeout, because a longer timeout overflows in the threading module.
        self._seconds = float(min(timeout, threading.TIMEOUT_MAX / 2))
        self._end: float | None = None

    def left(self) -> float:
        if self._end is None:
            self._end = monotonic() + self._seconds
        return self._end - monotonic()
