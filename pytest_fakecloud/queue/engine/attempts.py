"""Make delivery attempts and apply their outcomes.

Deliveries are performed without holding the lock, because a handler may call the queue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from ...core.calls import Headers
from ..errors import LoopError
from ..model import (
    CALLBACK,
    FAILURE_CALLBACK,
    NON_RETRYABLE,
    SECOND,
    Attempt,
    Delivery,
    Kind,
    Message,
    Outcome,
    Perform,
    first,
)
from ..wire.delivery import callback_body, delivery_of, failure_text
from ..wire.retry import next_wait
from ..wire.signing import Signer
from ..wire.text import as_text
from .admission import Admission
from .history import DeadLetters
from .lifecycle import Lifecycle, causing
from .overtaking import Overtaking
from .publishing import Publisher
from .state import State


class StartedAttempt(NamedTuple):
    """An attempt in progress, with its unsigned delivery."""

    message: Message
    attempt: Attempt
    delivery: Delivery


class AttemptRunner:
    """Makes the attempts of an engine, in any thread or in the running event loop.

    Timers call ``run``, ``run_async`` and ``start`` with their due time, which is not needed.
    """

    def __init__(
        self,
        state: State,
        lifecycle: Lifecycle,
        admission: Admission,
        dead_letters: DeadLetters,
        publisher: Publisher,
        *,
        perform: Perform,
        perform_async: Callable[[Delivery], Awaitable[Outcome]] | None,
        signer: Signer,
    ) -> None:
        self._state = state
        self._lifecycle = lifecycle
        self._admission = admission
        self.overtaking = Overtaking(state, admission)
        self._dead_letters = dead_letters
        self._publisher = publisher
        self.perform = perform
        self.perform_async = perform_async
        self.signer = signer

    def run(self, message_id: str, due_us: int) -> Attempt | None:
        """Make the due attempt in this thread; return None if it may not start now."""
        make = self.start(message_id, due_us)
        return None if make is None else make()

    def start(self, message_id: str, due_us: int) -> Callable[[], Attempt] | None:
        """Start the due attempt if it may start; return a function that makes it in any thread."""
        begun = self._begin_unless_overtaken(message_id)
        if begun is None:
            return None
        try:
            # Claim faults now, in the order of due times. Attempts may end in any order.
            self._claim_faults(begun)
        except BaseException as error:
            if self._must_raise(error):
                raise
            return None
        return partial(self._perform_begun, begun)

    async def run_async(self, message_id: str, due_us: int) -> Attempt | None:
        """Make the due attempt in the running event loop; return None if it may not start now.

        Exceptions are always raised, because only a call of the test awaits this method.
        """
        if self.perform_async is None:
            return self.run(message_id, due_us)
        begun = self._begin_unless_overtaken(message_id)
        if begun is None:
            return None
        self._claim_faults(begun)
        with self._as_cause(begun):
            delivery = self.signer.signed(begun.delivery, begun.attempt.faults)
            with self._state.attempt_hooks.delivering(delivery):
                outcome = await self.perform_async(delivery)
                if "duplicate" in begun.attempt.faults:
                    outcome = await self.perform_async(delivery)
        return self.finish(begun, outcome)

    def _perform_begun(self, begun: StartedAttempt) -> Attempt:
        try:
            with self._as_cause(begun):
                delivery = self.signer.signed(begun.delivery, begun.attempt.faults)
                with self._state.attempt_hooks.delivering(delivery):
                    outcome = self.perform(delivery)
                    if "duplicate" in begun.attempt.faults:
                        outcome = self.perform(delivery)
        except BaseException as error:
            if self._must_raise(error):
                raise
            return begun.attempt
        return self.finish(begun, outcome)

    @contextmanager
    def _as_cause(self, begun: StartedAttempt) -> Iterator[None]:
        """Make an attempt the cause of messages published in the block; finish it on an error."""
        token = causing.set(begun.message)
        try:
            yield
        except BaseException as error:
            self.finish(begun, Outcome(exception=error))
            raise
        finally:
            causing.reset(token)

    def _must_raise(self, error: BaseException) -> bool:
        """Return whether a call of the test must raise this error.

        A background delivery ends an advance of the clock only with an error like ``pytest.fail()``.
        """
        state = self._state
        is_fatal = state.clock.driving and not isinstance(error, Exception)
        return state.lane != "background" or is_fatal

    def _claim_faults(self, begun: StartedAttempt) -> None:
        delivery_hooks = self._state.delivery_hooks
        if delivery_hooks.active:
            with self._as_cause(begun):
                begun.attempt.faults = delivery_hooks.before(begun.message, begun.delivery)

    def _begin_unless_overtaken(self, message_id: str) -> StartedAttempt | None:
        if self._state.delivery_hooks.active and self.overtaking.delay_if_overtaken(message_id):
            return None
        return self.begin(message_id)

    def begin(self, message_id: str) -> StartedAttempt | None:
        """Start the due attempt; return None if it may not start now.

        An attempt may not start while its queue or flow-control key is paused or full. It is
        scheduled again when there is room. Raises ``LoopError`` if messages publish each other
        endlessly; the message then stays pending.
        """
        state = self._state
        with state.lock:
            message = state.pending.get(message_id)
            if message is None or message.state == "ACTIVE" or state.closed:
                return None
            state.timers.pop(message_id, None)
            now = state.clock.now_us()
            if not self._admission.admit_or_wait(message, now):
                return None
            causes = self._lifecycle.causes
            causes.note_attempt(message, now)
            loop = causes.endless_loop(message)
            if loop is not None:
                self._cut_loop(message, now, loop)
                return None
            attempt = Attempt(
                message_id=message.id,
                url=as_text(message.url),
                kind=message.kind,
                number=len(message.attempts) + 1,
                sequence=state.next_sequence(),
                at_us=now,
                waited_us=now - message.waiting_since_us,
                wait_reason=message.wait_reason,
            )
            message.state = "ACTIVE"
            message.due_us = None
            state.active.add(message.id)
            state.queues.note_started(message)
            message.attempts.append(attempt)
            state.log(message, "ACTIVE", now)
            causes.under_way[message.id] = message
            return StartedAttempt(message, attempt, self._delivery(message, now))

    def _cut_loop(self, message: Message, now: int, loop: str) -> None:
        state = self._state
        self._admission.release_flow_slot(message)
        self._admission.release_global_slot(message)
        message.depth = message.chain = 0
        if state.lane == "background":
            # Report instead of raising in the background, where no caller could catch it.
            message.due_us = None
            message.wait_reason = "stopped in an endless loop; cancel it or publish it again"
            state.attempt_hooks.endless_loop(loop)
            return
        state.plan(message, now, message.wait_reason)
        raise LoopError(loop)

    def _delivery(self, message: Message, now: int) -> Delivery:
        settings = self._state.settings
        body = self._state.workflow.delivery_body(message, now)
        return delivery_of(
            message, body, now, prefix=settings.header_prefix, region=settings.region
        )

    def finish(self, begun: StartedAttempt, outcome: Outcome) -> Attempt:
        """Apply an outcome after its virtual time, unless the queue has been reset or restored."""
        state = self._state
        message, attempt = begun.message, begun.attempt
        timeout_us = begun.delivery.timeout_us
        if outcome.virtual_us > timeout_us:
            text = f"no answer within the timeout of {timeout_us / SECOND:g} s"
            outcome = Outcome(
                exception=TimeoutError(text), virtual_us=timeout_us, where=outcome.where
            )
        state.attempt_hooks.before_outcome(begun.delivery, outcome)
        with state.lock:
            under_way = self._lifecycle.causes.under_way
            if under_way.get(message.id) is message:
                del under_way[message.id]
            if state.messages.get(message.id) is not message:
                return attempt
            attempt.where = outcome.where
            if outcome.virtual_us > 0:
                end = attempt.at_us + outcome.virtual_us
                state.in_flight[message.id] = (end, outcome)
                self.await_end(message.id, end)
            else:
                self._apply_outcome(message, outcome, max(attempt.at_us, state.clock.now_us()))
        self.overtaking.end()
        state.attempt_hooks.after_attempt(message, attempt, begun.delivery, outcome)
        return attempt

    def await_end(self, message_id: str, end_us: int) -> None:
        """Schedule the end of an attempt whose destination takes virtual time."""
        state = self._state
        state.plan_own(message_id, end_us, partial(self._virtual_time_passed, message_id), "answer")

    def _virtual_time_passed(self, message_id: str, at_us: int) -> None:
        state = self._state
        with state.lock:
            found = state.in_flight.pop(message_id, None)
            if found is None:
                return
            state.timers.pop(message_id, None)
            _, outcome = found
            self._apply_outcome(state.messages[message_id], outcome, at_us)

    def _apply_outcome(self, message: Message, outcome: Outcome, at_us: int) -> None:
        state = self._state
        attempt = message.attempts[-1]
        is_lost = "crash_after_response" in attempt.faults
        if not is_lost:
            outcome = state.workflow.checked(message, outcome)
        attempt.status = outcome.status
        attempt.headers = Headers(tuple(outcome.headers))
        attempt.body = outcome.body
        attempt.exception = outcome.exception
        attempt.ended_us = at_us
        state.active.discard(message.id)
        key = self._admission.flow_key(message)
        if key is not None:
            key.end(message.id)
        if is_lost:
            attempt.state = "lost"
            self._redeliver_at_once(message, at_us, "the queue crashed before it stored the answer")
        elif outcome.delivered:
            attempt.state = "delivered"
            attempt.is_final = True
            message.last_outcome = outcome
            self._publish_callback(message, CALLBACK, outcome, message.retried, at_us)
            self._lifecycle.finish(message, "DELIVERED", at_us, outcome=outcome)
        else:
            self._apply_failure(message, attempt, outcome, at_us)
        if key is not None:
            self._admission.start_waiting_for_flow(key)
        if state.limits.parallelism is not None:
            self._admission.start_waiting()

    def _redeliver_at_once(self, message: Message, at_us: int, reason: str) -> None:
        state = self._state
        if message.state == "CANCEL_REQUESTED":
            self._lifecycle.finish(message, "CANCELED", at_us)
            return
        message.state = "RETRY"
        message.waiting_since_us = at_us
        state.plan(message, at_us, reason)

    def _apply_failure(
        self, message: Message, attempt: Attempt, outcome: Outcome, at_us: int
    ) -> None:
        state = self._state
        retried = message.retried
        attempt.state = "failed"
        message.last_outcome = outcome
        message.last_error_us = at_us
        error = failure_text(outcome)
        cancelled = message.state == "CANCEL_REQUESTED"
        state.log(message, "ERROR", at_us, error=error, outcome=outcome)
        attempt.is_final = retried >= message.max_retries or _non_retryable(outcome)
        self._publish_callback(message, CALLBACK, outcome, retried, at_us)
        if cancelled:
            attempt.is_final = True
            self._lifecycle.finish(message, "CANCELED", at_us)
        elif attempt.is_final:
            message.dlq_id = self._dead_letters.add(message, at_us)
            if message.api != "v1":
                self._publish_callback(message, FAILURE_CALLBACK, outcome, retried, at_us)
            self._lifecycle.finish(message, "FAILED", at_us, error=error, outcome=outcome)
        else:
            wait, reason = next_wait(message.retry_delay, retried, outcome.headers, at_us)
            message.retried += 1
            message.state = "RETRY"
            message.waiting_since_us = at_us
            state.log(message, "RETRY", at_us, error=error, next_us=at_us + wait)
            state.plan(message, at_us + wait, reason)

    def _publish_callback(
        self, message: Message, kind: Kind, outcome: Outcome, retried: int, at_us: int
    ) -> None:
        state = self._state
        settings = message.settings
        if kind == CALLBACK:
            url, nested = settings.callback, settings.callback_headers
        else:
            url, nested = settings.failure_callback, settings.failure_callback_headers
        delivery_hooks = state.delivery_hooks
        if url is None or (delivery_hooks.active and delivery_hooks.callback(message, kind, url)):
            return
        body = callback_body(
            message,
            outcome,
            retried=retried,
            dlq_id=message.dlq_id,
            no_answer_status=state.settings.no_answer_status,
            size=state.limits.message_size,
            spelling=state.settings.source_id,
            more=state.workflow.callback_fields(message),
        )
        self._publisher.publish_callback(message, kind, url, nested, body, at_us)


def _non_retryable(outcome: Outcome) -> bool:
    if outcome.no_workflow:
        return True
    names = ("Upstash-NonRetryable-Error", "Service-NonRetryable-Error")
    flags = [(first(outcome.headers, name) or "").strip().lower() for name in names]
    return outcome.status == NON_RETRYABLE and "true" in flags
