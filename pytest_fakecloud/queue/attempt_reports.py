"""Reports of delivery attempts: events of the journal, their details, and strict-mode violations.

Details, such as the request, the response and logged exceptions, are kept for callbacks and for
attempts that did not end in a 2xx. Source: decided here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.errors import ContractError, raised_by_test, report_failure
from ..core.problems import Problems
from ..core.recorder import Recorder
from .engine.hooks import AttemptHooks
from .handler_errors import attempt_note, handler_traceback, raised_text
from .model import (
    MESSAGE,
    Attempt,
    Delivery,
    HeaderList,
    Message,
    Outcome,
    RejectedStep,
    SigningKeys,
    first,
)
from .wire.text import as_text, shortened_body

if TYPE_CHECKING:
    from .engine.engine import Engine
    from .log_collector import LogCollector
    from .signature_checks import FailedCheck

_MAX_FINISHED = 1_000
_QUEUES_OWN = ("upstash-", "user-agent", "content-type", "host", "content-length")
"""Beginnings of the names of headers that the queue sets itself."""


class StartedDelivery(NamedTuple):
    """A delivery in progress, with its journal number, the exceptions that were logged during it,
    and the signature checks that failed.
    """

    number: int
    delivery: Delivery
    logged: list[BaseException]
    failed_checks: list[FailedCheck]


class FinishedDelivery(NamedTuple):
    number: int
    delivery: Delivery
    outcome: Outcome

    @property
    def size(self) -> int:
        return len(self.delivery.body) + len(self.outcome.body)


class AttemptDetails:
    """Collects the details of one queue's attempts.

    ``recorder`` writes the queue's journal. The queue sets it before the first delivery. ``keys``
    are its signing keys, and ``now`` returns the Unix time in seconds that its signatures use.
    ``one_at_a_time`` is True if deliveries do not overlap. Only then can an exception that is
    logged during a delivery be attributed to this delivery. ``finished`` are the most recent
    deliveries.
    """

    recorder: Recorder

    def __init__(self, keys: SigningKeys, now: Callable[[], float], *, one_at_a_time: bool) -> None:
        self._keys = keys
        self._now = now
        self._one_at_a_time = one_at_a_time
        self._started: dict[tuple[str, str, int], StartedDelivery] = {}
        self.finished: deque[FinishedDelivery] = deque()
        self._finished_bytes = 0

    def recording(self, delivery: Delivery) -> AbstractContextManager[None]:
        """Record a delivery; return a context manager that collects what it causes, if possible."""
        started = StartedDelivery(self.recorder.reserve(), delivery, [], [])
        self._started[_key(delivery)] = started
        return self._collector.collecting(started) if self._one_at_a_time else nullcontext()

    @cached_property
    def _collector(self) -> LogCollector:
        # Imported here, because a run's first fake is quicker without modules of deliveries.
        from .log_collector import LogCollector

        return LogCollector()

    def finish(self, delivery: Delivery, outcome: Outcome) -> dict[str, Any]:
        """Return the fields of the ``attempt`` event that describe a finished attempt.

        ``began`` is the journal number at which the attempt started. ``alone`` is True if the
        attempt caused everything recorded since. Callbacks also have ``sent`` and ``sent_type``,
        because their body reports the result. Attempts that failed or logged an exception have
        these fields and ``sent_headers``, ``answer``, ``answer_type`` and ``logged`` (the
        exceptions as text). A 401 or 403 has ``signature`` (``SignatureDetails``), a 3xx has
        ``location``.
        """
        started = self._started.pop(_key(delivery), None)
        if started is None:
            return {}
        sent = started.delivery
        self._keep(FinishedDelivery(started.number, sent, outcome))
        fields: dict[str, Any] = {
            "began": started.number,
            "alone": self._one_at_a_time,
            "where": outcome.where,
        }
        succeeded = outcome.delivered and not started.logged
        if succeeded and sent.kind == MESSAGE:
            return fields
        problems: list[str] = []
        # Record an error while collecting details, because it must not fail the delivery.
        with report_failure("the request and the response cannot be described", problems.append):
            fields["sent"] = shortened_body(sent.body)
            fields["sent_type"] = first(sent.headers, "Content-Type") or ""
            if not succeeded:
                fields |= self._exchanged(started, outcome)
        return {**fields, "logged": problems} if problems else fields

    def _keep(self, delivery: FinishedDelivery) -> None:
        self.finished.append(delivery)
        self._finished_bytes += delivery.size
        limit = self.recorder.shared.large.limit
        while len(self.finished) > _MAX_FINISHED or self._finished_bytes > limit:
            self._finished_bytes -= self.finished.popleft().size

    def _exchanged(self, started: StartedDelivery, outcome: Outcome) -> dict[str, Any]:
        sent = started.delivery
        fields: dict[str, Any] = {"sent_headers": _published_headers(sent.headers)}
        if outcome.status is not None:
            fields["answer"] = shortened_body(outcome.body)
            fields["answer_type"] = first(outcome.headers, "Content-Type") or ""
        fields["logged"] = [
            raised_text(error, "the handler logged")
            for error in started.logged
            if error is not outcome.exception
        ]
        if outcome.status in (401, 403):
            from .signature_details import signature_details

            fields["signature"] = signature_details(
                sent, started.failed_checks, self._keys, self._now()
            )
        if outcome.status is not None and 300 <= outcome.status < 400:
            fields["location"] = first(outcome.headers, "Location")
        return fields

    def forget(self) -> None:
        self._started.clear()
        self.finished.clear()
        self._finished_bytes = 0


def _key(delivery: Delivery) -> tuple[str, str, int]:
    return delivery.message_id, delivery.url, delivery.attempt


def _published_headers(headers: HeaderList) -> list[list[str]]:
    return [
        [name, value]
        for name, value in headers
        if not (lower := name.lower()).startswith(_QUEUES_OWN) and not lower.endswith("-signature")
    ]


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
    """Records the attempts of one queue, and reports errors that no call of the test raises."""

    def __init__(self, engine: Engine, details: AttemptDetails, problems: DeliveryProblems) -> None:
        self._engine = engine
        self._details = details
        self._problems = problems

    def delivering(self, delivery: Delivery) -> AbstractContextManager[None]:
        return self._details.recording(delivery)

    def after_attempt(
        self, message: Message, attempt: Attempt, delivery: Delivery, outcome: Outcome
    ) -> None:
        """Record an attempt, and raise the handler's exception if the test asks for that."""
        source = self._engine.messages.get(message.source_id or "")
        error = None if outcome.exception is None else type(outcome.exception).__name__
        answer = (error or "no answer") if outcome.status is None else outcome.status
        self._details.recorder.add_event(
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
            **self._details.finish(delivery, outcome),
        )
        if outcome.exception is not None and outcome.raises and self._engine.lane == "driven":
            raise outcome.exception

    def before_outcome(self, delivery: Delivery, outcome: Outcome) -> None:
        """Report an exception of a background delivery, which no call of the test can raise."""
        error = outcome.exception
        driving = self._engine.clock.driving
        if self._engine.lane == "driven" or not _must_report(error, driving=driving):
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
            f' continues. To allow it: fakecloud.allow("rejected_step", run_id="{step.run_id}")',
            run_id=step.run_id,
            url=step.url,
        )


def _must_report(error: BaseException | None, *, driving: bool) -> bool:
    """Return whether an exception must be reported because no call of the test will raise it."""
    if isinstance(error, Exception):
        return isinstance(error, ContractError)
    return error is not None and not driving
