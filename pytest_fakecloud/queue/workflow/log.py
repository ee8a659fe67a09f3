"""The record of a workflow run in ``/v2/workflows/events``, with groups of steps and their states.

Source: the type definitions of the JavaScript client and the vendor's OpenAPI file. Decided here:
undelivered messages are in a last group of type ``next``, which a successful run does not have. The
deadline of a wait is in Unix milliseconds, its duration in whole seconds (``3600s``).
"""

from __future__ import annotations

from typing import Any

from ..engine.engine import Engine
from ..model import SECOND, Message, Outcome, Redaction, first
from ..wire.records import labels_record, ms
from ..wire.values import (
    as_text,
    destination_headers,
    read_json,
    shown_headers,
    shown_json,
    shown_json_headers,
    shown_text,
    without_none,
)
from .model import RunStep, WorkflowRun, call_type_of, callback_state, read_step, response_fields

Record = dict[str, Any]
_NEXT_STATES = {
    "CREATED": "STEP_PROGRESS",
    "ACTIVE": "STEP_PROGRESS",
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
    failure = engine.messages.get(run.failure_message_id or "")
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
        parallel = record["concurrent"] > 1
        last = groups[-1] if groups else None
        if parallel and last is not None and last["type"] == "parallel":
            last["steps"].append(record)
        else:
            groups.append({"type": "parallel" if parallel else "sequential", "steps": [record]})
    following = [
        _pending_step(engine.messages[one])
        for one in run.message_ids
        if one in engine.messages and _is_pending(engine.messages[one], run, shown)
    ]
    if following:
        groups.append({"type": "next", "steps": following})
    return groups


def _calls(engine: Engine, run: WorkflowRun) -> dict[str, Message]:
    """Return the messages that make the HTTP requests of a run's call steps, by the step's id."""
    # A resumed run begins with steps of the run that it continues, which made their requests.
    messages = [engine.messages.get(step.message_id) for step in run.steps]
    earlier = [one.workflow.run_id for one in messages if one is not None and one.workflow]
    found: dict[str, Message] = {}
    for run_id in dict.fromkeys([run.id, *reversed(earlier)]):
        made = engine.workflow.runs.get(run_id)
        for message_id in () if made is None else made.message_ids:
            message = engine.messages.get(message_id)
            if message is not None and call_type_of(message) == "tocallback":
                step_id = first(message.settings.callback_headers, _CALL_STEP_ID)
                found.setdefault(str(step_id), message)
    return found


def _is_pending(message: Message, run: WorkflowRun, shown: set[str]) -> bool:
    """Return whether a message belongs to the group of messages that are still to be delivered."""
    if run.state == "RUN_SUCCESS":
        return False
    if message.id in shown:
        # Show the message until the steps that its delivery will trigger are in the list.
        return message.state in ("ACTIVE", "RETRY", "FAILED")
    return not message.finished and message.id != run.failure_message_id


def _step(
    engine: Engine, run: WorkflowRun, step: RunStep, index: int, calls: dict[str, Message]
) -> Record:
    message = engine.messages.get(step.message_id)
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
        "headers": {} if message is None else shown_headers(message.settings.forward, redaction),
    }
    record |= {name: read[name] for name in _COPIED if read.get(name) is not None}
    if message is not None:
        record |= without_none(retryDelay=message.settings.retry_delay)
        record |= _wait(message) | _invoked(engine, message, redaction)
    if record["stepType"] == "Call":
        request = calls.get(str(record["stepId"]))
        record |= {} if request is None else _call_request(request)
        record |= _call_response(out, redaction)
    return record


def _concurrent(read: Record) -> int:
    # Accept a value of any type, because the client chooses the step's JSON.
    given = read.get("concurrent")
    return given if isinstance(given, int) and given > 1 else 1


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


def _invoked(engine: Engine, message: Message, redaction: Redaction) -> Record:
    """Return the fields about the invoked run that a message is the result of. Both redactions apply."""
    run = engine.workflow.runs.get(message.invoked_run_id or "")
    if run is None:
        return {}
    redaction = redaction.with_other(run.settings.redaction)
    started = engine.messages.get(run.first_message_id)
    body = run.steps[0].body if run.steps else b"" if started is None else started.body
    return {
        "invokedWorkflowRunId": run.id,
        "invokedWorkflowUrl": as_text(run.url),
        "invokedWorkflowCreatedAt": run.created_ms,
        "invokedWorkflowRunBody": shown_text(body, redaction),
        "invokedWorkflowRunHeaders": shown_headers(destination_headers(run.settings), redaction),
    }


def _pending_step(message: Message) -> Record:
    record: Record = {
        "messageId": message.id,
        "state": _NEXT_STATES.get(message.state, "STEP_PROGRESS"),
        "retries": message.max_retries,
        **without_none(
            retryDelay=message.settings.retry_delay, nextDeliveryTime=ms(message.due_us)
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
    errors = [
        {
            "error": "" if attempt.exception is None else str(attempt.exception),
            "body": shown_text(attempt.body, message.response_redaction),
            "headers": shown_headers(attempt.headers.pairs, message.response_redaction),
            "status": attempt.status or 0,
            "time": ms(attempt.at_us),
        }
        for attempt in message.attempts
        if attempt.state == "failed"
    ]
    return {"errors": errors} if errors else {}


def _failure(engine: Engine, run: WorkflowRun, message: Message) -> Record:
    source = engine.messages.get(run.failed_message_id or "")
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
