"""The outcomes of attempts: a message has been delivered, is retried, or becomes a dead letter.

Decided here: a response that takes virtual time is applied when that time has passed.
"""

from __future__ import annotations

from functools import partial

from ...core.calls import Headers
from ..model import NON_RETRYABLE, SUCCESS, Attempt, Message, MessageKind, Outcome, first
from ..wire.values import callback_body, failure_text
from ..wire.waits import next_wait
from ..workflow.runs import WorkflowRuns
from .data import QueueData
from .dead_letters import DeadLetters
from .flow_control import FlowKeys
from .interceptors import Interceptors
from .lifecycle import Lifecycle
from .planning import Planning
from .publishing import Publisher


class Outcomes:
    """Applies the outcomes of attempts to their messages, and publishes the callbacks about them."""

    def __init__(
        self,
        data: QueueData,
        planning: Planning,
        flow_control: FlowKeys,
        dead_letters: DeadLetters,
        workflow: WorkflowRuns,
        lifecycle: Lifecycle,
        publisher: Publisher,
        interceptors: Interceptors,
    ) -> None:
        self._data = data
        self._planning = planning
        self._flow_control = flow_control
        self._dead_letters = dead_letters
        self._workflow = workflow
        self._lifecycle = lifecycle
        self._publisher = publisher
        self._interceptors = interceptors

    def await_end(self, message_id: str, end_us: int) -> None:
        """Start the timer that applies the outcome of an answered attempt."""
        self._planning.plan_own(
            message_id, end_us, partial(self._virtual_time_passed, message_id), "answer"
        )

    def _virtual_time_passed(self, message_id: str, at_us: int) -> None:
        with self._data.lock:
            ended = self._data.answered.pop(message_id, None)
            if ended is None:
                return
            self._planning.timers.pop(message_id, None)
            self.apply(self._data.messages[message_id], ended[1], at_us)

    def apply(self, message: Message, outcome: Outcome, at_us: int) -> None:
        """Apply the outcome of a message's latest attempt, which gives back its slots."""
        attempt = message.attempts[-1]
        is_lost = "crash_after_response" in attempt.faults
        if message.workflow is not None and not is_lost:
            outcome = self._workflow.checked(message, outcome)
        attempt.status = outcome.status
        attempt.headers = Headers(tuple(outcome.headers))
        attempt.body = outcome.body
        attempt.exception, attempt.run_error = outcome.exception, outcome.run_error
        attempt.ended_us = at_us
        self._flow_control.slots.discard(message.id)
        key = None if message.settings.flow is None else self._flow_control.of(message)
        if key is not None:
            key.active.pop(message.id, None)
        if is_lost:
            attempt.state = "lost"
            if message.state == "CANCEL_REQUESTED":
                self._lifecycle.end_message(message, "CANCELED", at_us)
            else:
                message.state = "RETRY"
                message.waiting_since_us = at_us
                self._planning.plan(message, at_us, "the queue crashed before it stored the answer")
        elif outcome.status in SUCCESS and outcome.run_error is None:
            attempt.state = "delivered"
            attempt.is_final = True
            message.last_outcome = outcome
            if message.settings.callback is not None:
                self._report_outcome(message, "callback", outcome, at_us)
            self._lifecycle.end_message(message, "DELIVERED", at_us, outcome=outcome)
        else:
            self._apply_failure(message, attempt, outcome, at_us)
        if key is not None:
            self._flow_control.start_waiting(key)
        if self._data.limits.parallelism is not None:
            self._flow_control.start_all_waiting()

    def _apply_failure(
        self, message: Message, attempt: Attempt, outcome: Outcome, at_us: int
    ) -> None:
        retried = message.retried
        attempt.state = "failed"
        message.last_outcome = outcome
        message.last_error_us = at_us
        error = failure_text(outcome)
        cancelled = message.state == "CANCEL_REQUESTED"
        self._data.log(message, "ERROR", at_us, error=error, outcome=outcome)
        attempt.is_final = cancelled or retried >= message.max_retries or _non_retryable(outcome)
        if attempt.is_final or message.workflow is None or not message.workflow.is_call:
            self._report_outcome(message, "callback", outcome, at_us)
        if cancelled:
            self._lifecycle.end_message(message, "CANCELED", at_us)
        elif attempt.is_final:
            self._dead_letters.add(message, at_us)
            if message.api != "v1":
                self._report_outcome(message, "failure_callback", outcome, at_us)
            self._lifecycle.end_message(message, "FAILED", at_us, error=error, outcome=outcome)
        else:
            wait, reason = next_wait(message.settings.retry_delay, retried, outcome.headers, at_us)
            message.retried += 1
            message.state = "RETRY"
            message.waiting_since_us = at_us
            self._data.log(message, "RETRY", at_us, error=error, next_us=at_us + wait)
            self._planning.plan(message, at_us + wait, reason)

    def _report_outcome(
        self, message: Message, kind: MessageKind, outcome: Outcome, at_us: int
    ) -> None:
        settings = message.settings
        if kind == "callback":
            url, nested = settings.callback, settings.callback_headers
        else:
            url, nested = settings.failure_callback, settings.failure_callback_headers
        if url is None:
            return
        for decisions in self._interceptors.faults.items:
            if decisions.active and decisions.callback(message, kind, url):
                return
        more = {} if message.workflow is None else self._workflow.callback_fields(message)
        size = self._data.limits.message_size
        body = callback_body(message, outcome, self._data.settings, size, more)
        self._publisher.publish_callback(message, kind, url, nested, body, at_us)


def _non_retryable(outcome: Outcome) -> bool:
    if outcome.run_error is not None:
        return True
    names = ("Upstash-NonRetryable-Error", "Service-NonRetryable-Error")
    flags = [(first(outcome.headers, name) or "").strip().lower() for name in names]
    return outcome.status == NON_RETRYABLE and "true" in flags
