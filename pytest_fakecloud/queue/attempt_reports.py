"""Reports of delivery attempts: events of the journal, strict-mode violations, and text about messages.

Details, such as the request, the response and logged exceptions, are kept for callbacks and for
attempts that did not end in a 2xx. Timelines and lines about what is unfinished are for reports and
assertions. Source: decided here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from ..cloud.files import local_path
from ..core.clock import Timekeeper
from ..core.errors import (
    ContractError,
    counted,
    formatted,
    is_crash,
    listed,
    plural,
    raised_by_test,
    report_failure,
)
from ..core.libraries import is_library
from ..core.raised import look_up_libraries, raised_text
from ..core.recorder import Recorder
from ..core.timers import clock_time, to_datetime
from ..core.violations import Violations
from .engine.engine import Engine
from .model import (
    SUCCESS,
    Attempt,
    Deliver,
    Delivery,
    DeliveryInterceptor,
    Exchange,
    HeaderList,
    LogEntry,
    Message,
    Outcome,
    SigningKeys,
    first,
)
from .signatures import (
    WATCHER,
    FailedCheck,
    SignatureDetails,
    is_signature_error,
    signature_details,
)
from .wire.values import as_text, failure_text, shortened_body

if TYPE_CHECKING:
    from logging import LogRecord
    from types import FrameType

_MAX_FINISHED = 1_000
_HANDLERS = ("wsgi", "asgi", "call")
"""Kinds of destinations that run code of the test or of the application."""


class StartedDelivery(NamedTuple):
    """A delivery in progress, its journal number, and what was logged and checked during it."""

    number: int
    exchange: Exchange
    alone: bool
    """Whether no other delivery can overlap it: a call that moves the clock makes it."""
    logged: list[BaseException]
    failed_checks: list[FailedCheck]


class FinishedDelivery(NamedTuple):
    number: int
    delivery: Delivery
    outcome: Outcome


class DeliveryViolations(DeliveryInterceptor):
    """Reports the violations of deliveries of the queue called ``name``.

    As an interceptor, it reports exceptions of background deliveries, which no call of the test can
    raise.
    """

    def __init__(self, name: str, violations: Violations, clock: Timekeeper) -> None:
        self._name = name
        self._violations = violations
        self._clock = clock

    def report(self, kind: str, text: str, **details: Any) -> None:
        self._violations.report(kind, f"{self._name}: {text}", fake=self._name, **details)

    def report_raised(self, error: BaseException, url: str) -> None:
        self._violations.report_raised(error, f"{self._name}: {url}", fake=self._name)

    def report_unstubbed(self, what: str, advice: str, delivery: Delivery) -> None:
        url, message_id = as_text(delivery.url), delivery.message_id
        self._violations.report(
            "unstubbed", what, advice=advice, url=url, message_id=message_id, fake=self._name
        )

    async def deliver(self, exchange: Exchange, proceed: Deliver) -> Outcome:
        try:
            outcome = await proceed(exchange)
        except BaseException as error:
            self._report_ended(Outcome(exception=error), exchange.delivery.url)
            raise
        # Report before the outcome is applied, because a test can observe the new state.
        self._report_ended(outcome, exchange.delivery.url)
        return outcome

    def _report_ended(self, outcome: Outcome, url: str) -> None:
        error = outcome.exception
        if error is None or (isinstance(error, Exception) and not isinstance(error, ContractError)):
            return
        if not isinstance(error, Exception) and self._clock.is_moving:
            return  # The call that moves the clock raises it.
        of_test = raised_by_test(error)
        if of_test is not None:
            self.report_raised(of_test, as_text(url))
        else:
            text = f"a background delivery to {as_text(url)}: {attempt_note(outcome)}"
            self.report("unmet", text, exception=error)


class AttemptReports(DeliveryInterceptor):
    """Records the attempts of one queue in the journal.

    ``now`` returns the Unix time of signatures. ``finished`` are the most recent deliveries.
    ``ran_in_another_thread`` is True once a delivery in the background has called a destination handler.
    """

    encloses_engine = True

    def __init__(self, engine: Engine, recorder: Recorder, now: Callable[[], float]) -> None:
        self._engine = engine
        self._recorder = recorder
        self._now = now
        self._logged: dict[int, list[BaseException]] = {}
        self._log_handler = logging.Handler()
        self._log_handler.emit = partial(_collect, self._logged)  # type: ignore[method-assign]
        self.finished: deque[FinishedDelivery] = deque()
        self._finished_bytes = 0
        self.ran_in_another_thread = False

    async def deliver(self, exchange: Exchange, proceed: Deliver) -> Outcome:
        is_alone = not self._engine.data.in_background or self._engine.clock.is_moving
        started = StartedDelivery(self._recorder.reserve(), exchange, is_alone, [], [])
        logged, failed_checks = started.logged, started.failed_checks
        try:
            if not is_alone:
                outcome = await proceed(exchange)
                self.ran_in_another_thread |= outcome.where in _HANDLERS
            else:
                # Only then can an exception that is logged during a delivery be attributed to it.
                self._logged[id(logged)] = logged
                logging.getLogger().addHandler(self._log_handler)
                try:
                    WATCHER.begin(failed_checks)
                    outcome = await proceed(exchange)
                finally:
                    WATCHER.end(failed_checks)
                    del self._logged[id(logged)]
                    if not self._logged:
                        logging.getLogger().removeHandler(self._log_handler)
        except BaseException as error:
            # After a crash, the queue gets no answer.
            self._record(started, Outcome(exception=None if is_crash(error) else error))
            raise
        for raised in (outcome.exception, *logged):
            if raised is not None:
                await look_up_libraries(raised)
        self._record(started, outcome)
        return outcome

    def _record(self, started: StartedDelivery, outcome: Outcome) -> None:
        message, attempt = started.exchange.message, started.exchange.attempt
        method = started.exchange.delivery.method
        source = self._engine.data.messages.get(message.source_id or "")
        raised, status = outcome.exception, outcome.status
        error = None if raised is None else type(raised).__name__
        answer = (error or "no answer") if status is None else status
        self._recorder.add_event(
            "attempt",
            f"attempt {attempt.number} {method} {attempt.url} -> {answer}",
            at_us=attempt.at_us,
            # A stubbed destination takes time on the queue's clock, which passes later.
            ended_us=max(self._engine.clock.now_us(), attempt.at_us + outcome.virtual_us),
            message_id=message.public_id,
            url=attempt.url,
            number=attempt.number,
            status=status,
            message_kind=message.kind,
            method=method,
            **self._finish(started, outcome),
            about=None if source is None else source.public_id,
            about_attempt=message.source_attempt or None,
            run=None if message.workflow is None else message.workflow.run_id,
            error=error,
            fault=", ".join(attempt.faults) or None,
            faults=attempt.faults or None,
            note=None if raised is None else attempt_note(outcome),
            exception=raised,
            # Only an exception that became an error response is from a handler.
            traceback=None if raised is None or status is None else formatted(raised),
        )

    def _finish(self, started: StartedDelivery, outcome: Outcome) -> AttemptDetails:
        """Keep a finished delivery, and return its details for the ``attempt`` event."""
        message, delivery = started.exchange.message, started.exchange.delivery
        self.finished.append(FinishedDelivery(started.number, delivery, outcome))
        self._finished_bytes += len(delivery.body) + len(outcome.body)
        limit = self._recorder.shared.keep_bytes
        while len(self.finished) > _MAX_FINISHED or self._finished_bytes > limit:
            oldest = self.finished.popleft()
            self._finished_bytes -= len(oldest.delivery.body) + len(oldest.outcome.body)
        details: AttemptDetails = {
            "began": started.number,
            "alone": started.alone,
            "where": outcome.where,
        }
        if message.kind != "message":
            details |= request_details(delivery)
        if outcome.status in SUCCESS and not started.logged:
            return details
        failure = failure_details(started, outcome, self._engine.keys, self._now)
        return details | request_details(delivery) | failure

    def forget(self) -> None:
        """Forget all deliveries, because the journal has forgotten their events."""
        self.finished.clear()
        self._finished_bytes = 0


_QUEUES_OWN = ("upstash-", "user-agent", "content-type", "host", "content-length")
"""Beginnings of the names of headers that the queue sets itself."""


class AttemptDetails(TypedDict, total=False):
    """Fields of the ``attempt`` event that describe a finished attempt.

    Callbacks also have ``sent`` and ``sent_type``, because their body reports the result. Attempts
    that failed or logged an exception have these and the fields below them.
    """

    began: int
    """The journal number at which the attempt started."""
    alone: bool
    """Whether the attempt caused everything recorded since."""
    where: str
    sent: Any
    sent_type: str
    sent_headers: list[list[str]]
    answer: Any
    answer_type: str
    logged: list[str]
    """The exceptions as text."""
    signature: SignatureDetails
    """The signature that the application rejected."""
    location: str | None
    """The target of a 3xx."""
    raised_outside_step: RaisedOutsideStep
    """The exception of a workflow function to which the application answered with an error."""


class RaisedOutsideStep(TypedDict):
    """An exception of a workflow function outside of its steps, and the line of the application."""

    error: str
    file: str
    """The path, relative to the working directory if it is below it."""
    line: int
    function: str


def request_details(delivery: Delivery) -> AttemptDetails:
    return {
        "sent": shortened_body(delivery.body),
        "sent_type": first(delivery.headers, "Content-Type") or "",
    }


def failure_details(
    started: StartedDelivery, outcome: Outcome, keys: SigningKeys, now: Callable[[], float]
) -> AttemptDetails:
    """Return the response to an attempt that did not succeed, and what explains it."""
    failures: list[str] = []
    sent, status = started.exchange.delivery, outcome.status
    # Record an error while collecting details, because it must not fail the delivery.
    with report_failure("the request and the response cannot be described", failures.append):
        details: AttemptDetails = {"sent_headers": _published_headers(sent.headers)}
        if status is not None:
            details["answer"] = shortened_body(outcome.body)
            details["answer_type"] = first(outcome.headers, "Content-Type") or ""
        details["logged"] = [
            raised_text(error, verb="logged")
            for error in started.logged
            if error is not outcome.exception
        ]
        # A framework that hides the handler's error has logged it last.
        error = outcome.exception or next(reversed(started.logged), None)
        is_error_response = status is not None and status >= 400
        if status in (401, 403) or (
            is_error_response and is_signature_error(error, sent, started.failed_checks)
        ):
            details["signature"] = signature_details(sent, started.failed_checks, keys, now())
        if is_error_response and error is not None and (raised := raised_outside_step(error)):
            details["raised_outside_step"] = raised
        if status is not None and 300 <= status < 400:
            details["location"] = first(outcome.headers, "Location")
        return details
    return {"logged": failures}


def raised_outside_step(error: BaseException) -> RaisedOutsideStep | None:
    """Return an exception of a workflow function outside of its steps, which the client of workflows
    calls; None for any other exception. The function calls the client again for each step.
    """
    frames = list(walk_tb(error.__traceback__))
    of_client = [at for at, (frame, _) in enumerate(frames) if _is_of_workflow_client(frame)]
    # The function itself caught an exception that did not come to the client which called it.
    if of_client[:1] != [0]:
        return None
    is_in_step = any(map(_is_of_application, frames[: of_client[-1]]))
    own = list(filter(_is_of_application, frames[of_client[-1] :]))
    if is_in_step or not own:
        return None
    frame, line = own[-1]
    code, message = frame.f_code, str(error)
    return {
        "error": f"{type(error).__name__}{message and f': {message}'}",
        "file": local_path(code.co_filename),
        "line": line,
        "function": code.co_name,
    }


def _is_of_workflow_client(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "upstash_workflow"


def _is_of_application(place: tuple[FrameType, int]) -> bool:
    return not is_library(place[0].f_code.co_filename)


def _published_headers(headers: HeaderList) -> list[list[str]]:
    return [
        [name, value]
        for name, value in headers
        if not (lower := name.lower()).startswith(_QUEUES_OWN) and not lower.endswith("-signature")
    ]


def _collect(collecting: dict[int, list[BaseException]], record: LogRecord) -> None:
    """Add an exception that was logged to the deliveries in progress, which may overlap."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        for logged in tuple(collecting.values()):
            if error not in logged and len(logged) < 3:
                logged.append(error)


def attempt_note(outcome: Outcome) -> str | None:
    """Return why an attempt failed, or None if its status shows it."""
    if outcome.exception is None or outcome.unstubbed is not None:
        return None
    if outcome.status is None:
        return failure_text(outcome)
    if outcome.status in SUCCESS:
        # The exception came after the response. Otherwise, the status would be 500.
        return raised_text(outcome.exception, "after the response, a background task")
    return raised_text(outcome.exception)


_MAX_LINES = 5
"""Maximum number of lines in a text."""
_MAX_IDS_PER_LINE = 3
"""Maximum number of messages listed in one line."""
_MAX_EXAMINED = 50
"""Maximum number of messages to examine, because the text is built whenever the clock moves."""
Naming = Callable[[str], str]


def span(us: int) -> str:
    """Return a duration as text, such as ``12.182 s`` or ``6 h 7 m 6.466 s``."""
    # Round first, so that 59.9996 s does not become 60 s without a carry to the minutes.
    seconds, ms = divmod(round(us / 1000), 1000)
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    parts = [f"{n} {unit}" for n, unit in ((days, "d"), (hours, "h"), (minutes, "m")) if n]
    tail = f"{seconds}.{ms:03}".rstrip("0").rstrip(".")
    if tail != "0" or not parts:
        parts.append(f"{tail} s")
    return " ".join(parts)


def timeline(engine: Engine, message: Message) -> str:
    """Return the timeline of a message. The last line says what an unfinished message waits for."""
    head = f"{message.public_id} {message.settings.method} {as_text(message.url)}"
    if message.kind != "message":
        head += f" ({message.kind.replace('_', ' ')} about {message.source_id})"
    lines = [head]
    attempts = iter(message.attempts)
    for entry in message.log:
        text = _step(message, entry, next(attempts) if entry.state == "ACTIVE" else None)
        if text:
            moment = to_datetime(entry.time_us).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
            after = span(entry.time_us - message.created_us)
            lines.append(f"  {moment}  +{after:<20}  {text}")
    lines += [f"  a callback was not published: {text}" for text in message.lost_callbacks]
    if not message.finished and message.state != "CANCEL_REQUESTED":
        lines.append(f"  {waiting_text(engine, message, engine.clock.now_us())}")
    return "\n".join(lines)


def _step(message: Message, entry: LogEntry, attempt: Attempt | None) -> str:
    """Describe a log entry; ``attempt`` is the attempt that it began, if any."""
    if entry.state == "CREATED":
        delay = message.not_before_us - message.created_us
        queue = f" in queue {message.queue_name}" if message.queue_name else ""
        return f"CREATED{queue}" + (f", delayed for {span(delay)}" if delay else "")
    if attempt is not None:
        return _attempt_text(attempt)
    if entry.state == "RETRY" and entry.next_us is not None:
        later = (
            attempt.wait_reason
            for attempt in message.attempts
            if attempt.at_us >= entry.next_us and attempt.sequence > entry.number
        )
        wait = span(entry.next_us - entry.time_us)
        return f"RETRY   in {wait} ({next(later, message.wait_reason)})"
    if entry.state == "ERROR":
        return ""
    if entry.state == "FAILED":
        return f"FAILED  {entry.error or ''} (dead letter {message.dlq_id})"
    return entry.state


def _attempt_text(attempt: Attempt) -> str:
    waited = f"after {span(attempt.waited_us)} ({attempt.wait_reason})"
    answer = attempt.state if attempt.status is None else f"status {attempt.status}"
    if attempt.exception is not None and attempt.status is None:
        answer = f"{attempt.state}: {type(attempt.exception).__name__}: {attempt.exception}"
    where = f" from {attempt.where}" if attempt.where else ""
    if attempt.exception is not None and attempt.status is not None:
        where += f", {raised_text(attempt.exception)}"
    faults = f" [fault: {', '.join(attempt.faults)}]" if attempt.faults else ""
    return f"ACTIVE  attempt {attempt.number} {waited} -> {answer}{where}{faults}"


def waiting_text(engine: Engine, message: Message, now_us: int, name: Naming = str) -> str:
    """Return what a message waits for; ``name`` formats the ids of others."""
    if held := _why_held(engine, message, name, now_us):
        return held
    if message.state == "ACTIVE":
        return "in flight: the destination has not answered yet on the queue's clock"
    if message.due_us is not None:
        if message.due_us > now_us:
            return f"due {due_text(message.due_us, now_us)} ({message.wait_reason})"
        if not engine.data.in_background:
            return "due now, but not delivered yet; call queue.run_until_idle()"
        return "due now, but not delivered yet in the background"
    if message.queue_name is not None and not message.attempts:
        return f"waits in queue {message.queue_name} behind others"
    return f"waits: {message.wait_reason}"


def due_text(due_us: int, now_us: int) -> str:
    """Return a due time and the time left until then, as text. The date is included on another day."""
    # Round before subtracting, because the times are shown in milliseconds.
    left = span((due_us // 1000 - now_us // 1000) * 1000)
    return f"{clock_time(due_us, now_us)} in {left}"


def unfinished_lines(engine: Engine, name: Naming = str, most: int | None = None) -> Iterator[str]:
    """Yield lines about at most ``most`` unfinished messages; ``name`` formats an id."""
    # Describe all messages at the same time, so that those that are due together share a line.
    now_us = engine.clock.now_us()
    ids_by_text: dict[str, list[str]] = {}
    for message in list(islice(engine.data.pending.values(), most)):
        why = waiting_text(engine, message, now_us, name)
        text = f"{message.settings.method} {as_text(message.url)}{_attempts_text(message)}: {why}"
        ids_by_text.setdefault(text, []).append(name(message.public_id))
    for text, ids in ids_by_text.items():
        yield f"{listed(ids, _MAX_IDS_PER_LINE)} {text}"


def dead_letter_lines(engine: Engine, name: Naming = str) -> Iterator[str]:
    """Yield lines about the dead letters that have not expired; ``name`` formats an id."""
    letters_by_text: dict[str, list[tuple[str, str]]] = {}
    with engine.lock:
        letters_of_queue = engine.dead_letters.all()
    for letter in letters_of_queue:
        made, outcome = len(letter.attempts), letter.last_outcome
        status = None if outcome is None else outcome.status
        last = "no answer" if status is None else f"status {status}"
        text = f"failed after {counted(made, 'attempt')}, last {last}"
        letters_by_text.setdefault(text, []).append((name(letter.public_id), str(letter.dlq_id)))
    for text, several in letters_by_text.items():
        ids, letters = zip(*several, strict=True)
        dead = f"{plural('dead letter', len(ids))} {listed(letters, _MAX_IDS_PER_LINE)}"
        yield f"{listed(ids, _MAX_IDS_PER_LINE)} {text}; {dead}"


def schedule_lines(engine: Engine, name: Naming = str) -> Iterator[str]:
    """Yield a line for each schedule that waits for its first run; ``name`` formats its id. Later runs
    are not pending work, because a schedule never ends.
    """
    now_us = engine.clock.now_us()
    for schedule in list(engine.schedules.by_id.values()):
        waits = not schedule.paused and schedule.last_us is None
        at_us = schedule.first_run_after(now_us) if waits else None
        if at_us is not None:
            destination = as_text(schedule.destination)
            due = due_text(at_us, now_us)
            yield f"schedule {name(schedule.id)} of {destination}: next {due} ({schedule.cron})"


def unfinished_text(engine: Engine) -> str:
    lines = list(unfinished_lines(engine, most=_MAX_EXAMINED))
    if not lines:
        return "nothing"
    parts = [
        f"{counted(len(engine.data.pending), 'undelivered message')}:",
        *(f"  {line}" for line in lines[:_MAX_LINES]),
    ]
    if len(lines) > _MAX_LINES:
        parts.append(f"  and {len(lines) - _MAX_LINES} more")
    if len(engine.data.pending) > _MAX_EXAMINED:
        parts.append(
            f"  of the first {_MAX_EXAMINED}; {len(engine.data.pending) - _MAX_EXAMINED} are behind them"
        )
    return "\n".join(parts)


def _why_held(engine: Engine, message: Message, name: Naming, now_us: int) -> str:
    """Return why a message is not due: its ordered queue or its flow-control key; or nothing."""
    queue = engine.queues.of(message)
    if queue is None or message.id in queue.active:
        return _held_by_flow(engine, message, now_us)
    if queue.paused:
        return f"waits: queue {queue.name} is paused"
    ahead = sorted(
        [engine.data.messages[message_id] for message_id in list(queue.active)],
        key=lambda message: message.number,
    )
    ids = [name(message.public_id) for message in ahead]
    return f"waits in queue {queue.name} behind {listed(ids, _MAX_IDS_PER_LINE)}" if ids else ""


def _held_by_flow(engine: Engine, message: Message, now_us: int) -> str:
    """Return when flow control admits the next message; empty unless the message waits for it."""
    key = engine.flow_control.of(message)
    if key is None or message.id not in key.waiting:
        return ""
    # Use a copy, because reopens_us() may start the next period.
    opens = key.copy().reopens_us(now_us)
    due = "" if opens is None else f": the key opens {due_text(opens, now_us)}"
    return f"waits: {message.wait_reason}{due}"


def _attempts_text(message: Message) -> str:
    made = len(message.attempts)
    if not made:
        return ""
    callback = (
        "; its failure callback follows the last" if message.settings.failure_callback else ""
    )
    return f" (tried {made} of {message.most_attempts}{callback})"
