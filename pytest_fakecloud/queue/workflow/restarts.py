"""New runs that continue or repeat a failed workflow run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import QueueError, existing
from ..model import HeaderList, HeaderPairs, Message, PublishSettings
from ..wire.headers import settings_to_republish
from ..wire.text import unprefixed
from .model import RunStep, WorkflowRun

if TYPE_CHECKING:
    from ..engine.engine import Engine


def steps_to_keep(engine: Engine, message: Message) -> list[RunStep]:
    """Return the steps before a failed message, with which a resumed run begins."""
    run = engine.workflow.require_run_of(message)
    # The position is None, and all steps are kept, if the failed message is not in the list.
    return run.steps[: run.position(message.id)]


def first_message(engine: Engine, message: Message) -> Message:
    """Return the first message of a message's run; raise a 404 error if it has been forgotten."""
    run = engine.workflow.require_run_of(message)
    found = engine.messages.get(run.first_message_id)
    return existing(found, "first message of workflow run", run.id)


def resume(engine: Engine, message: Message, given: dict[str, Any]) -> WorkflowRun:
    """Start a run that continues at a failed message. ``given`` replaces the run's settings."""
    steps = steps_to_keep(engine, message)
    if not steps:
        return restart(engine, message, given)
    runs = engine.workflow
    old = runs.require_run_of(message)
    new = WorkflowRun(
        engine.new_id("wfr_"),
        old.url,
        engine.clock.now_us(),
        old.first_message_id,
        settings_to_republish(old.settings, given),
        old.caller_ip,
        steps=steps,
        invoker=old.invoker,
        number=engine.next_sequence(),
    )
    settings = settings_to_republish(message.settings, given, message.max_retries)
    # Publishing a step requires that its run exists.
    runs.runs[new.id] = new
    try:
        _publish_again(engine, message, new.id, settings, message.body, init=False)
    except QueueError:
        del runs.runs[new.id]
        raise
    return new


def restart(engine: Engine, message: Message, given: dict[str, Any]) -> WorkflowRun:
    """Start a run with the first message of a failed message's run, as for ``resume()``."""
    old = engine.workflow.require_run_of(message)
    first = first_message(engine, message)
    new_id = engine.new_id("wfr_")
    settings = settings_to_republish(old.settings, given, first.max_retries)
    body = old.steps[0].body if old.steps else first.body
    _publish_again(engine, first, new_id, settings, body, init=True)
    new = engine.workflow.get(new_id)
    new.invoker = old.invoker
    return new


def _publish_again(
    engine: Engine,
    message: Message,
    run_id: str,
    settings: PublishSettings,
    body: bytes,
    *,
    init: bool,
) -> None:
    """Publish a message of another run in this run, as its first message if ``init``."""
    own = {"workflow-runid", "workflow-init", "workflow-invoke"}
    workflow = [pair for pair in settings.workflow if unprefixed(pair[0]) not in own]
    workflow += [
        ("Upstash-Workflow-RunId", run_id),
        ("Upstash-Workflow-Init", "true" if init else "false"),
    ]
    settings = settings._replace(
        workflow=workflow,
        callback_headers=_of_run(settings.callback_headers, run_id),
        failure_callback_headers=_of_run(settings.failure_callback_headers, run_id),
    )
    engine.publisher.publish_again(message, settings, body)


def _of_run(nested: HeaderPairs, run_id: str) -> HeaderList:
    """Return the headers of a callback, with this run in place of the one that they name."""
    return [
        (name, run_id if name.lower().endswith("workflow-runid") else value)
        for name, value in nested
    ]
