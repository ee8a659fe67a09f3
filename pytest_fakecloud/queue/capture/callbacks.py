"""A received callback, and the list of the callbacks received at one URL."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, Unpack

from ...core.calls import Headers
from ...core.conditions import checked_count
from ...core.errors import ContractError, shown
from ...core.field_types import JSON, MAPPING, MESSAGE_ID, URL
from ...core.matching import HEADERS, Field, Query, fields_of
from ...core.results import Results, expect
from ...core.timeparse import to_datetime
from ..fields import DLQ_ID, json_of
from ..model import NON_RETRYABLE
from ..views import PublishedMessage
from .reports import undelivered_lines, wait_report

if TYPE_CHECKING:
    from werkzeug import Request as WerkzeugRequest

    from ..typed import CallbackFields
    from .handle import CallbackCapture, ScopedFaults


DEFAULT_TIMEOUT = 5.0

Predicate: TypeAlias = "Callable[[Callback], object]"


@dataclass(frozen=True, eq=False)
class Callback:
    """A received callback or failure callback, with its decoded fields.

    ``raw`` is the whole JSON body, with the service's field names. ``body`` (the destination's
    response) and ``source_body`` (the published body) are bytes. ``problem`` is the reason why the
    signature does not verify, or None if it does. If the request is not a callback, the decoded
    fields are None and the bodies empty.
    """

    raw: dict[str, Any]
    headers: Headers
    problem: str | None
    at_us: int
    failure: bool
    request: WerkzeugRequest

    @property
    def status(self) -> int | None:
        """The status of the destination's response; 0 if there was no response."""
        return _number(self.raw.get("status"))

    @property
    def body(self) -> bytes:
        """The body of the destination's response."""
        return _decoded(self.raw.get("body"))

    def json(self) -> Any:
        """Return the destination's response parsed as JSON; raise ``ValueError`` if it is not JSON."""
        return json.loads(self.body)

    @property
    def source_body(self) -> bytes:
        """The published body."""
        return _decoded(self.raw.get("sourceBody"))

    def source_json(self) -> Any:
        """Return the published body parsed as JSON; raise ``ValueError`` if it is not JSON."""
        return json.loads(self.source_body)

    @property
    def source_message_id(self) -> str | None:
        """The id of the message that the callback reports on."""
        # The second name is the one in the vendor's specification.
        return _string(self.raw.get("sourceMessageId", self.raw.get("sourceMessasgeId")))

    @property
    def retried(self) -> int | None:
        """The number of attempts before the one that the callback reports on."""
        return _number(self.raw.get("retried"))

    @property
    def max_retries(self) -> int | None:
        """The maximum number of retries of the message."""
        return _number(self.raw.get("maxRetries"))

    @property
    def dlq_id(self) -> str | None:
        """The id of the dead letter; None unless this is a failure callback."""
        return _string(self.raw.get("dlqId"))

    @property
    def url(self) -> str | None:
        """The destination of the message that the callback reports on."""
        return _string(self.raw.get("url"))

    @property
    def is_final(self) -> bool:
        """Whether no further attempt follows, because the message was delivered or dead-lettered."""
        if self.failure or (self.status is not None and 200 <= self.status <= 299):
            return True
        if self.status == NON_RETRYABLE and self._refuses_retries:
            return True
        return self.retried is not None and self.retried == self.max_retries

    @property
    def _refuses_retries(self) -> bool:
        header = self.raw.get("header")
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


def _decoded(value: object) -> bytes:
    try:
        return base64.b64decode(value) if isinstance(value, str) else b""
    except ValueError:
        return b""


FIELDS: Mapping[str, Field] = {
    **fields_of(Callback),
    "source_message_id": Field(MESSAGE_ID),
    "dlq_id": Field(DLQ_ID),
    "url": Field(URL),
    "raw": Field(MAPPING, optional=False),
    "headers": Field(HEADERS, optional=False),
    "json": Field(JSON, json_of(Callback.json, lambda one: one.body)),
    "source_json": Field(JSON, json_of(Callback.source_json, lambda one: one.source_body)),
}
"""Fields of a callback, by name."""
_PREDICATE = {"callback": Field(read=lambda item: item, bare=True)}


def _query(given: Mapping[str, Any], predicate: Predicate | None = None) -> Query:
    asked = dict(given)
    message = asked.get("source_message_id")
    if isinstance(message, PublishedMessage):
        asked["source_message_id"] = message.id
    if predicate is None:
        return Query(asked, FIELDS, "callback")
    return Query({**asked, "callback": predicate}, {**FIELDS, **_PREDICATE}, "callback")


class Captured(Results[Callback]):
    """The callbacks received at one URL of a capture, as a list with the oldest first."""

    def __init__(
        self, capture: CallbackCapture, faults: ScopedFaults, path: str, failure: bool
    ) -> None:
        super().__init__()
        self._fields, self._kind = FIELDS, "failure callback" if failure else "callback"
        self._notes = partial(undelivered_lines, capture)
        self._capture = capture
        self._path = path
        self._failure = failure
        self._returned: set[Callback] = set()
        self._turn = threading.Lock()
        self.faults = faults

    @property
    def url(self) -> str:
        """The URL at which these callbacks are received."""
        return self._capture.url + self._path

    @property
    def aio(self) -> AwaitableCaptured:
        """The awaitable version of ``wait_for()``: ``await captured.aio.wait_for(...)``."""
        return AwaitableCaptured(self)

    def wait_for(
        self,
        wanted: int | Predicate = 1,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        **where: Unpack[CallbackFields],
    ) -> Results[Callback]:
        """Return the matching callbacks as soon as there are enough of them.

        ``wanted`` is the required number, or a predicate that one callback must satisfy. ``where``
        are conditions on fields (``status=200``, ``json={...}``). If the queue delivers only when
        the test calls a delivering method, this method runs the queue and moves the clock to the
        next due time until there are enough callbacks or nothing is left to deliver. If the queue
        delivers in the background, it waits at most ``timeout`` real seconds. Raises
        ``AssertionError`` with the timelines of the messages and the differences of the closest
        callbacks.
        """
        __tracebackhide__ = True
        condition = _Condition(self, wanted, where)
        self._capture._waiter.until(condition, timeout)
        return condition.result()

    def assert_received(
        self, *, times: int | None = None, **where: Unpack[CallbackFields]
    ) -> Results[Callback]:
        """Assert that a matching callback was received, and return all matching callbacks.

        ``times`` is the exact number of callbacks expected (at least one by default). This method
        delivers nothing. The error contains the closest callbacks and how they differ.
        """
        __tracebackhide__ = True
        checked_count("times", times)
        return self._expect(list(self), _query(where), times)

    def assert_not_received(self, **where: Unpack[CallbackFields]) -> None:
        """Assert that no matching callback was received."""
        __tracebackhide__ = True
        self.assert_received(times=0, **where)

    def reset(self) -> None:
        """Forget the received callbacks."""
        self._restore(([], set()))

    def _expect(
        self, items: Iterable[Callback], asked: Query, times: int | None
    ) -> Results[Callback]:
        __tracebackhide__ = True
        return expect(
            f"a {self._kind} at {self.url}",
            items,
            asked,
            times=times,
            if_empty="none was received",
            notes=lambda found: wait_report(self, asked, missing=times is None or found < times),
        )

    def _concerns(self, message: PublishedMessage) -> bool:
        """Return whether this URL is the message's destination, or its callback URL."""
        asked = message._record.settings
        wanted = asked.failure_callback if self._failure else asked.callback
        return any(one.startswith(self.url) for one in (message.url, wanted or ""))

    def _has_next(self) -> bool:
        return any(item not in self._returned for item in list(self))

    def _take(self) -> Callback | None:
        """Return the oldest callback that has not been returned yet, or None."""
        with self._turn:
            item = next((one for one in list(self) if one not in self._returned), None)
            if item is not None:
                self._returned.add(item)
        return item

    def _fail_missing(self) -> NoReturn:
        """Fail because one more callback was expected than was received."""
        __tracebackhide__ = True
        items = list(self)
        self._expect(items, _query({}), len(items) + 1)
        raise AssertionError  # For the type checker only, because the line above always raises.

    def _saved(self) -> Any:
        with self._turn:
            return list(self), set(self._returned)

    def _restore(self, saved: Any) -> None:
        with self._turn:
            self[:], self._returned = list(saved[0]), set(saved[1])


class _Condition:
    def __init__(
        self, captured: Captured, wanted: int | Predicate, fields: Mapping[str, Any]
    ) -> None:
        if isinstance(wanted, bool) or not (callable(wanted) or isinstance(wanted, int)):
            raise ContractError(f"wait_for() takes a number or a predicate, got {shown(wanted)}")
        if isinstance(wanted, int) and wanted < 1:
            raise ContractError(f"wait_for({wanted}) waits for nothing; pass 1 or more")
        self._captured = captured
        self._times = wanted if isinstance(wanted, int) else None
        self._least = self._times or 1
        self._asked = _query(fields, None if isinstance(wanted, int) else wanted)

    def __call__(self) -> bool:
        return sum(map(self._asked, list(self._captured))) >= self._least

    def result(self) -> Results[Callback]:
        """Return the matching callbacks, or fail with a report of what was received instead."""
        __tracebackhide__ = True
        items = list(self._captured)
        found = [item for item in items if self._asked(item)]
        if len(found) >= self._least:
            return self._captured._with_items(found)
        return self._captured._expect(items, self._asked, self._times)


class AwaitableCaptured:
    """The awaitable version of ``Captured.wait_for()``."""

    def __init__(self, captured: Captured) -> None:
        self._captured = captured

    async def wait_for(
        self,
        wanted: int | Predicate = 1,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        **where: Unpack[CallbackFields],
    ) -> Results[Callback]:
        """Awaitable version of ``Captured.wait_for()``, which awaits deliveries in the running
        loop.
        """
        __tracebackhide__ = True
        condition = _Condition(self._captured, wanted, where)
        await self._captured._capture._waiter.auntil(condition, timeout)
        return condition.result()
