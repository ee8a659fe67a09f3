"""Data classes of the queue, such as messages, queues, deliveries and their outcomes.

Times and durations are integers in microseconds unless the name says otherwise (``_ms``, ``_s``).
Header lists are lists of ``(name, value)`` in the order and spelling in which they were received.

The engine decides what to deliver and returns a ``Delivery``. The sender makes the request and
returns an ``Outcome``.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, get_args

from ..core.calls import NO_HEADERS, HeaderPairs, Headers
from ..core.timers import to_datetime

HeaderList = list[tuple[str, str]]
"""Headers that are never modified."""
MessageKind = Literal["message", "callback", "failure_callback"]
"""Clients and schedules publish messages. The other kinds report on a message."""
Api = Literal["v1", "v2"]

KINDS: tuple[MessageKind, ...] = get_args(MessageKind)
T = TypeVar("T")


def copy_of(item: T) -> T:
    """Return a copy of a data class with its own lists, dicts and queues, whose items are shared."""
    same = copy.copy(item)
    for name, value in vars(same).items():
        if isinstance(value, list | dict | deque):
            setattr(same, name, copy.copy(value))
    return same


SUCCESS = range(200, 300)
"""The statuses that deliver a message. A redirect does not."""
NON_RETRYABLE = 489
"""Status that prevents retries if it comes with ``Upstash-NonRetryable-Error``."""

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


class Delivery(NamedTuple):
    """An HTTP request that the queue is about to make.

    ``url`` contains the published bytes, one character per byte (Latin-1). It is the request
    target and the subject of the signature. ``headers`` are complete except for the signature.
    ``attempt`` is the number of earlier attempts (``Upstash-Retried``). ``timeout_us`` is measured
    on the queue's clock.
    """

    message_id: str
    url: str
    method: str
    headers: HeaderList
    body: bytes
    attempt: int
    timeout_us: int


class Outcome(NamedTuple):
    """The result of a delivery.

    ``status`` is None if there was no HTTP response, and ``exception`` is then the reason.
    ``virtual_us`` is the time that the destination took on the queue's clock. ``unstubbed`` is an
    error message if the test has not stubbed the destination. ``where`` is the kind of destination
    that responded (``"wsgi"``, ``"responses"``, ``"loopback"``, …). ``raises`` is True if the call
    that delivers must raise the handler's exception. ``run_error`` is the reason for which the queue
    fails the workflow run of the message without retries, whatever the response is.
    """

    status: int | None = None
    headers: HeaderPairs = ()
    body: bytes = b""
    exception: BaseException | None = None
    virtual_us: int = 0
    unstubbed: str | None = None
    where: str = ""
    raises: bool = False
    run_error: str | None = None

    def status_or(self, no_answer: int) -> int:
        """Return the status, or ``no_answer`` if there was no HTTP response."""
        return no_answer if self.status is None else self.status


Report = Callable[..., object]
"""Receives the kind, the text and the fields of a strict-mode violation."""


class SigningKeys:
    """The signing keys of a queue. ``new_key`` returns another; ``former`` ones are oldest first."""

    def __init__(self, current: str, next: str, new_key: Callable[[], str]) -> None:
        self.current = current
        self.next = next
        self.new_key = new_key
        self.former: list[str] = []

    def rotate(self) -> None:
        """Make the next key the current one, and create a new next key."""
        self.former.append(self.current)
        self.current, self.next = self.next, self.new_key()


class FlowSettings(NamedTuple):
    """Flow-control settings of a message. A limit is None if the message does not set it."""

    key: str
    parallelism: int | None = None
    rate: int | None = None
    period_us: int = SECOND


class Redaction(NamedTuple):
    """The parts of a message that the API replaces with ``REDACTED:<sha256>``."""

    body: bool = False
    all_headers: bool = False
    headers: frozenset[str] = frozenset()

    def hides_header(self, name: str) -> bool:
        return self.all_headers or name.lower() in self.headers

    def with_other(self, other: Redaction) -> Redaction:
        """Return a redaction of the parts that this one or another one covers."""
        return Redaction(
            self.body or other.body,
            self.all_headers or other.all_headers,
            self.headers | other.headers,
        )


NOTHING_REDACTED = Redaction()


class PublishSettings(NamedTuple):
    """The parsed and validated settings of a publish request.

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
    callback_headers: HeaderPairs = ()
    failure_callback_headers: HeaderPairs = ()
    forward: HeaderPairs = ()
    content_type: str | None = None
    deduplication_id: str | None = None
    content_based_deduplication: bool = False
    cron: str | None = None
    schedule_id: str | None = None
    queue_name: str | None = None
    flow: FlowSettings | None = None
    labels: tuple[str, ...] = ()
    redaction: Redaction = NOTHING_REDACTED
    workflow: HeaderPairs = ()


@dataclass(eq=False, repr=False)
class Attempt:
    """One attempt to deliver a message. ``number`` counts from 1.

    ``url`` is spelled as published. ``waited`` is the time since the message was created or since
    its previous attempt, and ``wait_reason`` explains it. ``status`` is None if there was no HTTP
    response, and ``exception`` is then the reason. ``is_final`` is True for the attempt that
    delivered the message or was the last one. ``run_error`` is the reason for which the queue failed
    the workflow run of the message. ``state`` is ``in flight``, ``delivered``,
    ``failed``, or ``lost`` if a fault made the queue lose the response.
    """

    message_id: str
    url: str
    kind: MessageKind
    number: int
    sequence: int
    at_us: int
    waited_us: int
    wait_reason: str
    state: str = "in flight"
    status: int | None = None
    headers: Headers = field(default_factory=lambda: NO_HEADERS)
    body: bytes = b""
    exception: BaseException | None = None
    run_error: str | None = None
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


class LogEntry(NamedTuple):
    """An entry of a message's log, as ``/v2/events`` lists it."""

    number: int
    time_us: int
    message_id: str
    state: str
    error: str | None = None
    next_us: int | None = None
    outcome: Outcome | None = None


MessageState = Literal[
    "CREATED", "ACTIVE", "RETRY", "DELIVERED", "FAILED", "CANCEL_REQUESTED", "CANCELED"
]
"""A state of a message. (``ERROR``, the state of a failed attempt, appears only in the log.)"""


class WorkflowPart(NamedTuple):
    """The role of a message in a workflow run.

    ``url`` is the URL of the workflow. ``call_type`` is in lower case and ``step`` by default.
    ``created_ms`` is the time at which the run started, or None for an unknown run. ``number`` is the
    run's, because a later run can have the same id.
    """

    run_id: str
    url: str
    call_type: str
    created_ms: int | None = None
    number: int = 0

    @property
    def is_call(self) -> bool:
        """Whether the message makes the HTTP request of a call step."""
        return self.call_type == "tocallback"


@dataclass(eq=False, repr=False, kw_only=True)
class Message:
    """A message and its state."""

    id: str
    url: str
    body: bytes
    settings: PublishSettings
    created_us: int
    not_before_us: int
    max_retries: int
    timeout_us: int
    caller_ip: str
    kind: MessageKind = "message"
    topic_name: str | None = None
    endpoint_name: str | None = None
    queue_name: str | None = None
    schedule_id: str | None = None
    api: Api = "v2"
    source_id: str | None = None
    """Id of the message that this callback reports on."""
    source_attempt: int = 0
    """Number of the attempt that this callback reports on."""
    attempts: list[Attempt] = field(default_factory=list)
    log: list[LogEntry] = field(default_factory=list)
    state: MessageState = "CREATED"
    due_us: int | None = None
    """Time of the next attempt. None while no attempt is planned: the message waits in a queue or
    for flow control, is in flight, or has finished.
    """
    retried: int = 0
    dlq_id: str | None = None
    has_left_dlq: bool = False
    """Whether its dead letter was retried or deleted."""
    finished_us: int | None = None
    last_outcome: Outcome | None = None
    last_error_us: int | None = None
    number: int = 0
    public_id: str = ""
    """Id that clients and destinations see. Deliveries of a v1 message to a topic share it."""
    wait_reason: str = "published"
    waiting_since_us: int = 0
    open_children: int = 0
    """Number of unfinished callbacks about this message."""
    depth: int = 0
    """Number of deliveries at the same point in time that caused each other and then this message."""
    chain: int = 0
    """The same number within ``span`` (`Causes.span`)."""
    span: int = 0
    causes: frozenset[str] = frozenset()
    """URLs of the deliveries within ``span`` that caused each other and then this message."""
    caused_at: str = ""
    """URL of the last of these deliveries."""
    lost_callbacks: tuple[str, ...] = ()
    """Reasons why callbacks about this message were not published."""
    retry_of: str | None = None
    """Id of the dead-lettered message that this one repeats."""
    released: bool = False
    """Whether the messages that waited for this one have been released."""
    overtaken_at: int | None = None
    """Number of retries after which a fault let other messages overtake this one."""
    workflow: WorkflowPart | None = None
    failure_of: str | None = None
    """Id of the workflow step whose failure this message reports."""
    failure_function_state: str | None = None
    """State of the failure callback about this workflow step."""
    wait_timeout_us: int | None = None
    """Timeout of the wait for an event whose result this workflow step is."""
    wait_deadline_us: int | None = None
    """Time at which this wait ends without an event."""
    invoked_run_id: str | None = None
    """Id of the invoked workflow run whose result this workflow step is."""

    @property
    def pending(self) -> bool:
        return self.state in ("CREATED", "ACTIVE", "RETRY")

    @property
    def finished(self) -> bool:
        return self.state in ("DELIVERED", "FAILED", "CANCELED")

    @property
    def in_run(self) -> bool:
        """Whether the message belongs to a workflow run, or reports that the run has failed."""
        return self.workflow is not None or self.failure_of is not None

    @property
    def most_attempts(self) -> int:
        """The number of the last attempt if all fail; a lost attempt is repeated without a retry."""
        return self.max_retries + 1 + sum(attempt.state == "lost" for attempt in self.attempts)

    @property
    def response_redaction(self) -> Redaction:
        """The redaction of responses to the message, which only that of a workflow run covers."""
        return self.settings.redaction if self.in_run else NOTHING_REDACTED

    def copy(self) -> Message:
        """Return a copy that further attempts do not change."""
        same = copy_of(self)
        same.attempts = [
            copy.copy(attempt) if attempt.state == "in flight" else attempt
            for attempt in self.attempts
        ]
        return same


@dataclass(eq=False)
class FlowKey:
    """A flow-control key with its limits (None: unlimited), its active and its waiting messages.

    ``active`` maps the id of each active message to the number of the period in which it started.
    ``messages`` is the number of messages that use the key and have not been forgotten.
    """

    key: str
    period_start_us: int
    rate: int | None = None
    period: int = 0
    parallelism: int | None = None
    period_us: int = SECOND
    messages: int = 0
    started: int = 0
    paused: bool = False
    pinned_parallelism: bool = False
    pinned_rate: bool = False
    active: dict[str, int] = field(default_factory=dict)
    waiting: deque[str] = field(default_factory=deque)

    def observe(self, settings: FlowSettings, now_us: int) -> None:
        """Apply the flow-control settings of a message that is being published."""
        if settings.parallelism is None and settings.rate is None:
            return
        if not self.pinned_parallelism:
            self.parallelism = settings.parallelism
        if not self.pinned_rate:
            # Count in the old period before its length changes.
            self.roll(now_us)
            self.rate = settings.rate
            if self.period_us != settings.period_us:
                self.period_us = settings.period_us
                self.roll(now_us)

    def pin(self, now_us: int, parallelism: int | None, rate: int | None, period_us: int) -> None:
        """Pin limits, so that messages cannot change them, and start a new period."""
        if parallelism is not None:
            self.parallelism = parallelism
            self.pinned_parallelism = True
        if rate is not None:
            self.rate = rate
            self.period_us = period_us
            self.pinned_rate = True
        self.restart_period(now_us)

    def roll(self, now_us: int) -> None:
        """Start the period that contains the given time, unless it has already started."""
        passed = (now_us - self.period_start_us) // self.period_us
        if passed > 0:
            self.restart_period(self.period_start_us + passed * self.period_us)

    def open(self, now_us: int) -> bool:
        self.roll(now_us)
        if self.paused:
            return False
        if self.parallelism is not None and len(self.active) >= self.parallelism:
            return False
        return self.rate is None or self.started < self.rate

    def start(self, message_id: str) -> None:
        self.active[message_id] = self.period
        self.started += 1

    def give_back(self, message_id: str) -> None:
        """Undo ``start()`` for a request that did not start after all."""
        if self.active.pop(message_id) == self.period:
            self.started -= 1

    def reopens_us(self, now_us: int) -> int | None:
        """Return when the next period will admit a message, or None if the rate delays no message."""
        self.roll(now_us)
        if self.paused or not self.waiting or self.rate is None or self.started < self.rate:
            return None
        return self.period_start_us + self.period_us

    def restart_period(self, start_us: int) -> None:
        self.period_start_us = start_us
        self.period += 1
        self.started = 0

    def copy(self) -> FlowKey:
        return copy_of(self)


@dataclass(eq=False)
class OrderedQueue:
    """An ordered queue.

    ``active`` messages have a slot. Those that have not started come first, in the order in which
    they got it. ``parked`` messages are due, but the queue is paused.
    """

    name: str
    created_us: int
    updated_us: int
    parallelism: int = 1
    paused: bool = False
    active: OrderedDict[str, None] = field(default_factory=OrderedDict)
    parked: list[str] = field(default_factory=list)
    waiting: deque[str] = field(default_factory=deque)

    def copy(self) -> OrderedQueue:
        return copy_of(self)


Perform = Callable[[Delivery, bool], Coroutine[Any, Any, Outcome]]
"""Performs a delivery, waiting for the running event loop only if the second argument is true."""


class Exchange:
    """An attempt in progress. ``delivery`` is the request, which interceptors may replace.

    The request is made in the running event loop if ``in_loop``. ``error``, the exception of a fault's
    predicate, is raised in its place.
    """

    def __init__(self, message: Message, attempt: Attempt, delivery: Delivery) -> None:
        self.message = message
        self.attempt = attempt
        self.delivery = delivery
        self.error: BaseException | None = None
        self.in_loop = False


Deliver = Callable[[Exchange], Coroutine[Any, Any, Outcome]]


class DeliveryInterceptor:
    """A member of the chain around the deliveries of a queue.

    Like a middleware, ``deliver()`` may act before and after the rest of the chain, replace the
    request or its outcome, or not proceed at all::

        async def deliver(self, exchange, proceed):
            outcome = await proceed(exchange)
            return outcome

    If ``encloses_engine``, the outcome has been applied to the message when ``proceed`` ends. The
    chain of a queue is: record, the engine, report exceptions of background deliveries, sign (which
    also applies the faults of a delivery), explore.
    """

    encloses_engine: ClassVar[bool] = False

    async def deliver(self, exchange: Exchange, proceed: Deliver) -> Outcome:
        raise NotImplementedError


class FaultDecisions:
    """Decides which faults happen outside of a delivery, and which to one that starts. The engine asks
    only while it is ``active``. These defaults are for no fault.
    """

    @property
    def active(self) -> bool:
        """Whether any fault can fire."""
        return True

    def overtaken(self, message: Message) -> bool:
        """Return whether other messages overtake this one, which is due."""
        return False

    def before(self, message: Message, delivery: Delivery) -> tuple[str, ...]:
        """Return the names of the faults of a delivery that starts now, in the order of due times."""
        return ()

    def callback(self, message: Message, kind: MessageKind, url: str) -> bool:
        """Return whether a callback is dropped before it is published."""
        return False


def first(headers: HeaderPairs, name: str) -> str | None:
    """Return the first value of a header, or None. The name is not case-sensitive."""
    lower = name.lower()
    for key, value in headers:
        if key.lower() == lower:
            return value
    return None
