"""Views of messages, dead letters and schedules that the ``queue`` fake returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Protocol, TypeVar

from ..cloud.actions import action_as
from ..core.calls import Headers, parsed_body
from ..core.errors import ContractError, brief
from ..core.field_types import (
    INSTANT,
    JSON,
    MESSAGE_ID,
    METHOD,
    TEXT,
    URL,
    Absent,
    FieldType,
    OneOf,
    Shaped,
    either,
)
from ..core.journal import Results, results_of
from ..core.matching import HEADERS, Field, ItemFields
from ..core.settings import whole
from ..core.timers import to_datetime
from .attempt_reports import timeline
from .engine.engine import Engine
from .engine.schedules import Cron, MessageSchedule
from .errors import QueueError
from .model import KINDS, Attempt, Message, MessageKind
from .wire.headers import NAMED
from .wire.values import as_text, canonical, source_headers

Record_co = TypeVar("Record_co", covariant=True)


class _View(Protocol[Record_co]):
    @property
    def _record(self) -> Record_co: ...


def record_of(view: _View[Record_co]) -> Record_co:
    """Return the data of a message or a schedule. Reading it does not count as an inspection."""
    return view._record


def json_of(read: Callable[[Any], Any], body: Callable[[Any], bytes]) -> Callable[[Any], Any]:
    """Return a function that reads an item's JSON body, or returns ``Absent`` if it is not JSON."""

    def value(item: Any) -> Any:
        try:
            return read(item)
        except (ValueError, RecursionError):
            return Absent(f"not JSON ({brief(body(item))})")

    return value


def always(field_type: FieldType, **options: Any) -> Field:
    return Field(field_type, optional=False, **options)


DLQ_ID = Shaped(
    "the id of a dead letter", "1767225600000-0", never=r"[^0-9-]", fits=lambda text: "-" in text
)
NAME = Shaped("a name", "orders", never=r"[^A-Za-z0-9._-]", fits=bool)
"""The name of a queue or a URL group."""
DESTINATION = either((URL, NAME, OneOf("destination", NAMED)))
"""A URL, the name of a URL group, or the name of one of the service's own destinations."""
LABEL = Shaped("a label", "billing", never=",", fits=lambda text: text == text.strip() != "")
"""The type of the label field. A comma separates labels in the header, so no label contains one."""


def _is_cron(text: str) -> bool:
    try:
        Cron(text)
    except QueueError:
        return False
    return True


CRON = Shaped("a cron expression", "0 9 * * *", fits=_is_cron)
ATTEMPTS = ItemFields(
    Attempt,
    message_id=always(MESSAGE_ID),
    url=always(URL),
    kind=always(OneOf("kind", KINDS)),
    state=always(OneOf("state", ("in flight", "delivered", "failed", "lost"))),
    headers=always(HEADERS),
)
"""Fields of an attempt, by name."""


STATE_NAMES = {
    "CREATED": "pending",
    "RETRY": "pending",
    "ACTIVE": "in_flight",
    "DELIVERED": "delivered",
    "FAILED": "dead_lettered",
    "CANCEL_REQUESTED": "cancelled",
    "CANCELED": "cancelled",
}
"""This package's name for each state of the service."""
_MOST_RUNS = 10_000
"""Maximum number of future runs to compute, because each takes time. No test needs more."""
STATES = tuple(dict.fromkeys(STATE_NAMES.values()))
_GONE_SCHEDULE = "gone: deleted, or the queue was reset or restored"


def _gone(engine: Engine) -> str:
    forgotten = "" if engine.data.settings.history_us is None else ", or its history has passed"
    return f"gone: the queue was reset or restored{forgotten}"


class PublishedMessage:
    """A message of a queue. Its properties show the current state.

    ``state`` is ``pending``, ``in_flight``, ``delivered``, ``dead_lettered`` or ``cancelled``.
    ``service_state`` is the service's name for the state.
    """

    __slots__ = ("_engine", "_id")

    def __init__(self, engine: Engine, message_id: str) -> None:
        self._engine = engine
        self._id = message_id

    @property
    def _record(self) -> Message:
        self._engine.inspected = True
        message = self._engine.data.messages.get(self._id)
        if message is None:
            raise ContractError(f"message {self._id} is {_gone(self._engine)}")
        return message

    @property
    def is_gone(self) -> bool:
        """Whether the message no longer exists, because of a reset, a restore or the ``history``
        setting.
        """
        self._engine.inspected = True
        return self._id not in self._engine.data.messages

    @property
    def id(self) -> str:
        """The id that clients and destinations see."""
        return self._record.public_id

    @property
    def url(self) -> str:
        """The destination, as published."""
        return as_text(self._record.url)

    @property
    def method(self) -> str:
        """The HTTP method of the message's deliveries."""
        return self._record.settings.method

    @property
    def headers(self) -> Headers:
        """The headers for the destination, with canonical names."""
        headers = source_headers(self._record.settings)
        return Headers([(canonical(name), as_text(value)) for name, value in headers])

    @property
    def body(self) -> bytes:
        """The published body."""
        return self._record.body

    def json(self) -> Any:
        """Return the published body parsed as JSON; raise ``ValueError`` if it is not JSON."""
        return parsed_body(self.body)

    @property
    def state(self) -> str:
        """The state, by this package's name."""
        return STATE_NAMES[self._record.state]

    @property
    def service_state(self) -> str:
        """The state, under the name that the service uses for it."""
        return self._record.state

    @property
    def kind(self) -> MessageKind:
        """``message`` or, if it reports on another message, ``callback`` or ``failure_callback``."""
        return self._record.kind

    @property
    def attempts(self) -> Results[Attempt]:
        """The message's attempts, oldest first."""
        return results_of(self._record.attempts, ATTEMPTS, "attempt")

    @property
    def retried(self) -> int:
        """The number of retries that were made or are planned."""
        return self._record.retried

    @property
    def max_retries(self) -> int:
        """The maximum number of retries."""
        return self._record.max_retries

    @property
    def labels(self) -> tuple[str, ...]:
        """The message's labels."""
        return self._record.settings.labels

    @property
    def label(self) -> str | None:
        """The first label, or None."""
        return self.labels[0] if self.labels else None

    @property
    def queue(self) -> str | None:
        """The name of the ordered queue to which the message was published, or None."""
        return self._record.queue_name

    @property
    def topic(self) -> str | None:
        """The name of the URL group to which the message was published, or None."""
        return self._record.topic_name

    @property
    def schedule_id(self) -> str | None:
        """The id of the schedule that created the message, or None."""
        return self._record.schedule_id

    @property
    def dlq_id(self) -> str | None:
        """The id of the message's dead letter, or None."""
        return self._record.dlq_id

    @property
    def created(self) -> datetime:
        """The time at which the message was published."""
        return to_datetime(self._record.created_us)

    @property
    def due(self) -> datetime | None:
        """The time at which the next attempt is due; None if no attempt is planned."""
        due = self._record.due_us
        return None if due is None else to_datetime(due)

    @property
    def source(self) -> PublishedMessage | None:
        """The message that this callback reports on, or None."""
        source_id = self._record.source_id
        return None if source_id is None else PublishedMessage(self._engine, source_id)

    @property
    def callbacks(self) -> Results[PublishedMessage]:
        """The callbacks and failure callbacks that report on this message."""
        return found_messages(
            PublishedMessage(self._engine, message.id)
            for message in list(self._engine.data.messages.values())
            if message.source_id == self._id
        )

    @action_as("message.cancel")
    def cancel(self) -> int:
        """Cancel the message and return the number of cancelled deliveries.

        A message that was published to a URL group over ``/v1`` has one delivery for each endpoint;
        all of them are cancelled. Returns 0 if the message has already been delivered, dead-lettered
        or cancelled. (The service's endpoint for a single message returns 404 then, and its endpoint
        for several messages does not count the message.) Raises ``ContractError`` if the message no
        longer exists.
        """
        __tracebackhide__ = True
        return self._engine.lifecycle.cancel_pending(self.id)

    def _owner(self) -> tuple[Any, tuple[str, ...]]:
        return self._engine.owner, (self.id,)

    @property
    def timeline(self) -> str:
        """The timeline of the message as text, with the time, the status and the wait of each step."""
        return timeline(self._engine, self._record)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublishedMessage) and self._id == other._id

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        if self.is_gone:
            return f"<Message {self._id}, {_gone(self._engine)}>"
        return f"<Message {self._id} {self.method} {self.url} {self.state}>"


class DeadLetterView:
    """A dead letter with its ``id`` for the DLQ endpoints, its ``message``, and the last response."""

    __slots__ = ("_engine", "at", "id", "message")

    def __init__(self, engine: Engine, letter: Message) -> None:
        self._engine = engine
        self.id = str(letter.dlq_id)
        self.at = to_datetime(letter.finished_us or 0)
        self.message = PublishedMessage(engine, letter.id)

    @property
    def url(self) -> str:
        """The destination of the message."""
        return self.message.url

    def json(self) -> Any:
        """Return the published body parsed as JSON; raise ``ValueError`` if it is not JSON."""
        return self.message.json()

    @property
    def status(self) -> int | None:
        """The status of the last response; None if there was no response."""
        outcome = record_of(self.message).last_outcome
        return None if outcome is None else outcome.status

    @property
    def response_body(self) -> bytes:
        """The body of the last response."""
        outcome = record_of(self.message).last_outcome
        return b"" if outcome is None else outcome.body

    @property
    def timeline(self) -> str:
        """The timeline of the message as text."""
        return self.message.timeline

    @action_as("dead_letter.retry")
    def retry(self) -> PublishedMessage:
        """Publish the message again, remove the dead letter, and return the new message.

        Raises ``ContractError`` if the dead letter no longer exists, and ``QueueError`` where the
        service would reject the message, for example at a limit of the plan.
        """
        __tracebackhide__ = True
        engine = self._engine
        with engine.lock:
            (accepted,) = engine.publisher.retry_dead_letters([self._letter()])
        return PublishedMessage(engine, accepted.message_id)

    @action_as("dead_letter.delete")
    def delete(self) -> None:
        """Delete the dead letter. Its message is kept.

        Raises ``ContractError`` if the dead letter no longer exists.
        """
        __tracebackhide__ = True
        with self._engine.lock:
            self._engine.dead_letters.delete([self._letter()])

    def _letter(self) -> Message:
        __tracebackhide__ = True
        letter = self._engine.dead_letters.find(self.id)
        if letter is None or letter.id != self.message._id:
            raise ContractError(
                f"dead letter {self.id} is gone: it was retried, deleted or expired, or the queue "
                "was reset or restored"
            )
        return letter

    def _owner(self) -> tuple[Any, tuple[str, ...]]:
        return self._engine.owner, (self.id,)

    def __repr__(self) -> str:
        if self.message.is_gone:
            return f"<DeadLetter {self.id}, {_gone(self._engine)}>"
        return f"<DeadLetter {self.id} {self.url} status {self.status}>"


class ScheduleView:
    """A schedule of a queue."""

    __slots__ = ("_engine", "id")

    def __init__(self, engine: Engine, schedule_id: str) -> None:
        self._engine = engine
        self.id = schedule_id

    @property
    def _record(self) -> MessageSchedule:
        schedule = self._engine.schedules.by_id.get(self.id)
        if schedule is None:
            raise ContractError(f"schedule {self.id} is {_GONE_SCHEDULE}")
        return schedule

    @property
    def cron(self) -> str:
        """The cron expression, as given."""
        return self._record.cron

    @property
    def url(self) -> str:
        """The destination: a URL or the name of a URL group."""
        return as_text(self._record.destination)

    @property
    def paused(self) -> bool:
        """Whether the schedule is paused."""
        return self._record.paused

    @property
    def last_run(self) -> datetime | None:
        """The time at which the schedule last ran, or None."""
        last = self._record.last_us
        return None if last is None else to_datetime(last)

    @property
    def error(self) -> str | None:
        """The reason why the last run created no messages, or None."""
        return self._record.error

    def next_runs(self, count: int = 1) -> list[datetime]:
        """Return the times of the next runs as aware UTC datetimes. ``count`` is at most 10,000."""
        __tracebackhide__ = True
        whole(0, _MOST_RUNS).read("count", count)
        return self._record.next_runs(count, self._engine.clock.now_us())

    @action_as("schedule.delete")
    def delete(self) -> None:
        """Delete the schedule. The messages that it created are kept.

        Raises ``ContractError`` if the schedule no longer exists.
        """
        __tracebackhide__ = True
        with self._engine.lock:
            self._engine.schedules.delete(self._record.id)

    @action_as("schedule.fire")
    def fire(self) -> Results[PublishedMessage]:
        """Run the schedule now, and return the messages it creates. The next planned run does not
        change.
        """
        __tracebackhide__ = True
        with self._engine.lock:
            ids = self._engine.schedules.run_now(self._record.id)
        return found_messages(PublishedMessage(self._engine, message_id) for message_id in ids)

    def _owner(self) -> tuple[Any, tuple[str, ...]]:
        return self._engine.owner, (self.id,)

    def __repr__(self) -> str:
        if self.id not in self._engine.schedules.by_id:
            return f"<Schedule {self.id}, {_GONE_SCHEDULE}>"
        return f"<Schedule {self.id} {self.cron!r} to {self.url}>"


MESSAGES = ItemFields(
    PublishedMessage,
    id=always(MESSAGE_ID),
    url=always(URL),
    queue=Field(NAME),
    topic=Field(NAME),
    dlq_id=Field(DLQ_ID),
    method=always(METHOD),
    kind=always(OneOf("kind", KINDS)),
    state=always(OneOf("state", STATES)),
    service_state=always(OneOf("state of the service", STATE_NAMES, fold=True)),
    label=always(LABEL, read=lambda message: message.labels, several=True),
    labels=always(LABEL, several=True),
    json=Field(JSON, json_of(PublishedMessage.json, lambda message: message.body)),
    headers=always(HEADERS),
)
"""Fields of a message, by name."""
DEAD_LETTERS = ItemFields(
    DeadLetterView,
    id=always(DLQ_ID),
    url=always(URL),
    at=always(INSTANT),
    json=Field(JSON, json_of(DeadLetterView.json, lambda letter: letter.message.body)),
)
"""Fields of a dead letter, by name."""
SCHEDULES = ItemFields(ScheduleView, id=always(TEXT), cron=always(CRON), url=always(DESTINATION))
"""Fields of a schedule, by name."""


def found_messages(messages: Iterable[PublishedMessage]) -> Results[PublishedMessage]:
    return results_of(messages, MESSAGES, "message")
