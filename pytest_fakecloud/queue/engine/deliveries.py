"""The deliveries of due messages, through a chain of interceptors around the engine.

The chain is called without holding the lock, because a handler may call the queue.

Decided here: an attempt starts when its timer fires.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...core.timers import finished
from ..errors import bad_request, not_found
from ..model import SECOND, Attempt, Deliver, DeliveryInterceptor, Exchange, Message, Outcome
from ..workflow.runs import WorkflowRuns
from .attempts import AttemptStarter
from .causes import causing
from .data import QueueData
from .interceptors import Interceptors
from .lifecycle import Lifecycle
from .outcomes import Outcomes
from .overtaking import Overtaking
from .planning import Planning


class Deliveries:
    """Makes the attempts of due messages, in any thread or in the running event loop."""

    def __init__(
        self,
        data: QueueData,
        planning: Planning,
        workflow: WorkflowRuns,
        lifecycle: Lifecycle,
        overtaking: Overtaking,
        attempts: AttemptStarter,
        outcomes: Outcomes,
        interceptors: Interceptors,
    ) -> None:
        self._data = data
        self._planning = planning
        self._workflow = workflow
        self._lifecycle = lifecycle
        self._overtaking = overtaking
        self._attempts = attempts
        self._outcomes = outcomes
        self._interceptors = interceptors
        self._connect(())

    # -- interceptors ------------------------------------------------------------------------------

    def intercept(self, *added: DeliveryInterceptor) -> None:
        """Add interceptors to the chain around deliveries. The first one is the outermost."""
        self._connect([*self._interceptors.all, *added])

    def stop_intercepting(self, removed: DeliveryInterceptor) -> None:
        """Remove this very interceptor, if it is in the chain."""
        current = self._interceptors.all
        if removed in current:
            self._connect([other for other in current if other is not removed])

    def _connect(self, interceptors: Sequence[DeliveryInterceptor]) -> None:
        self._interceptors.all = interceptors
        self._chain: Deliver = self._interceptors.around(self._deliver)

    def close(self) -> None:
        """Remove the interceptors, and forget the chain, which refers back to this object."""
        self._interceptors.clear()
        self._chain = self._interceptors.send

    # -- timers call these three with the due time, which is not needed ---------------------------

    def run(self, message_id: str, due_us: int, begun: Exchange | None = None) -> Attempt | None:
        """Make the due attempt in this thread; return None if it may not start now.

        ``begun`` is an attempt that ``start()`` has started.
        """
        try:
            exchange = begun or self._attempts.begin(message_id)
            if exchange is None:
                return None
            try:
                outcome = finished(self._chain(exchange))
            except BaseException as error:
                # A background delivery ends an advance of the clock only with one like pytest.fail().
                is_fatal = self._data.clock.is_moving and not isinstance(error, Exception)
                if is_fatal or not self._data.in_background:
                    raise
                return exchange.attempt
        except BaseException:
            self._abandon(message_id)
            raise
        if outcome.raises and outcome.exception is not None and not self._data.in_background:
            raise outcome.exception
        return exchange.attempt

    async def run_async(self, message_id: str, due_us: int) -> Attempt | None:
        """Make the due attempt in the running event loop; return None if it may not start now.

        Exceptions are always raised, because only a call of the test awaits this method.
        """
        try:
            exchange = self._attempts.begin(message_id)
            if exchange is None:
                return None
            exchange.in_loop = True
            outcome = await self._chain(exchange)
        except BaseException:
            self._abandon(message_id)
            raise
        if outcome.raises and outcome.exception is not None and not self._data.in_background:
            raise outcome.exception
        return exchange.attempt

    def start(self, message_id: str, due_us: int) -> Callable[[], Attempt | None] | None:
        """Start the due attempt if it may start; return a function that makes it in any thread."""
        exchange = self._attempts.begin(message_id)
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
        with self._data.lock:
            message = self._data.messages.get(message_id)
            if (
                message is None
                or message_id in self._planning.timers
                or message_id in self._data.answered
            ):
                return
            now = self._data.clock.now_us()
            self._data.under_way.pop(message_id, None)
            if message_id not in self._data.pending:
                self._lifecycle.release_waiting(message)
            elif message.state == "ACTIVE":
                if message.attempts and message.attempts[-1].ended_us is None:
                    message.attempts[-1].state = "lost"
                    message.attempts[-1].ended_us = now
                message.state = "RETRY"
                message.waiting_since_us = now
                self._planning.plan(message, now, "an exception interrupted the delivery")
            elif message.due_us is not None:
                self._planning.plan(message, message.due_us, message.wait_reason)

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
        with self._data.lock:
            return self._workflow.exceeded(message)

    def finish(self, exchange: Exchange, outcome: Outcome) -> Outcome:
        """Apply an outcome after its virtual time, and return it, or the error of a timeout."""
        message, attempt = exchange.message, exchange.attempt
        timeout_us = exchange.delivery.timeout_us
        if outcome.virtual_us > timeout_us:
            text = f"no answer within the timeout of {timeout_us / SECOND:g} s"
            outcome = Outcome(
                exception=TimeoutError(text), virtual_us=timeout_us, where=outcome.where
            )
        with self._data.lock:
            if self._data.under_way.get(message.id) is message:
                del self._data.under_way[message.id]
            if self._data.messages.get(message.id) is not message:
                return outcome
            attempt.where = outcome.where
            if outcome.virtual_us > 0:
                end = attempt.at_us + outcome.virtual_us
                self._data.answered[message.id] = (end, outcome)
                self._outcomes.await_end(message.id, end)
            else:
                self._outcomes.apply(
                    message, outcome, max(attempt.at_us, self._data.clock.now_us())
                )
        if self._overtaking.delayed:
            self._overtaking.end_all()
        return outcome

    def retry_now(self, message_id: str) -> None:
        """Make a message that waits for its delivery or its next retry due now.

        Raises ``QueueError``: 404 if it does not wait, 400 if it belongs to a queue. The number of
        retries that are left does not change. Source: the vendor's page on retrying now. Decided
        here: a message that waits for flow control or for parallelism continues to wait, and the
        message of a run that waits for an event is delivered as its timeout.
        """
        with self._data.lock:
            tasks = self._data.tasks(message_id)
            if any(message.queue_name is not None for message in tasks):
                raise bad_request(
                    f"message {message_id} belongs to a queue, which delivers in order"
                )
            waiting = [message for message in tasks if message.state in ("CREATED", "RETRY")]
            if not waiting:
                raise not_found("waiting message", message_id)
            now = self._data.clock.now_us()
            for message in waiting:
                if message.id in self._overtaking.delayed:
                    self._overtaking.delayed.remove(message.id)
                if message.due_us is not None:
                    self._planning.plan(message, now, "retried now")
