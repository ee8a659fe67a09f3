"""Endpoints for dead letters, also of workflow runs, and for logs.

Source of ``/v2/workflows/dlq``: the official clients' code and the vendor's documentation. Decided
here: ``resume`` and ``restart`` create a new run and remove the dead letter. Settings in the request
replace those of the old run, also for later steps. The sources disagree about the type of
``workflowCreatedAt`` in their responses: it is a string, as in the types of the JavaScript client,
but a number in the response to a trigger. ``DELETE .../callback/<id>`` cancels a pending failure
callback, or deletes the dead letter of a failed one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...http.messages import Answer, Request
from ...http.routing import Route
from ..engine.engine import Engine
from ..engine.messages import DeadLetter
from ..engine.publishing import Accepted
from ..errors import bad_request, not_found
from ..model import Message
from ..wire import records
from ..wire.headers import read_given
from ..wire.values import as_text, unprefixed
from ..workflow.model import WorkflowRun
from .payloads import RouteFamily, accepted_record, bulk_pairs, cursor_field, has_id_field, query_of

_MAX_LOGS = 100
"""Maximum page size in the vendor's OpenAPI file. (The Python client says 1000, but follows the
cursor.)
"""
_OVERRIDES = ("retries", "retry-delay", "flow-control-", "label", "delay", "failure-callback")
"""Prefixes of the settings that can be given when a run is resumed or restarted."""


def letter_record(engine: Engine, letter: DeadLetter) -> records.Record:
    message = engine.dead_message(letter)
    shown = records.dead_letter_record(message, letter.id, engine.settings.no_answer_status)
    return shown | engine.workflow.dead_letter_fields(message)


class HistoryRoutes(RouteFamily):
    """Endpoints for dead letters and logs."""

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/v2/dlq", "list_dead_letters", self.list_dead_letters),
            Route("DELETE", "/v2/dlq", "delete_dead_letters", self.delete_dead_letters),
            Route("POST", "/v2/dlq/retry", "retry_dead_letters", self.retry_dead_letters),
            Route("POST", "/v2/dlq/retry/{id}", "retry_dead_letter", self.retry_dead_letter),
            Route("GET", "/v2/dlq/{id}", "get_dead_letter", self.get_dead_letter),
            Route("DELETE", "/v2/dlq/{id}", "delete_dead_letter", self.delete_dead_letter),
            Route("GET", "/v2/events", "list_events", self.list_events),
            Route("GET", "/v2/logs", "list_logs", self.list_logs),
        ]

    def list_dead_letters(self, request: Request) -> object:
        chosen = records.read_filters(query_of(request), records.FOR_DEAD_LETTERS)
        letters, cursor = self.engine.select_dead_letters(chosen)
        shown = [letter_record(self.engine, letter) for letter in letters]
        return {"messages": shown} | cursor_field(cursor)

    def get_dead_letter(self, request: Request) -> object:
        return letter_record(self.engine, self.engine.dead_letter(request.segment("id")))

    def delete_dead_letter(self, request: Request) -> None:
        self.engine.delete_dead_letters([self.engine.dead_letter(request.segment("id"))])

    def delete_dead_letters(self, request: Request) -> object:
        letters, cursor = self._chosen_letters(request)
        return {"deleted": self.engine.delete_dead_letters(letters)} | cursor_field(cursor)

    def retry_dead_letter(self, request: Request) -> Answer:
        letter = self.engine.dead_letter(request.segment("id"))
        (accepted,) = self._retry([letter], request)
        return Answer(accepted_record(accepted), 201)

    def _retry(self, letters: list[DeadLetter], request: Request) -> list[Accepted]:
        messages = map(self.engine.dead_message, letters)
        return self.engine.retry_dead_letters(messages, request.headers.pairs)

    def retry_dead_letters(self, request: Request) -> Answer:
        letters, cursor = self._chosen_letters(request, known=True)
        accepted = self._retry(letters, request)
        responses = [accepted_record(one) for one in accepted]
        return Answer({"cursor": cursor or "", "responses": responses}, 201)

    def _chosen_letters(
        self, request: Request, *, known: bool = False
    ) -> tuple[list[DeadLetter], str | None]:
        """Return a page of the dead letters that a bulk request selects, and the next cursor.

        With ``known``, raise a 404 error if ids are given and none of them exists.
        """
        chosen = records.read_filters(
            bulk_pairs(request, "dlqIds", keep_empty=True), records.FOR_DEAD_LETTERS
        )
        if chosen.empty and has_id_field(request, "dlqIds"):
            return [], None
        letters, cursor = self.engine.select_dead_letters(chosen)
        ids = chosen.fields.get("dlqIds") or chosen.fields.get("dlqId")
        if known and ids and not letters:
            raise not_found("dlq message", ", ".join(ids))
        return letters, cursor

    def _log_page(self, request: Request) -> tuple[list[records.Record], dict[str, str]]:
        chosen = records.read_filters(query_of(request), records.FOR_LOGS, most=_MAX_LOGS)
        entries, cursor = self.engine.log_page(chosen)
        messages, no_answer = self.engine.messages, self.engine.settings.no_answer_status
        found = [records.log_record(one, messages[one.message_id], no_answer) for one in entries]
        return found, cursor_field(cursor)

    def list_events(self, request: Request) -> object:
        found, cursor = self._log_page(request)
        return {"events": found} | cursor

    def list_logs(self, request: Request) -> object:
        found, cursor = self._log_page(request)
        return {"logs": found, "events": found} | cursor


class WorkflowHistoryRoutes(RouteFamily):
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
        letters, cursor = self._letters(query_of(request), request)
        shown = [letter_record(self.engine, letter) for letter in letters]
        return {"messages": shown} | cursor_field(cursor)

    def get_dead_letter(self, request: Request) -> object:
        return letter_record(self.engine, self._letter(request.segment("id")))

    def delete_one(self, request: Request) -> object:
        return {"deleted": self.engine.delete_dead_letters([self._letter(request.segment("id"))])}

    def delete_dead_letters(self, request: Request) -> object:
        letters, cursor = self._letters(bulk_pairs(request, "dlqIds"), request)
        return {"deleted": self.engine.delete_dead_letters(letters)} | cursor_field(cursor)

    def resume(self, request: Request) -> object:
        return self._start_again(request, self.runs.resume)

    def restart(self, request: Request) -> object:
        return self._start_again(request, self.runs.restart)

    def retry_failure(self, request: Request) -> object:
        run, failure = self._failure_of(request)
        if failure is None or failure.state != "FAILED":
            raise bad_request(f"workflow run {as_text(run.id)} has no failed failure callback")
        self.engine.retry_dead_letters([failure])
        return _created(run)

    def give_up_failure(self, request: Request) -> object:
        run, failure = self._failure_of(request)
        if failure is None or not (failure.pending or failure.state == "FAILED"):
            raise bad_request(f"workflow run {as_text(run.id)} has no failure callback to cancel")
        if failure.state == "FAILED":
            self.engine.dead_letters.pop(failure.dlq_id or "", None)
            run.failure_message_id = None
        else:
            self.engine.cancel_all([failure])
        return {"deleted": 1}

    def _failure_of(self, request: Request) -> tuple[WorkflowRun, Message | None]:
        letter = self._letter(request.segment("id"))
        run = self.runs.require_run_of(self.engine.dead_message(letter))
        return run, self.runs.failure_callback(run)

    def _start_again(
        self, request: Request, start: Callable[[Message, dict[str, Any]], WorkflowRun]
    ) -> object:
        """Start a run for each selected dead letter, and delete the dead letter."""
        given = read_given(
            pair
            for pair in request.headers.pairs
            if (unprefixed(pair[0]) or "").startswith(_OVERRIDES)
        )
        single = "id" in request.params
        if single:
            letters, cursor = [self._letter(request.segment("id"))], None
        else:
            letters, cursor = self._letters(bulk_pairs(request, "dlqIds"), request)
        # If the daily limit has no room for all selected runs, or the first message of one of them
        # has been forgotten, start none of them.
        engine = self.engine
        engine.quota.check_room(len(letters))
        messages = [engine.dead_message(letter) for letter in letters]
        for message in messages:
            if start == self.runs.restart or not self.runs.steps_to_keep(message):
                self.runs.first_message(message)
        runs = []
        for letter, message in zip(letters, messages, strict=True):
            runs.append(start(message, given))
            engine.delete_dead_letters([letter])
        if single:
            return _created(runs[0])
        return {"workflowRuns": [_created(run) for run in runs]} | cursor_field(cursor)

    def _letter(self, dlq_id: str) -> DeadLetter:
        letter = self.engine.dead_letter(dlq_id)
        if self.engine.dead_message(letter).workflow is None:
            raise not_found("dlq message", dlq_id)
        return letter

    def _letters(
        self, pairs: list[tuple[str, str]], request: Request
    ) -> tuple[list[DeadLetter], str | None]:
        kept = [pair for pair in pairs if pair[1] and pair[0] != "source"]
        chosen = records.read_filters(kept, records.FOR_DEAD_LETTERS)
        if chosen.empty and has_id_field(request, "dlqIds"):
            return [], None
        chosen.fields["source"] = ["workflow"]
        return self.engine.select_dead_letters(chosen)


def _created(run: WorkflowRun) -> dict[str, object]:
    return {"workflowRunId": run.id, "workflowCreatedAt": str(run.created_ms)}
