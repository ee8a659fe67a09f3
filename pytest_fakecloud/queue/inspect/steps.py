"""The steps of a workflow run over time: when each ran, waited and failed.

A client runs one step in each delivery and publishes its result as the next message. A step is
therefore shown from the delivery that ran it to the message with its result, and that message's own
wait is the sleep of a sleeping step. A parallel step is planned by a message whose delivery runs it, so
it is shown from that message on, with the delay of a sleep. Its result, the request and the callback of
a call, and a message that repeats a dead letter are parts of a step, and not steps of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypedDict

from ...core.bodies import from_base64, items_of
from ...core.timers import to_datetime
from ..model import Attempt, Message, Redaction
from ..wire.values import as_text, shown_text
from ..workflow.model import (
    WorkflowRun,
    call_type_of,
    called_step,
    is_step,
    is_step_config,
    read_step,
)
from .failures import failure_of

LONGEST_ERROR = 2000
"""Maximum number of characters of the response of a failed attempt."""
LONGEST_CAUSE = 200
_WRAPPER = re.compile(r"(?:.*: )?(?:(?:Workflow)?Error: |(?=\w+(?:Error|Exception): ))")
"""The messages of other errors before the innermost one, and the names of errors that say nothing."""
StepState = Literal["done", "failed", "pending"]
_NOTHING = (None, "", "null")
"""Results of steps that return nothing."""
_NO_RESULT = ("fromcallback", "failurecall")
"""Call types of messages that bring no result of a step."""


class SpanView(TypedDict):
    """A part of a step, with the times at which it begins and ends; ``planned`` ones are to come."""

    kind: Literal["step", "call", "wait", "sleep", "planned"]
    start: str
    end: str
    failed: bool


class StepErrorView(TypedDict):
    """A failed attempt to run a step; ``reason`` is the response or the exception, ``cause`` a line."""

    number: int
    at: str
    status: int | None
    reason: str
    cause: str


class StepView(TypedDict):
    """A step of a run. ``message`` is the message with its result, or the one whose delivery runs it;
    ``tries`` is the number of times that it was run, ``event`` the name of the event that it waits for,
    and ``wait_ends`` the time at which a pending wait ends. Steps that run in parallel have
    the same ``group``, the message that planned the first of them; it is empty for other steps.
    ``input_of`` is the message whose result the step went on with: that of the last step before it
    that returned something, otherwise the run's first message, whose body is the input of the run.
    """

    name: str
    type: str
    message: str
    state: StepState
    tries: int
    retries: int
    spans: list[SpanView]
    errors: list[StepErrorView]
    calls: str
    event: str
    wait_ends: str | None
    group: str
    input_of: str


def step_of(message: Message) -> dict[str, Any]:
    """Return the step in a message's body; empty if the body is none, or is redacted."""
    return {} if message.settings.redaction.body else read_step(message.body)


def step_sent(message_id: str, body: bytes) -> dict[str, Any]:
    """Return the step of a message in the body of its delivery; empty if the body has none."""
    for record in items_of(body):
        if record.get("messageId") == message_id:
            return read_step(from_base64(str(record.get("body") or "")).encode())
    return {}


class RecordedStep(TypedDict):
    """A step in the record of a run: its result as text, that of the parent run if it differs, the
    body of the request that it made (``sent``), and the status of the answer to that.
    """

    message: str
    name: str
    type: str
    result: str
    original: str
    sent: str
    answered: int | None


def recorded_steps(
    record: Mapping[str, Any], parent: Mapping[str, Any] | None
) -> Iterator[RecordedStep]:
    """Yield the steps in the record of a run; those with a result come last."""
    originals = {_number_of(step): result_of(step) for step in _in_record(parent or {})}
    for step in sorted(_in_record(record), key=lambda step: "out" in step):
        result, original = result_of(step), originals.get(_number_of(step), "")
        yield {
            "message": str(step.get("messageId") or ""),
            "name": str(step.get("stepName") or ""),
            "type": str(step.get("stepType") or ""),
            "result": result,
            "original": original if result and result != original else "",
            "sent": str(step.get("callBody") or ""),
            "answered": step.get("callResponseStatus"),
        }


class ComparedPart(TypedDict):
    """A part of two runs of a workflow: the input, a step or the result, ``then`` and ``now``; null if
    a run does not have it. ``message`` has the result of a step, and ``taken`` says whether a rerun has
    taken it over (``reused``), goes on from it (``goes on here``), or ran the step itself (empty).
    """

    name: str
    message: str
    taken: str
    then: str | None
    now: str | None
    differs: bool


def compared(
    then: Mapping[str, Any],
    now: Mapping[str, Any],
    inputs: tuple[str, str],
    own: Sequence[str],
    *,
    is_over: bool,
) -> Iterator[ComparedPart]:
    """Yield the parts of two runs from their records; ``own`` are the messages of the later one.

    The results that a rerun has taken over are not among its messages. A step that the later run may
    still reach, because it is not over, makes no difference.
    """
    old, new = (_parts_of(record, input) for record, input in zip((then, now), inputs, strict=True))
    for key, (name, _, _) in {**old, **new}.items():
        before, after = old.get(key), new.get(key)
        message = "" if after is None else after[1]
        taken = "reused" if message and message not in own else ""
        yield {
            "name": name,
            "message": message,
            "taken": "goes on here" if message and message in own[:1] else taken,
            "then": None if before is None else before[2],
            "now": None if after is None else after[2],
            "differs": is_over if after is None else before is None or before[2] != after[2],
        }


def _parts_of(record: Mapping[str, Any], input: str) -> dict[tuple[str, str], tuple[str, str, str]]:
    """Return the name, the message and the value of each part of a run, by what tells it apart."""
    parts = {("", "input"): ("input", "", input)}
    for step in sorted(_in_record(record), key=lambda step: "out" in step):
        name, kind = str(step.get("stepName") or ""), str(step.get("stepType") or "")
        if name and kind != "Initial":
            value = "waited" if kind.startswith("Sleep") else result_of(step)
            parts[_number_of(step)] = (name, str(step.get("messageId") or ""), value)
    if result := record.get("workflowRunResponse"):
        parts["", "result"] = ("result", "", cause_of(str(result)))
    return parts


def _in_record(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [step for group in record.get("steps", ()) for step in group["steps"]]


def _number_of(step: Mapping[str, Any]) -> tuple[str, str]:
    """Return what tells a step apart in a run and in its parent. A client may send anything as these."""
    return repr(step.get("stepId")), repr(step.get("stepName"))


def result_of(step: Mapping[str, Any]) -> str:
    """Return the result of a step as text; that of a wait is sent in Base64."""
    out, kind = step.get("out"), step.get("stepType")
    if out is None:
        return "null" if "out" in step and kind == "Run" else ""
    if kind == "Wait":
        return from_base64(str(out))
    return out if isinstance(out, str) else json.dumps(out, ensure_ascii=False)


def result_in_row(step: Mapping[str, Any], most: int) -> str:
    """Return the beginning of the result of a step; empty for a sleep, which has none."""
    is_sleep = str(step.get("stepType")).startswith("Sleep")
    return "" if is_sleep else result_of(step)[:most]


def steps_of(engine: Any, run: WorkflowRun) -> list[StepView]:
    """Return the steps of a run in the order in which their messages were published."""
    kept = engine.data.messages
    messages = [kept[id] for id in run.message_ids if id in kept]
    # A rerun begins with the steps of its parent.
    recorded = [
        (step.message_id, step_of(kept[step.message_id]))
        for step in run.steps
        if step.message_id in kept
    ]
    return list(_Run(run, messages, recorded, engine.clock.now_us()).steps())


def step_count(engine: Any, run: WorkflowRun) -> int:
    """Return the number of steps of a run, with those that it has taken over from its parent."""
    # Neither the first recorded step, the input, nor what a client has planned is one. The first message
    # of a rerun has the result with which it goes on, and ``steps_of()`` returns the steps after it.
    later = set(run.message_ids[1:])
    taken_over = [
        step
        for step in run.steps[1:]
        if step.message_id not in later and not read_step(step.body).get("targetStep")
    ]
    return len(taken_over) + len(steps_of(engine, run))


class _Run:
    """The messages of a run, and the attempts in which they were published."""

    def __init__(
        self,
        run: WorkflowRun,
        messages: Sequence[Message],
        recorded: Sequence[tuple[str, dict[str, Any]]],
        now_us: int,
    ) -> None:
        self._run, self._now_us = run, now_us
        self._recorded = recorded
        """The message and the step of each recorded result, in their order."""
        self._repeated = {message.retry_of: message for message in messages if message.retry_of}
        self._messages = [message for message in messages if not message.retry_of]
        # Each by the id of its step: what plans a parallel step, the result, and the request of a call.
        self._plans: dict[str, Message] = {}
        self._results: dict[str, Message] = {}
        self._requests: dict[str, Message] = {}
        self._groups: dict[str, str] = {}
        first, missing = "", 0
        for message in self._messages:
            step = step_of(message)
            if target := step.get("targetStep"):
                self._plans[str(target)] = message
                # A client plans parallel steps together, and says in each how many they are.
                if not missing:
                    concurrent = step.get("concurrent")
                    first, missing = message.id, concurrent if isinstance(concurrent, int) else 1
                missing = max(0, missing - 1)
                self._groups[str(target)] = first
            elif step:
                self._results[str(step.get("stepId"))] = message
            elif call_type_of(message) == "tocallback":
                self._requests[called_step(message)] = message

    def steps(self) -> Iterator[StepView]:
        continued = set()
        for index, message in enumerate(self._messages):
            publisher = self._publisher(index)
            # The callback of a failed delivery continues nothing.
            if publisher is not None and call_type_of(message) != "failurecall":
                continued.add(publisher.id)
            if index and not self._is_part(message):
                yield self._step(message, publisher)
        for message in self._messages:
            last = self._last(message)
            tried = self._attempts(message)
            unfinished = bool(tried) and last.state != "DELIVERED"
            # The first message is no step, but its deliveries run the first one.
            runs_step = message is self._messages[0] or not self._is_shown_by(message)
            if unfinished and message.id not in continued and runs_step:
                yield self._next_step(message)

    def _is_part(self, message: Message) -> bool:
        step, kind = step_of(message), call_type_of(message)
        if kind == "tocallback":
            called = called_step(message)
            return called in self._plans or called in self._results
        is_planned = bool(step) and str(step.get("stepId")) in self._plans
        return is_planned or kind in _NO_RESULT or is_step_config(message)

    def _is_shown_by(self, message: Message) -> bool:
        """Return whether the attempts of a message are those of its own row."""
        return not is_step(message) or bool(step_of(message).get("targetStep"))

    def _attempts(self, message: Message) -> list[Attempt]:
        """Return the attempts of a message and of those that repeat it."""
        attempts = list(message.attempts)
        while (repeated := self._repeated.get(message.id)) is not None:
            message = repeated
            attempts += message.attempts
        return attempts

    def _last(self, message: Message) -> Message:
        while (repeated := self._repeated.get(message.id)) is not None:
            message = repeated
        return message

    def _publisher(self, index: int) -> Message | None:
        """Return the message in whose delivery a message was published, if one is known."""
        message = self._messages[index]
        target = step_of(message).get("stepId")
        under_way = [
            (step_of(earlier).get("targetStep") == target, attempt.at_us, attempt.sequence, earlier)
            for earlier in self._messages[:index]
            for attempt in self._attempts(earlier)
            if attempt.at_us <= message.created_us
            and (attempt.ended_us is None or message.created_us <= attempt.ended_us)
        ]
        return max(under_way, key=lambda delivery: delivery[:3])[3] if under_way else None

    # -- one step --------------------------------------------------------------------------------

    def _step(self, message: Message, publisher: Message | None) -> StepView:
        """Return a step whose plan, whose result, or whose request is a message of the run."""
        step = step_of(message)
        id = str(step.get("targetStep") or step.get("stepId") or called_step(message))
        is_plan, request = id in self._plans, self._requests.get(id)
        result = self._results.get(id)
        ran_by = message if self._is_shown_by(message) else publisher
        attempts = [] if ran_by is None else self._attempts(ran_by)
        spans = [*self._delay(message)] if is_plan else []
        if ran_by is not None and (is_plan or not (request or self._sleeps(step))):
            spans += [*self._tried(attempts, "step"), *self._to_come(ran_by)]
        if request is not None:
            spans += [*self._tried(self._attempts(request), "call"), *self._to_come(request)]
        elif result is not None and self._sleeps(step) and not (is_plan and _is_delayed(step)):
            spans.append(self._sleep(result))
        calls = f"{request.settings.method} {as_text(request.url)}" if request is not None else ""
        waiting = result or message
        waits = self._sleeps(step) and not waiting.attempts and not waiting.finished
        is_missing = result is None and self._run.completed_us is None
        state: StepState = "pending" if waits or is_missing else "done"
        if ran_by is message and result is None and self._has_failed(message):
            state = "failed"
        return {
            "name": str(step.get("stepName") or calls or call_type_of(message) or ""),
            "type": str(step.get("stepType") or call_type_of(message) or ""),
            "message": waiting.id,
            "state": state,
            "tries": len(attempts),
            "retries": message.max_retries if ran_by is None else ran_by.max_retries,
            "spans": spans,
            "errors": list(_errors(attempts, ran_by or message)),
            "calls": calls,
            "event": str(step.get("waitEventId") or ""),
            "wait_ends": to_datetime(waiting.due_us).isoformat()
            if waits and waiting.due_us is not None
            else None,
            "group": self._groups.get(id, ""),
            "input_of": self._input_of(waiting.id, self._groups.get(id)),
        }

    def _next_step(self, message: Message) -> StepView:
        """Return the step that the deliveries of a message try to run, and whose result is missing."""
        attempts, last = self._attempts(message), self._last(message)
        spans = [*self._tried(attempts, "step"), *self._to_come(message)]
        name = next((name for attempt in reversed(attempts) if (name := _failing(attempt))), "")
        before = str(step_of(message).get("stepName") or "")
        return {
            "name": name or (f"step after {before}" if before else "first step"),
            "type": "",
            "message": last.id,
            "state": "failed" if self._has_failed(message) else "pending",
            "tries": len(attempts),
            "retries": last.max_retries,
            "spans": spans,
            "errors": list(_errors(attempts, message)),
            "calls": "",
            "event": "",
            "wait_ends": None,
            "group": "",
            "input_of": self._input_of(last.id, None, is_included=True),
        }

    def _input_of(self, message_id: str, group: str | None, *, is_included: bool = False) -> str:
        """Return the message whose result a step went on with, which has the message ``message_id``.

        Steps that only waited return nothing, and those of the same group run beside each other. With
        ``is_included``, the message itself is the one before the step.
        """
        steps = self._run.steps
        input_of = steps[0].message_id if steps else self._run.first_message_id
        for id, step in self._recorded:
            if id == message_id and not is_included:
                break
            is_beside = group is not None and self._groups.get(str(step.get("stepId"))) == group
            if step and not is_beside and step.get("out") not in _NOTHING and not _is_delayed(step):
                input_of = id
            if id == message_id:
                break
        return input_of

    def _has_failed(self, message: Message) -> bool:
        return self._last(message).state == "FAILED"

    @staticmethod
    def _sleeps(step: dict[str, Any]) -> bool:
        return _is_delayed(step) or step.get("stepType") in ("Wait", "Invoke")

    def _delay(self, message: Message) -> Iterator[SpanView]:
        """Yield the time before the first attempt of a message that had to wait for it."""
        sleep = self._sleep(message)
        if sleep["start"] < sleep["end"]:
            yield sleep

    def _sleep(self, message: Message) -> SpanView:
        """Return the time from the publication of a message to its first attempt, or to now."""
        if message.attempts:
            return _span("sleep", message.created_us, message.attempts[0].at_us)
        return _span("sleep", message.created_us, message.due_us or self._now_us)

    def _to_come(self, message: Message) -> list[SpanView]:
        """Return the wait for the next attempt, and that attempt, after failed ones."""
        last, attempts = self._last(message), self._attempts(message)
        if last.finished or last.due_us is None or not attempts:
            return []
        ended_us = attempts[-1].ended_us or attempts[-1].at_us
        return [_span("wait", ended_us, last.due_us), _span("planned", last.due_us)]

    @staticmethod
    def _tried(attempts: Sequence[Attempt], kind: Literal["step", "call"]) -> Iterator[SpanView]:
        """Yield each attempt, and the waits between them."""
        before_us: int | None = None
        for attempt in attempts:
            if before_us is not None and before_us < attempt.at_us:
                yield _span("wait", before_us, attempt.at_us)
            before_us = attempt.at_us if attempt.ended_us is None else attempt.ended_us
            yield _span(kind, attempt.at_us, before_us, attempt.state in ("failed", "lost"))


def _span(
    kind: Literal["step", "call", "wait", "sleep", "planned"],
    from_us: int,
    to_us: int | None = None,
    failed: bool = False,
) -> SpanView:
    end_us = from_us if to_us is None else max(from_us, to_us)
    start, end = to_datetime(from_us).isoformat(), to_datetime(end_us).isoformat()
    return {"kind": kind, "start": start, "end": end, "failed": failed}


def _is_delayed(step: dict[str, Any]) -> bool:
    """Return whether a step sleeps until its message, or the plan of a parallel one, is delivered."""
    return step.get("stepType") in ("SleepFor", "SleepUntil")


def _failing(attempt: Attempt) -> str:
    """Return the name of the step that failed, which clients put into a header of the response."""
    return attempt.headers.get("Upstash-Error-Step-Name") or ""


def _errors(attempts: Sequence[Attempt], message: Message) -> Iterator[StepErrorView]:
    """Yield the failed ones of the attempts of a message."""
    redaction: Redaction = message.response_redaction
    for attempt in attempts:
        if attempt.state != "failed":
            continue
        body = shown_text(attempt.body, redaction)
        reason = failure_of(attempt) or body
        yield {
            "number": attempt.number,
            "at": to_datetime(attempt.at_us).isoformat(),
            "status": attempt.status,
            "reason": as_stack(reason)[:LONGEST_ERROR],
            "cause": cause_of(reason),
        }


def as_stack(reason: str) -> str:
    """Return the message and the stack of an error that a client sent as JSON, or another text."""
    try:
        error = json.loads(reason)
    except ValueError:
        return reason
    if not isinstance(error, dict) or not error.get("message"):
        return reason
    message, stack = str(error["message"]), str(error.get("stack") or "")
    parts = [stack] if message in stack else [f"{error.get('error')}: {message}", stack]
    return "\n".join(filter(None, parts))


def cause_of(reason: str) -> str:
    """Return the first line of the innermost message of an error.

    Clients send an error as JSON, and put the message of a caught error behind that of their own:
    "Error submitting steps to QStash in partial parallel step execution: TypeError: x is undefined".
    """
    messages = [str(error["message"]) for error in items_of(reason) if error.get("message")]
    line = (messages or [reason])[0].strip().split("\n")[0]
    wrapped = _WRAPPER.match(line)
    return (line[wrapped.end() :] if wrapped else line)[:LONGEST_CAUSE]
