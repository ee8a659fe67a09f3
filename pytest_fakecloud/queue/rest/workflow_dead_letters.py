"""Endpoints for the dead letters of workflow runs.

Source: the official clients' code and the vendor's documentation. Decided here: ``resume`` and
``restart`` create a new run and remove the dead letter. Settings in the request replace those of the
old run, also for later steps. The sources disagree about the type of
``workflowCreatedAt`` in their responses: it is a number of milliseconds, as everywhere else, although
the types of the JavaScript client say that it is a string. ``DELETE .../callback/<id>`` cancels a
pending failure callback, or deletes the dead letter of a failed one.
"""

from __future__ import annotations

from functools import partial

from ...http.messages import Request
from ..engine.engine import Engine
from ..errors import bad_request
from ..model import Message
from ..wire.headers import read_given
from ..wire.values import as_text, unprefixed, without_none
from ..workflow.model import WorkflowRun
from .bulk_requests import bulk_filters
from .dead_letters import (
    delete_dead_letters,
    get_dead_letter,
    list_dead_letters,
    read_letter,
    select_letters,
)
from .routing import QueueRoute

_OVERRIDES = ("retries", "retry-delay", "flow-control-", "label", "delay", "failure-callback")
"""Prefixes of the settings that can be given when a run is resumed or restarted."""


def delete_dead_letter(engine: Engine, request: Request) -> object:
    return {"deleted": engine.dead_letters.delete([read_letter(engine, request, of_runs=True)])}


def resume_runs(engine: Engine, request: Request) -> object:
    return _start_again(engine, request, resumes=True)


def restart_runs(engine: Engine, request: Request) -> object:
    return _start_again(engine, request, resumes=False)


def _start_again(engine: Engine, request: Request, *, resumes: bool) -> object:
    start = engine.continuations.resume if resumes else engine.continuations.restart
    overrides = read_given(
        pair for pair in request.headers.pairs if (unprefixed(pair[0]) or "").startswith(_OVERRIDES)
    )
    single = "id" in request.params
    if single:
        letters, cursor = [read_letter(engine, request, of_runs=True)], None
    else:
        letters, cursor = select_letters(
            engine, bulk_filters(request, "dlqIds"), request, of_runs=True
        )
    # If the daily limit has no room for all selected runs, or the first message of one of them
    # has been forgotten, start none of them.
    engine.quota.check_room(len(letters))
    for letter in letters:
        if not resumes or not engine.continuations.can_resume(letter):
            engine.continuations.first_message(letter)
    runs = []
    for letter in letters:
        runs.append(start(letter, overrides))
        engine.dead_letters.delete([letter])
    if single:
        return _created(runs[0])
    return {"workflowRuns": [_created(run) for run in runs]} | without_none(cursor=cursor)


def retry_failure(engine: Engine, request: Request) -> object:
    run, failure = _failure_of(engine, request)
    if failure is None or failure.state != "FAILED":
        raise bad_request(f"workflow run {as_text(run.id)} has no failed failure callback")
    engine.publisher.retry_dead_letters([failure])
    return _created(run)


def give_up_failure(engine: Engine, request: Request) -> object:
    run, failure = _failure_of(engine, request)
    if failure is None or not (failure.pending or failure.state == "FAILED"):
        raise bad_request(f"workflow run {as_text(run.id)} has no failure callback to cancel")
    engine.continuations.give_up_failure(run, failure)
    return {"deleted": 1}


def _failure_of(engine: Engine, request: Request) -> tuple[WorkflowRun, Message | None]:
    run = engine.workflow.require_run_of(read_letter(engine, request, of_runs=True))
    return run, engine.workflow.failure_callback(run)


def _created(run: WorkflowRun) -> dict[str, object]:
    return {"workflowRunId": run.id, "workflowCreatedAt": run.created_ms}


ROUTES = [
    QueueRoute("POST", "/v2/workflows/dlq/resume", "resume_workflow_runs", resume_runs),
    QueueRoute("POST", "/v2/workflows/dlq/resume/{id}", "resume_workflow_runs", resume_runs),
    QueueRoute("POST", "/v2/workflows/dlq/restart", "restart_workflow_runs", restart_runs),
    QueueRoute("POST", "/v2/workflows/dlq/restart/{id}", "restart_workflow_runs", restart_runs),
    QueueRoute("POST", "/v2/workflows/dlq/callback/{id}", "retry_failure_function", retry_failure),
    QueueRoute("DELETE", "/v2/workflows/dlq/callback/{id}", "give_up_failure", give_up_failure),
    QueueRoute(
        "GET",
        "/v2/workflows/dlq",
        "list_workflow_dead_letters",
        partial(list_dead_letters, of_runs=True),
    ),
    QueueRoute(
        "DELETE",
        "/v2/workflows/dlq",
        "delete_workflow_dead_letters",
        partial(delete_dead_letters, of_runs=True),
    ),
    QueueRoute(
        "GET",
        "/v2/workflows/dlq/{id}",
        "get_workflow_dead_letter",
        partial(get_dead_letter, of_runs=True),
    ),
    QueueRoute(
        "DELETE", "/v2/workflows/dlq/{id}", "delete_workflow_dead_letters", delete_dead_letter
    ),
]
