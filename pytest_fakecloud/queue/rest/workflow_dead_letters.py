"""Endpoints for the dead letters of workflow runs.

Source: the official clients' code and the vendor's documentation. Decided here: ``resume`` and
``restart`` create a new run and remove the dead letter. Settings in the request replace those of the
old run, also for later steps. The sources disagree about the type of
``workflowCreatedAt`` in their responses: it is a number of milliseconds, as everywhere else, although
the types of the JavaScript client say that it is a string. ``DELETE .../callback/<id>`` cancels a
pending failure callback, or deletes the dead letter of a failed one.
"""

from __future__ import annotations

from ...http.messages import Request
from ..errors import bad_request, not_found
from ..model import Message
from ..wire import records
from ..wire.headers import read_given
from ..wire.values import as_text, unprefixed, without_none
from ..workflow.model import WorkflowRun
from .bulk_requests import bulk_filters
from .dead_letters import DeadLetterRoutes
from .family import QueueRoute

_OVERRIDES = ("retries", "retry-delay", "flow-control-", "label", "delay", "failure-callback")
"""Prefixes of the settings that can be given when a run is resumed or restarted."""


class WorkflowDeadLetterRoutes(DeadLetterRoutes):
    """Endpoints that list, resume, restart and delete failed workflow runs."""

    keeps_empty_filters = False

    @classmethod
    def routes(cls) -> list[QueueRoute]:
        dlq = "/v2/workflows/dlq"
        return [
            cls.route("POST", f"{dlq}/resume", "resume_workflow_runs", cls.start_again),
            cls.route("POST", f"{dlq}/resume/{{id}}", "resume_workflow_runs", cls.start_again),
            cls.route("POST", f"{dlq}/restart", "restart_workflow_runs", cls.start_again),
            cls.route("POST", f"{dlq}/restart/{{id}}", "restart_workflow_runs", cls.start_again),
            cls.route(
                "POST", f"{dlq}/callback/{{id}}", "retry_failure_function", cls.retry_failure
            ),
            cls.route("DELETE", f"{dlq}/callback/{{id}}", "give_up_failure", cls.give_up_failure),
            cls.route("GET", dlq, "list_workflow_dead_letters", cls.list_dead_letters),
            cls.route("DELETE", dlq, "delete_workflow_dead_letters", cls.delete_dead_letters),
            cls.route("GET", f"{dlq}/{{id}}", "get_workflow_dead_letter", cls.get_dead_letter),
            cls.route(
                "DELETE", f"{dlq}/{{id}}", "delete_workflow_dead_letters", cls.delete_dead_letter
            ),
        ]

    def delete_dead_letter(self, request: Request) -> object:
        return {"deleted": self.engine.delete_dead_letters([self._letter(request)])}

    def start_again(self, request: Request) -> object:
        resumes = request.route == "resume_workflow_runs"
        start = self.runs.resume if resumes else self.runs.restart
        overrides = read_given(
            pair
            for pair in request.headers.pairs
            if (unprefixed(pair[0]) or "").startswith(_OVERRIDES)
        )
        single = "id" in request.params
        if single:
            letters, cursor = [self._letter(request)], None
        else:
            letters, cursor = self._letters(bulk_filters(request, "dlqIds"), request)
        # If the daily limit has no room for all selected runs, or the first message of one of them
        # has been forgotten, start none of them.
        engine = self.engine
        engine.quota.check_room(len(letters))
        for letter in letters:
            if not resumes or not self.runs.can_resume(letter):
                self.runs.first_message(letter)
        runs = []
        for letter in letters:
            runs.append(start(letter, overrides))
            engine.delete_dead_letters([letter])
        if single:
            return _created(runs[0])
        return {"workflowRuns": [_created(run) for run in runs]} | without_none(cursor=cursor)

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
        self.runs.give_up_failure(run, failure)
        return {"deleted": 1}

    def _failure_of(self, request: Request) -> tuple[WorkflowRun, Message | None]:
        run = self.runs.require_run_of(self._letter(request))
        return run, self.runs.failure_callback(run)

    def _letter(self, request: Request) -> Message:
        letter = super()._letter(request)
        if letter.workflow is None:
            raise not_found("dlq message", request.segment("id"))
        return letter

    def _letters(
        self, pairs: list[tuple[str, str]], request: Request
    ) -> tuple[list[Message], str | None]:
        filters = [pair for pair in pairs if pair[1] and pair[0] != "source"]
        return super()._letters(filters, request)

    def _select(self, chosen: records.Filters) -> tuple[list[Message], str | None]:
        chosen.fields["source"] = ["workflow"]
        return super()._select(chosen)


def _created(run: WorkflowRun) -> dict[str, object]:
    return {"workflowRunId": run.id, "workflowCreatedAt": run.created_ms}
