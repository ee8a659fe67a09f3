"""What tests may ask about messages, attempts and dead letters; ``core.matching`` says what agrees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict

from ..core.found import Found, found_of
from ..core.matching import (
    HEADERS,
    INSTANT,
    JSON,
    METHOD,
    TEXT,
    Absent,
    Field,
    Sort,
    fields_of,
    one_of,
)
from ..core.wording import brief
from .model import KINDS, Attempt
from .views import STATES, WORDS, DeadLetterView, PublishedMessage, ScheduleView

__all__ = [
    "ATTEMPTS",
    "DEAD_LETTERS",
    "MESSAGES",
    "SCHEDULES",
    "ListedFields",
    "MessageFields",
    "found_attempts",
    "found_messages",
    "json_of",
]


class MessageFields(TypedDict, total=False):
    """The fields of a message that assertions and listings ask about.

    ``queue``, ``topic``, ``schedule_id``, ``id`` and ``dlq_id`` are text, ``kind`` is
    ``message``, ``callback`` or ``failure_callback``, ``service_state`` the
    service's word for where it stands; of several labels any may agree; ``body`` is bytes or
    their text, ``json`` what the body holds; ``headers`` must be among the forwarded ones.
    """

    method: object
    queue: object
    topic: object
    schedule_id: object
    kind: object
    service_state: object
    label: object
    body: object
    json: object
    headers: object
    id: object
    dlq_id: object


class ListedFields(MessageFields, total=False):
    """The fields of a message that ``Queue.messages`` asks about."""

    url: object


def json_of(read: Callable[[Any], Any], body: Callable[[Any], bytes]) -> Callable[[Any], Any]:
    """Return the reader of a body's JSON, which is ``Absent`` where the body holds none."""

    def value(item: Any) -> Any:
        try:
            return read(item)
        except (ValueError, RecursionError):
            return Absent(f"not JSON ({brief(body(item))})")

    return value


def _always(sort: Sort, **options: Any) -> Field:
    return Field(sort, optional=False, **options)


MESSAGES: Mapping[str, Field] = {
    **fields_of(PublishedMessage),
    "method": _always(METHOD),
    "kind": _always(one_of("kind", KINDS)),
    "state": _always(one_of("state", STATES)),
    "service_state": _always(one_of("state of the service", WORDS, fold=True)),
    "label": _always(TEXT, read=lambda one: one.labels, several=True),
    "labels": _always(TEXT, several=True),
    "json": Field(JSON, json_of(PublishedMessage.json, lambda one: one.body)),
    "headers": _always(HEADERS),
}
"""What may be asked about a message."""
DEAD_LETTERS: Mapping[str, Field] = {
    **fields_of(DeadLetterView),
    "id": _always(TEXT),
    "at": _always(INSTANT),
    "json": Field(JSON, json_of(DeadLetterView.json, lambda one: one.message.body)),
}
"""What may be asked about a dead letter."""
ATTEMPTS: Mapping[str, Field] = {
    **fields_of(Attempt),
    "kind": _always(one_of("kind", KINDS)),
    "state": _always(one_of("state", ("in flight", "delivered", "failed", "lost"))),
    "headers": _always(HEADERS),
}
"""What may be asked about an attempt."""
SCHEDULES: Mapping[str, Field] = {**fields_of(ScheduleView), "id": _always(TEXT)}
"""What may be asked about a schedule."""


def found_messages(messages: Iterable[PublishedMessage]) -> Found[PublishedMessage]:
    """Return messages as a list that can be asked further."""
    return found_of(messages, MESSAGES, "message")


def found_attempts(attempts: Iterable[Attempt]) -> Found[Attempt]:
    """Return attempts as a list that can be asked further."""
    return found_of(attempts, ATTEMPTS, "attempt")
