"""Reports of delivery attempts: events of the journal, and strict-mode violations.

Details, such as the request, the response and logged exceptions, are kept for callbacks and for
attempts that did not end in a 2xx. Source: decided here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.errors import ContractError, raised_by_test
from ..core.problems import Problems
from ..core.recorder import Recorder
from ..core.timekeeper import Timekeeper
from .handler_errors import attempt_note, handler_traceback
from .model import MESSAGE, Delivery, Exchange, Interceptor, Outcome, Proceed, Sending
from .wire.values import as_text

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
    exchange: Exchange
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


class BackgroundProblems(Interceptor):
    """Reports exceptions of background deliveries, which no call of the test can raise."""

    def __init__(self, clock: Timekeeper, problems: DeliveryProblems) -> None:
        self._clock = clock
        self._problems = problems

    def deliver(self, exchange: Exchange, proceed: Proceed) -> Sending:
        try:
            outcome = yield from proceed(exchange)
        except BaseException as error:
            self._report(Outcome(exception=error), exchange.delivery.url)
            raise
        # Report before the outcome is applied, because a test can observe the new state.
        self._report(outcome, exchange.delivery.url)
        return outcome

    def _report(self, outcome: Outcome, url: str) -> None:
        error = outcome.exception
        if error is None or (isinstance(error, Exception) and not isinstance(error, ContractError)):
            return
        if not isinstance(error, Exception) and self._clock.driving:
            return  # The call that moves the clock raises it.
        of_test = raised_by_test(error)
        if of_test is not None:
            self._problems.report_raised(of_test, as_text(url))
        else:
            text = f"a background delivery to {as_text(url)}: {attempt_note(outcome)}"
            self._problems.report("unmet", text, exception=error)


class AttemptReports(Interceptor):
    """Records the attempts of one queue in the journal.

    ``now`` returns the Unix time of signatures. ``finished`` are the most recent deliveries.
    """

    encloses_engine = True

    def __init__(self, engine: Engine, recorder: Recorder, now: Callable[[], float]) -> None:
        self._engine = engine
        self._recorder = recorder
        self._now = now
        self._is_driven = engine.lane == "driven"
        self.finished: deque[FinishedDelivery] = deque()
        self._finished_bytes = 0

    def deliver(self, exchange: Exchange, proceed: Proceed) -> Sending:
        """Record an attempt after its outcome has been applied."""
        started = StartedDelivery(self._recorder.reserve(), exchange, [], [])
        try:
            if self._is_driven:
                # Driven deliveries do not overlap. Only then can an exception that is logged during
                # a delivery be attributed to this delivery.
                with self._collector.collecting(started):
                    outcome = yield from proceed(exchange)
            else:
                outcome = yield from proceed(exchange)
        except BaseException as error:
            self._record(started, Outcome(exception=error))
            raise
        self._record(started, outcome)
        return outcome

    @cached_property
    def _collector(self) -> LogCollector:
        # Imported here, because a run's first fake is quicker without modules of deliveries.
        from .log_collector import LogCollector

        return LogCollector()

    def _record(self, started: StartedDelivery, outcome: Outcome) -> None:
        message, attempt = started.exchange.message, started.exchange.attempt
        method = started.exchange.delivery.method
        source = self._engine.messages.get(message.source_id or "")
        error = None if outcome.exception is None else type(outcome.exception).__name__
        answer = (error or "no answer") if outcome.status is None else outcome.status
        self._recorder.add_event(
            "attempt",
            f"attempt {attempt.number} {method} {attempt.url} -> {answer}",
            at_us=attempt.at_us,
            message_id=message.public_id,
            url=attempt.url,
            number=attempt.number,
            status=outcome.status,
            message_kind=message.kind,
            about=None if source is None else source.public_id,
            method=method,
            error=error,
            fault=", ".join(attempt.faults) or None,
            faults=attempt.faults or None,
            note=attempt_note(outcome),
            exception=outcome.exception,
            traceback=handler_traceback(outcome),
            **self._finish(started, outcome),
        )

    def _finish(self, started: StartedDelivery, outcome: Outcome) -> AttemptDetails:
        """Keep a finished delivery, and return its details for the ``attempt`` event."""
        message, delivery = started.exchange.message, started.exchange.delivery
        if self._engine.messages.get(message.id) is not message:
            return {}  # The queue's messages were replaced during the delivery.
        self._keep(FinishedDelivery(started.number, delivery, outcome))
        details: AttemptDetails = {
            "began": started.number,
            "alone": self._is_driven,
            "where": outcome.where,
        }
        if started.succeeded(outcome) and delivery.kind == MESSAGE:
            return details
        # Imported here, because most attempts of messages succeed.
        from .attempt_details import exchange_details

        return details | exchange_details(started, outcome, self._engine.keys, self._now)

    def _keep(self, delivery: FinishedDelivery) -> None:
        self.finished.append(delivery)
        self._finished_bytes += delivery.size
        limit = self._recorder.shared.large.limit
        while len(self.finished) > _MAX_FINISHED or self._finished_bytes > limit:
            self._finished_bytes -= self.finished.popleft().size

    def forget(self) -> None:
        """Forget all deliveries, because the queue's messages were replaced."""
        self.finished.clear()
        self._finished_bytes = 0
