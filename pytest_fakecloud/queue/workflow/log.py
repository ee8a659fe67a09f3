"""The record of a workflow run in ``/v2/workflows/events``, with groups of steps and their states.

Source: the type definitions of the JavaScript client. Decided here: undelivered messages are in a
last group of type ``next``.
"""

from __future__ import annotations

from typing import Any

from ..engine.engine import Engine
from ..model import Message
from ..wire.delivery import without_none
from ..wire.records import labels_record, ms
from ..wire.text import as_text, header_map
from ..wire.values import read_json
from .model import RunStep, WorkflowRun, callback_state, response_fields

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


def run_record(engine: Engine, run: WorkflowRun) -> Record:
    """Return the record of a run. The engine's lock must be held."""
    record: Record = {
        "workflowRunId": run.id,
        "workflowUrl": as_text(run.url),
        "workflowState": run.state,
        "workflowRunCreatedAt": run.created_ms,
        "steps": _groups(engine, run),
    }
    if run.completed_us is not None:
        record["workflowRunCompletedAt"] = ms(run.completed_us)
    if run.response:
        record["workflowRunResponse"] = run.response.decode("utf-8", "replace")
    record |= without_none(dlqId=run.dlq_id) | labels_record(run.settings)
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
    for index, step in enumerate(run.steps):
        shown.add(step.message_id)
        read = step.read()
        if index and read.get("stepId") == 0 and _concurrent(read) > 1:
            # Skip entries that only announce a parallel step, because its result is another entry.
            continue
        record = _step(engine, run, step, read, index)
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


def _is_pending(message: Message, run: WorkflowRun, shown: set[str]) -> bool:
    """Return whether a message belongs to the group of messages that are still to be delivered."""
    if message.id in shown:
        # Show the message until the steps that its delivery will trigger are in the list.
        return message.state in ("ACTIVE", "RETRY", "FAILED")
    return not message.finished and message.id != run.failure_message_id


def _step(engine: Engine, run: WorkflowRun, step: RunStep, read: Record, index: int) -> Record:
    message = engine.messages.get(step.message_id)
    record: Record = {
        "stepId": read.get("stepId", index),
        "stepName": read.get("stepName", "init"),
        "stepType": read.get("stepType", "Initial"),
        "callType": "step",
        "messageId": step.message_id,
        "out": read.get("out") if read else step.body.decode("utf-8", "replace"),
        "concurrent": _concurrent(read),
        "state": "STEP_SUCCESS",
        "retries": 0 if message is None else message.max_retries,
        "createdAt": ms(step.at_us if message is None else message.created_us),
        "headers": {} if message is None else header_map(message.settings.forward),
    }
    record |= without_none(retryDelay=None if message is None else message.retry_delay)
    record |= {name: read[name] for name in _COPIED if read.get(name) is not None}
    if record["stepType"] == "Call" and isinstance(record["out"], str):
        record |= _call(record["out"])
    return record


def _concurrent(read: Record) -> int:
    # Accept a value of any type, because the client chooses the step's JSON.
    given = read.get("concurrent")
    return given if isinstance(given, int) and given > 1 else 1


def _call(out: str) -> Record:
    try:
        answer = read_json(out)
    except ValueError:
        return {}
    if not isinstance(answer, dict):
        return {}
    return {
        "callResponseStatus": answer.get("status"),
        "callResponseBody": answer.get("body"),
        "callResponseHeaders": answer.get("header"),
    }


def _pending_step(message: Message) -> Record:
    record: Record = {
        "messageId": message.id,
        "state": _NEXT_STATES.get(message.state, "STEP_PROGRESS"),
        "retries": message.max_retries,
        **without_none(retryDelay=message.retry_delay),
    }
    errors = [
        {
            "error": "" if attempt.exception is None else str(attempt.exception),
            "body": attempt.body.decode("utf-8", "replace"),
            "headers": header_map(attempt.headers.pairs),
            "status": attempt.status or 0,
            "time": ms(attempt.at_us),
        }
        for attempt in message.attempts
        if attempt.state == "failed"
    ]
    return record | ({"errors": errors} if errors else {})


def _failure(engine: Engine, run: WorkflowRun, message: Message) -> Record:
    source = engine.messages.get(run.failed_message_id or "")
    answer = source.last_outcome if source is not None else None
    record: Record = {
        "messageId": message.id,
        "url": as_text(message.url),
        "state": callback_state(message),
        "failHeaders": {} if answer is None else header_map(answer.headers),
        "failStatus": 0 if answer is None else answer.status or 0,
        "failResponse": "" if answer is None else answer.body.decode("utf-8", "replace"),
        "dlqId": run.dlq_id or "",
    }
    record |= response_fields(message)
    if message.due_us is not None:
        record["nextDeliveryTime"] = ms(message.due_us)
    return record
