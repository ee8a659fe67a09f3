"""Workflow runs and their lists of steps.

A run starts with a message whose ``Upstash-Workflow-Init`` is ``true``. Each later message with the
run's id is a step. At its first delivery, it is appended to the run's list of steps. Instead of the
message's own body, its deliveries contain the list up to this step, as ``[{messageId, body
(base64), callType}]``. Messages with a call type ``toCallback``, ``fromCallback`` or
``failureCall`` are sent unchanged.

Source: the official clients' code (Python 2.0, JavaScript 1.3) and the vendor's documentation.
Decided here: a list larger than the plan's message size is left out if the client can fetch it
(``LazyFetch``). A step of an unknown run is rejected with 400, and a step of a finished run
together with its whole batch. Callbacks about a cancelled run are dropped. The failure callback of
a dead-lettered step is the run's failure callback. Messages inherit settings from the trigger of
their run (``WF_TriggerOnConfig``), and always its redaction. A trigger fails without retries, with a
dead letter and a failure callback, if its URL answers with a 2xx but does not serve a workflow
(``WF_DetectTrigger``): the response lacks ``Upstash-Workflow-Sdk-Version``, and the run neither
ended nor published, waited for or invoked anything. Later steps are not checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..errors import QueueError, bad_request, existing, not_found
from ..model import (
    CALLBACK,
    FAILURE_CALLBACK,
    MESSAGE,
    HeaderList,
    Message,
    Outcome,
    PublishSettings,
    WorkflowPart,
    first,
)
from ..wire.delivery import encoded
from ..wire.text import as_text, first_setting
from .model import (
    SDK_VERSION,
    RunState,
    RunStep,
    WorkflowRun,
    call_type_of,
    callback_state,
    features_of,
    is_step,
    response_fields,
)
from .steps import RunEvents, publish_result, read_invocation

if TYPE_CHECKING:
    from ..engine.engine import Engine

_INHERITED = ("retry_delay", "failure_callback", "flow")
"""Settings that a message takes from its run's trigger unless it has its own."""


class WorkflowRuns:
    """The workflow runs of an engine. The engine's lock must be held for every method."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.runs: dict[str, WorkflowRun] = {}
        self.events = RunEvents(self)

    # -- called by the engine --------------------------------------------------------------------

    def accept(self, message: Message, at_us: int) -> str | None:
        """Check a message before it is stored, and make it part of its run.

        Returns None to store the message. For a duplicate, which the engine does not store, returns
        the id of the earlier message. Raises ``QueueError`` if the message must be rejected, for
        example with 400 for a step of a finished run.
        """
        if message.kind == FAILURE_CALLBACK:
            self._note_failure_callback(message)
        part = _read_part(message)
        if part is None:
            return None
        message.workflow = part
        run = self.runs.get(part.run_id)
        if _is_true(message, "Upstash-Workflow-Init"):
            if run is not None and run.live:
                return run.first_message_id
            self._start(part, message, at_us)
            return None
        if message.kind != MESSAGE and (run is None or run.state == "RUN_CANCELED"):
            # Drop the callback by reporting it as a duplicate.
            return message.source_id or message.id
        if run is None:
            raise bad_request(f"workflow run {as_text(part.run_id)} not found")
        self._join(run, message)
        message.workflow = part._replace(created_ms=run.created_ms)
        return None

    def _join(self, run: WorkflowRun, message: Message) -> None:
        if message.retry_of is not None and message.retry_of == run.failed_message_id:
            run.reopen(message.retry_of, message.id)
        elif message.kind == MESSAGE and not run.live:
            raise _already_finished(run)
        run.message_ids.append(message.id)
        redaction = message.settings.redaction.with_other(run.settings.redaction)
        message.settings = own = message.settings._replace(redaction=redaction)
        if "wf_triggeronconfig" in features_of(own):
            takes_retries = own.retries is None or _has_default_retries(self.engine, message)
            message.settings = inherited_settings(message, run.settings, retries=takes_retries)
            if takes_retries:
                given = run.settings.retries
                message.max_retries = self.engine.settings.retries if given is None else given
            message.retry_delay = message.settings.retry_delay

    def check_steps(self, requests: Iterable[HeaderList]) -> None:
        """Raise ``QueueError`` (400) if one of these requests is a step of a finished run."""
        if not self.runs:
            return
        begun = set()
        for headers in requests:
            run_id = first_setting(headers, "workflow-runid") or ""
            if (first_setting(headers, "workflow-init") or "").lower() == "true":
                begun.add(run_id)
            run = self.runs.get(run_id)
            if run is not None and not run.live and run_id not in begun:
                raise _already_finished(run)

    def delivery_body(self, message: Message, at_us: int) -> bytes:
        """Return the list of steps up to this message, or the message's own body.

        The first call for a step appends the step to the list.
        """
        run = self._find_run_of(message)
        if run is None or not is_step(message):
            return message.body
        position = run.position(message.id)
        if position is None:
            # The first delivery of a timeout message makes the timeout the result.
            self.events.drop(message.id)
            run.steps.append(RunStep(message.id, message.body, at_us))
            position = len(run.steps) - 1
        listed = json.dumps([step.raw() for step in run.steps[: position + 1]]).encode()
        lazy = "lazyfetch" in features_of(message.settings)
        return b"" if lazy and len(listed) > self.engine.limits.message_size else listed

    def callback_fields(self, message: Message) -> dict[str, object]:
        run = self._find_run_of(message)
        if run is None:
            return {}
        fields: dict[str, object] = {"workflowRunId": run.id, "workflowCreatedAt": run.created_ms}
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
        found = None if run is None else run.failure_message_id
        return None if found is None else self.engine.messages.get(found)

    def finished(self, message: Message, at_us: int) -> None:
        """Fail the run if this message is one of its steps and has been dead-lettered."""
        if message.workflow is None and message.failure_of is None:
            return
        run = self._find_run_of(message)
        call_type = call_type_of(message)
        self.events.drop(message.id)
        self._update_source(message)
        # Do not fail the run: the callback of a failed call reports it to the workflow.
        if run is None or not run.live or call_type in ("tocallback", "failurecall"):
            return
        if message.state == "FAILED":
            run.failed_message_id, run.dlq_id = message.id, message.dlq_id
            answer = message.last_outcome.body if message.last_outcome else b""
            self._finish_run(run, "RUN_FAILED", at_us, answer)

    def checked(self, message: Message, outcome: Outcome) -> Outcome:
        """Return the outcome of a delivery, marked ``no_workflow`` if it triggered no workflow."""
        run = self._find_run_of(message)
        if (
            run is None
            or not run.live
            or not outcome.delivered
            or message.state == "CANCEL_REQUESTED"
            or run.position(message.id) != 0
            or "wf_detecttrigger" not in features_of(message.settings)
            or first(outcome.headers, SDK_VERSION) is not None
            or run.message_ids[-1] != message.id
            or any(one.invoker and one.invoker.run_id == run.id for one in self.runs.values())
        ):
            return outcome
        url = as_text(message.url)
        self.engine.attempt_hooks.no_workflow(as_text(run.id), url, outcome.status or 0)
        return outcome._replace(no_workflow=True)

    def companions(self, message: Message) -> Iterable[Message]:
        """Return all messages of a message's run, because they are only forgotten together."""
        run = self._find_run_of(message)
        messages = self.engine.messages
        return [] if run is None else [messages[one] for one in run.message_ids if one in messages]

    def forget(self, message: Message) -> None:
        run = self._find_run_of(message)
        if run is not None and message.id in run.message_ids:
            del self.runs[run.id]
            self.events.release(run.id)

    # -- runs ------------------------------------------------------------------------------------

    def get(self, run_id: str) -> WorkflowRun:
        return existing(self.runs.get(run_id), "workflow run", run_id)

    def require_run_of(self, message: Message) -> WorkflowRun:
        """Return the workflow run of a message; raise a 404 error if the run is unknown."""
        assert message.workflow is not None
        return self.get(message.workflow.run_id)

    def _find_run_of(self, message: Message) -> WorkflowRun | None:
        return None if message.workflow is None else self.runs.get(message.workflow.run_id)

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
            self._finish_run(run, "RUN_SUCCESS", self.engine.clock.now_us(), response)

    def cancel(self, run: WorkflowRun) -> None:
        now = self.engine.clock.now_us()
        pending = self.engine.pending
        self.engine.lifecycle.cancel_all(
            [pending[one] for one in run.message_ids if one in pending]
        )
        self._finish_run(run, "RUN_CANCELED", now, b"")

    def _start(self, part: WorkflowPart, message: Message, at_us: int) -> None:
        run = WorkflowRun(
            part.run_id, part.url, at_us, message.id, message.settings, message.caller_ip
        )
        run.number = self.engine.next_sequence()
        message.workflow = part._replace(created_ms=run.created_ms)
        run.message_ids.append(message.id)
        if _is_true(message, "Upstash-Workflow-Invoke"):
            run.invoker, message.body = read_invocation(message.body)
        self.runs[run.id] = run

    def _note_failure_callback(self, message: Message) -> None:
        # Find the run through the source: clients add the run's id to their own failure callbacks,
        # but a plain failure URL has no headers.
        messages = self.engine.messages
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
        source = self.engine.messages.get(failure.failure_of or "")
        if source is not None:
            source.failure_function_state = callback_state(failure)

    def _finish_run(self, run: WorkflowRun, state: RunState, at_us: int, response: bytes) -> None:
        run.state, run.completed_us, run.response = state, at_us, response
        self.events.release(run.id)
        invoker = run.invoker
        if invoker is not None and invoker.run_id in self.runs and self.runs[invoker.run_id].live:
            publish_result(self.engine, run, invoker)


def _read_part(message: Message) -> WorkflowPart | None:
    control = message.settings.workflow
    run_id = first(control, "Upstash-Workflow-RunId") if control else None
    if not run_id:
        return None
    url = first(control, "Upstash-Workflow-Url") or message.url
    call_type = (first(control, "Upstash-Workflow-CallType") or "step").lower()
    return WorkflowPart(run_id, url, call_type)


def _is_true(message: Message, header: str) -> bool:
    return (first(message.settings.workflow, header) or "").lower() == "true"


def _already_finished(run: WorkflowRun) -> QueueError:
    return bad_request(f"workflow run {as_text(run.id)} is already finished: {run.state}")


def inherited_settings(
    message: Message, trigger: PublishSettings, *, retries: bool
) -> PublishSettings:
    """Return a message's settings, completed with the settings of its run's trigger.

    With ``retries``, the trigger's number of retries replaces the message's own.
    """
    own = message.settings
    skipped = {name.lower() for name, _ in own.forward}
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
        if getattr(own, name) is None:
            changes[name] = getattr(trigger, name)
    if own.failure_callback is None:
        changes["failure_callback_headers"] = trigger.failure_callback_headers
    if call_type_of(message) == "failurecall":
        # Otherwise its failure would cause another failure callback.
        changes["failure_callback"], changes["failure_callback_headers"] = None, []
    if retries:
        changes["retries"] = trigger.retries
    return own._replace(**changes)


def _has_default_retries(engine: Engine, message: Message) -> bool:
    """Return whether a callback's number of retries is only the default."""
    source = engine.messages.get(message.source_id or "")
    if message.kind == MESSAGE or source is None:
        return False
    given = source.settings
    own = given.callback_headers if message.kind == CALLBACK else given.failure_callback_headers
    return first(own, "Upstash-Retries") is None
