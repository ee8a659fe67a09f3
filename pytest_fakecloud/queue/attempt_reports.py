"""Reports of delivery attempts: the events of the journal, and strict-mode violations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.errors import ContractError
from ..core.fatal_errors import raised_by_test
from ..core.problems import Problems
from .handler_errors import attempt_note, handler_traceback
from .model import Attempt, AttemptHooks, Delivery, Message, Outcome, RejectedStep
from .wire.text import as_text

if TYPE_CHECKING:
    from .handle import Queue


class AttemptReports(AttemptHooks):
    """Records the attempts of one queue, and reports errors that no call of the test raises."""

    def __init__(self, queue: Queue, problems: Problems) -> None:
        self._queue = queue
        self._problems = problems

    def after_attempt(
        self, message: Message, attempt: Attempt, delivery: Delivery, outcome: Outcome
    ) -> None:
        """Record an attempt, and raise the handler's exception if the test asks for that."""
        self._record_attempt(message, attempt, delivery, outcome)
        if outcome.exception is not None and self._queue.delivery == "driven":
            error = self._queue._sender.to_raise(delivery, outcome)
            if error is not None:
                raise error

    def _record_attempt(
        self, message: Message, attempt: Attempt, delivery: Delivery, outcome: Outcome
    ) -> None:
        answer: object = outcome.status
        if answer is None:
            answer = type(outcome.exception).__name__ if outcome.exception else "no answer"
        raised = outcome.exception is not None
        self._queue._recorder.add_event(
            "attempt",
            f"attempt {attempt.number} {delivery.method} {attempt.url} -> {answer}",
            at_us=attempt.at_us,
            message_id=message.public_id,
            url=attempt.url,
            number=attempt.number,
            status=outcome.status,
            message_kind=message.kind,
            about=self._about(message),
            method=delivery.method,
            error=None if outcome.exception is None else type(outcome.exception).__name__,
            fault=", ".join(attempt.faults) or None,
            faults=attempt.faults or None,
            note=attempt_note(outcome) if raised else None,
            exception=outcome.exception,
            traceback=handler_traceback(outcome) if raised else None,
            **self._queue._details.finish(delivery, outcome),
        )

    def before_outcome(self, delivery: Delivery, outcome: Outcome) -> None:
        """Report an exception of a delivery in the background, where no call of the test can raise
        it.
        """
        error = outcome.exception
        queue = self._queue
        if queue.delivery == "driven" or not _must_report(error, driving=queue._time.driving):
            return
        url, of_test = as_text(delivery.url), raised_by_test(error)
        if of_test is not None:
            self.report_raised(of_test, url)
        else:
            text = f"a background delivery to {url}: {attempt_note(outcome)}"
            self._report("unmet", text, exception=error)

    def report_raised(self, error: BaseException, url: str) -> None:
        """Report an exception of the test's code as a strict-mode violation."""
        name = self._queue.name
        self._problems.report_raised(error, f"{name}: {url}", handle=name)

    def _about(self, message: Message) -> str | None:
        source = self._queue._engine.messages.get(message.source_id or "")
        return None if source is None else source.public_id

    def report_unstubbed(self, text: str, delivery: Delivery) -> None:
        """Report a delivery to a URL that the test has not stubbed."""
        url, message_id = as_text(delivery.url), delivery.message_id
        name = self._queue.name
        self._problems.report("unstubbed", text, url=url, message_id=message_id, handle=name)

    def endless_loop(self, text: str) -> None:
        self._report("unmet", text)

    def rejected_step(self, step: RejectedStep) -> None:
        what = "the result of a run that it invoked"
        if step.item is not None:
            what = f"item {step.item} of a batch"
        self._report(
            "rejected_step",
            f"rejected {what}, a step of workflow run {step.run_id} at {step.url}:"
            f" {step.status} {step.error}. Workflow clients ignore this error, so the run never"
            f' continues. To allow it: fakecloud.allow("rejected_step", run_id="{step.run_id}")',
            run_id=step.run_id,
            url=step.url,
        )

    def _report(self, kind: str, text: str, **details: Any) -> None:
        name = self._queue.name
        self._problems.report(kind, f"{name}: {text}", handle=name, **details)


def _must_report(error: BaseException | None, *, driving: bool) -> bool:
    """Return whether an exception must be reported because no call of the test will raise it."""
    if isinstance(error, Exception):
        return isinstance(error, ContractError)
    return error is not None and not driving
