"""Filters and cursors of listings and bulk requests.

A field with several values (repeated, or separated by commas except in URLs) matches if one of them
matches, and all fields must match. If ids are given (``messageIds``, ``dlqIds``,
``workflowRunIds``, ``workflowRuns``), all other filters are parsed but ignored. ``fromDate`` and
``toDate`` are Unix milliseconds, both inclusive. ``host`` and ``path`` filter messages and logs, but
not dead letters. An unknown name is rejected with 400.

Decided here: ``order`` is ``earliestFirst`` or ``latestFirst``. A ``count`` above the maximum is
reduced to the maximum.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ..errors import bad_request
from ..model import Message
from .text import as_text
from .values import read_integer

T = TypeVar("T")

_MESSAGE_FIELDS: dict[str, Callable[[Message], Sequence[str]]] = {
    "messageId": lambda message: (message.public_id, message.id),
    "messageIds": lambda message: (message.public_id, message.id),
    "url": lambda message: (as_text(message.url), message.url),
    "topicName": lambda message: _one(message.topic_name),
    "urlGroup": lambda message: _one(message.topic_name),
    "queueName": lambda message: _one(message.queue_name),
    "scheduleId": lambda message: _one(message.schedule_id),
    "label": lambda message: message.settings.labels,
    "labels": lambda message: message.settings.labels,
    "flowControlKey": lambda message: _one(message.settings.flow and message.settings.flow.key),
    "callerIp": lambda message: (message.caller_ip,),
    "callerIP": lambda message: (message.caller_ip,),
    "workflowRunId": lambda message: _one(message.workflow and message.workflow.run_id),
    "workflowUrl": lambda message: _one(message.workflow and message.workflow.url),
    "workflowCreatedAt": lambda message: _one(message.workflow and message.workflow.created_ms),
    "failureFunctionState": lambda message: _one(message.failure_function_state),
    "source": lambda message: ("workflow" if message.workflow else "qstash",),
    "host": lambda message: _one(_split(message.url)[0]),
    "path": lambda message: _one(_split(message.url)[1]),
}
"""For each filter, the values of a message that are compared with the wanted values."""
_DESTINATION = frozenset({"host", "path"})
_PAGING = frozenset({"cursor", "count", "order"})
_IDS = ("messageIds", "dlqIds", "workflowRunIds", "workflowRuns")
"""Filters by id. If one of them is given, all other filters are ignored."""
_WHOLE = ("url", "workflowUrl")
"""Filters whose value may contain a comma."""
COMMON = (frozenset(_MESSAGE_FIELDS) - _DESTINATION - {"messageIds"}) | {"fromDate", "toDate"}
FOR_MESSAGES = COMMON | _DESTINATION | {"messageIds", "count"}
FOR_LOGS = COMMON | _DESTINATION | _PAGING | {"messageIds", "state", "responseStatus"}
FOR_DEAD_LETTERS = COMMON | _PAGING | {"dlqIds", "dlqId", "responseStatus"}

_ORDERS = {"earliestFirst": False, "latestFirst": True}
_IN_PROGRESS = ("ACTIVE", "RETRY", "ERROR")
_STATES = (
    "CREATED", "ACTIVE", "RETRY", "ERROR", "DELIVERED", "FAILED", "CANCEL_REQUESTED", "CANCELED",
    "IN_PROGRESS",
)  # fmt: skip


def _one(value: object) -> Sequence[str]:
    return () if value is None else (str(value),)


def _split(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "", ""
    return parts.netloc, parts.path


@dataclass(eq=False, slots=True)
class Filters:
    """Parsed filters: the wanted values by field, the time span, the order and the page."""

    fields: dict[str, list[str]] = field(default_factory=dict)
    from_us: int | None = None
    to_us: int | None = None
    latest_first: bool | None = None
    count: int | None = None
    cursor: str | None = None

    @property
    def empty(self) -> bool:
        """Whether there are no filters. The page and the order do not count as filters."""
        return not self.fields and self.from_us is None and self.to_us is None

    def spans(self, at_us: int) -> bool:
        return (self.from_us is None or at_us >= self.from_us) and (
            self.to_us is None or at_us <= self.to_us
        )

    def matches(
        self,
        message: Message,
        at_us: int,
        *,
        state: str | None = None,
        status: int | None = None,
        dlq_id: str | None = None,
    ) -> bool:
        """Return whether a message matches.

        For a log entry, ``state`` and ``status`` are those of the entry. For a dead letter,
        ``dlq_id`` is its id and ``status`` the status of the last response.
        """
        given = {"state": state, "responseStatus": status, "dlqId": dlq_id, "dlqIds": dlq_id}
        return self.spans(at_us) and self.accept(
            lambda name: _one(given[name]) if name in given else _MESSAGE_FIELDS[name](message)
        )

    def accept(self, values: Callable[[str], Sequence[str]]) -> bool:
        """Return whether each field has one of its wanted values; ``values`` returns its values."""
        return all(
            any(value in wanted for value in values(name)) for name, wanted in self.fields.items()
        )


def read_filters(
    pairs: Iterable[tuple[str, str]],
    known: frozenset[str],
    most: int = 100,
    *,
    states: Callable[[list[str]], list[str]] | None = None,
) -> Filters:
    """Parse query pairs; raise a 400 error if malformed. ``states`` parses state filters."""
    filters = Filters()
    for name, value in pairs:
        if name not in known:
            raise bad_request(
                f"unknown filter {name!r}, expected one of {', '.join(sorted(known))}"
            )
        if name == "cursor":
            filters.cursor = value or None
        elif name == "count":
            filters.count = min(read_integer(value, "count", least=1), most)
        elif name == "order":
            filters.latest_first = _ORDERS.get(value)
            if filters.latest_first is None:
                raise bad_request(f"invalid order: {value!r}, expected {' or '.join(_ORDERS)}")
        elif name == "fromDate":
            filters.from_us = read_integer(value, "fromDate") * 1000
        elif name == "toDate":
            # Include the whole millisecond, because times are in microseconds.
            filters.to_us = read_integer(value, "toDate") * 1000 + 999
        else:
            values = [value] if name in _WHOLE else [one.strip() for one in value.split(",")]
            if name == "state":
                values = (states or _states)(values)
            elif name == "responseStatus":
                values = [str(read_integer(one, "responseStatus")) for one in values]
            # An empty value matches nothing, so that a bulk request does not cancel everything.
            filters.fields.setdefault(name, []).extend(one for one in values if one)
    for name in _IDS:
        if ids := filters.fields.get(name):
            filters.fields = {name: ids}
            filters.from_us = filters.to_us = None
    return filters


def _states(values: list[str]) -> list[str]:
    found: list[str] = []
    for value in values:
        state = "CANCELED" if value == "CANCELLED" else value
        if state not in _STATES:
            raise bad_request(f"invalid state: {value!r}, expected one of {', '.join(_STATES)}")
        found += _IN_PROGRESS if state == "IN_PROGRESS" else [state]
    return found


def pairs_of(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the filters in a JSON body as pairs; raise a 400 error for other types of values."""
    pairs: list[tuple[str, str]] = []
    for name, value in body.items():
        for one in value if isinstance(value, list) else [value]:
            if one is None:
                continue
            if isinstance(one, bool) or not isinstance(one, str | int):
                raise bad_request(f"invalid {name}: expected a string or a number, got {one!r}")
            pairs.append((name, str(one)))
    return pairs


def page(
    rows: Sequence[T],
    number: Callable[[T], int],
    filters: Filters,
    *,
    latest_first: bool,
    default: int = 100,
) -> tuple[list[T], str | None]:
    """Return a page of rows and the cursor of the next page. Rows must ascend by ``number``.

    A cursor identifies the last row returned, so rows that are added or removed between two calls
    cause neither repetitions nor omissions. Raises a 400 error for an invalid cursor.
    """
    backwards = latest_first if filters.latest_first is None else filters.latest_first
    after = None if filters.cursor is None else read_cursor(filters.cursor)
    ordered = reversed(rows) if backwards else iter(rows)
    count = filters.count or default
    found: list[T] = []
    for row in ordered:
        at = number(row)
        if after is not None and (at >= after if backwards else at <= after):
            continue
        if len(found) == count:
            return found, make_cursor(number(found[-1]))
        found.append(row)
    return found, None


def make_cursor(number: int) -> str:
    return base64.urlsafe_b64encode(f"row-{number}".encode()).decode("ascii").rstrip("=")


def read_cursor(text: str) -> int:
    """Return the row number in a cursor; raise a 400 error if it is invalid."""
    try:
        plain = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii")
        if not plain.startswith("row-") or not plain[4:].isdigit() or len(plain) > 24:
            raise ValueError
        return int(plain[4:])
    except (ValueError, binascii.Error, UnicodeError):
        raise bad_request(f"invalid cursor: {text!r}") from None
