"""The records of the queue: what is published, what goes out, what comes back.

Instants and durations are integers in microseconds unless a name says otherwise (``_ms``, ``_s``).
Header lists are lists of ``(name, value)`` in the order and spelling they arrived.

``Delivery`` and ``Outcome`` are the border between the engine, which decides, and the sender, which
performs: an engine hands out a ``Delivery``, whoever performs it hands back an ``Outcome``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from ..core.calls import Headers
from ..core.timeparse import to_datetime

HeaderList = list[tuple[str, str]]
Kind = Literal["message", "callback", "failure_callback"]
Api = Literal["v1", "v2"]

MESSAGE: Kind = "message"
"""Kinds of a message: published by a client, or the queue's own report about another message."""
CALLBACK: Kind = "callback"
FAILURE_CALLBACK: Kind = "failure_callback"
KINDS: tuple[Kind, ...] = (MESSAGE, CALLBACK, FAILURE_CALLBACK)

NON_RETRYABLE = 489
"""The status of a destination that wants no retry, together with its header."""

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True)
class Delivery:
    """One HTTP request that the queue is about to make.

    ``url`` holds the published bytes, one character per byte (latin-1), and is the request target
    as well as the signature's subject (``sub``). ``headers`` are complete except for the signature.
    ``attempt`` counts from 0 (``Upstash-Retried``). ``timeout_us`` is on the queue's clock.
    ``signed`` is False when a fault asked for a delivery without a signature.
    """

    message_id: str
    url: str
    method: str
    headers: HeaderList
    body: bytes
    attempt: int
    at_us: int
    timeout_us: int
    kind: Kind = MESSAGE
    sub: str = ""
    signed: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a delivery.

    ``status`` is None when no HTTP answer arrived; ``exception`` then says why. ``virtual_us`` is
    how long the destination took on the queue's clock. ``refused`` marks a destination that was
    never contacted; ``unstubbed`` is the reason, in words, when that is the test's mistake.
    ``where`` names which kind of destination answered (``"wsgi"``, ``"responses"``, ``"loopback"``,
    ...).
    """

    status: int | None = None
    headers: HeaderList = field(default_factory=list)
    body: bytes = b""
    exception: BaseException | None = None
    virtual_us: int = 0
    refused: bool = False
    unstubbed: str | None = None
    where: str = ""

    @property
    def delivered(self) -> bool:
        """Whether this is a success: exactly 200 to 299 (redirects are not)."""
        return self.status is not None and 200 <= self.status <= 299


Perform = Callable[[Delivery], Outcome]
Sign = Callable[[Delivery, str | None, int], HeaderList]
"""Return the signature headers of a delivery, made with a key (None: the current signing key).

The third argument back-dates the token by that many microseconds.
"""


@dataclass(slots=True)
class SigningKeys:
    """The two signing keys of a queue; deliveries are always signed with ``current``."""

    current: str
    next: str


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """The flow control a message asked for. ``rate`` and ``parallelism`` are None when not given."""

    key: str
    parallelism: int | None = None
    rate: int | None = None
    period_us: int = SECOND


@dataclass(frozen=True, slots=True)
class Redaction:
    """Which parts of a message are shown as ``REDACTED:<sha256>`` by the API."""

    body: bool = False
    all_headers: bool = False
    headers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PublishSettings:
    """Everything the headers of one publish request ask for, read and validated.

    ``forward`` are the headers for the destination, without prefix and already free of hop-by-hop
    names. ``callback_headers`` and ``failure_callback_headers`` are the nested settings: the prefix
    ``Upstash-Callback-`` is replaced by ``Upstash-``, ready to be read by the same reader again.
    ``workflow`` are the ``Upstash-Workflow-*`` headers in canonical spelling.
    """

    method: str = "POST"
    delay_us: int = 0
    not_before_us: int | None = None
    retries: int | None = None
    retry_delay: str | None = None
    timeout_us: int | None = None
    callback: str | None = None
    failure_callback: str | None = None
    callback_headers: HeaderList = field(default_factory=list)
    failure_callback_headers: HeaderList = field(default_factory=list)
    forward: HeaderList = field(default_factory=list)
    content_type: str | None = None
    deduplication_id: str | None = None
    content_based_deduplication: bool = False
    cron: str | None = None
    schedule_id: str | None = None
    queue_name: str | None = None
    flow: FlowSettings | None = None
    labels: tuple[str, ...] = ()
    redaction: Redaction | None = None
    workflow: HeaderList = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt to deliver a message, at a ``url`` as its publisher wrote it; ``number`` from 1.

    ``waited`` is the time since the message was created or since the attempt before,
    ``wait_reason`` why it was that long. ``status`` is None when no HTTP answer came; ``exception``
    says why. ``is_final`` holds for the one that delivered the message or gave it up. ``state`` is
    ``in flight``, ``delivered``, ``failed``, or ``lost`` when a fault made the queue forget the
    answer.
    """

    message_id: str
    url: str
    kind: Kind
    number: int
    sequence: int
    at_us: int
    waited_us: int
    wait_reason: str
    state: str = "in flight"
    status: int | None = None
    headers: Headers = field(default_factory=Headers)
    body: bytes = b""
    exception: BaseException | None = None
    where: str = ""
    is_final: bool = False
    ended_us: int | None = None
    faults: tuple[str, ...] = ()

    @property
    def at(self) -> datetime:
        """The instant of the attempt, aware UTC."""
        return to_datetime(self.at_us)

    @property
    def waited(self) -> timedelta:
        """How long the message waited for this attempt."""
        return timedelta(microseconds=self.waited_us)

    def __repr__(self) -> str:
        answer: object = self.status
        if answer is None:
            answer = self.state if self.exception is None else f"{self.exception!r}"
        waited = f" after {self.waited} ({self.wait_reason})" if self.waited_us else ""
        return f"<Attempt {self.number} {self.url} at {self.at.isoformat()}{waited} -> {answer}>"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One step in the life of a message, as ``/v2/events`` lists it."""

    number: int
    time_us: int
    message_id: str
    state: str
    error: str | None = None
    next_us: int | None = None
    outcome: Outcome | None = None


FINISHED = frozenset({"DELIVERED", "FAILED", "CANCELED"})
"""States in which nothing more happens to a message."""


@dataclass(frozen=True, slots=True)
class WorkflowPart:
    """The place of a message in a workflow run.

    ``url`` is the workflow's; ``call_type`` is lower case, ``step`` where none was given;
    ``created_ms`` is when the run began, None where no run is known.
    """

    run_id: str
    url: str
    call_type: str
    created_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RejectedStep:
    """A step of a workflow run that was rejected where its sender ignores the error.

    ``item`` is its position in the batch, counted from 1, None for the result of an invoked run,
    which the queue itself publishes. ``status`` and ``error`` are those of the rejection.
    """

    run_id: str
    url: str
    status: int
    error: str
    item: int | None = None


@dataclass(slots=True, eq=False)
class Message:
    """A message and where it stands.

    ``state`` is one of ``CREATED ACTIVE RETRY DELIVERED FAILED CANCEL_REQUESTED CANCELED``; that an
    attempt ended in ``ERROR`` stands in the log.
    ``due_us`` is the instant of the next attempt, None while it has none of its own (waiting behind
    the head of a queue, in a flow-control wait list, in flight, or finished). ``public_id`` is what
    clients and destinations see; only the tasks of a v1 topic message share one. ``open_children``
    counts the callbacks about it that have not come to an end. ``depth`` is how many messages
    published each other at one instant to get here, ``chain`` how many within driving call
    ``drive``.

    ``lost_callbacks`` are the reasons why callbacks about it were not published. ``retry_of`` is
    the id of the dead letter's message that it repeats. ``settled`` says that what waited for its
    end was freed, ``overtaken_at`` at which retry a fault let others overtake it. ``workflow`` is
    its place in a workflow run; ``failure_of`` the id of the step whose failure it reports, and
    ``failure_function_state`` how the failure callback about it fares.
    """

    id: str
    url: str
    body: bytes
    settings: PublishSettings
    created_us: int
    not_before_us: int
    max_retries: int
    retry_delay: str | None
    timeout_us: int
    caller_ip: str
    kind: Kind = MESSAGE
    state: str = "CREATED"
    due_us: int | None = None
    retried: int = 0
    topic_name: str | None = None
    endpoint_name: str | None = None
    endpoint_id: str | None = None
    queue_name: str | None = None
    schedule_id: str | None = None
    api: Api = "v2"
    source_id: str | None = None
    dlq_id: str | None = None
    finished_us: int | None = None
    last_outcome: Outcome | None = None
    last_error_us: int | None = None
    number: int = 0
    public_id: str = ""
    wait_reason: str = "published"
    waiting_since_us: int = 0
    open_children: int = 0
    depth: int = 0
    chain: int = 0
    drive: int = 0
    attempts: list[Attempt] = field(default_factory=list)
    log: list[LogEntry] = field(default_factory=list)
    lost_callbacks: tuple[str, ...] = ()
    retry_of: str | None = None
    settled: bool = False
    overtaken_at: int | None = None
    workflow: WorkflowPart | None = None
    failure_of: str | None = None
    failure_function_state: str | None = None

    @property
    def finished(self) -> bool:
        """Whether nothing more happens to the message."""
        return self.state in FINISHED

    def copy(self) -> Message:
        """Return a copy that further attempts on either side do not change."""
        attempts = [
            replace(attempt) if attempt.state == "in flight" else attempt
            for attempt in self.attempts
        ]
        return replace(self, attempts=attempts, log=list(self.log))


class Mishaps:
    """What goes wrong with a delivery on purpose; the faults of a queue subclass it.

    Nothing is asked of it while nothing is ``active``.
    """

    active: tuple[Any, ...] = ()

    def before(self, message: Message, delivery: Delivery) -> tuple[str, ...]:
        """Return the names of the faults that hit this delivery."""
        return ()

    def callback(self, message: Message, kind: Kind, url: str) -> bool:
        """Whether this callback gets lost before it is published."""
        return False

    def overtaken(self, message: Message) -> bool:
        """Whether the next delivery comes before this one, out of order."""
        return False


class WorkflowHooks:
    """The calls of the engine to the workflow part, with its lock held and without any I/O.

    The hooks themselves are those of a queue without workflow runs: every message is a plain message.
    """

    def accept(self, message: Message, at_us: int) -> str | None:
        """Look at a message before it is stored.

        Returns the id of the message that it repeats (answered with ``deduplicated: true``), or
        None. Raises ``QueueError`` when it must be refused (a step of a cancelled run: 400).
        """
        return None

    def refuse(self, requests: Iterable[HeaderList]) -> None:
        """Raise ``QueueError`` 400 when one of these requests is a step of a run that has ended."""

    def body(self, message: Message, at_us: int) -> bytes:
        """Return the body to send with this attempt (a step list for a run, else the message's)."""
        return message.body

    def callback_fields(self, message: Message) -> dict[str, object]:
        """Return what is added to the callback bodies about this message (``workflowRunId`` ...)."""
        return {}

    def dead_letter_fields(self, message: Message) -> dict[str, object]:
        """Return what is added to the record of a dead letter (``failureCallbackInfo`` ...)."""
        return {}

    def companions(self, message: Message) -> Iterable[Message]:
        """Return the messages that may only be forgotten together with this one."""
        return ()

    def forget(self, message: Message) -> None:
        """Hear that a message, and all that go with it, will be forgotten."""

    def finished(self, message: Message, at_us: int) -> None:
        """Hear that a message was delivered, has failed or was cancelled."""

    def snapshot(self) -> object:
        """Return a cheap copy of the state."""
        return None

    def restore(self, saved: Any) -> None:
        """Return to a copy made by ``snapshot``."""


def first(headers: Sequence[tuple[str, str]], name: str) -> str | None:
    """Return the first value of a header, compared without case, or None."""
    wanted = name.lower()
    for key, value in headers:
        if key.lower() == wanted:
            return value
    return None
