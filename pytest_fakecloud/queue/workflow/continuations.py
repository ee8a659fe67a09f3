"""Workflow runs that continue or repeat other runs, from the dead letter of a step or from any step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...core.calls import HeaderPairs
from ..errors import QueueError, bad_request, existing
from ..model import HeaderList, Message, PublishSettings
from ..wire.headers import settings_to_republish
from ..wire.values import unprefixed
from .model import WorkflowRun, read_step
from .runs import WorkflowRuns, context_size, counts_as_step

if TYPE_CHECKING:
    from ..engine.data import QueueData
    from ..engine.dead_letters import DeadLetters
    from ..engine.lifecycle import Lifecycle
    from ..engine.publishing import Publisher


class Continuations:
    """Starts runs that continue or repeat others, and gives up the failure callbacks of failed runs."""

    def __init__(
        self,
        data: QueueData,
        dead_letters: DeadLetters,
        workflow: WorkflowRuns,
        lifecycle: Lifecycle,
        publisher: Publisher,
    ) -> None:
        self._data = data
        self._dead_letters = dead_letters
        self._workflow = workflow
        self._lifecycle = lifecycle
        self._publisher = publisher

    def can_resume(self, message: Message) -> bool:
        """Return whether a run has steps to keep besides a failed message."""
        run = self._workflow.require_run_of(message)
        return run.steps != [] and run.position(message.id) != 0

    def first_message(self, message: Message) -> Message:
        """Return the first message of a message's run; raise a 404 error if it has been forgotten."""
        run = self._workflow.require_run_of(message)
        started = self._data.messages.get(run.first_message_id)
        return existing(started, "first message of workflow run", run.id)

    def resume(self, message: Message, overrides: dict[str, Any]) -> WorkflowRun:
        """Start a run that continues at a failed message. ``overrides`` replace the run's settings.

        It begins with all steps of the old run, also those of parallel branches that were delivered
        after the failed one.
        """
        if not self.can_resume(message):
            return self.restart(message, overrides)
        old = self._workflow.require_run_of(message)
        new = WorkflowRun(
            self._data.new_id("wfr_"),
            old.url,
            self._data.clock.now_us(),
            old.first_message_id,
            settings_to_republish(old.settings, overrides),
            old.caller_ip,
        )
        new.invoker, new.number = old.invoker, self._data.next_sequence()
        new.parent_id = old.id
        new.steps, new.depth = list(old.steps), old.depth
        # Publishing the failed step counts it again.
        new.step_count = old.step_count - counts_as_step(message)
        new.context_bytes = old.context_bytes - context_size(message)
        settings = settings_to_republish(message.settings, overrides, message.max_retries)
        # Publishing a step requires that its run exists.
        self._workflow.runs[new.id] = new
        try:
            self._publish_in_run(message, new.id, settings, message.body, init=False)
        except QueueError:
            del self._workflow.runs[new.id]
            raise
        new.reopen(message.id, new.message_ids[-1])
        return new

    def restart(self, message: Message, overrides: dict[str, Any]) -> WorkflowRun:
        """Start a run with the first message of a failed message's run, as for ``resume()``."""
        old = self._workflow.require_run_of(message)
        started = self.first_message(message)
        new_id = self._data.new_id("wfr_")
        settings = settings_to_republish(old.settings, overrides, started.max_retries)
        body = old.steps[0].body if old.steps else started.body
        self._publish_in_run(started, new_id, settings, body, init=True)
        new = self._workflow.get(new_id)
        new.invoker, new.depth, new.parent_id = old.invoker, old.depth, old.id
        return new

    def rerun(self, message: Message, replaced: Mapping[str, bytes]) -> WorkflowRun:
        """Start a run that begins like the run of a delivered message, and goes on with that message.

        ``replaced`` has the bodies that are others than in the old run, of the message itself and of
        those before it, by their IDs. Raises a 400 error for a message that is none of its steps, or
        that belongs to parallel steps. The old run does not change.
        """
        old = self._workflow.require_run_of(message)
        position = old.position(message.id)
        if position is None:
            raise bad_request(f"message {message.id} is not a step that was delivered")
        step = read_step(message.body) if position else {}
        if step.get("targetStep") or (step.get("concurrent") or 1) != 1:
            raise bad_request(f"step {step.get('stepName')!r} is one of parallel steps")
        new = WorkflowRun(
            self._data.new_id("wfr_"),
            old.url,
            self._data.clock.now_us(),
            old.first_message_id,
            settings_to_republish(old.settings, {}),
            old.caller_ip,
        )
        settings = settings_to_republish(message.settings, {}, message.max_retries)
        body = replaced.get(message.id, message.body)
        if position == 0:
            self._publish_in_run(message, new.id, settings, body, init=True)
            new = self._workflow.get(new.id)
            new.parent_id = old.id
            return new
        new.number, new.depth = self._data.next_sequence(), old.depth
        new.parent_id = old.id
        new.steps = [
            step._replace(body=replaced.get(step.message_id, step.body))
            for step in old.steps[:position]
        ]
        new.step_count = position - 1
        new.context_bytes = sum(len(step.body) for step in new.steps)
        # Publishing a step requires that its run exists.
        self._workflow.runs[new.id] = new
        try:
            self._publish_in_run(message, new.id, settings, body, init=False)
        except QueueError:
            del self._workflow.runs[new.id]
            raise
        return new

    def give_up_failure(self, run: WorkflowRun, failure: Message) -> None:
        """Cancel the failure callback of a run or, if it has failed, delete it."""
        if failure.state == "FAILED":
            self._dead_letters.delete([failure])
            run.failure_message_id = None
        else:
            self._lifecycle.cancel_all([failure])

    def _publish_in_run(
        self, message: Message, run_id: str, settings: PublishSettings, body: bytes, *, init: bool
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
        self._publisher.publish_again(message, settings, body)


def _of_run(nested: HeaderPairs, run_id: str) -> HeaderList:
    """Return the headers of a callback, with this run in place of the one that they name."""
    return [
        (name, run_id if name.lower().endswith("workflow-runid") else value)
        for name, value in nested
    ]
