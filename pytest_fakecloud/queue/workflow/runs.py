"""Workflow runs and their lists of steps.

A run starts with a message whose ``Upstash-Workflow-Init`` is ``true``. Each later message with the
run's id is a step. At its first delivery, it is appended to the run's list of steps. Instead of the
message's own body, its deliveries contain the list up to this step, as ``[{messageId, body
(base64), callType}]``. Messages with a call type ``toCallback``, ``fromCallback`` or
``failureCall`` are sent unchanged.

The queue publishes some steps itself: the end of a wait for an event, and the result of an invoked
run. A run that is started with ``Upstash-Workflow-Invoke: true`` has an invoker, another run that
waits for its result. When the run ends, the result is published as a step of the invoker. If the
invoker has failed before, the result is one of its steps without a delivery. A new run may continue or
repeat a failed one.

A run that a request triggers (``/v2/trigger``) does not know which client serves its URL. Its first
delivery asks with the header ``Upstash-Workflow-Unknown-Sdk``. A client of version 1.0 or later answers
with a first message of its own (``Upstash-Workflow-Trigger-By-Sdk``), which takes the place of the
question. Otherwise, the run fails.

Source: the official clients' code (Python 2.0, JavaScript 0.2 and 1.3) and the vendor's documentation. A
client that wants to execute a step with its own flow control and retries publishes a request for the
settings of the step (call type ``stepConfig``), whose delivery has these settings and the list of
steps so far. Messages with the feature ``WF_StepConfig`` have their own settings, and those of the
trigger where they have none; flow control counts as one setting. Any other step has the settings of
the trigger.

Decided here: a list larger than the plan's message size is left out if the client can fetch it
(``LazyFetch``). A step of an unknown run is rejected with 400, and a step of a finished run together
with its whole batch. Callbacks about a cancelled run are dropped. The failure callback of a
dead-lettered step is the run's failure callback. The settings of the trigger apply to messages with
``WF_TriggerOnConfig`` only, its redaction to all. A callback's own settings win, and so do those of a
retry of a dead letter. A request for the settings of a step that repeats the last one is a duplicate,
and any other such request that follows another is rejected with 400. A trigger fails without retries,
with a dead letter and a failure callback, if its URL answers with a 2xx but does not serve a workflow
(``WF_DetectTrigger``): the response lacks ``Upstash-Workflow-Sdk-Version``, and the run neither ended
nor published, waited for or invoked anything. Later steps are not checked. The delivery that asks for
the client lacks ``Upstash-Workflow-Sdk-Version``, with which clients before 1.0 would execute a step, so
the Python client starts another run, as they do. A handler that acts for its run, or whose response
names a version from 1.0 on (``Upstash-Workflow-Sdk``), counts as a client that has answered. A trigger
that forwards ``Upstash-Workflow-Sdk-Version`` does not ask. A step with which its run exceeds a limit of
the service (1,000 steps, 100 MB of input and results) is rejected with 429 and fails the run. A parallel
step counts once. If a run at a depth of 100 invokes another, the request is rejected with 429, and all
runs of the chain fail, even if the handler ignores the error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...core.calls import HeaderPairs
from .. import errors
from ..errors import QueueError, bad_request, existing, not_found
from ..model import (
    SUCCESS,
    HeaderList,
    Message,
    Outcome,
    PublishSettings,
    Report,
    WorkflowPart,
    first,
)
from ..wire.headers import check_url, read_given
from ..wire.values import (
    as_text,
    as_wire,
    encoded,
    features_of,
    first_setting,
    json_headers,
    read_json,
)
from .model import (
    SDK_VERSION,
    UNKNOWN_SDK,
    EventWait,
    Invoker,
    RunState,
    RunStep,
    WorkflowRun,
    call_type_of,
    callback_state,
    delivered_header,
    is_step,
    is_step_config,
    is_true,
    read_step,
    response_fields,
    starts_run,
)

if TYPE_CHECKING:
    from ..engine.data import QueueData
    from ..engine.publishing import Published

MOST_STEPS = 1000
"""Maximum number of steps of a run (vendor's page on limits)."""
MOST_CONTEXT = 100 * 1024 * 1024
"""Maximum size of the input and the results of a run in bytes (vendor's page on limits)."""
MOST_INVOCATIONS = 100
"""Maximum number of runs that invoke each other (vendor's page on ``invoke``)."""
_TRIGGERED_BY_SDK = "workflow-trigger-by-sdk"
"""The setting with which a client answers the question which client serves a URL."""
_CLIENT_VERSION = "Upstash-Workflow-Sdk"
"""Name of the response header with the version of a JavaScript client, such as ``v1.3.2``."""
_INHERITED = ("retry_delay", "failure_callback", "flow")
"""Settings that a message takes from its run's trigger unless it has its own."""
_OF_TRIGGER = ("retry_delay", "flow")
"""Those of them that a step without ``WF_StepConfig`` always takes, as it takes the retries."""


class WorkflowRuns:
    """The workflow runs of a queue, and the waits of runs for events.

    ``notified`` are the notifications for which no run has waited yet.
    """

    _publish: Callable[[str, HeaderList, bytes], Published]

    def __init__(self, data: QueueData) -> None:
        self._data = data
        self.runs: dict[str, WorkflowRun] = {}
        self.waiters: list[EventWait] = []
        self.notified: dict[tuple[str, str], bytes] = {}

    def connect(self, publish: Callable[[str, HeaderList, bytes], Published]) -> None:
        """Set the function that publishes a message to a URL. It calls ``accept()``."""
        self._publish = publish

    # -- called by the engine --------------------------------------------------------------------

    def accept(self, message: Message, at_us: int) -> str | None:
        """Check a message before it is stored, and make it part of its run.

        Returns None to store the message. For a duplicate, which the engine does not store, returns
        the id of the earlier message. Raises ``QueueError`` if the message must be rejected, for
        example with 400 for a step of a finished run.
        """
        if message.kind == "failure_callback":
            self._note_failure_callback(message)
        part = _read_part(message)
        if part is None:
            return None
        message.workflow = part
        run = self.runs.get(part.run_id)
        answers = False
        if starts_run(message):
            answers = _is_answer(run, message.settings.workflow)
            if not answers:
                if run is not None and run.live:
                    raise bad_request(errors.RUN_EXISTS)
                self._start(part, message, at_us)
                return None
            if run is not None and run.live and run.is_answered:
                # The client was asked again, because its response was lost or failed.
                return run.first_message_id
        former = self._former_run_of(message, run)
        if message.kind != "message" and (former or run is None or run.state == "RUN_CANCELED"):
            # Drop the callback by reporting it as a duplicate.
            return message.source_id or message.id
        if former is not None:
            raise _already_finished(former)
        if run is None:
            raise bad_request(f"workflow run {as_text(part.run_id)} not found")
        if run.is_configured and is_step_config(message) and message.retry_of is None:
            raise bad_request(errors.STEP_CONFIGURED)
        self._join(run, message, answers=answers)
        message.workflow = part._replace(created_ms=run.created_ms, number=run.number)
        return None

    def _former_run_of(self, message: Message, latest: WorkflowRun | None) -> WorkflowRun | None:
        """Return the run that a retry or a callback is about, if a later run has its id."""
        origin = self._data.messages.get(message.retry_of or message.source_id or "")
        run = None if origin is None else self._find_run_of(origin)
        if run is None or latest is None or run is latest or run.id != latest.id:
            return None
        return run

    def _join(self, run: WorkflowRun, message: Message, *, answers: bool) -> None:
        failed = message.retry_of
        # Several branches of a run can fail. Each has a dead letter, whatever failed the run.
        if failed is not None and (
            failed == run.failed_message_id
            or (run.state in ("RUN_STARTED", "RUN_FAILED") and run.position(failed) is not None)
        ):
            run.reopen(failed, message.id)
        elif message.kind == "message" and not run.live:
            raise _already_finished(run)
        elif answers:
            run.accept_answer(message)
        elif is_step(message):
            run.is_configured = is_step_config(message)
            run.step_count += counts_as_step(message)
            run.context_bytes += context_size(message)
        run.message_ids.append(message.id)
        redaction = message.settings.redaction.with_other(run.settings.redaction)
        message.settings = own = message.settings._replace(redaction=redaction)
        features = features_of(own)
        if "wf_triggeronconfig" in features:
            source = self._data.messages.get(message.source_id or "")
            is_plain = is_step(message) and message.kind == "message" and failed is None
            own_first = not is_plain or "wf_stepconfig" in features
            takes_retries = (
                not own_first or own.retries is None or _has_default_retries(message, source)
            )
            message.settings = inherited_settings(
                message, run.settings, own_first=own_first, retries=takes_retries
            )
            if takes_retries:
                retries = run.settings.retries
                message.max_retries = self._data.settings.retries if retries is None else retries

    def check_steps(self, requests: Iterable[HeaderList]) -> None:
        """Raise ``QueueError`` (400) if one of these requests cannot be part of its run.

        It is a step of a finished run, or starts a run with the id of one that is in progress.
        """
        if not self.runs:
            return
        begun = set()
        for headers in requests:
            run_id = first_setting(headers, "workflow-runid") or ""
            run = self.runs.get(run_id)
            begins = (first_setting(headers, "workflow-init") or "").lower() == "true"
            begins = begins and not _is_answer(run, headers)
            if begins:
                begun.add(run_id)
            if run is not None and run.live and begins:
                raise bad_request(errors.RUN_EXISTS)
            if run is not None and not run.live and run_id not in begun:
                raise _already_finished(run)

    def delivery_body(self, message: Message, at_us: int) -> bytes:
        """Return the list of steps up to this one, which its first delivery extends, or the own body."""
        run = self._find_run_of(message)
        if run is None or not is_step(message):
            return message.body
        if is_step_config(message):
            # Never leave the list out, because the list that clients can fetch lacks this message.
            return _listed(run.steps)
        position = run.position(message.id)
        if position is None and message.id == run.question_id and run.is_answered:
            # The response was lost or failed, so the client is asked again.
            position = 0
        if position is None:
            # The first delivery of a timeout message makes the timeout the result.
            self.drop_wait(message.id)
            run.steps.append(RunStep(message.id, message.body, at_us))
            position = len(run.steps) - 1
        listed = _listed(run.steps[: position + 1])
        lazy = "lazyfetch" in features_of(message.settings)
        return b"" if lazy and len(listed) > self._data.limits.message_size else listed

    def callback_fields(self, message: Message) -> dict[str, object]:
        run = self._find_run_of(message)
        if run is None:
            return {}
        fields: dict[str, object] = {**identity_of(run)}
        if "initialbody" in features_of(message.settings) and run.steps:
            fields["sourceBody"] = encoded(run.steps[0].body)
        return fields

    def dead_letter_fields(self, message: Message) -> dict[str, object]:
        """Return the fields of a step's dead letter about the run's failure callback."""
        failure = self.failure_callback(self._find_run_of(message))
        if failure is None or failure.failure_of != message.id:
            return {}
        info = {"state": callback_state(failure)} | response_fields(failure)
        return {"failureCallbackInfo": info, "failureFunctionState": info["state"]}

    def failure_callback(self, run: WorkflowRun | None) -> Message | None:
        message_id = None if run is None else run.failure_message_id
        return None if message_id is None else self._data.messages.get(message_id)

    def finished(self, message: Message, at_us: int) -> None:
        """Fail the run if this message is one of its steps and has been dead-lettered."""
        run = self._find_run_of(message)
        call_type = call_type_of(message)
        self.drop_wait(message.id)
        self._update_source(message)
        # Do not fail the run: the callback of a failed call reports it to the workflow.
        if run is None or not run.live or call_type in ("tocallback", "failurecall"):
            return
        if message.state == "FAILED" and not (message.id == run.question_id and run.is_answered):
            run.failed_message_id, run.dlq_id = message.id, message.dlq_id
            answer = message.last_outcome.body if message.last_outcome else b""
            self.finish(run, "RUN_FAILED", at_us, answer)

    def checked(self, message: Message, outcome: Outcome) -> Outcome:
        """Return the outcome of a delivery, with a ``run_error`` if it fails its run.

        That is so if it triggered no workflow, or if its run belongs to a chain that is too long.
        """
        run = self._find_run_of(message)
        if (
            run is None
            or not run.live
            or outcome.status not in SUCCESS
            or message.state == "CANCEL_REQUESTED"
        ):
            return outcome
        if run.is_too_deep and is_step(message):
            return outcome._replace(run_error=_too_deep().message)
        if run.position(message.id) != 0 or "wf_detecttrigger" not in features_of(message.settings):
            return outcome
        url, run_id, status = as_text(message.url), as_text(run.id), outcome.status
        if message.id == run.question_id:
            version = first(outcome.headers, _CLIENT_VERSION)
            if not _is_old(version) if version else self._has_acted(run, message):
                return outcome
            sign = f"with {_CLIENT_VERSION}: {version}" if version else "and published no step"
            text = (
                f"{url} is not served by a workflow client of version 1.0 or later: it answered"
                f" {status} to the trigger of workflow run {run_id}, {sign}. The run failed. Start"
                f" the run with the client, or send Upstash-Forward-{SDK_VERSION}: 1 with the trigger"
            )
            error = errors.OLD_CLIENT
        else:
            if first(outcome.headers, SDK_VERSION) is not None or self._has_acted(run, message):
                return outcome
            text = (
                f"{url} is not a workflow: it answered {status} to the trigger of workflow run"
                f" {run_id} without the header {SDK_VERSION} of a workflow client, and published no"
                " step. The run failed. Trigger the URL at which the workflow is served, or answer"
                " with that header"
            )
            error = errors.NO_WORKFLOW
        self._data.report("no_workflow", text, run_id=run_id, url=url)
        return outcome._replace(run_error=error)

    def _has_acted(self, run: WorkflowRun, message: Message) -> bool:
        """Return whether the delivery of a run's first message published or invoked anything in it."""
        return run.message_ids[-1] != message.id or any(
            other.invoker and other.invoker.run_id == run.id for other in self.runs.values()
        )

    def exceeded(self, message: Message) -> Outcome | None:
        """Return the outcome of a delivery that is not made, because the run exceeds a limit."""
        run = self._find_run_of(message)
        if run is None or not is_step(message):
            return None
        error = _too_deep() if run.live and run.is_too_deep else self._exceeded_limit(run)
        return None if error is None else Outcome(run_error=error.message)

    def rejection(self, message: Message) -> QueueError | None:
        """Return the error for the sender of a stored step with which its run exceeds a limit."""
        if not is_step(message) or starts_run(message):
            return None
        return self._exceeded_limit(self._find_run_of(message))

    def _exceeded_limit(self, run: WorkflowRun | None) -> QueueError | None:
        """Return the error of a run that exceeds one of its limits, or None."""
        if run is None or not run.live:
            return None
        if run.step_count > MOST_STEPS:
            return errors.exceeds_limit("steps", MOST_STEPS)
        if run.context_bytes > MOST_CONTEXT:
            return errors.exceeds_limit("bytes of input and results", MOST_CONTEXT)
        return None

    def identity_of_run(self, settings: PublishSettings) -> str:
        """Return a string that only messages of the same run in progress share; empty for any other."""
        run = self.runs.get(first(settings.workflow, "Upstash-Workflow-RunId") or "")
        return f"{run.id} {run.number}" if run is not None and run.live else ""

    def companions(self, message: Message) -> Iterable[Message]:
        """Return all messages of a message's run, because they are only forgotten together."""
        run = self._find_run_of(message)
        messages = self._data.messages
        return (
            []
            if run is None
            else [messages[message_id] for message_id in run.message_ids if message_id in messages]
        )

    def forget(self, message: Message) -> None:
        run = self._find_run_of(message)
        if run is None or message.id not in run.message_ids:
            return
        latest = self.runs[run.id]
        if latest is run:
            self._release_waits(run.id)
            del self.runs[run.id]
            if run.former is not None:
                self.runs[run.id] = run.former
            return
        while latest.former is not run:
            assert latest.former is not None
            latest = latest.former
        latest.former = run.former

    # -- runs ------------------------------------------------------------------------------------

    def get(self, run_id: str) -> WorkflowRun:
        return existing(self.runs.get(run_id), "workflow run", run_id)

    def require_run_of(self, message: Message) -> WorkflowRun:
        """Return the workflow run of a message; raise a 404 error if the run is unknown."""
        assert message.workflow is not None
        return existing(self._find_run_of(message), "workflow run", message.workflow.run_id)

    def _find_run_of(self, message: Message) -> WorkflowRun | None:
        part = message.workflow
        run = None if part is None else self.runs.get(part.run_id)
        while run is not None and part is not None and run.number != part.number:
            run = run.former
        return run

    def get_live(self, run_id: str) -> WorkflowRun:
        """Return a run; raise a 404 error if it does not exist or has finished."""
        run = self.get(run_id)
        if not run.live:
            raise not_found("workflow run", run_id)
        return run

    def complete(self, run_id: str, response: bytes) -> None:
        """Finish a run successfully; raise a 404 error if it does not exist."""
        run = self.get(run_id)
        # Clients send this request in each of their deliveries, also after the end of the run.
        if run.live:
            self.finish(run, "RUN_SUCCESS", self._data.clock.now_us(), response)

    def drop_wait(self, message_id: str) -> None:
        """Forget the wait that a message ends."""
        self.waiters = [waiter for waiter in self.waiters if waiter.message_id != message_id]

    def _release_waits(self, run_id: str) -> None:
        """Forget the waits of a run, and the notifications that it has not waited for yet."""
        self.waiters = [waiter for waiter in self.waiters if waiter.run_id != run_id]
        self.notified = {key: data for key, data in self.notified.items() if key[0] != run_id}

    def _start(self, part: WorkflowPart, message: Message, at_us: int) -> None:
        run = WorkflowRun(
            part.run_id, part.url, at_us, message.id, message.settings, message.caller_ip
        )
        if delivered_header(message.settings, UNKNOWN_SDK) is not None:
            run.question_id = message.id
        run.number = self._data.next_sequence()
        run.former = self._latest_with_messages(self.runs.get(run.id))
        message.workflow = part._replace(created_ms=run.created_ms, number=run.number)
        run.message_ids.append(message.id)
        retried = self._data.messages.get(message.retry_of or "")
        repeated = None if retried is None else self._find_run_of(retried)
        if repeated is not None:
            run.invoker, run.depth = repeated.invoker, repeated.depth
        elif is_true(message, "Upstash-Workflow-Invoke"):
            run.invoker, message.body = read_invocation(message.body)
            invoking = self.runs.get(run.invoker.run_id)
            run.depth = 1 if invoking is None else invoking.depth + 1
            if run.depth > MOST_INVOCATIONS:
                # Reject the request, because the runs that lead to it must fail, not the new one.
                self._fail_chain(invoking)
                raise _too_deep()
        run.context_bytes = len(message.body)
        self.runs[run.id] = run

    def _fail_chain(self, run: WorkflowRun | None) -> None:
        """Let the next delivery, or the end of the current one, fail a run and those that led to it."""
        for _ in range(MOST_INVOCATIONS):
            if run is None:
                return
            run.is_too_deep = True
            run = None if run.invoker is None else self.runs.get(run.invoker.run_id)

    def _latest_with_messages(self, run: WorkflowRun | None) -> WorkflowRun | None:
        """Return the latest of a run and its former ones of which a message waits or can be retried."""
        pending, messages = self._data.pending, self._data.messages
        while run is not None and not any(
            message_id in pending
            or (message_id in messages and messages[message_id].state == "FAILED")
            for message_id in run.message_ids
        ):
            run = run.former
        return run

    def _note_failure_callback(self, message: Message) -> None:
        # Find the run through the source: clients add the run's id to their own failure callbacks,
        # but a plain failure URL has no headers.
        messages = self._data.messages
        earlier = messages.get(message.retry_of or "")
        about = message.source_id if earlier is None else earlier.failure_of
        source = messages.get(str(about))
        run = None if source is None else self._find_run_of(source)
        if source is None or run is None or run.state == "RUN_CANCELED":
            return
        if is_step(source):
            run.failure_message_id = message.id
            message.failure_of = source.id
            self._update_source(message)

    def _update_source(self, failure: Message) -> None:
        source = self._data.messages.get(failure.failure_of or "")
        if source is not None:
            source.failure_function_state = callback_state(failure)

    def finish(self, run: WorkflowRun, state: RunState, at_us: int, response: bytes) -> None:
        """Finish a run in a state, and publish its result if another run has invoked it."""
        run.state, run.completed_us, run.response = state, at_us, response
        self._release_waits(run.id)
        invoker = run.invoker
        invoking = None if invoker is None else self.runs.get(invoker.run_id)
        if invoker is None or invoking is None:
            return
        step = {**invoker.step, "out": json.dumps(_result_of(run))}
        if invoking.live:
            self._publish_result(run, invoker, step)
        elif invoking.state == "RUN_FAILED":
            # Deliver nothing to the failed run. A run that resumes it begins with this step.
            body = json.dumps(step).encode()
            invoking.steps.append(RunStep(self._data.new_message_id(), body, at_us, run.id))
            invoking.step_count += 1
            invoking.context_bytes += len(body)

    def _publish_result(self, run: WorkflowRun, invoker: Invoker, step: dict[str, Any]) -> None:
        """Publish the result of a finished run as a step of its invoker."""
        try:
            pairs = with_run_id(wire_pairs(invoker.headers), invoker.run_id)
            body = json.dumps(step).encode()
            message_id = self._publish(invoker.url, pairs, body).accepted[0].message_id
            # A duplicate by deduplication id may repeat a message that has finished.
            message = self._data.pending.get(message_id)
            if message is not None:
                message.invoked_run_id = run.id
        except QueueError as error:
            # Record the error in the timeline of this run, which finishes regardless.
            started = self._data.messages.get(run.first_message_id)
            if started is not None:
                started.lost_callbacks += (error.message,)
            run_id, url = as_text(invoker.run_id), as_text(invoker.url)
            what = "the result of a run that it invoked"
            report_rejected_step(self._data.report, what, run_id, url, error)


def _result_of(run: WorkflowRun) -> dict[str, object]:
    """Return the result of a finished run for its invoker. A failed run has no body (observed)."""
    is_failed = run.state == "RUN_FAILED"
    body = {} if is_failed else {"body": (run.response or b"").decode("utf-8", "replace")}
    return {**body, "isFailed": is_failed, "isCanceled": run.state == "RUN_CANCELED"}


def identity_of(run: WorkflowRun) -> dict[str, object]:
    """Return the fields of responses that identify a run."""
    return {"workflowRunId": run.id, "workflowCreatedAt": run.created_ms}


def _too_deep() -> QueueError:
    return errors.exceeds_limit("runs that invoke each other", MOST_INVOCATIONS)


def _read_part(message: Message) -> WorkflowPart | None:
    control = message.settings.workflow
    run_id = first(control, "Upstash-Workflow-RunId") if control else None
    if not run_id:
        return None
    url = first(control, "Upstash-Workflow-Url") or message.url
    call_type = (first(control, "Upstash-Workflow-CallType") or "step").lower()
    return WorkflowPart(run_id, url, call_type)


def counts_as_step(message: Message) -> bool:
    """Return whether a message counts as a step, unlike one that only announces a parallel step (with
    the id 0) and a request for the settings of a step.
    """
    return not is_step_config(message) and read_step(message.body).get("stepId") != 0


def context_size(message: Message) -> int:
    """Return the number of bytes that a message adds to the input and the results of its run."""
    return 0 if is_step_config(message) else len(message.body)


def _listed(steps: Sequence[RunStep]) -> bytes:
    return json.dumps([step.raw() for step in steps]).encode()


def report_rejected_step(
    report: Report, what: str, run_id: str, url: str, error: QueueError
) -> None:
    """Report a step of a run that was rejected although its sender ignores the error."""
    report(
        "rejected_step",
        f"rejected {what}, a step of workflow run {run_id} at {url}: {error.status} {error.message}."
        " Workflow clients ignore this error, so the run never continues",
        run_id=run_id,
        url=url,
    )


def _is_answer(run: WorkflowRun | None, headers: HeaderPairs) -> bool:
    """Return whether the first message of a run is the answer of a client that the run asked for."""
    if run is None or run.question_id is None:
        return False
    return (first_setting(headers, _TRIGGERED_BY_SDK) or "").lower() == "true"


def _is_old(version: str) -> bool:
    """Return whether the version of a client is one before 1.0."""
    return re.match(r"v?0*[1-9]", version.strip()) is None


def _already_finished(run: WorkflowRun) -> QueueError:
    if run.state == "RUN_CANCELED":
        return bad_request(f"{errors.RUN_CANCELLED}: {as_text(run.id)}")
    return bad_request(f"workflow run {as_text(run.id)} is already finished: {run.state}")


def inherited_settings(
    message: Message, trigger: PublishSettings, *, own_first: bool = True, retries: bool
) -> PublishSettings:
    """Complete a message's settings with those of its run's trigger, optionally with its ``retries``.

    Unless ``own_first``, the flow control and the retry delay of the trigger replace its own.
    """
    own = message.settings
    skipped = {name.lower() for name, _ in own.forward} | {UNKNOWN_SDK.lower()}
    if not is_step(message):
        # Omit the version header, with which a client would mistake the callback for a step.
        skipped.add(SDK_VERSION.lower())
    changes: dict[str, Any] = {
        "forward": [
            *own.forward,
            *(pair for pair in trigger.forward if pair[0].lower() not in skipped),
        ],
        "labels": own.labels or trigger.labels,
    }
    for name in _INHERITED:
        if getattr(own, name) is None or (name in _OF_TRIGGER and not own_first):
            changes[name] = getattr(trigger, name)
    if own.failure_callback is None:
        changes["failure_callback_headers"] = trigger.failure_callback_headers
    if call_type_of(message) == "failurecall":
        # Otherwise its failure would cause another failure callback.
        changes["failure_callback"], changes["failure_callback_headers"] = None, []
    if retries:
        changes["retries"] = trigger.retries
    return own._replace(**changes)


def _has_default_retries(message: Message, source: Message | None) -> bool:
    """Return whether the number of retries of a callback about ``source`` is only the default."""
    if message.kind == "message" or source is None:
        return False
    settings = source.settings
    own = (
        settings.callback_headers
        if message.kind == "callback"
        else settings.failure_callback_headers
    )
    return first(own, "Upstash-Retries") is None


def with_run_id(pairs: HeaderList, run_id: str) -> HeaderList:
    """Return headers with the id of a run, unless they have one already."""
    if first_setting(pairs, "workflow-runid") is not None:
        return pairs
    return [*pairs, ("Upstash-Workflow-RunId", run_id)]


def wire_pairs(headers: dict[str, Any]) -> HeaderList:
    """Return the headers in a JSON body. Of names that differ in case, the first counts."""
    spellings: dict[str, Any] = {}
    for name in headers:
        spellings.setdefault(str(name).lower(), name)
    return json_headers({name: headers[name] for name in spellings.values()})


def check_step(url: str, pairs: HeaderList) -> None:
    """Raise a 400 error for a URL group and for a schedule, which cannot be a step of a run."""
    check_url(url, "workflow")
    if "cron" in read_given(pairs):
        raise bad_request("invalid headers: a step of a workflow run cannot be scheduled")


def read_invocation(body: bytes) -> tuple[Invoker, bytes]:
    """Return the invoker and the first body of a run; raise a 400 error if the body has none."""
    try:
        invocation = read_json(body)
        inner = invocation.get("body")
        invoker = Invoker(
            str(invocation["workflowRunId"]),
            as_wire(str(invocation["workflowUrl"])),
            int(invocation.get("workflowRunCreatedAt") or 0),
            dict(invocation.get("headers") or {}),
            dict(invocation["step"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise bad_request("invalid body: expected the invocation of a workflow") from None
    # Check the headers now, because no request can be rejected when the run ends.
    check_step(invoker.url, wire_pairs(invoker.headers))
    text = inner if isinstance(inner, str) else ""
    return invoker, text.encode("utf-8", "surrogatepass")
