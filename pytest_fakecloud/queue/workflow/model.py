"""Workflow runs: their data, and their records in ``/v2/workflows/events``.

A record contains groups of steps with their states. A failed step is in the group of its parallel
steps, or in a last group of type ``next`` if it is not parallel. This last group also has the
cancelled steps of a cancelled run. Source: the type definitions of the JavaScript client, its tests
of the service, and the vendor's OpenAPI file.

Decided here: a step that waits for its delivery or for a retry, and a cancelled parallel step, are in
the same groups as a failed one. A successful run has none of them. The error of an attempt that got a
response is the status with its standard phrase (``500 Internal Server Error``). The deadline of a wait
and the time of the next delivery are in Unix milliseconds, the duration of a wait in whole seconds
(``3600s``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..model import (
    NOTHING_REDACTED,
    SECOND,
    Attempt,
    Message,
    Outcome,
    PublishSettings,
    Redaction,
    copy_of,
    first,
)
from ..wire.records import Record, labels_record, ms
from ..wire.values import (
    as_text,
    destination_headers,
    encoded,
    failure_text,
    header_map,
    json_headers,
    read_json,
    shown_headers,
    shown_json,
    shown_json_headers,
    shown_settings,
    shown_text,
    without_none,
)

if TYPE_CHECKING:
    from ..engine.engine import Engine

_RAW_CALLS = frozenset({"tocallback", "fromcallback", "failurecall"})
"""Call types of messages that are delivered as published, without the list of steps."""
_STEP_CONFIGS = frozenset({"stepconfig", "discovery"})
"""Call types of requests for the settings of a step. The second is the name in older clients."""
_CALLBACK_STATES = {
    "DELIVERED": "CALLBACK_SUCCESS",
    "FAILED": "CALLBACK_FAIL",
    "CANCEL_REQUESTED": "CALLBACK_CANCELED",
    "CANCELED": "CALLBACK_CANCELED",
}
_NEXT_STATES = {
    "RETRY": "STEP_RETRY",
    "FAILED": "STEP_FAILED",
    "CANCEL_REQUESTED": "STEP_CANCELED",
    "CANCELED": "STEP_CANCELED",
}
_COPIED = ("sleepFor", "sleepUntil", "waitEventId", "waitTimeout", "targetStep")
_CALL_STEP_ID = "Upstash-Forward-Upstash-Workflow-StepId"
"""Callback header of a call's request that contains the id of the call step."""
_ERROR_STEP_NAME = "Upstash-Error-Step-Name"
"""Response header in which clients name the step that failed."""
RunState = Literal["RUN_STARTED", "RUN_SUCCESS", "RUN_FAILED", "RUN_CANCELED"]

SDK_VERSION = "Upstash-Workflow-Sdk-Version"
"""Name of the forwarded header by which clients recognize a request of a workflow."""
UNKNOWN_SDK = "Upstash-Workflow-Unknown-Sdk"
"""Name of the header of a delivery that asks which client serves the URL."""


class RunStep(NamedTuple):
    """A step in a run's list of steps, with its message and its body.

    ``invoked_run_id`` is the invoked run whose result the step is, if no message has brought it.
    """

    message_id: str
    body: bytes
    at_us: int
    invoked_run_id: str | None = None

    def raw(self) -> dict[str, str]:
        """Return the step as clients receive it in a delivery."""
        return {"messageId": self.message_id, "body": encoded(self.body), "callType": "step"}


def read_step(body: bytes) -> dict[str, Any]:
    """Return the step in a message's body as a dict, which is empty if the body is not a step."""
    try:
        step = read_json(body)
    except ValueError:
        return {}
    return step if isinstance(step, dict) and "stepType" in step else {}


class Invoker(NamedTuple):
    """A run that waits for the result of another run, and the step at which it waits."""

    run_id: str
    url: str
    created_ms: int
    headers: dict[str, Any]
    step: dict[str, Any]


@dataclass(eq=False, repr=False)
class WorkflowRun:
    """A workflow run. ``settings`` are the settings of the message that started it."""

    id: str
    url: str
    created_us: int
    first_message_id: str
    settings: PublishSettings
    caller_ip: str = "127.0.0.1"
    state: RunState = "RUN_STARTED"
    steps: list[RunStep] = field(default_factory=list)
    """The first body and the steps that have been delivered, in this order. The results of invoked
    runs that ended after this run had failed are not delivered, but follow them.
    """
    message_ids: list[str] = field(default_factory=list)
    """All messages of the run, including undelivered ones and those that are not steps."""
    completed_us: int | None = None
    response: bytes | None = None
    invoker: Invoker | None = None
    dlq_id: str | None = None
    failed_message_id: str | None = None
    """The message of the step that failed."""
    failure_message_id: str | None = None
    """The failure callback that reports it."""
    depth: int = 1
    """The number of runs that invoked each other and then this one, itself included."""
    is_too_deep: bool = False
    """Whether the run belongs to a chain that has tried to invoke one run too many."""
    step_count: int = 0
    """The number of steps, including those that have not been delivered yet."""
    context_bytes: int = 0
    """The size of the first body and of all steps."""
    is_configured: bool = False
    """Whether its last step is a request for the settings of a step, which must follow."""
    number: int = 0
    """Position in the order in which runs were created."""
    former: WorkflowRun | None = None
    """An earlier run with the same id, of which messages may be left."""
    parent_id: str | None = None
    """The run that this run resumes, restarts or reruns from a step."""
    question_id: str | None = None
    """The message that asks which client serves the URL. The client's answer takes its place as first
    message.
    """

    @property
    def live(self) -> bool:
        """Whether the run accepts further steps."""
        return self.state == "RUN_STARTED"

    @property
    def created_ms(self) -> int:
        return self.created_us // 1000

    @property
    def is_answered(self) -> bool:
        """Whether a client has answered the question of the first message."""
        return self.question_id is not None and self.question_id != self.first_message_id

    def accept_answer(self, message: Message) -> None:
        """Replace the first message, which asked for the client, by the client's answer."""
        self.message_ids.remove(self.first_message_id)
        self.steps[:1] = [RunStep(message.id, message.body, message.created_us)]
        self.first_message_id = message.id

    def position(self, message_id: str) -> int | None:
        return next((i for i, step in enumerate(self.steps) if step.message_id == message_id), None)

    def reopen(self, failed: str, retry: str) -> None:
        """Accept steps again, with a retry in place of the failed message and its dead letter."""
        self.state = "RUN_STARTED"
        self.is_too_deep = False
        self.completed_us = None
        self.response = None
        self.dlq_id = None
        self.failed_message_id = None
        self.steps = [
            step._replace(message_id=retry) if step.message_id == failed else step
            for step in self.steps
        ]

    def copy(self) -> WorkflowRun:
        first = last = copy_of(self)
        # There may be more former runs than levels of recursion.
        while last.former is not None:
            last.former = copy_of(last.former)
            last = last.former
        return first


class EventWait(NamedTuple):
    """A workflow run's wait for an event. If it times out, the queue delivers the wait's message."""

    event_id: str
    run_id: str
    message_id: str
    deadline_us: int
    request: dict[str, Any]
    headers: dict[str, list[str]]

    def record(self, redaction: Redaction) -> dict[str, Any]:
        """Return the waiter as the API represents it. The deadline is in Unix seconds."""
        headers, timeout_headers = self.headers, self.request.get("timeoutHeaders") or {}
        if redaction != NOTHING_REDACTED:
            headers = _shown_settings(headers, redaction)
            timeout_headers = _shown_settings(timeout_headers, redaction)
        return {
            "url": self.request.get("url", ""),
            "deadline": self.deadline_us // 1_000_000,
            "headers": headers,
            "timeoutUrl": self.request.get("timeoutUrl", ""),
            "timeoutBody": shown_json(self.request.get("timeoutBody"), redaction),
            "timeoutHeaders": timeout_headers,
        }


def _shown_settings(headers: object, redaction: Redaction) -> dict[str, list[str]]:
    pairs = json_headers(headers) if isinstance(headers, dict) else []
    return header_map(shown_settings(pairs, redaction))


def call_type_of(message: Message) -> str | None:
    return None if message.workflow is None else message.workflow.call_type


def delivered_header(settings: PublishSettings, name: str) -> str | None:
    """Return a header that clients read from the delivery of a message, or None."""
    return first(settings.workflow, name) or first(settings.forward, name)


def called_step(message: Message) -> str:
    """Return the id of the call step whose HTTP request a message makes; empty for other messages."""
    return first(message.settings.callback_headers, _CALL_STEP_ID) or ""


def is_step(message: Message) -> bool:
    """Return whether a message of a run is delivered with the list of steps."""
    return call_type_of(message) not in _RAW_CALLS


def starts_run(message: Message) -> bool:
    """Return whether a message starts a run. Its body is then the input of the run, and not a step."""
    return is_true(message, "Upstash-Workflow-Init")


def is_true(message: Message, header: str) -> bool:
    return (first(message.settings.workflow, header) or "").lower() == "true"


def is_step_config(message: Message) -> bool:
    """Return whether a message only asks to be delivered with the settings of a step.

    Its delivery executes the step, but the message itself is none.
    """
    return call_type_of(message) in _STEP_CONFIGS


def response_fields(message: Message) -> dict[str, object]:
    """Return the fields about the last response to a failure callback, if there was one."""
    outcome = message.last_outcome
    if outcome is None or outcome.status is None:
        return {}
    return {
        "responseStatus": outcome.status,
        "responseBody": shown_text(outcome.body, message.response_redaction),
        "responseHeaders": shown_headers(outcome.headers, message.response_redaction),
    }


def callback_state(message: Message) -> str:
    return _CALLBACK_STATES.get(message.state, "CALLBACK_INPROGRESS")


def run_record(engine: Engine, run: WorkflowRun) -> Record:
    """Return the record of a run. The engine's lock must be held."""
    record: Record = {
        "workflowRunId": run.id,
        "workflowUrl": as_text(run.url),
        "workflowState": run.state,
        "workflowRunCreatedAt": run.created_ms,
        "workflowRunCallerIp": run.caller_ip,
        "steps": _groups(engine, run),
    }
    record |= without_none(workflowRunCompletedAt=ms(run.completed_us))
    if run.response:
        record["workflowRunResponse"] = shown_text(run.response, run.settings.redaction)
    record |= without_none(dlqId=run.dlq_id) | labels_record(run.settings)
    if run.settings.flow is not None:
        record["flowControlKey"] = run.settings.flow.key
    if run.invoker is not None:
        record["invoker"] = {
            "workflowRunId": run.invoker.run_id,
            "workflowUrl": as_text(run.invoker.url),
            "workflowRunCreatedAt": run.invoker.created_ms,
        }
    failure = engine.data.messages.get(run.failure_message_id or "")
    if failure is not None:
        record["failureFunction"] = _failure(engine, run, failure)
    return record


def _groups(engine: Engine, run: WorkflowRun) -> list[Record]:
    groups: list[Record] = []
    shown = set()
    calls = _calls(engine, run)
    for index, step in enumerate(run.steps):
        shown.add(step.message_id)
        read = read_step(step.body)
        if index and read.get("stepId") == 0 and _concurrent(read) > 1:
            # Skip entries that only announce a parallel step, because its result is another entry.
            continue
        record = _step(engine, run, step, index, calls)
        _add_step(groups, record)
    following: list[Record] = []
    for message_id in run.message_ids:
        message = engine.data.messages.get(message_id)
        if message is None or not _is_pending(message, run, shown):
            continue
        if _is_of_parallel_step(message, shown):
            _add_step(groups, _unfinished_parallel_step(engine, run, message, calls))
        else:
            following.append(_pending_step(message))
    if following:
        groups.append({"type": "next", "steps": following})
    return groups


def _add_step(groups: list[Record], record: Record) -> None:
    parallel = record["concurrent"] > 1
    if parallel and groups and groups[-1]["type"] == "parallel":
        groups[-1]["steps"].append(record)
    else:
        groups.append({"type": "parallel" if parallel else "sequential", "steps": [record]})


def _calls(engine: Engine, run: WorkflowRun) -> dict[str, Message]:
    """Return the messages that make the HTTP requests of a run's call steps, by the step's id."""
    # A resumed run begins with steps of the run that it continues, which made their requests.
    messages = [engine.data.messages.get(step.message_id) for step in run.steps]
    earlier = [
        message.workflow.run_id for message in messages if message is not None and message.workflow
    ]
    calls: dict[str, Message] = {}
    for run_id in dict.fromkeys([run.id, *reversed(earlier)]):
        calling_run = engine.workflow.runs.get(run_id)
        for message_id in () if calling_run is None else calling_run.message_ids:
            message = engine.data.messages.get(message_id)
            if message is not None and call_type_of(message) == "tocallback":
                calls.setdefault(called_step(message), message)
    return calls


def _is_pending(message: Message, run: WorkflowRun, shown: set[str]) -> bool:
    """Return whether the step that the delivery of a message brings or runs has not succeeded."""
    if run.state == "RUN_SUCCESS" or is_step_config(message):
        return False
    if message.id in shown:
        # Show the message until the steps that its delivery will trigger are in the list.
        return message.state not in ("CREATED", "DELIVERED")
    return message.state not in ("DELIVERED", "FAILED") and message.failure_of is None


def _is_of_parallel_step(message: Message, shown: set[str]) -> bool:
    """Return whether a pending message announces a parallel step, or brings its result."""
    if not is_step(message) or starts_run(message):
        return False
    read = read_step(message.body)
    # The deliveries of a result run the step that follows the parallel ones.
    return _concurrent(read) > 1 and (read.get("stepId") == 0 or message.id not in shown)


def _step(
    engine: Engine, run: WorkflowRun, step: RunStep, index: int, calls: dict[str, Message]
) -> Record:
    message = engine.data.messages.get(step.message_id)
    redaction = run.settings.redaction if message is None else message.settings.redaction
    read = read_step(step.body)
    out = read.get("out")
    record: Record = {
        "stepId": read.get("stepId", index),
        "stepName": read.get("stepName", "init"),
        "stepType": read.get("stepType", "Initial"),
        "callType": "step",
        "messageId": step.message_id,
        "out": shown_json(out, redaction) if read else shown_text(step.body, redaction),
        "concurrent": _concurrent(read),
        "state": "STEP_SUCCESS",
        "retries": 0 if message is None else message.max_retries,
        "createdAt": ms(step.at_us if message is None else message.created_us),
        "headers": {},
    }
    record |= {name: read[name] for name in _COPIED if read.get(name) is not None}
    if message is not None:
        settings = message.settings
        # Only the first step is logged with its Content-Type.
        headers = settings.forward if index else destination_headers(settings)
        record["headers"] = shown_headers(headers, redaction)
        record |= without_none(retryDelay=message.settings.retry_delay)
        record |= _wait(message)
    invoked_run_id = step.invoked_run_id if message is None else message.invoked_run_id
    record |= _invoked(engine, invoked_run_id, redaction)
    if record["stepType"] == "Call":
        request = calls.get(str(record["stepId"]))
        record |= {} if request is None else _call_request(request)
        record |= _call_response(out, redaction)
    return record


def _concurrent(read: Record) -> int:
    # Accept a value of any type, because the client chooses the step's JSON.
    concurrent = read.get("concurrent")
    return concurrent if isinstance(concurrent, int) and concurrent > 1 else 1


def _call_request(message: Message) -> Record:
    redaction = message.settings.redaction
    return {
        "callUrl": as_text(message.url),
        "callMethod": message.settings.method,
        "callBody": shown_text(message.body, redaction),
        "callHeaders": shown_headers(destination_headers(message.settings), redaction),
    }


def _call_response(out: object, redaction: Redaction) -> Record:
    try:
        answer = read_json(out) if isinstance(out, str) else None
    except ValueError:
        return {}
    if not isinstance(answer, dict):
        return {}
    return {
        "callResponseStatus": answer.get("status"),
        "callResponseBody": shown_json(answer.get("body"), redaction),
        "callResponseHeaders": shown_json_headers(answer.get("header"), redaction),
    }


def _wait(message: Message) -> Record:
    """Return the fields about the timeout of a wait, if the message is the result of one."""
    if message.wait_deadline_us is None or message.wait_timeout_us is None:
        return {}
    return {
        "waitTimeoutDeadline": ms(message.wait_deadline_us),
        "waitTimeoutDuration": f"{message.wait_timeout_us // SECOND}s",
    }


def _invoked(engine: Engine, run_id: str | None, redaction: Redaction) -> Record:
    """Return the fields about the invoked run whose result a step is. Both redactions apply."""
    run = engine.workflow.runs.get(run_id or "")
    if run is None:
        return {}
    redaction = redaction.with_other(run.settings.redaction)
    started = engine.data.messages.get(run.first_message_id)
    body = run.steps[0].body if run.steps else b"" if started is None else started.body
    return {
        "invokedWorkflowRunId": run.id,
        "invokedWorkflowUrl": as_text(run.url),
        "invokedWorkflowCreatedAt": run.created_ms,
        "invokedWorkflowRunBody": shown_text(body, redaction),
        "invokedWorkflowRunHeaders": shown_headers(destination_headers(run.settings), redaction),
    }


def _unfinished_parallel_step(
    engine: Engine, run: WorkflowRun, message: Message, calls: dict[str, Message]
) -> Record:
    """Return a parallel step without a result, of which a pending message is the plan or the result."""
    step = RunStep(message.id, message.body, message.created_us)
    record = _step(engine, run, step, 0, calls) | _pending_step(message)
    del record["out"]
    # A plan has the id 0, and the id of the step that it announces.
    return record | without_none(stepId=record.get("targetStep"))


def _pending_step(message: Message) -> Record:
    record: Record = {
        "messageId": message.id,
        "state": _NEXT_STATES.get(message.state, "STEP_PROGRESS"),
        "retries": message.max_retries,
        **without_none(
            retryDelay=message.settings.retry_delay,
            nextDeliveryTime=ms(message.due_us) if message.pending else None,
        ),
    }
    if call_type_of(message) == "tocallback":
        record |= _call_request(message)
    waits = _wait(message)
    if waits:
        record |= without_none(waitEventId=read_step(message.body).get("waitEventId"), **waits)
    for attempt in message.attempts:
        record |= without_none(stepName=attempt.headers.get(_ERROR_STEP_NAME))
    return record | _errors(message)


def _errors(message: Message) -> Record:
    """Return the field about the failed attempts of a message, if there were any."""
    errors = []
    for attempt in message.attempts:
        if attempt.state == "failed":
            errors.append(
                {
                    "error": _error_text(attempt),
                    "body": shown_text(attempt.body, message.response_redaction),
                    "headers": shown_headers(attempt.headers.pairs, message.response_redaction),
                    "status": attempt.status or 0,
                    "time": ms(attempt.at_us),
                }
            )
    return {"errors": errors} if errors else {}


def _error_text(attempt: Attempt) -> str:
    """Return why an attempt failed, which is the status of the response if there is one."""
    outcome = Outcome(attempt.status, exception=attempt.exception, run_error=attempt.run_error)
    if outcome.status is None or outcome.run_error is not None:
        return failure_text(outcome)
    try:
        return f"{outcome.status} {HTTPStatus(outcome.status).phrase}"
    except ValueError:
        return str(outcome.status)


def _failure(engine: Engine, run: WorkflowRun, message: Message) -> Record:
    source = engine.data.messages.get(run.failed_message_id or "")
    answer = (source and source.last_outcome) or Outcome()
    redaction = run.settings.redaction if source is None else source.settings.redaction
    return {
        "messageId": message.id,
        "url": as_text(message.url),
        "state": callback_state(message),
        "failHeaders": shown_headers(answer.headers, redaction),
        "failStatus": answer.status or 0,
        "failResponse": shown_text(answer.body, redaction),
        "dlqId": run.dlq_id or "",
        "maxRetries": message.max_retries,
        **_errors(message),
        **response_fields(message),
        **without_none(nextDeliveryTime=ms(message.due_us)),
    }
