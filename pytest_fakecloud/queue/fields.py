"""What tests may ask about a queue: the shapes of its fields, and those of attempts.

``core.matching`` says what agrees; ``views`` has the fields of messages, dead letters and schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict

from ..core.found import Found, found_of
from ..core.matching import (
    HEADERS,
    MESSAGE_ID,
    URL,
    Absent,
    Field,
    Sort,
    either,
    fields_of,
    one_of,
    shaped,
)
from ..core.wording import brief
from .errors import QueueError
from .model import KINDS, Attempt
from .wire.named import NAMED


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
    retried: object
    max_retries: object
    created: object
    due: object


class ListedFields(MessageFields, total=False):
    """The fields of a message that ``Queue.messages`` asks about."""

    url: object


class MessageWhere(ListedFields, total=False):
    """The fields of a message that ``Found.where()`` takes."""

    state: object
    labels: object
    attempts: object
    source: object
    callbacks: object
    timeline: object
    is_gone: object


class AttemptFields(TypedDict, total=False):
    """The fields of an attempt that ``Queue.attempts`` asks about: the attributes of ``Attempt``."""

    message_id: object
    url: object
    kind: object
    number: object
    sequence: object
    at: object
    at_us: object
    waited: object
    waited_us: object
    wait_reason: object
    state: object
    status: object
    headers: object
    body: object
    exception: object
    where: object
    is_final: object
    ended_us: object
    faults: object


class DeadLetterFields(TypedDict, total=False):
    """The fields of a dead letter that ``Queue.dead_letters`` asks about, besides its URL."""

    id: object
    at: object
    message: object
    json: object
    status: object
    response_body: object
    timeline: object


class DeadLetterWhere(DeadLetterFields, total=False):
    """The fields of a dead letter that ``Found.where()`` takes."""

    url: object


class ScheduleWhere(TypedDict, total=False):
    """The fields of a schedule that ``Found.where()`` takes."""

    cron: object
    destination: object
    paused: object
    last_run: object
    error: object
    id: object


class DeliveryWhere(TypedDict, total=False):
    """The fields of a delivery that ``Found.where()`` takes."""

    method: object
    url: object
    path: object
    query: object
    headers: object
    body: object
    text: object
    message_id: object
    retried: object
    delivery: object
    json: object


def json_of(read: Callable[[Any], Any], body: Callable[[Any], bytes]) -> Callable[[Any], Any]:
    """Return the reader of a body's JSON, which is ``Absent`` where the body holds none."""

    def value(item: Any) -> Any:
        try:
            return read(item)
        except (ValueError, RecursionError):
            return Absent(f"not JSON ({brief(body(item))})")

    return value


def always(sort: Sort, **options: Any) -> Field:
    """Return a field that every item has, so that None cannot be asked for."""
    return Field(sort, optional=False, **options)


DLQ_ID = shaped(
    "the id of a dead letter", "1767225600000-0", never=r"[^0-9-]", fits=lambda text: "-" in text
)
NAME = shaped("a name", "orders", never=r"[^A-Za-z0-9._-]", fits=bool)
"""The name of a queue or of a URL group."""
DESTINATION = either((URL, NAME, one_of("destination", NAMED)))
"""Where a message is published to: a URL, a URL group, or a destination the service knows."""
LABEL = shaped("a label", "billing", never=",", fits=lambda text: text == text.strip() != "")
"""One of the labels that the header separates by commas."""


def _is_cron(text: str) -> bool:
    # It takes 4 ms to import, with the library that computes dates, and few tests have a schedule.
    from .engine.cron import Cron

    try:
        Cron(text)
    except QueueError:
        return False
    return True


CRON = shaped("a cron expression", "0 9 * * *", fits=_is_cron)
ATTEMPTS: Mapping[str, Field] = {
    **fields_of(Attempt),
    "message_id": always(MESSAGE_ID),
    "url": always(URL),
    "kind": always(one_of("kind", KINDS)),
    "state": always(one_of("state", ("in flight", "delivered", "failed", "lost"))),
    "headers": always(HEADERS),
}
"""What may be asked about an attempt."""


def found_attempts(attempts: Iterable[Attempt]) -> Found[Attempt]:
    """Return attempts as a list that can be asked further."""
    return found_of(attempts, ATTEMPTS, "attempt")
