"""Reports of delivery attempts: events of the journal, and strict-mode violations.

Details, such as the request, the response and logged exceptions, are kept for callbacks and for
attempts that did not end in a 2xx. Source: decided here.
"""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.errors import ContractError, raised_by_test
from ..core.problems import Problems
from ..core.recorder import Recorder
from .engine.hooks import AttemptHooks
from .handler_errors import attempt_note, handler_traceback
from .model import MESSAGE, Attempt, Delivery, Message, Outcome, RejectedStep
from .wire.text import as_text
from .workflow.model import SDK_VERSION

if TYPE_CHECKING:
    from .attempt_details import AttemptDetails
    from .engine.engine import Engine
    from .log_collector import LogCollector
    from .signature_checks import FailedCheck

_MAX_FINISHED = 1_000


class StartedDelivery(NamedTuple):
    """A delivery in progress, with its journal number, the exceptions that were logged during it,
    and the signature checks that failed.
    """

    number: int
    delivery: Delivery
    logged: list[BaseException]
    failed_checks: list[FailedCheck]

    def succeeded(self, outcome: Outcome) -> bool:
        return outcome.delivered and not self.logged


class FinishedDelivery(NamedTuple):
    number: int
    delivery: Delivery
    outcome: Outcome

    @property
    def size(self) -> int:
        return len(self.delivery.body) + len(self.outcome.body)


class DeliveryProblems:
    """Reports problems with the deliveries of the queue called ``name``."""

    def __init__(self, name: str, problems: Problems) -> None:
        self._name = name
        self._problems = problems

    def report(self, kind: str, text: str, **details: Any) -> None:
        self._problems.report(kind, f"{self._name}: {text}", handle=self._name, **details)

    def report_raised(self, error: BaseException, url: str) -> None:
        self._problems.report_raised(error, f"{self._name}: {url}", handle=self._name)

    def report_unstubbed(self, text: str, delivery: Delivery) -> None:
        url, message_id = as_text(delivery.url), delivery.message_id
        self._problems.report("unstubbed", text, url=url, message_id=message_id, handle=self._name)


class AttemptReports(AttemptHooks):
    """Records the attempts of one queue, and reports errors that no call of the test raises.

    ``recorder`` writes the queue's journal. ``finished`` are the most recent deliveries.
    """

    def __init__(self, engine: Engine, recorder: Recorder, problems: DeliveryProblems) -> None:
        self._engine = engine
        self._recorder = recorder
        self._problems = problems
        self._is_driven = engine.lane == "driven"
        self._started: dict[tuple[str, str, int], StartedDelivery] = {}
        self.finished: deque[FinishedDelivery] = deque()
        self._finished_bytes = 0

    def delivering(self, delivery: Delivery) -> AbstractContextManager[None]:
        """Record a delivery; return a context manager that collects what it causes, if possible."""
        started = StartedDelivery(self._recorder.reserve(), delivery, [], [])
        self._started[_key(delivery)] = started
        # Driven deliveries do not overlap. Only then can an exception that is logged during a
        # delivery be attributed to this delivery.
        return self._collector.collecting(started) if self._is_driven else nullcontext()

    @cached_property
    def _collector(self) -> LogCollector:
        # Imported here, because a run's first fake is quicker without modules of deliveries.
        from .log_collector import LogCollector

        return LogCollector()

    def after_attempt(
        self, message: Message, attempt: Attempt, delivery: Delivery, outcome: Outcome
    ) -> None:
        """Record an attempt, and raise the handler's exception if the test asks for that."""
        source = self._engine.messages.get(message.source_id or "")
        error = None if outcome.exception is None else type(outcome.exception).__name__
        answer = (error or "no answer") if outcome.status is None else outcome.status
        self._recorder.add_event(
            "attempt",
            f"attempt {attempt.number} {delivery.method} {attempt.url} -> {answer}",
            at_us=attempt.at_us,
            message_id=message.public_id,
            url=attempt.url,
            number=attempt.number,
            status=outcome.status,
            message_kind=message.kind,
            about=None if source is None else source.public_id,
            method=delivery.method,
            error=error,
            fault=", ".join(attempt.faults) or None,
            faults=attempt.faults or None,
            note=attempt_note(outcome),
            exception=outcome.exception,
            traceback=handler_traceback(outcome),
            **self._finish(delivery, outcome),
        )
        if outcome.exception is not None and outcome.raises and self._is_driven:
            raise outcome.exception

    def _finish(self, delivery: Delivery, outcome: Outcome) -> AttemptDetails:
        """Keep a finished delivery, and return its details for the ``attempt`` event."""
        started = self._started.pop(_key(delivery), None)
        if started is None:
            return {}
        self._keep(FinishedDelivery(started.number, started.delivery, outcome))
        details: AttemptDetails = {
            "began": started.number,
            "alone": self._is_driven,
            "where": outcome.where,
        }
        if started.succeeded(outcome) and started.delivery.kind == MESSAGE:
            return details
        # Imported here, because most attempts of messages succeed.
        from .attempt_details import exchange_details

        return details | exchange_details(started, outcome, self._engine.runner.signer)

    def _keep(self, delivery: FinishedDelivery) -> None:
        self.finished.append(delivery)
        self._finished_bytes += delivery.size
        limit = self._recorder.shared.large.limit
        while len(self.finished) > _MAX_FINISHED or self._finished_bytes > limit:
            self._finished_bytes -= self.finished.popleft().size

    def forget(self) -> None:
        """Forget all deliveries, because the queue's messages were replaced."""
        self._started.clear()
        self.finished.clear()
        self._finished_bytes = 0

    def before_outcome(self, delivery: Delivery, outcome: Outcome) -> None:
        """Report an exception of a background delivery, which no call of the test can raise."""
        error = outcome.exception
        driving = self._engine.clock.driving
        if self._is_driven or not _must_report(error, driving=driving):
            return
        url = as_text(delivery.url)
        of_test = raised_by_test(error)
        if of_test is not None:
            self._problems.report_raised(of_test, url)
        else:
            text = f"a background delivery to {url}: {attempt_note(outcome)}"
            self._problems.report("unmet", text, exception=error)

    def endless_loop(self, text: str) -> None:
        self._problems.report("unmet", text)

    def rejected_step(self, step: RejectedStep) -> None:
        what = "the result of a run that it invoked"
        if step.item is not None:
            what = f"item {step.item} of a batch"
        self._problems.report(
            "rejected_step",
            f"rejected {what}, a step of workflow run {step.run_id} at {step.url}:"
            f" {step.status} {step.error}. Workflow clients ignore this error, so the run never"
            " continues",
            run_id=step.run_id,
            url=step.url,
        )

    def no_workflow(self, run_id: str, url: str, status: int) -> None:
        self._problems.report(
            "no_workflow",
            f"{url} is not a workflow: it answered {status} to the trigger of workflow run {run_id}"
            f" without the header {SDK_VERSION} of a workflow client, and published no step. The"
            " run failed. Trigger the URL at which the workflow is served, or answer with that"
            " header",
            run_id=run_id,
            url=url,
        )


def _key(delivery: Delivery) -> tuple[str, str, int]:
    return delivery.message_id, delivery.url, delivery.attempt


def _must_report(error: BaseException | None, *, driving: bool) -> bool:
    """Return whether an exception must be reported because no call of the test will raise it."""
    if isinstance(error, Exception):
        return isinstance(error, ContractError)
    return error is not None and not driving
