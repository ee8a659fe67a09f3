"""The queue's state machine, without HTTP and threads: attempts, and the engine as a whole.

Timers of the clock trigger all changes. A chain of interceptors around the engine performs the
deliveries. It is called without holding the lock, because a handler may call the queue.

Decided here: an attempt starts when its timer fires. A response that takes virtual time is applied
when that time has passed. An overtaken message becomes due again after the next delivery or after
one second. In an ordered queue, it instead changes places with the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ...core.calls import Headers
from ...core.clock import Timekeeper
from ...core.ids import Ids
from ...core.timers import finished
from ..errors import LoopError, bad_request, not_found
from ..model import (
    NON_RETRYABLE,
    SECOND,
    SUCCESS,
    Attempt,
    Deliver,
    DeliveryInterceptor,
    Exchange,
    FlowKey,
    Kind,
    Message,
    OrderedQueue,
    Outcome,
    Perform,
    SigningKeys,
    first,
)
from ..wire.values import as_text, callback_body, delivery_of, failure_text
from ..wire.waits import next_wait
from ..workflow.model import EventWait, WorkflowRun
from .bulk_actions import BulkAction
from .causes import causing
from .data import copies
from .publishing import Publisher
from .schedules import MessageSchedule
from .url_groups import UrlGroup


class QueueCopy(NamedTuple):
    """A copy of all data of an engine."""

    messages: dict[str, Message]
    groups_of_tasks: dict[str, list[str]]
    in_flight: dict[str, tuple[int, Outcome]]
    waiting_for_slot: deque[str]
    flow_keys: dict[str, FlowKey]
    url_groups: dict[str, UrlGroup]
    queues: dict[str, OrderedQueue]
    schedules: dict[str, MessageSchedule]
    dead_letters: dict[str, str]
    deduplicated: dict[str, tuple[int, str]]
    usage: dict[int, tuple[int, int]]
    bulk_actions: dict[str, BulkAction]
    runs: dict[str, WorkflowRun]
    waiters: list[EventWait]
    notified: dict[tuple[str, str], bytes]
    sequence: int
    dead_letter_count: int


class Engine(Publisher):
    """The data and rules of one queue.

    Methods about messages are those of the engine itself. They all change the same data, but are too
    many for one module, so they are in four layers, each of which knows only those below it: the data,
    the timers, and which due messages may start (``admission``), the life of messages (``messages``),
    publishing (``publishing``), and here the attempts. Look for an attribute in this order.

    What else endpoints change is in a part with data of its own. It has the name of its module and of
    the module in ``queue/rest``, so that one finds it from the endpoint: ``queues``, ``flow_control``,
    ``url_groups``, ``schedules``, ``dead_letters``, ``bulk_actions``, ``workflow``
    (``queue/workflow/runs.py``), ``keys`` (``queue/model.py``) and ``quota``, the limits of the plan.

    An endpoint has the lock, unless it lingers (`QueueApp.run_endpoint()`); timers and the actions and
    views of tests take it. It is re-entrant: methods that other threads may call without it take it
    themselves, and all others require it.

    Attempts are made in any thread or in the running event loop. ``perform`` makes the request of a
    delivery. ``interceptors`` are around it, outermost first. ``overtaken`` are the ids of messages that
    a fault lets other messages overtake.
    """

    def __init__(
        self, clock: Timekeeper, ids: Ids, *, perform: Perform, keys: SigningKeys, **options: Any
    ) -> None:
        super().__init__(clock, ids, **options)
        self.planning.connect(self.run, self.run_async, self.start)
        self.keys = keys
        self.perform = perform
        self.overtaken: list[str] = []
        self._reported_loop: int | None = None
        """The drive of the last endless loop in the background that was reported."""
        self._connect(())

    def twin(self, clock: Timekeeper, ids: Ids) -> Engine:
        """Return a driven engine with the same rules, signing keys and destinations, and no data."""
        return Engine(clock, ids, perform=self.perform, keys=self.keys, settings=self.data.settings)

    def intercept(self, *added: DeliveryInterceptor) -> None:
        """Add interceptors to the chain around deliveries. The first one is the outermost."""
        self._connect([*self.interceptors, *added])

    def stop_intercepting(self, removed: DeliveryInterceptor) -> None:
        """Remove this very interceptor, if it is in the chain."""
        if removed in self.interceptors:
            self._connect([other for other in self.interceptors if other is not removed])

    def _connect(self, interceptors: Sequence[DeliveryInterceptor]) -> None:
        self.interceptors = interceptors
        around = [
            interceptor
            for interceptor in interceptors
            if type(interceptor).deliver is not DeliveryInterceptor.deliver
        ]
        self._faults = [
            interceptor
            for interceptor in interceptors
            if type(interceptor).active is not DeliveryInterceptor.active
        ]
        outer = [interceptor.deliver for interceptor in around if interceptor.encloses_engine]
        inner = [interceptor.deliver for interceptor in around if not interceptor.encloses_engine]
        self._chain: Deliver = _send
        for deliver in reversed([*outer, self._deliver, *inner]):
            self._chain = partial(deliver, proceed=self._chain)

    # -- attempts; timers call the first three with the due time, which is not needed -------------

    def run(self, message_id: str, due_us: int, begun: Exchange | None = None) -> Attempt | None:
        """Make the due attempt in this thread; return None if it may not start now.

        ``begun`` is an attempt that ``start()`` has started.
        """
        try:
            exchange = begun or self.begin(message_id)
            if exchange is None:
                return None
            try:
                outcome = finished(self._chain(exchange))
            except BaseException as error:
                # A background delivery ends an advance of the clock only with one like pytest.fail().
                is_fatal = self.data.clock.driving and not isinstance(error, Exception)
                if self.data.lane != "background" or is_fatal:
                    raise
                return exchange.attempt
        except BaseException:
            self._abandon(message_id)
            raise
        if outcome.raises and outcome.exception is not None and self.data.lane == "driven":
            raise outcome.exception
        return exchange.attempt

    async def run_async(self, message_id: str, due_us: int) -> Attempt | None:
        """Make the due attempt in the running event loop; return None if it may not start now.

        Exceptions are always raised, because only a call of the test awaits this method.
        """
        try:
            exchange = self.begin(message_id)
            if exchange is None:
                return None
            exchange.in_loop = True
            outcome = await self._chain(exchange)
        except BaseException:
            self._abandon(message_id)
            raise
        if outcome.raises and outcome.exception is not None and self.data.lane == "driven":
            raise outcome.exception
        return exchange.attempt

    def start(self, message_id: str, due_us: int) -> Callable[[], Attempt | None] | None:
        """Start the due attempt if it may start; return a function that makes it in any thread."""
        exchange = self.begin(message_id)
        if exchange is None:
            return None
        make = partial(self.run, message_id, due_us, exchange)
        if exchange.error is None:
            return make
        make()
        return None

    def _abandon(self, message_id: str) -> None:
        """Plan the next attempt of a message after an exception that ended neither the attempt nor
        the message, such as that of a signal's handler.
        """
        with self.data.lock:
            message = self.data.messages.get(message_id)
            if (
                message is None
                or message_id in self.planning.timers
                or message_id in self.data.in_flight
            ):
                return
            now = self.data.clock.now_us()
            self.data.under_way.pop(message_id, None)
            if message_id not in self.data.pending:
                self.release_waiting(message)
            elif message.state == "ACTIVE":
                if message.attempts and message.attempts[-1].ended_us is None:
                    message.attempts[-1].state = "lost"
                    message.attempts[-1].ended_us = now
                message.state = "RETRY"
                message.waiting_since_us = now
                self.planning.plan(message, now, "an exception interrupted the delivery")
            elif message.due_us is not None:
                self.planning.plan(message, message.due_us, message.wait_reason)

    async def _deliver(self, exchange: Exchange, proceed: Deliver) -> Outcome:
        """Perform a delivery as the cause of messages published during it, and apply the outcome."""
        token = causing.set(exchange.message)
        try:
            outcome = self._refused(exchange.message) or await proceed(exchange)
        except BaseException as error:
            self.finish(exchange, Outcome(exception=error))
            raise
        finally:
            causing.reset(token)
        return self.finish(exchange, outcome)

    def _refused(self, message: Message) -> Outcome | None:
        """Return the outcome of a delivery that a limit of its workflow run prevents, or None."""
        if message.workflow is None:
            return None
        with self.data.lock:
            return self.workflow.exceeded(message)

    def begin(self, message_id: str) -> Exchange | None:
        """Start the due attempt; return None if it may not start now.

        An attempt may not start while its queue or flow-control key is paused or full. It is
        scheduled again when there is room. Raises ``LoopError`` if messages publish each other
        endlessly; the message then stays pending.
        """
        faults = []
        for interceptor in self._faults:
            if interceptor.active:
                if self._delay_if_overtaken(interceptor, message_id):
                    return None
                faults.append(interceptor)
        with self.data.lock:
            message = self.data.pending.get(message_id)
            if message is None or message.state == "ACTIVE" or self.data.closed:
                return None
            now = self.data.clock.now_us()
            if message.due_us is not None and message.due_us > now:
                return None  # An interrupted attempt's timer was planned again.
            self.planning.timers.pop(message_id, None)
            settings = message.settings
            is_limited = (
                message.queue_name is not None
                or settings.flow is not None
                or self.data.limits.parallelism is not None
            )
            if is_limited and not self.admission.admit_or_wait(message, now):
                return None
            loop = self.causes.endless_loop(message, now)
            if loop is not None:
                self._cut_loop(message, now, loop)
                return None
            self.data.sequence = sequence = self.data.sequence + 1
            attempt = Attempt(
                message.id, as_text(message.url), message.kind, len(message.attempts) + 1, sequence,
                now, now - message.waiting_since_us, message.wait_reason,
            )  # fmt: skip
            entry = self.data.log_entry(message, "ACTIVE", now)
            # These statements call no function, so a signal's handler cannot raise between them.
            message.log += [entry]
            message.attempts += [attempt]
            message.state = "ACTIVE"
            message.due_us = None
            self.parallelism.active.add(message.id)
            queue = self.queues.of(message)
            if queue is not None and message.id in queue.active:
                queue.active.move_to_end(message.id)
            self.data.under_way[message.id] = message
            body = message.body
            if message.workflow is not None:
                body = self.workflow.delivery_body(message, now)
            prefix, region = self.data.settings.header_prefix, self.data.settings.region
            delivery = delivery_of(message, body, prefix=prefix, region=region)
            exchange = Exchange(message, attempt, delivery, self.perform)
        if faults:
            self._claim(faults, exchange)
        return exchange

    def _claim(self, faults: list[DeliveryInterceptor], exchange: Exchange) -> None:
        """Claim the faults of an attempt now, in the order of due times. Attempts end in any order."""
        token = causing.set(exchange.message)
        try:
            for fault in faults:
                exchange.attempt.faults += fault.before(exchange.message, exchange.delivery)
        except BaseException as error:
            exchange.error = error
        finally:
            causing.reset(token)

    def _cut_loop(self, message: Message, now: int, loop: str) -> None:
        self.flow_control.release(message)
        self.flow_control.release_slot(message)
        message.depth = message.chain = 0
        message.causes = frozenset()
        if self.data.lane == "background":
            # Report instead of raising in the background, where no caller could catch it.
            message.due_us = None
            message.wait_reason = "stopped in an endless loop; cancel it or publish it again"
            if self._reported_loop != self.causes.drive:
                # Report the first of the messages of a loop, which may be many.
                self._reported_loop = self.causes.drive
                self.data.report("unmet", loop)
            return
        self.planning.plan(message, now, message.wait_reason)
        raise LoopError(loop)

    def finish(self, exchange: Exchange, outcome: Outcome) -> Outcome:
        """Apply an outcome after its virtual time, and return it, or the error of a timeout."""
        message, attempt = exchange.message, exchange.attempt
        timeout_us = exchange.delivery.timeout_us
        if outcome.virtual_us > timeout_us:
            text = f"no answer within the timeout of {timeout_us / SECOND:g} s"
            outcome = Outcome(
                exception=TimeoutError(text), virtual_us=timeout_us, where=outcome.where
            )
        with self.data.lock:
            if self.data.under_way.get(message.id) is message:
                del self.data.under_way[message.id]
            if self.data.messages.get(message.id) is not message:
                return outcome
            attempt.where = outcome.where
            if outcome.virtual_us > 0:
                end = attempt.at_us + outcome.virtual_us
                self.data.in_flight[message.id] = (end, outcome)
                self.await_end(message.id, end)
            else:
                self._apply_outcome(message, outcome, max(attempt.at_us, self.data.clock.now_us()))
        for message_id in list(self.overtaken):
            self._end_delay(message_id, self.data.clock.now_us())
        return outcome

    def await_end(self, message_id: str, end_us: int) -> None:
        self.planning.plan_own(
            message_id, end_us, partial(self._virtual_time_passed, message_id), "answer"
        )

    def _virtual_time_passed(self, message_id: str, at_us: int) -> None:
        with self.data.lock:
            ended = self.data.in_flight.pop(message_id, None)
            if ended is None:
                return
            self.planning.timers.pop(message_id, None)
            self._apply_outcome(self.data.messages[message_id], ended[1], at_us)

    def _apply_outcome(self, message: Message, outcome: Outcome, at_us: int) -> None:
        attempt = message.attempts[-1]
        is_lost = "crash_after_response" in attempt.faults
        if message.workflow is not None and not is_lost:
            outcome = self.workflow.checked(message, outcome)
        attempt.status = outcome.status
        attempt.headers = Headers(tuple(outcome.headers))
        attempt.body = outcome.body
        attempt.exception, attempt.run_error = outcome.exception, outcome.run_error
        attempt.ended_us = at_us
        self.parallelism.active.discard(message.id)
        key = None if message.settings.flow is None else self.flow_control.of(message)
        if key is not None:
            key.active.pop(message.id, None)
        if is_lost:
            attempt.state = "lost"
            if message.state == "CANCEL_REQUESTED":
                self.end_message(message, "CANCELED", at_us)
            else:
                message.state = "RETRY"
                message.waiting_since_us = at_us
                self.planning.plan(message, at_us, "the queue crashed before it stored the answer")
        elif outcome.status in SUCCESS and outcome.run_error is None:
            attempt.state = "delivered"
            attempt.is_final = True
            message.last_outcome = outcome
            if message.settings.callback is not None:
                self._report_outcome(message, "callback", outcome, at_us)
            self.end_message(message, "DELIVERED", at_us, outcome=outcome)
        else:
            self._apply_failure(message, attempt, outcome, at_us)
        if key is not None:
            self.flow_control.start_waiting(key)
        if self.data.limits.parallelism is not None:
            self.flow_control.start_all_waiting()

    def _apply_failure(
        self, message: Message, attempt: Attempt, outcome: Outcome, at_us: int
    ) -> None:
        retried = message.retried
        attempt.state = "failed"
        message.last_outcome = outcome
        message.last_error_us = at_us
        error = failure_text(outcome)
        cancelled = message.state == "CANCEL_REQUESTED"
        self.data.log(message, "ERROR", at_us, error=error, outcome=outcome)
        attempt.is_final = cancelled or retried >= message.max_retries or _non_retryable(outcome)
        if attempt.is_final or message.workflow is None or not message.workflow.is_call:
            self._report_outcome(message, "callback", outcome, at_us)
        if cancelled:
            self.end_message(message, "CANCELED", at_us)
        elif attempt.is_final:
            self.dead_letters.add(message, at_us)
            if message.api != "v1":
                self._report_outcome(message, "failure_callback", outcome, at_us)
            self.end_message(message, "FAILED", at_us, error=error, outcome=outcome)
        else:
            wait, reason = next_wait(message.settings.retry_delay, retried, outcome.headers, at_us)
            message.retried += 1
            message.state = "RETRY"
            message.waiting_since_us = at_us
            self.data.log(message, "RETRY", at_us, error=error, next_us=at_us + wait)
            self.planning.plan(message, at_us + wait, reason)

    def _report_outcome(self, message: Message, kind: Kind, outcome: Outcome, at_us: int) -> None:
        settings = message.settings
        if kind == "callback":
            url, nested = settings.callback, settings.callback_headers
        else:
            url, nested = settings.failure_callback, settings.failure_callback_headers
        if url is None:
            return
        for interceptor in self._faults:
            if interceptor.active and interceptor.callback(message, kind, url):
                return
        more = {} if message.workflow is None else self.workflow.callback_fields(message)
        size = self.data.limits.message_size
        body = callback_body(message, outcome, self.data.settings, size, more)
        self.publish_callback(message, kind, url, nested, body, at_us)

    def _delay_if_overtaken(self, fault: DeliveryInterceptor, message_id: str) -> bool:
        """Return whether a fault lets other messages overtake a due message; if so, delay it."""
        with self.data.lock:
            message = self.data.pending.get(message_id)
            if message is None or message.overtaken_at == message.retried:
                return False
            # Remove the timer, which has fired. The message may return to its queue without a time.
            self.planning.timers.pop(message_id, None)
        try:
            # Ask without the lock, because a fault may call a function of the test.
            is_overtaken = fault.overtaken(message)
        except BaseException:
            with self.data.lock:
                # Keep the message due, but do not ask again, because the error could be repeated.
                message.overtaken_at = message.retried
                self._make_due(message_id, self.data.clock.now_us())
            raise
        if is_overtaken:
            with self.data.lock:
                message.overtaken_at = message.retried
                self._delay(message)
        return is_overtaken

    def _delay(self, message: Message) -> None:
        message.due_us = None
        self.flow_control.release(message)
        self.flow_control.release_slot(message)
        if self.queues.let_next_overtake(message):
            return
        self.overtaken.append(message.id)
        message.due_us = self.data.clock.now_us() + SECOND
        end_delay = partial(self._end_delay, message.id)
        self.planning.plan_own(message.id, message.due_us, end_delay, "overtaken")

    def _end_delay(self, message_id: str, now: int) -> None:
        with self.data.lock:
            if message_id in self.overtaken:
                self.overtaken.remove(message_id)
                self._make_due(message_id, now)

    def _make_due(self, message_id: str, now: int) -> None:
        message = self.data.pending.get(message_id)
        if message is not None:
            self.planning.plan(message, now, message.wait_reason)

    def retry_now(self, message_id: str) -> None:
        """Make a message that waits for its delivery or its next retry due now.

        Raises ``QueueError``: 404 if it does not wait, 400 if it belongs to a queue. The number of
        retries that are left does not change. Source: the vendor's page on retrying now. Decided
        here: a message that waits for flow control or for parallelism continues to wait, and the
        message of a run that waits for an event is delivered as its timeout.
        """
        with self.data.lock:
            tasks = self.data.tasks(message_id)
            if any(message.queue_name is not None for message in tasks):
                raise bad_request(
                    f"message {message_id} belongs to a queue, which delivers in order"
                )
            waiting = [message for message in tasks if message.state in ("CREATED", "RETRY")]
            if not waiting:
                raise not_found("waiting message", message_id)
            now = self.data.clock.now_us()
            for message in waiting:
                if message.id in self.overtaken:
                    self.overtaken.remove(message.id)
                if message.due_us is not None:
                    self.planning.plan(message, now, "retried now")

    def next_due_us(self) -> int | None:
        """Return the time of the next change of a message, or None. Runs of schedules do not count."""
        with self.data.lock:
            due = [self.planning.next_planned_us()]
            due += [end for end, _ in self.data.in_flight.values()]
            due += [timer.due_us for timer in self.flow_control.timers.values()]
            due += [
                self.data.pending[message_id].due_us
                for message_id in self.overtaken
                if message_id in self.data.pending
            ]
        return min((due_us for due_us in due if due_us is not None), default=None)

    def close(self) -> None:
        with self.data.lock:
            self.data.closed = True
            self._cancel_timers()
            self.planning.close()
            self.interceptors, self._faults = (), []
            self._chain = _send

    def _cancel_timers(self) -> None:
        self.planning.unplan_all()
        self.flow_control.unplan()
        for schedule in self.schedules.by_id.values():
            self.schedules.unplan(schedule)
        self.bulk_actions.unplan()

    def _data(self) -> dict[str, tuple[object, str, Callable[[Any], Any]]]:
        """Return the place of each field of a ``QueueCopy``: the object, its attribute, and the
        function that copies it.
        """
        return {
            "messages": (self.data, "messages", copies),
            "groups_of_tasks": (self.data, "groups_of_tasks", copies),
            "in_flight": (self.data, "in_flight", dict),
            "waiting_for_slot": (self.parallelism, "waiting", deque),
            "flow_keys": (self.flow_control, "by_name", copies),
            "url_groups": (self.url_groups, "by_name", copies),
            "queues": (self.queues, "by_name", copies),
            "schedules": (self.schedules, "by_id", copies),
            "dead_letters": (self.dead_letters, "by_id", dict),
            "deduplicated": (self.deduplication, "keys", dict),
            "usage": (self.quota, "usage", dict),
            "bulk_actions": (self.bulk_actions, "by_id", dict),
            "runs": (self.workflow, "runs", copies),
            "waiters": (self.workflow, "waiters", list),
            "notified": (self.workflow, "notified", dict),
        }

    def snapshot(self) -> QueueCopy:
        """Return a copy of all data, which can be restored any number of times."""
        with self.data.lock:
            return QueueCopy(
                sequence=self.data.sequence,
                dead_letter_count=self.dead_letters.count,
                **{
                    field: copy(getattr(owner, attribute))
                    for field, (owner, attribute, copy) in self._data().items()
                },
            )

    def restore(self, saved: QueueCopy) -> None:
        """Restore a copy, and start the timers of its messages and schedules.

        A message whose attempt was in progress when the copy was made becomes pending again.
        """
        with self.data.lock:
            try:
                self._restore(saved)
            except BaseException:
                # A signal's handler may have interrupted it, and messages would have no timers.
                self._restore(saved)
                raise

    def restore_numbers(self, saved: QueueCopy) -> None:
        """Give numbers again that were given since a copy was made, and that nothing has any more."""
        with self.data.lock:
            self.data.sequence, self.dead_letters.count = saved.sequence, saved.dead_letter_count

    def _restore(self, saved: QueueCopy) -> None:
        with self.data.lock:
            self._cancel_timers()
            for field, (owner, attribute, copy) in self._data().items():
                setattr(owner, attribute, copy(getattr(saved, field)))
            # Numbers are never given twice, also after an earlier state is restored.
            self.data.sequence = max(self.data.sequence, saved.sequence)
            self.dead_letters.count = max(self.dead_letters.count, saved.dead_letter_count)
            self.parallelism.active = set(self.data.in_flight)
            self.overtaken.clear()
            self.data.pending = {
                message.id: message for message in self.data.messages.values() if message.pending
            }
            for message in self.data.pending.values():
                if message.state == "ACTIVE" and message.id not in self.data.in_flight:
                    message.state = "RETRY"
                    message.due_us = self.data.clock.now_us()
            self._to_forget.clear()
            for message in self.data.messages.values():
                self._note_finished(message)
            self.data.under_way.clear()
            for schedule in self.schedules.by_id.values():
                self.schedules.replan(schedule)
            self.bulk_actions.replan()
            for message_id, (end_us, _) in self.data.in_flight.items():
                self.await_end(message_id, end_us)
            for message in self.data.messages.values():
                if message.due_us is None:
                    continue
                if message.pending:
                    self.planning.plan(message, message.due_us, message.wait_reason)
                elif message.state == "CANCEL_REQUESTED":
                    self.plan_end_of_cancelled(message, message.due_us)
            self.flow_control.replan()
            self.flow_control.start_all_waiting()


async def _send(exchange: Exchange) -> Outcome:
    """Send the request: the innermost part of the chain. It waits only in ``run_async()``."""
    if exchange.error is not None:
        raise exchange.error
    return await exchange.perform(exchange.delivery, exchange.in_loop)


def _non_retryable(outcome: Outcome) -> bool:
    if outcome.run_error is not None:
        return True
    names = ("Upstash-NonRetryable-Error", "Service-NonRetryable-Error")
    flags = [(first(outcome.headers, name) or "").strip().lower() for name in names]
    return outcome.status == NON_RETRYABLE and "true" in flags
