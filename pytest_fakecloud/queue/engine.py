"""The queue's state machine: what is due, what goes out, what an answer means.

No HTTP and no threads: time comes from the clock's timers, deliveries are performed by a callable
that the engine is given, with no lock held, because a handler may call back into the queue.

A message is `CREATED`, `ACTIVE` during an attempt, then `DELIVERED` (2xx only), or `ERROR` followed
by `RETRY` or by `FAILED` with a dead letter; a cancelled one is `CANCEL_REQUESTED` at once and
`CANCELED` when it would have been due.

Decided here: an attempt starts at the clock's instant at which its timer fires; an answer that
takes virtual time is applied when that time has passed; a cancelled message gives up its place in a
queue or wait list at once and, without an instant of its own, is `CANCELED` at once; an attempt
that is under way when its message is cancelled still counts when it delivers.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from ..kernel.clock import Clock, Lane, Timer
from ..kernel.ids import BASE58, Ids
from .callback import callback_body, failure_text
from .dlq import DeadLetters
from .errors import not_found
from .fifo import OrderedQueue, Queues
from .flow import FlowControl, FlowKey
from .groups import UrlGroups
from .limits import Limits
from .logs import Logs
from .model import (
    CALLBACK,
    FAILURE_CALLBACK,
    SECOND,
    Attempt,
    Delivery,
    Headers,
    Kind,
    LogEntry,
    Message,
    NoWorkflow,
    Outcome,
    Perform,
    Sign,
    SigningKeys,
    WorkflowHooks,
    first,
)
from .publishing import Publisher
from .retry import next_wait
from .saved import Saved, put_back, save
from .schedules import Schedules

NON_RETRYABLE = 489
#: How much longer than at one instant a chain of messages may be within one driving call.
CHAIN_FACTOR = 10


@dataclass(frozen=True, slots=True)
class Settings:
    """How a queue behaves, apart from its plan.  Durations in microseconds.

    `no_answer_status` stands for the status where no HTTP answer came.  `source_spelling` is
    `both`, `service` or `seed`.  `callback_retries` is `inherit` (from the message) or a number.
    `grace_us` is how long a finished message can still be read.  `loop_limit` is how many messages
    may publish each other at one instant before the queue calls it an endless loop.
    """

    header_prefix: str = "Upstash"
    region: str = "US-EAST-1"
    default_retries: int = 3
    callback_retries: Literal["inherit"] | int = "inherit"
    delayed_callbacks: bool = False
    no_answer_status: int = 0
    source_spelling: str = "both"
    grace_us: int = 30 * SECOND
    deduplication_us: int = 600 * SECOND
    production_checks: bool = False
    loop_limit: int = 1000


class Mishaps:
    """What goes wrong with a delivery on purpose; the faults of a queue subclass it."""

    def before(self, message: Message, delivery: Delivery) -> tuple[str, ...]:
        """Return the names of the faults that hit this delivery."""
        return ()

    def callback(self, message: Message, kind: Kind, url: str) -> bool:
        """Whether this callback gets lost before it is published."""
        return False

    def overtaken(self, message: Message) -> bool:
        """Whether the next delivery comes before this one, out of order."""
        return False


class Loop(AssertionError):
    """Messages publish each other without end at one instant."""


class Engine:
    """All data and rules of one queue.  Every public method takes the lock by itself."""

    def __init__(
        self,
        clock: Clock,
        ids: Ids,
        *,
        perform: Perform,
        sign: Sign,
        keys: SigningKeys,
        new_key: Callable[[], str],
        perform_async: Callable[[Delivery], Awaitable[Outcome]] | None = None,
        name: str = "queue",
        limits: Limits | None = None,
        settings: Settings | None = None,
        lane: Lane = "driven",
        workflow: WorkflowHooks | None = None,
    ) -> None:
        self.clock = clock
        self.perform = perform
        self.perform_async = perform_async
        self.sign = sign
        self.keys = keys
        self.limits = limits or Limits()
        self.settings = settings or Settings()
        self.lane: Lane = lane
        self.workflow: WorkflowHooks = workflow or NoWorkflow()
        self.mishaps = Mishaps()
        self.lock = threading.RLock()
        self.changed = clock.signal()
        self.on_attempt: Callable[[Message, Attempt, Delivery, Outcome], None] | None = None
        self.on_loop: Callable[[str], None] | None = None
        self._new_key = new_key
        self._message_ids = ids.stream(name, "message ids")
        self._other_ids = ids.stream(name, "other ids")
        self.messages: dict[str, Message] = {}
        self.pending: dict[str, Message] = {}
        self.groups_of_tasks: dict[str, list[str]] = {}
        self.attempts: list[Attempt] = []
        self.queues = Queues()
        self.flow = FlowControl()
        self.groups = UrlGroups(self.new_id, self.limits.groups, self.limits.endpoints_per_group)
        self.logs = Logs()
        self.dead_letters = DeadLetters(self)
        self.schedules = Schedules(self)
        self.publisher = Publisher(self)
        self._timers: dict[str, Timer] = {}
        self._flow_timers: dict[str, Timer] = {}
        self.in_flight: dict[str, tuple[int, Outcome]] = {}
        self._performing: Message | None = None
        self._sequence = 0
        self.active: set[str] = set()
        self.crowd: deque[str] = deque()
        self.drive = 0
        self.overtaken: list[str] = []

    # -- ids, keys -------------------------------------------------------------------------------

    def new_id(self, prefix: str) -> str:
        """Return a new id such as `ept_...`, from the test's seed."""
        return prefix + self._other_ids.text(28, BASE58)

    def new_message_id(self) -> str:
        """Return a new message id."""
        return "msg_" + self._message_ids.hex(32)

    def rotate_keys(self) -> SigningKeys:
        """Make the next signing key the current one, and a new one the next."""
        with self.lock:
            self.keys.current = self.keys.next
            self.keys.next = self._new_key()
            return self.keys

    def next_sequence(self) -> int:
        """Return a number that grows with everything the queue records."""
        self._sequence += 1
        return self._sequence

    # -- messages --------------------------------------------------------------------------------

    def message(self, message_id: str) -> Message:
        """Return a message that a client may still read; 404 otherwise."""
        with self.lock:
            found = self.messages.get(message_id) or self._task_group(message_id)
            if found is None or self._past_grace(found):
                raise not_found("message", message_id)
            return found

    def _past_grace(self, message: Message) -> bool:
        end = message.finished_us
        return end is not None and self.clock.now_us() > end + self.settings.grace_us

    def _task_group(self, message_id: str) -> Message | None:
        ids = self.groups_of_tasks.get(message_id)
        return self.messages[ids[0]] if ids else None

    def tasks(self, message_id: str) -> list[Message]:
        """Return the deliveries of a message: one, or one per endpoint of a v1 topic; 404."""
        with self.lock:
            ids = self.groups_of_tasks.get(message_id)
            if ids is None:
                return [self.message(message_id)]
            return [self.messages[one] for one in ids]

    def accept(self, message: Message) -> None:
        """Store a new message and plan its first attempt; the caller holds the lock."""
        now = self.clock.now_us()
        message.number = self.next_sequence()
        message.public_id = message.public_id or message.id
        message.waiting_since_us = message.created_us
        self.trace_back(message, self._performing, now)
        self.messages[message.id] = message
        self.pending[message.id] = message
        self.log(message, "CREATED", message.created_us, next_us=message.not_before_us)
        if message.settings.flow is not None:
            self.flow.observe(message.settings.flow, now)
        if message.queue_name is not None:
            queue = self.queues.by_name[message.queue_name]
            queue.waiting.append(message.id)
            self.pump_queue(queue)
        else:
            reason = "delay" if message.not_before_us > message.created_us else "at once"
            self.plan(message, max(now, message.not_before_us), reason)
        self.changed.notify()

    def trace_back(self, message: Message, source: Message | None, now: int) -> None:
        """Note which message caused this one, so that an endless loop is seen."""
        message.drive = self.drive
        if source is None or not source.attempts:
            return
        if source.attempts[-1].at_us == now:
            message.depth = max(message.depth, source.depth + 1)
        if source.drive == self.drive:
            message.chain = max(message.chain, source.chain + 1)

    def plan(self, message: Message, due_us: int, reason: str) -> None:
        """Set the instant of the next attempt."""
        message.due_us = due_us
        message.wait_reason = reason
        self._replan(message, due_us, message.id)

    def _replan(self, message: Message, due_us: int, message_id: str) -> None:
        timer = self._timers.get(message_id)
        if timer is not None:
            timer.cancel()
        self._timers[message_id] = self.clock.call_at(
            due_us,
            partial(self._attempt, message_id),
            lane=self.lane,
            label=message.url,
            async_callback=partial(self._attempt_async, message_id),
        )

    def cancel(self, message_id: str) -> int:
        """Cancel a message (every delivery of a v1 topic message); 404 when nothing is pending."""
        with self.lock:
            ids = self.groups_of_tasks.get(message_id, [message_id])
            found = [self.pending[one] for one in ids if one in self.pending]
            if not found:
                raise not_found("message", message_id)
            return self.cancel_all(found)

    def cancel_all(self, messages: list[Message]) -> int:
        """Cancel messages that are pending; returns how many."""
        with self.lock:
            now = self.clock.now_us()
            count = 0
            for message in messages:
                if self.pending.pop(message.id, None) is None:
                    continue
                count += 1
                in_flight = message.state == "ACTIVE"
                message.state = "CANCEL_REQUESTED"
                self.log(message, "CANCEL_REQUESTED", now)
                if in_flight:
                    continue
                self._leave_waiting(message)
                due = message.due_us
                timer = self._timers.pop(message.id, None)
                if timer is not None:
                    timer.cancel()
                if due is None or due <= now:
                    self._canceled(message.id, now)
                else:
                    self._timers[message.id] = self.clock.call_at(
                        due, partial(self._canceled, message.id), label="cancel"
                    )
                    self._settle(message)
            self.changed.notify()
            return count

    def _canceled(self, message_id: str, at_us: int) -> None:
        with self.lock:
            message = self.messages[message_id]
            if message.state == "CANCEL_REQUESTED":
                self._timers.pop(message_id, None)
                self._finish(message, "CANCELED", at_us)

    def _leave_waiting(self, message: Message) -> None:
        if message.queue_name is not None:
            queue = self.queues.by_name.get(message.queue_name)
            if queue is not None:
                queue.active.discard(message.id)
                if message.id in queue.parked:
                    queue.parked.remove(message.id)
                self.pump_queue(queue)
        self._release_flow(message)

    def _release_flow(self, message: Message) -> None:
        key = self._flow_key(message)
        if key is not None and message.id in key.active:
            key.active.discard(message.id)
            self.pump_flow(key)

    # -- attempts --------------------------------------------------------------------------------

    def _attempt(self, message_id: str, due_us: int) -> Attempt | None:
        if self._overtaken(message_id):
            return None
        delivery = self.begin_attempt(message_id)
        if delivery is None:
            return None
        try:
            outcome = self.perform(delivery)
            if "duplicate" in self._faults_of(message_id):
                outcome = self.perform(delivery)
        except BaseException as error:
            attempt = self.finish_attempt(message_id, Outcome(exception=error), delivery)
            if self.lane == "background" and isinstance(error, Exception):
                return attempt
            raise
        return self.finish_attempt(message_id, outcome, delivery)

    async def _attempt_async(self, message_id: str, due_us: int) -> Attempt | None:
        if self.perform_async is None:
            return self._attempt(message_id, due_us)
        if self._overtaken(message_id):
            return None
        delivery = self.begin_attempt(message_id)
        if delivery is None:
            return None
        try:
            outcome = await self.perform_async(delivery)
            if "duplicate" in self._faults_of(message_id):
                outcome = await self.perform_async(delivery)
        except BaseException as error:
            self.finish_attempt(message_id, Outcome(exception=error), delivery)
            raise
        return self.finish_attempt(message_id, outcome, delivery)

    def _overtaken(self, message_id: str) -> bool:
        message = self.pending.get(message_id)
        if message is None or message.extra.get("overtaken") == message.retried:
            return False
        if not self.mishaps.overtaken(message):
            return False
        with self.lock:
            message.extra["overtaken"] = message.retried
            message.due_us = None
            self._timers.pop(message_id, None)
            self._release_flow(message)
            queue = self.queues.by_name.get(message.queue_name or "")
            if queue is not None and queue.waiting and message_id in queue.active:
                queue.active.discard(message_id)
                queue.waiting.insert(1, message_id)
                self.pump_queue(queue)
            else:
                # Whatever is delivered next lets it go; alone, it goes a second later.
                self.overtaken.append(message_id)
                latest = self.clock.now_us() + SECOND
                message.due_us = latest
                self._timers[message_id] = self.clock.call_at(
                    latest, partial(self._let_go, message_id), label="overtaken"
                )
        return True

    def _let_go(self, message_id: str, at_us: int) -> None:
        with self.lock:
            if message_id in self.overtaken:
                self.overtaken.remove(message_id)
                if message_id in self.pending:
                    message = self.messages[message_id]
                    self.plan(message, self.clock.now_us(), message.wait_reason)

    def _faults_of(self, message_id: str) -> tuple[str, ...]:
        return self.messages[message_id].attempts[-1].faults

    def begin_attempt(self, message_id: str) -> Delivery | None:
        """Start the attempt that is due and return what to send; None when it must not start now.

        It does not start while its queue or flow-control key is paused or full; it is then planned
        again by whatever opens the way.  Raises `Loop` when messages publish each other without
        end; the message stays pending.
        """
        with self.lock:
            message = self.messages.get(message_id)
            if message is None or message.id not in self.pending or message.state == "ACTIVE":
                return None
            self._timers.pop(message_id, None)
            now = self.clock.now_us()
            if not self._may_start(message, now):
                return None
            if message.attempts and message.attempts[-1].at_us == now:
                message.depth += 1
            elif message.created_us < now:
                message.depth = 0
            if self._endless(message):
                self._cut_loop(message, now)
                return None
            attempt = Attempt(
                message_id=message.id,
                url=message.url,
                kind=message.kind,
                number=len(message.attempts) + 1,
                sequence=self.next_sequence(),
                at_us=now,
                waited_us=now - message.waiting_since_us,
                wait_reason=message.wait_reason,
            )
            message.state = "ACTIVE"
            message.due_us = None
            self.active.add(message.id)
            message.attempts.append(attempt)
            self.attempts.append(attempt)
            self.log(message, "ACTIVE", now)
            delivery = self._delivery(message, now)
            self._performing = message
        return self._signed(message, attempt, delivery)

    def _may_start(self, message: Message, now: int) -> bool:
        most = self.limits.parallelism
        if most is not None and len(self.active) >= most:
            message.due_us = None
            message.wait_reason = f"global parallelism {most}"
            self.crowd.append(message.id)
            return False
        if message.queue_name is not None:
            queue = self.queues.by_name.get(message.queue_name)
            if queue is not None and queue.paused:
                message.due_us = None
                self._release_flow(message)
                if message.id not in queue.parked:
                    queue.parked.append(message.id)
                return False
        key = self._flow_key(message)
        if key is not None and message.id not in key.active:
            if key.waiting or not key.open(now):
                message.due_us = None
                message.wait_reason = f"flow control {key.key}"
                key.waiting.append(message.id)
                self.pump_flow(key)
                return False
            key.start(message.id)
        return True

    def _endless(self, message: Message) -> bool:
        limit = self.settings.loop_limit
        in_drive = message.drive == self.drive and message.chain > limit * CHAIN_FACTOR
        return message.depth > limit or in_drive

    def _cut_loop(self, message: Message, now: int) -> None:
        limit = self.settings.loop_limit
        span = "at one instant" if message.depth > limit else "in one driving call"
        count = limit if message.depth > limit else limit * CHAIN_FACTOR
        text = (
            f"endless loop: {count} deliveries caused each other {span}, the last would be"
            f" {message.public_id} to {message.url}. A handler that publishes again must come to"
            " an end, or use a delay and be driven step by step; the message stays pending"
        )
        self._release_flow(message)
        message.depth = message.chain = 0
        if self.lane == "background":
            # Nobody stands there to catch an error; the message waits to be driven or cancelled.
            message.due_us = None
            if self.on_loop is not None:
                self.on_loop(text)
            return
        self.plan(message, now, message.wait_reason)
        raise Loop(text)

    def _delivery(self, message: Message, now: int) -> Delivery:
        body = self.workflow.body(message, now)
        prefix = self.settings.header_prefix
        settings = message.settings
        own: Headers = list(settings.workflow)
        if settings.content_type is not None:
            own.append(("Content-Type", settings.content_type))
        own += [
            (f"{prefix}-Message-Id", message.public_id),
            (f"{prefix}-Retried", str(message.retried)),
            (f"{prefix}-Caller-Ip", message.caller_ip),
            (f"{prefix}-Region", self.settings.region),
        ]
        if message.topic_name is not None:
            own.append((f"{prefix}-Topic-Name", message.topic_name))
        if message.schedule_id is not None:
            own.append((f"{prefix}-Schedule-Id", message.schedule_id))
        # A workflow forwards the headers of the delivery it got, an older signature among them.
        taken = {name.lower() for name, _ in own} | {f"{prefix}-signature".lower()}
        headers = [pair for pair in settings.forward if pair[0].lower() not in taken]
        if first(headers, "User-Agent") is None:
            headers.append(("User-Agent", "Upstash-QStash"))
        headers += own
        return Delivery(
            message_id=message.public_id,
            url=message.url,
            method=settings.method,
            headers=headers,
            body=body,
            attempt=message.retried,
            at_us=now,
            timeout_us=message.timeout_us,
            kind=message.kind,
            sub=message.url,
        )

    def _signed(self, message: Message, attempt: Attempt, delivery: Delivery) -> Delivery:
        faults = attempt.faults = self.mishaps.before(message, delivery)
        if "unsigned" in faults:
            return replace(delivery, signed=False)
        key: str | None = None
        if "wrong_key" in faults:
            key = self._new_key()
        elif "next_key" in faults:
            key = self.keys.next
        age = 3600 * SECOND if "expired" in faults else 0
        signature = self.sign(delivery, key=key, age_us=age)
        body = delivery.body + b"tampered" if "tamper" in faults else delivery.body
        return replace(delivery, headers=delivery.headers + signature, body=body)

    def finish_attempt(self, message_id: str, outcome: Outcome, delivery: Delivery) -> Attempt:
        """Take the outcome of an attempt that was begun, now or when its virtual time has passed."""
        if outcome.virtual_us > delivery.timeout_us:
            seconds = delivery.timeout_us / SECOND
            outcome = Outcome(
                exception=TimeoutError(f"no answer within the timeout of {seconds:g} s"),
                virtual_us=delivery.timeout_us,
                where=outcome.where,
            )
        with self.lock:
            self._performing = None
            message = self.messages[message_id]
            attempt = message.attempts[-1]
            attempt.where = outcome.where
            if outcome.virtual_us > 0:
                end = attempt.at_us + outcome.virtual_us
                self.in_flight[message_id] = (end, outcome)
                self._await_end(message_id, end)
            else:
                self._apply(message, outcome, max(attempt.at_us, self.clock.now_us()))
        for held in list(self.overtaken):
            self._let_go(held, 0)
        self.changed.notify()
        if self.on_attempt is not None:
            self.on_attempt(message, attempt, delivery, outcome)
        return attempt

    def _await_end(self, message_id: str, end_us: int) -> None:
        self._timers[message_id] = self.clock.call_at(
            end_us, partial(self._ended, message_id), label="answer"
        )

    def _ended(self, message_id: str, at_us: int) -> Attempt | None:
        with self.lock:
            found = self.in_flight.pop(message_id, None)
            if found is None:
                return None
            self._timers.pop(message_id, None)
            self._apply(self.messages[message_id], found[1], at_us)
        self.changed.notify()
        return None

    def _apply(self, message: Message, outcome: Outcome, at_us: int) -> None:
        attempt = message.attempts[-1]
        attempt.status, attempt.headers, attempt.body = (
            outcome.status,
            outcome.headers,
            outcome.body,
        )
        attempt.exception = outcome.exception
        attempt.ended_us = at_us
        self.active.discard(message.id)
        key = self._flow_key(message)
        if key is not None:
            key.active.discard(message.id)
        if "crash_after_answer" in attempt.faults:
            attempt.state = "lost"
            self._again(message, at_us, "the queue crashed before it stored the answer")
        else:
            attempt.state = "delivered" if outcome.delivered else "failed"
            message.last_outcome = outcome
            self._conclude(message, attempt, outcome, at_us)
        if key is not None:
            self.pump_flow(key)
        self._pump_crowd()

    def _pump_crowd(self) -> None:
        room = (self.limits.parallelism or 0) - len(self.active)
        while self.crowd and room > 0:
            message_id = self.crowd.popleft()
            if message_id in self.pending:
                message = self.messages[message_id]
                self.plan(message, self.clock.now_us(), message.wait_reason)
                room -= 1

    def _again(self, message: Message, at_us: int, reason: str) -> None:
        if message.state == "CANCEL_REQUESTED":
            self._finish(message, "CANCELED", at_us)
            return
        message.state = "RETRY"
        message.waiting_since_us = at_us
        self.plan(message, at_us, reason)

    def _conclude(self, message: Message, attempt: Attempt, outcome: Outcome, at_us: int) -> None:
        retried = message.retried
        if outcome.delivered:
            attempt.is_final = True
            self._report(message, CALLBACK, outcome, retried, at_us)
            self._finish(message, "DELIVERED", at_us, outcome=outcome)
            return
        message.last_error_us = at_us
        error = failure_text(outcome)
        cancelled = message.state == "CANCEL_REQUESTED"
        message.state = "CANCEL_REQUESTED" if cancelled else "ERROR"
        self.log(message, "ERROR", at_us, error=error, outcome=outcome)
        attempt.is_final = retried >= message.max_retries or _non_retryable(outcome)
        self._report(message, CALLBACK, outcome, retried, at_us)
        if cancelled:
            attempt.is_final = True
            self._finish(message, "CANCELED", at_us)
        elif attempt.is_final:
            message.dlq_id = self.dead_letters.add(message, outcome, at_us)
            if message.api != "v1":
                self._report(message, FAILURE_CALLBACK, outcome, retried, at_us)
            self._finish(message, "FAILED", at_us, error=error, outcome=outcome)
        else:
            wait, reason = next_wait(message.retry_delay, retried, outcome.headers, at_us)
            message.retried += 1
            message.state = "RETRY"
            message.waiting_since_us = at_us
            self.log(message, "RETRY", at_us, error=error, next_us=at_us + wait)
            self.plan(message, at_us + wait, reason)

    # -- callbacks -------------------------------------------------------------------------------

    def _report(
        self, message: Message, kind: Kind, outcome: Outcome, retried: int, at_us: int
    ) -> None:
        settings = message.settings
        if kind == CALLBACK:
            url, nested = settings.callback, settings.callback_headers
        else:
            url, nested = settings.failure_callback, settings.failure_callback_headers
        if url is None or self.mishaps.callback(message, kind, url):
            return
        body = callback_body(
            message,
            outcome,
            retried=retried,
            dlq_id=message.dlq_id if kind == FAILURE_CALLBACK else None,
            no_answer_status=self.settings.no_answer_status,
            size=self.limits.message_size,
            spelling=self.settings.source_spelling,
            more=self.workflow.callback_fields(message),
        )
        self.publisher.publish_callback(message, kind, url, nested, body, at_us)

    # -- ends ------------------------------------------------------------------------------------

    def _finish(
        self,
        message: Message,
        state: str,
        at_us: int,
        *,
        error: str | None = None,
        outcome: Outcome | None = None,
    ) -> None:
        message.state = state
        message.finished_us = at_us
        message.due_us = None
        self.pending.pop(message.id, None)
        self.log(message, state, at_us, error=error, outcome=outcome)
        self.workflow.finished(message, at_us)
        self._settle(message)

    def _settle(self, message: Message) -> None:
        """Free what waits for a message, once it and all callbacks about it have ended."""
        if message.open_children or not (message.finished or message.state == "CANCEL_REQUESTED"):
            return
        if message.extra.get("settled"):
            return
        message.extra["settled"] = True
        if message.queue_name is not None:
            queue = self.queues.by_name.get(message.queue_name)
            if queue is not None and message.id in queue.active:
                queue.active.discard(message.id)
                self.pump_queue(queue)
        if message.source_id is not None:
            source = self.messages.get(message.source_id)
            if source is not None:
                source.open_children -= 1
                self._settle(source)

    # -- queues and flow control -----------------------------------------------------------------

    def pump_queue(self, queue: OrderedQueue) -> None:
        """Start the next messages of a queue while it has free slots."""
        now = self.clock.now_us()
        while not queue.paused and queue.waiting and len(queue.active) < queue.parallelism:
            message = self.messages[queue.waiting.popleft()]
            if message.id not in self.pending:
                continue
            queue.active.add(message.id)
            due = max(now, message.not_before_us)
            self.plan(message, due, "delay" if due > now else f"turn in queue {queue.name}")

    def upsert_queue(self, name: str, *, parallelism: int | None, paused: bool | None) -> None:
        """Create or change a queue.  Raises `QueueError`: 400 bad name, 412 beyond the plan."""
        with self.lock:
            limits = self.limits
            queue = self.queues.upsert(
                name,
                self.clock.now_us(),
                parallelism=parallelism,
                paused=paused,
                most=limits.queues,
                most_parallelism=limits.queue_parallelism,
            )
            if not queue.paused:
                self.resume_queue(name)

    def resume_queue(self, name: str) -> None:
        """Let a queue deliver again; 404 when there is none."""
        with self.lock:
            queue = self.queues.get(name)
            queue.paused = False
            now = self.clock.now_us()
            queue.updated_us = now
            parked, queue.parked = queue.parked, []
            for message_id in parked:
                if message_id in self.pending:
                    self.plan(self.messages[message_id], now, f"queue {name} resumed")
            self.pump_queue(queue)

    def pause_queue(self, name: str) -> None:
        """Stop a queue from delivering; 404 when there is none."""
        with self.lock:
            queue = self.queues.get(name)
            queue.paused = True
            queue.updated_us = self.clock.now_us()

    def delete_queue(self, name: str) -> None:
        """Remove a queue and cancel what waits in it; nothing happens when there is none."""
        with self.lock:
            queue = self.queues.by_name.get(name)
            if queue is None:
                return
            queue.paused = True
            self.cancel_all(
                [
                    self.messages[one]
                    for one in [*queue.active, *queue.waiting]
                    if one in self.pending and self.messages[one].state != "ACTIVE"
                ]
            )
            self.queues.by_name.pop(name, None)

    def next_due_us(self) -> int | None:
        """Return the next instant at which something happens to a message, or None.

        Schedules do not count.
        """
        due = [self.clock.next_due_us((self.lane,))]
        with self.lock:
            due += [end for end, _ in self.in_flight.values()]
            due += [timer.due_us for timer in self._flow_timers.values() if not timer.cancelled]
            due += [self.messages[one].due_us for one in self.overtaken]
        return min((one for one in due if one is not None), default=None)

    def lag(self, queue: OrderedQueue) -> int:
        """Return how many messages of a queue have not come to an end."""
        return sum(one in self.pending for one in [*queue.active, *queue.waiting])

    def flow_record(self, key: FlowKey) -> dict[str, object]:
        """Return a flow-control key as the API shows it."""
        waiting = sum(one in self.pending for one in key.waiting)
        return key.record(self.clock.now_us()) | {"waitListSize": waiting}

    def _flow_key(self, message: Message) -> FlowKey | None:
        flow = message.settings.flow
        return None if flow is None else self.flow.keys.get(flow.key)

    def pump_flow(self, key: FlowKey) -> None:
        """Start the waiting messages of a flow-control key while it lets them."""
        with self.lock:
            now = self.clock.now_us()
            while key.waiting and key.open(now):
                message = self.messages[key.waiting.popleft()]
                if message.id not in self.pending:
                    continue
                key.start(message.id)
                self.plan(message, now, message.wait_reason)
            timer = self._flow_timers.pop(key.key, None)
            if timer is not None:
                timer.cancel()
            opens = key.reopens_us(now)
            if opens is not None:
                self._flow_timers[key.key] = self.clock.call_at(
                    opens, partial(self._flow_opens, key.key), label=f"flow control {key.key}"
                )

    def _flow_opens(self, name: str, at_us: int) -> None:
        with self.lock:
            self._flow_timers.pop(name, None)
            key = self.flow.keys.get(name)
            if key is not None:
                self.pump_flow(key)

    # -- logs ------------------------------------------------------------------------------------

    def log(
        self,
        message: Message,
        state: str,
        at_us: int,
        *,
        error: str | None = None,
        next_us: int | None = None,
        outcome: Outcome | None = None,
    ) -> None:
        """Record one step in the life of a message."""
        entry = LogEntry(self.next_sequence(), at_us, message.id, state, error, next_us, outcome)
        message.log.append(entry)
        self.logs.entries.append(entry)

    # -- copies ----------------------------------------------------------------------------------

    def snapshot(self) -> Saved:
        """Return a copy of all data; further attempts do not change it."""
        with self.lock:
            return save(self)

    def restore(self, saved: Saved) -> None:
        """Return to a copy: its data, and timers for what was waiting, in flight or scheduled."""
        with self.lock:
            for timer in [*self._timers.values(), *self._flow_timers.values()]:
                timer.cancel()
            self._timers.clear()
            self._flow_timers.clear()
            for schedule in self.schedules.by_id.values():
                self.schedules.plan(schedule, None)
            put_back(self, saved)
            self._performing = None
            for schedule in self.schedules.by_id.values():
                self.schedules.plan(schedule, schedule.next_us)
            for message_id, (end_us, _) in self.in_flight.items():
                self._await_end(message_id, end_us)
            for message in self.messages.values():
                if message.due_us is None:
                    continue
                if message.id in self.pending:
                    self._replan(message, message.due_us, message.id)
                elif message.state == "CANCEL_REQUESTED":
                    self._timers[message.id] = self.clock.call_at(
                        message.due_us, partial(self._canceled, message.id), label="cancel"
                    )
            for key in self.flow.keys.values():
                self.pump_flow(key)
        self.changed.notify()


def _non_retryable(outcome: Outcome) -> bool:
    flags = (
        first(outcome.headers, "Upstash-NonRetryable-Error"),
        first(outcome.headers, "Service-NonRetryable-Error"),
    )
    return outcome.status == NON_RETRYABLE and any(
        flag is not None and flag.strip().lower() == "true" for flag in flags
    )
