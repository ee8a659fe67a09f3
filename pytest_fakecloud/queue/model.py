"""Data classes of the queue: messages, settings, deliveries, outcomes, attempts.

Times and durations are integers in microseconds unless the name says otherwise (``_ms``, ``_s``).
Header lists are lists of ``(name, value)`` in the order and spelling in which they arrived.

The engine decides what to deliver and returns a ``Delivery``; the sender makes the request and
returns an ``Outcome``.
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
"""Kinds of messages: published by a client, or a callback that reports on another message."""
CALLBACK: Kind = "callback"
FAILURE_CALLBACK: Kind = "failure_callback"
KINDS: tuple[Kind, ...] = (MESSAGE, CALLBACK, FAILURE_CALLBACK)

NON_RETRYABLE = 489
"""The status with which a destination, together with a header, prevents further retries."""

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True)
class Delivery:
    """An HTTP request that the queue is about to make.

    ``url`` contains the published bytes, one character per byte (Latin-1); it is the request target
    and the signature's subject (``sub``). ``headers`` are complete except for the signature.
    ``attempt`` counts from 0 (``Upstash-Retried``). ``timeout_us`` is measured on the queue's
    clock. ``signed`` is False if a fault removed the signature.
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
    """The result of a delivery.

    ``status`` is None if there was no HTTP response; ``exception`` then has the reason.
    ``virtual_us`` is the time that the destination took on the queue's clock. ``refused`` marks a
    destination that was never contacted; ``unstubbed`` is the reason, as text, if the test has not
    stubbed it. ``where`` names the kind of destination that answered (``"wsgi"``, ``"responses"``,
    ``"loopback"``, …).
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
        """Whether the delivery succeeded: status 200 to 299 (a redirect does not count)."""
        return self.status is not None and 200 <= self.status <= 299


Perform = Callable[[Delivery], Outcome]
Sign = Callable[[Delivery, str | None, int], HeaderList]
"""Function that returns the signature headers of a delivery.

Its arguments are the delivery, the key (None: the current signing key), and the age of the token in
microseconds.
"""


@dataclass(slots=True)
class SigningKeys:
    """The two signing keys of a queue; deliveries are signed with ``current``."""

    current: str
    next: str


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """Flow-control settings of a message; ``rate`` and ``parallelism`` are None if not given."""

    key: str
    parallelism: int | None = None
    rate: int | None = None
    period_us: int = SECOND


@dataclass(frozen=True, slots=True)
class Redaction:
    """The parts of a message that the API shows as ``REDACTED:<sha256>``."""

    body: bool = False
    all_headers: bool = False
    headers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PublishSettings:
    """The settings of a publish request, parsed and validated.

    ``forward`` are the headers for the destination, without prefix and without hop-by-hop headers.
    ``callback_headers`` and ``failure_callback_headers`` are nested settings with the prefix
    ``Upstash-Callback-`` replaced by ``Upstash-``, so that the same parser can read them.
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
    """One attempt to deliver a message; ``number`` counts from 1.

    ``url`` is spelled as published. ``waited`` is the time since the message was created or since
    the previous attempt, ``wait_reason`` the reason for it. ``status`` is None if there was no HTTP
    response; ``exception`` then has the reason. ``is_final`` marks an attempt that delivered the
    message or was the last one. ``state`` is ``in flight``, ``delivered``, ``failed``, or ``lost``
    if a fault made the queue lose the response.
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
        """The time of the attempt, as an aware UTC datetime."""
        return to_datetime(self.at_us)

    @property
    def waited(self) -> timedelta:
        """How long the message waited before this attempt."""
        return timedelta(microseconds=self.waited_us)

    def __repr__(self) -> str:
        answer: object = self.status
        if answer is None:
            answer = self.state if self.exception is None else f"{self.exception!r}"
        waited = f" after {self.waited} ({self.wait_reason})" if self.waited_us else ""
        return f"<Attempt {self.number} {self.url} at {self.at.isoformat()}{waited} -> {answer}>"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A row of a message's log, as ``/v2/events`` lists it."""

    number: int
    time_us: int
    message_id: str
    state: str
    error: str | None = None
    next_us: int | None = None
    outcome: Outcome | None = None


FINISHED = frozenset({"DELIVERED", "FAILED", "CANCELED"})
"""States in which a message is finished."""


@dataclass(frozen=True, slots=True)
class WorkflowPart:
    """The role of a message in a workflow run.

    ``url`` is that of the workflow. ``call_type`` is in lower case, ``step`` by default.
    ``created_ms`` is the start of the run, None if the run is not known.
    """

    run_id: str
    url: str
    call_type: str
    created_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RejectedStep:
    """A step of a workflow run that was rejected although its sender ignores the error.

    ``item`` is its position in the batch, counted from 1; it is None for the result of an invoked
    run, which the queue publishes itself. ``status`` and ``error`` are those of the rejection.
    """

    run_id: str
    url: str
    status: int
    error: str
    item: int | None = None


@dataclass(slots=True, eq=False)
class Message:
    """A message and its state.

    ``state`` is one of ``CREATED ACTIVE RETRY DELIVERED FAILED CANCEL_REQUESTED CANCELED``;
    ``ERROR``, the state of a failed attempt, appears only in the log. ``due_us`` is the time of the
    next attempt, None while none is planned (the message waits in a queue or a flow-control wait
    list, is in flight, or has finished). ``public_id`` is the id that clients and destinations see;
    only the deliveries of a v1 message to a topic share one. ``open_children`` counts the
    unfinished callbacks about the message. ``depth`` is the length of the chain of messages that
    caused this one at the same time, ``chain`` the length within the delivering call number
    ``drive``.

    ``lost_callbacks`` are the reasons why callbacks about it were not published. ``retry_of`` is
    the id of the dead-lettered message that it repeats. ``settled`` is True once the messages
    behind it have been released. ``overtaken_at`` is the retry at which a fault let other messages
    overtake it. ``workflow`` is its role in a workflow run, ``failure_of`` the id of the step whose
    failure it reports, and ``failure_function_state`` the state of the failure callback about it.
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
        """Whether the message is in a final state."""
        return self.state in FINISHED

    def copy(self) -> Message:
        """Return a copy that is independent of further attempts."""
        attempts = [
            replace(attempt) if attempt.state == "in flight" else attempt
            for attempt in self.attempts
        ]
        return replace(self, attempts=attempts, log=list(self.log))


class Mishaps:
    """Hooks through which injected faults change deliveries; these defaults change nothing.

    The engine does not call them while ``active`` is empty.
    """

    active: tuple[Any, ...] = ()

    def before(self, message: Message, delivery: Delivery) -> tuple[str, ...]:
        """Return the names of the faults that apply to this delivery."""
        return ()

    def callback(self, message: Message, kind: Kind, url: str) -> bool:
        """Return whether a fault drops this callback before it is published."""
        return False

    def overtaken(self, message: Message) -> bool:
        """Return whether a fault lets the next delivery overtake this message."""
        return False


class WorkflowHooks:
    """Hooks through which the engine notifies workflow runs.

    They are called with the engine's lock held and must not do I/O. These defaults treat every
    message as a plain message.
    """

    def accept(self, message: Message, at_us: int) -> str | None:
        """Check a message before it is stored.

        Returns the id of the earlier message if this one is a duplicate (answered with
        ``deduplicated: true``), else None. Raises ``QueueError`` if the message must be rejected
        (400 for a step of a cancelled run).
        """
        return None

    def refuse(self, requests: Iterable[HeaderList]) -> None:
        """Raise ``QueueError`` 400 if one of these requests is a step of a finished run."""

    def body(self, message: Message, at_us: int) -> bytes:
        """Return the body of this attempt: the list of steps for a run, else the message's body."""
        return message.body

    def callback_fields(self, message: Message) -> dict[str, object]:
        """Return extra fields for callback bodies about this message (``workflowRunId``, …)."""
        return {}

    def dead_letter_fields(self, message: Message) -> dict[str, object]:
        """Return extra fields for the record of a dead letter (``failureCallbackInfo``, …)."""
        return {}

    def companions(self, message: Message) -> Iterable[Message]:
        """Return the messages that can only be forgotten together with this one."""
        return ()

    def forget(self, message: Message) -> None:
        """Forget the run of a message; called before the message and its companions are forgotten."""

    def finished(self, message: Message, at_us: int) -> None:
        """Update the run of a message that was delivered, failed or was cancelled."""

    def snapshot(self) -> object:
        """Return a copy of the state."""
        return None

    def restore(self, saved: Any) -> None:
        """Restore a copy returned by ``snapshot``."""


def first(headers: Sequence[tuple[str, str]], name: str) -> str | None:
    """Return the first value of a header, ignoring case, or None."""
    wanted = name.lower()
    for key, value in headers:
        if key.lower() == wanted:
            return value
    return None
