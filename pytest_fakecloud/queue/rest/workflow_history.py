"""Endpoints for the dead letters of workflow runs: ``/v2/workflows/dlq``.

Source: the official clients' code and the vendor's documentation. Decided here: ``resume`` and
``restart`` create a new run and remove the dead letter. Settings in the request replace those of
the old run, also for later steps. ``DELETE .../callback/<id>`` cancels a pending failure callback,
or deletes the dead letter of a failed one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...http.messages import Request
from ...http.routing import Route
from ..engine.dead_letters import DeadLetter
from ..errors import QueueError, bad_request, not_found
from ..model import HeaderList, Message, PublishSettings
from ..wire import filters
from ..wire.headers import read_given, settings_to_republish
from ..wire.text import as_text, unprefixed
from ..workflow.model import WorkflowRun
from .history import letter_record
from .payloads import (
    Endpoints,
    bulk_pairs,
    cursor_field,
    has_empty_ids,
    query_of,
    refuse_empty_id,
    segment,
)

_OVERRIDES = ("retr", "flow-control-", "label", "delay", "failure-callback")
"""Prefixes of the settings that can be given when a run is resumed or restarted."""
_ON_ITS_WAY = ("CREATED", "ACTIVE", "RETRY")


class WorkflowHistoryRoutes(Endpoints):
    """Endpoints for the dead letters of workflow runs."""

    def routes(self) -> list[Route]:
        dlq = "/v2/workflows/dlq"
        return [
            Route("POST", f"{dlq}/resume", "resume_workflow_runs", self.resume),
            Route("POST", f"{dlq}/resume/{{id}}", "resume_workflow_runs", self.resume),
            Route("POST", f"{dlq}/restart", "restart_workflow_runs", self.restart),
            Route("POST", f"{dlq}/restart/{{id}}", "restart_workflow_runs", self.restart),
            Route("POST", f"{dlq}/callback/{{id}}", "retry_failure_function", self.retry_failure),
            Route("DELETE", f"{dlq}/callback/{{id}}", "give_up_failure", self.give_up_failure),
            Route("GET", dlq, "list_workflow_dead_letters", self.list_dead_letters),
            Route("DELETE", dlq, "delete_workflow_dead_letters", self.delete_dead_letters),
            Route("GET", f"{dlq}/{{id}}", "get_workflow_dead_letter", self.get_dead_letter),
            Route("DELETE", f"{dlq}/{{id}}", "delete_workflow_dead_letters", self.delete_one),
        ]

    def list_dead_letters(self, request: Request) -> object:
        rows, cursor = self._letters(query_of(request), request)
        shown = [letter_record(self.engine, row) for row in rows]
        return {"messages": shown} | cursor_field(cursor)

    def get_dead_letter(self, request: Request) -> object:
        return letter_record(self.engine, self._row(segment(request, "id")))

    def delete_one(self, request: Request) -> object:
        return {"deleted": self.engine.dead_letters.delete([self._row(segment(request, "id"))])}

    def delete_dead_letters(self, request: Request) -> object:
        refuse_empty_id(request, "dlq message")
        rows, cursor = self._letters(bulk_pairs(request, "dlqIds"), request)
        return {"deleted": self.engine.dead_letters.delete(rows)} | cursor_field(cursor)

    def resume(self, request: Request) -> object:
        return self._again(request, self._resumed)

    def restart(self, request: Request) -> object:
        return self._again(request, self._restarted)

    def retry_failure(self, request: Request) -> object:
        engine = self.engine
        row = self._row(segment(request, "id"))
        run = self.runs.require_run_of(engine.dead_letters.message(row))
        failure = self.runs.failure_callback(run)
        if failure is None or failure.state != "FAILED":
            raise bad_request(f"workflow run {as_text(run.id)} has no failed failure callback")
        engine.publisher.retry_dead_letters([failure])
        if failure.dlq_id is not None:
            engine.dead_letters.rows.pop(failure.dlq_id, None)
        return _created(run)

    def give_up_failure(self, request: Request) -> object:
        engine = self.engine
        row = self._row(segment(request, "id"))
        run = self.runs.require_run_of(engine.dead_letters.message(row))
        failure = self.runs.failure_callback(run)
        if failure is None or failure.state not in ("FAILED", *_ON_ITS_WAY):
            raise bad_request(f"workflow run {as_text(run.id)} has no failure callback to cancel")
        if failure.state == "FAILED":
            engine.dead_letters.rows.pop(failure.dlq_id or "", None)
            run.failure_message_id = None
        else:
            engine.lifecycle.cancel_all([failure])
        return {"deleted": 1}

    def _again(
        self, request: Request, make: Callable[[Message, dict[str, Any]], WorkflowRun]
    ) -> object:
        given = read_given(
            pair
            for pair in request.headers.pairs
            if (unprefixed(pair[0]) or "").startswith(_OVERRIDES)
        )
        single = "id" in request.params
        if single:
            rows, cursor = [self._row(segment(request, "id"))], None
        else:
            refuse_empty_id(request, "dlq message")
            rows, cursor = self._letters(bulk_pairs(request, "dlqIds"), request)
        # If the daily limit has no room for all selected runs, start none of them.
        self.engine.quota.check_room(len(rows))
        runs = []
        for row in rows:
            runs.append(make(self.engine.dead_letters.message(row), given))
            self.engine.dead_letters.delete([row])
        if single:
            return _created(runs[0])
        return {"workflowRuns": [_created(run) for run in runs]} | cursor_field(cursor)

    def _resumed(self, message: Message, given: dict[str, Any]) -> WorkflowRun:
        new = self.runs.resume(message, self.engine.new_id("wfr_"))
        if not new.steps:
            del self.runs.runs[new.id]
            return self._restarted(message, given)
        new.settings = settings_to_republish(new.settings, given)
        settings = settings_to_republish(message.settings, given, message.max_retries)
        try:
            self._republish(message, new.id, settings, message.body, init=False)
        except QueueError:
            del self.runs.runs[new.id]
            raise
        return new

    def _restarted(self, message: Message, given: dict[str, Any]) -> WorkflowRun:
        old = self.runs.require_run_of(message)
        started = self.runs.first_message(old)
        new_id = self.engine.new_id("wfr_")
        settings = settings_to_republish(old.settings, given, started.max_retries)
        self._republish(started, new_id, settings, self.runs.first_body(old), init=True)
        new = self.runs.get(new_id)
        new.invoker = old.invoker
        return new

    def _republish(
        self, message: Message, run_id: str, settings: PublishSettings, body: bytes, *, init: bool
    ) -> None:
        own = {"workflow-runid", "workflow-init", "workflow-invoke"}
        workflow = [pair for pair in settings.workflow if unprefixed(pair[0]) not in own]
        workflow += [
            ("Upstash-Workflow-RunId", run_id),
            ("Upstash-Workflow-Init", "true" if init else "false"),
        ]
        settings = replace(
            settings,
            workflow=workflow,
            callback_headers=_of_run(settings.callback_headers, run_id),
            failure_callback_headers=_of_run(settings.failure_callback_headers, run_id),
        )
        self.engine.publisher.publish_again(message, settings, body)

    def _row(self, dlq_id: str) -> DeadLetter:
        row = self.engine.dead_letters.get(dlq_id)
        if self.engine.dead_letters.message(row).workflow is None:
            raise not_found("dlq message", dlq_id)
        return row

    def _letters(
        self, pairs: list[tuple[str, str]], request: Request
    ) -> tuple[list[DeadLetter], str | None]:
        kept = [pair for pair in pairs if pair[1] and pair[0] != "source"]
        chosen = filters.read_filters(kept, filters.FOR_DEAD_LETTERS)
        if chosen.empty and has_empty_ids(request, "dlqIds", "dlqId"):
            return [], None
        chosen.fields["source"] = ["workflow"]
        return self.engine.dead_letters.select(chosen)


def _created(run: WorkflowRun) -> dict[str, object]:
    return {"workflowRunId": run.id, "workflowCreatedAt": str(run.created_ms)}


def _of_run(nested: HeaderList, run_id: str) -> HeaderList:
    return [
        (name, run_id if name.lower().endswith("workflow-runid") else value)
        for name, value in nested
    ]
