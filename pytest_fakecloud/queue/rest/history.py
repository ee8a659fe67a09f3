"""Endpoints for dead letters, logs, and workflow runs with their triggers, events and webhooks.

Source: the official clients' code and the vendor's documentation. Decided here: a listing of runs
starts with the newest run. The steps of a finished run cannot be fetched (404, which clients treat
as the end of the run). The ``workflowRuns`` parameter of a listing is a list of run ids, alone or
as ``<id>@<created, Unix ms>``, or ``true`` for all runs. A trigger returns 200, also for a
duplicate, and a batch of triggers 201, as in the vendor's OpenAPI file. A run that is started by a
trigger without a failure callback calls the failure function at its own URL if it fails. The sources
disagree about the response of ``POST /v2/notify/{run}/{event}``: it is a list, with 201, as for an
event without a run and as the JavaScript client expects.

Source of ``/v2/workflows/dlq``: the official clients' code and the vendor's documentation. Decided
here: ``resume`` and ``restart`` create a new run and remove the dead letter. Settings in the request
replace those of the old run, also for later steps. The sources disagree about the type of
``workflowCreatedAt`` in their responses: it is a string, as in the types of the JavaScript client,
but a number in the response to a trigger. ``DELETE .../callback/<id>`` cancels a pending failure
callback, or deletes the dead letter of a failed one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, get_args
from urllib.parse import SplitResult, urlsplit

from ...http.app import Route
from ...http.messages import Answer, Request
from ..engine.bulk_actions import BulkAction, Source
from ..errors import QueueError, bad_request, not_found
from ..model import HeaderList, Message
from ..wire import records
from ..wire.headers import read_given
from ..wire.values import (
    as_text,
    as_wire,
    encoded,
    first_setting,
    header_map,
    read_flag,
    unprefixed,
    without_none,
)
from ..workflow.model import SDK_VERSION, RunState, WorkflowRun, run_record
from ..workflow.runs import wire_pairs
from .routes import (
    HOOKS,
    RouteFamily,
    accepted_record,
    bulk_pairs,
    caller_of,
    destination_of,
    error_item,
    has_id_field,
    json_array,
    json_object,
    query_of,
    recorded_action,
    split_async,
)

_ACTION_STATES = ("IN_PROGRESS", "FINISHED")
_MAX_LOGS = 1000
"""Default and maximum size of a page of logs, as the Python client documents it and as the Go client's
tests observe it. (The vendor's OpenAPI file says 100.)
"""
_OVERRIDES = ("retries", "retry-delay", "flow-control-", "label", "delay", "failure-callback")
"""Prefixes of the settings that can be given when a run is resumed or restarted."""


class HistoryRoutes(RouteFamily):
    """Endpoints for dead letters and logs."""

    @classmethod
    def routes(cls) -> list[Route]:
        return [
            Route("GET", "/v2/dlq", "list_dead_letters", cls.list_dead_letters),
            Route("DELETE", "/v2/dlq", "delete_dead_letters", cls.delete_dead_letters),
            Route("POST", "/v2/dlq/retry", "retry_dead_letters", cls.retry_dead_letters),
            Route("POST", "/v2/dlq/retry/{id}", "retry_dead_letter", cls.retry_dead_letter),
            Route("GET", "/v2/dlq/{id}", "get_dead_letter", cls.get_dead_letter),
            Route("DELETE", "/v2/dlq/{id}", "delete_dead_letter", cls.delete_dead_letter),
            Route("GET", "/v2/events", "list_events", cls.list_logs),
            Route("GET", "/v2/logs", "list_logs", cls.list_logs),
            Route("GET", "/v2/bulkActions", "list_bulk_actions", cls.list_bulk_actions),
            Route("GET", "/v2/bulkActions/{id}", "get_bulk_action", cls.get_bulk_action),
            *(
                Route(
                    "GET", f"/v2/workflows/bulkActions{tail}", f"{verb}_workflow_bulk_action{s}", do
                )
                for tail, verb, s, do in (
                    ("", "list", "s", cls.list_bulk_actions),
                    ("/{id}", "get", "", cls.get_bulk_action),
                )
            ),
        ]

    def list_bulk_actions(self, request: Request) -> object:
        chosen = records.read_filters(
            query_of(request), frozenset({"count", "cursor", "state"}), 1000, states=_ACTION_STATES
        )
        actions = self._actions(request)
        if "FINISHED" not in chosen.fields.get("state", ["FINISHED"]):
            actions = []
        shown, cursor = records.page(
            actions, lambda action: action.number, chosen, latest_first=True
        )
        return {"bulkActions": [action.record() for action in shown]} | without_none(cursor=cursor)

    def get_bulk_action(self, request: Request) -> object:
        wanted = request.segment("id")
        action = next((one for one in self._actions(request) if one.id == wanted), None)
        if action is None:
            raise QueueError(404, "Bulk action not found")
        return action.record()

    def _actions(self, request: Request) -> list[BulkAction]:
        source: Source = "workflow" if "workflow" in (request.route or "") else "qstash"
        return self.engine.bulk_actions.recent(source, self.engine.clock.now_us())

    def list_dead_letters(self, request: Request) -> object:
        chosen = records.read_filters(query_of(request), records.FOR_DEAD_LETTERS)
        letters, cursor = self.engine.select_dead_letters(chosen)
        shown = [records.dead_letter_record(self.engine, letter) for letter in letters]
        return {"messages": shown} | without_none(cursor=cursor)

    def get_dead_letter(self, request: Request) -> object:
        return records.dead_letter_record(
            self.engine, self.engine.dead_letter(request.segment("id"))
        )

    def delete_dead_letter(self, request: Request) -> None:
        self.engine.delete_dead_letters([self.engine.dead_letter(request.segment("id"))])

    def delete_dead_letters(self, request: Request) -> object:
        pairs, asynchronous = split_async(bulk_pairs(request, "dlqIds", keep_empty=True))
        letters, cursor = self._chosen_letters(request, pairs)
        count = self.engine.delete_dead_letters(letters)
        action = recorded_action(
            self.engine, "delete", "qstash", count, pairs, asynchronous=asynchronous
        )
        return {"deleted": count} | action | without_none(cursor=cursor)

    def retry_dead_letter(self, request: Request) -> Answer:
        letter = self.engine.dead_letter(request.segment("id"))
        (accepted,) = self.engine.retry_dead_letters([letter], request.headers.pairs)
        return Answer(accepted_record(accepted), 201)

    def retry_dead_letters(self, request: Request) -> Answer:
        pairs, asynchronous = split_async(bulk_pairs(request, "dlqIds", keep_empty=True))
        letters, cursor = self._chosen_letters(request, pairs, known=True)
        accepted = self.engine.retry_dead_letters(letters, request.headers.pairs)
        responses = [accepted_record(one) for one in accepted]
        action = recorded_action(
            self.engine, "retry", "qstash", len(letters), pairs, asynchronous=asynchronous
        )
        return Answer({"cursor": cursor or "", "responses": responses} | action, 201)

    def _chosen_letters(
        self, request: Request, pairs: list[tuple[str, str]], *, known: bool = False
    ) -> tuple[list[Message], str | None]:
        """Return a page of the dead letters that a bulk request selects, and the next cursor.

        With ``known``, raise a 404 error if ids are given and none of them exists.
        """
        chosen = records.read_filters(pairs, records.FOR_DEAD_LETTERS)
        if chosen.empty and has_id_field(request, "dlqIds"):
            return [], None
        letters, cursor = self.engine.select_dead_letters(chosen)
        ids = chosen.fields.get("dlqIds") or chosen.fields.get("dlqId")
        if known and ids and not letters:
            raise not_found("dlq message", ", ".join(ids))
        return letters, cursor

    def list_logs(self, request: Request) -> object:
        chosen = records.read_filters(query_of(request), records.FOR_LOGS, most=_MAX_LOGS)
        entries, cursor = self.engine.log_page(chosen, _MAX_LOGS)
        messages, no_answer = self.engine.messages, self.engine.settings.no_answer_status
        found = [records.log_record(one, messages[one.message_id], no_answer) for one in entries]
        logs = {"logs": found} if request.route == "list_logs" else {}
        return logs | {"events": found} | without_none(cursor=cursor)


def _created(run: WorkflowRun) -> dict[str, object]:
    return {"workflowRunId": run.id, "workflowCreatedAt": str(run.created_ms)}


def _url_parts(run: WorkflowRun) -> SplitResult:
    """Return the parts of a run's URL, which are empty if a client has sent one without a meaning."""
    try:
        return urlsplit(run.url)
    except ValueError:
        return urlsplit("")


_METHODS = "GET POST PUT PATCH DELETE HEAD OPTIONS"
_ALL_RUNS = ("workflowRuns", "true")
"""The parameter of a listing that selects all runs."""
_DEFAULT_FEATURES = "LazyFetch,InitialBody,WF_DetectTrigger,WF_TriggerOnConfig"
"""Features of a triggered run that names none. They are those that the JavaScript client sends."""
_RUN_FIELDS: dict[str, Callable[[WorkflowRun], tuple[str, ...]]] = {
    "workflowRunId": lambda run: (run.id,),
    "workflowRunIds": lambda run: (run.id,),
    "workflowRuns": lambda run: (run.id, f"{run.id}@{run.created_ms}"),
    "workflowUrl": lambda run: (as_text(run.url),),
    "state": lambda run: (run.state,),
    "label": lambda run: run.settings.labels,
    "labels": lambda run: run.settings.labels,
    "workflowCreatedAt": lambda run: (str(run.created_ms),),
    "messageId": lambda run: tuple(run.message_ids),
    "callerIp": lambda run: (run.caller_ip,),
    "callerIP": lambda run: (run.caller_ip,),
    "host": lambda run: (_url_parts(run).netloc,),
    "path": lambda run: (_url_parts(run).path,),
    "flowControlKey": lambda run: (run.settings.flow.key,) if run.settings.flow else (),
}
_FILTERS = frozenset({*_RUN_FIELDS, "count", "cursor", "fromDate", "toDate"})


def _to_failure_function(url: str, run_id: str) -> HeaderList:
    """Return the headers of a failure callback that calls the failure function of a workflow.

    They are those that the JavaScript client sends.
    """
    headers = {
        "Forward-Upstash-Workflow-Is-Failure": "true",
        "Forward-Upstash-Workflow-Failure-Callback": "true",
        "Workflow-RunId": run_id,
        "Workflow-Init": "false",
        "Workflow-Url": url,
        "Workflow-CallType": "failureCall",
        "Feature-Set": _DEFAULT_FEATURES,
    }
    nested = [(f"Upstash-Failure-Callback-{name}", value) for name, value in headers.items()]
    return [("Upstash-Failure-Callback", url), *nested]


class WorkflowRoutes(RouteFamily):
    """Endpoints for workflow runs and their dead letters."""

    @classmethod
    def routes(cls) -> list[Route]:
        dlq = "/v2/workflows/dlq"
        return [
            Route("GET", "/v2/workflows/runs/{id}", "get_workflow_steps", cls.get_steps),
            Route("DELETE", "/v2/workflows/runs/{id}", "end_workflow_run", cls.end_run),
            Route("DELETE", "/v2/workflows/runs", "cancel_workflow_runs", cls.cancel_runs),
            Route("GET", "/v2/workflows/events", "list_workflow_runs", cls.list_runs),
            Route("GET", "/v2/workflows/logs", "list_workflow_runs", cls.list_runs),
            Route("POST", "/v2/trigger/{destination*}", "trigger_workflow", cls.trigger),
            Route("POST", "/v2/batch/trigger", "trigger_workflows", cls.trigger_many),
            Route("POST", "/v2/wait/{event}", "wait_for_event", cls.wait),
            Route("POST", "/v2/notify/{event}", "notify_event", cls.notify),
            Route("POST", "/v2/notify/{run}/{event}", "notify_event", cls.notify),
            Route("GET", "/v2/waiters/{event}", "list_waiters", cls.waiters),
            Route(_METHODS, HOOKS + "{user}/{run}/{event}", "workflow_webhook", cls.webhook),
            Route("POST", f"{dlq}/resume", "resume_workflow_runs", cls.start_again),
            Route("POST", f"{dlq}/resume/{{id}}", "resume_workflow_runs", cls.start_again),
            Route("POST", f"{dlq}/restart", "restart_workflow_runs", cls.start_again),
            Route("POST", f"{dlq}/restart/{{id}}", "restart_workflow_runs", cls.start_again),
            Route("POST", f"{dlq}/callback/{{id}}", "retry_failure_function", cls.retry_failure),
            Route("DELETE", f"{dlq}/callback/{{id}}", "give_up_failure", cls.give_up_failure),
            Route("GET", dlq, "list_workflow_dead_letters", cls.list_dead_letters),
            Route("DELETE", dlq, "delete_workflow_dead_letters", cls.delete_dead_letters),
            Route("GET", f"{dlq}/{{id}}", "get_workflow_dead_letter", cls.get_dead_letter),
            Route("DELETE", f"{dlq}/{{id}}", "delete_workflow_dead_letters", cls.delete_one),
        ]

    def get_steps(self, request: Request) -> object:
        return [step.raw() for step in self.runs.get_live(request.segment("id")).steps]

    def end_run(self, request: Request) -> object:
        cancel = read_flag(request.query("cancel") or "true", "cancel")
        run_id = request.segment("id")
        if cancel:
            self.runs.cancel(self.runs.get_live(run_id))
        else:
            self.runs.complete(run_id, request.body)
        return {"cancelled": int(cancel)}

    def cancel_runs(self, request: Request) -> object:
        pairs, asynchronous = split_async(bulk_pairs(request, "workflowRunIds"))
        given = pairs
        exact = any(
            name == "workflowUrlExactMatch" and read_flag(value, name) for name, value in pairs
        )
        pairs = [pair for pair in pairs if pair[0] != "workflowUrlExactMatch"]
        narrowed = any(name in _RUN_FIELDS for name, _ in pairs)
        if not narrowed and has_id_field(request, "workflowRunIds"):
            return {"cancelled": 0}
        found, cursor = self._select(pairs, only_live=True, url_prefix=not exact)
        for run in found:
            self.runs.cancel(run)
        action = recorded_action(
            self.engine, "cancel", "workflow", len(found), given, asynchronous=asynchronous
        )
        return {"cancelled": len(found)} | action | without_none(cursor=cursor)

    def list_runs(self, request: Request) -> object:
        pairs = []
        for name, value in query_of(request):
            if name == "groupBy" and value not in ("", "workflowRunId"):
                raise bad_request(f"invalid groupBy: {value!r}, expected workflowRunId")
            if value and name not in ("groupBy", "trimBody") and (name, value) != _ALL_RUNS:
                pairs.append((name, value))
        found, cursor = self._select(pairs, latest_first=True, default=10)
        return {"runs": [run_record(self.engine, run) for run in found]} | without_none(
            cursor=cursor
        )

    def _select(
        self,
        pairs: list[tuple[str, str]],
        *,
        only_live: bool = False,
        url_prefix: bool = False,
        latest_first: bool = False,
        default: int = 100,
    ) -> tuple[list[WorkflowRun], str | None]:
        """Return a page of the runs that match the filters, and the cursor of the next page.

        ``default`` is its size without a ``count``. ``url_prefix``: match ``workflowUrl`` as prefix.
        """
        chosen = records.read_filters(pairs, _FILTERS, states=get_args(RunState))
        # Compare the beginnings of URLs here, because filters compare whole values.
        prefixes = chosen.fields.pop("workflowUrl", None) if url_prefix else None

        def matches(run: WorkflowRun) -> bool:
            return (
                (run.live or not only_live)
                and (prefixes is None or as_text(run.url).startswith(tuple(prefixes)))
                and chosen.spans(run.created_us)
                and chosen.accept(lambda name: _RUN_FIELDS[name](run))
            )

        self.engine.sweep()
        # A run that was restarted under its old id is newer than its position in the dict.
        found = sorted(filter(matches, self.runs.runs.values()), key=lambda run: run.number)
        return records.page(
            found, lambda run: run.number, chosen, latest_first=latest_first, default=default
        )

    def trigger(self, request: Request) -> object:
        target, settings = destination_of(request)
        headers = [*request.headers.pairs, *settings]
        return self._trigger(target, headers, request.body, request)

    def trigger_many(self, request: Request) -> Answer:
        return Answer([self._trigger_item(item, request) for item in json_array(request)], 201)

    def _trigger_item(self, item: Any, request: Request) -> object:
        try:
            given = item if isinstance(item, dict) else {}
            target = given.get("url") or given.get("destination") or ""
            headers = given.get("headers") or {}
            if not isinstance(target, str) or not isinstance(headers, dict):
                raise bad_request("invalid batch item: expected an object with a url")
            body = given.get("body")
            if body is not None and not isinstance(body, str):
                body = json.dumps(body)
            data = (body or "").encode("utf-8", "surrogatepass")
            return self._trigger(as_wire(target), wire_pairs(headers), data, request)
        except QueueError as error:
            return error_item(error)

    def _trigger(
        self, target: str, headers: HeaderList, body: bytes, request: Request
    ) -> dict[str, object]:
        self.engine.check_destination(target)
        if self.engine.url_groups.find(target) is not None:
            raise bad_request(f"invalid destination: {target} is a URL group, not a workflow")
        if "cron" in read_given(headers):
            raise bad_request("invalid trigger: publish a schedule to the workflow instead")
        run_id = first_setting(headers, "workflow-runid") or self.engine.new_id("wfr_")
        own = {"workflow-init", "workflow-runid", "workflow-url"}
        sent = [pair for pair in headers if unprefixed(pair[0]) not in own]
        sent += [
            ("Upstash-Workflow-Init", "true"),
            ("Upstash-Workflow-RunId", run_id),
            ("Upstash-Workflow-Url", target),
            (f"Upstash-Forward-{SDK_VERSION}", "1"),
        ]
        if first_setting(sent, "feature-set") is None:
            sent.append(("Upstash-Feature-Set", _DEFAULT_FEATURES))
        if first_setting(sent, "failure-callback") is None:
            sent += _to_failure_function(target, run_id)
        published = self.engine.publish(target, sent, body, caller_ip=caller_of(request))
        (accepted,) = published.accepted
        if accepted.deduplicated:
            # For a duplicate by deduplication id, return the run that the first message started.
            started = self.engine.messages.get(accepted.message_id)
            if started is not None and started.workflow is not None:
                run_id = started.workflow.run_id
        run = self.runs.runs.get(run_id)
        record: dict[str, object] = {"workflowRunId": run_id, "messageId": accepted.message_id}
        if run is not None:
            record["workflowCreatedAt"] = run.created_ms
        return record | ({"deduplicated": True} if accepted.deduplicated else {})

    def wait(self, request: Request) -> object:
        asked = json_object(request, required=True)
        waiter = self.runs.wait_for_event(
            request.segment("event"), asked, list(request.headers.pairs)
        )
        return {"messageId": waiter.message_id}

    def notify(self, request: Request) -> Answer:
        run_id = request.segment("run") if "run" in request.params else None
        woken = self.runs.notify(request.segment("event"), request.body, run_id)
        return Answer(woken, 201)

    def waiters(self, request: Request) -> object:
        found = self.runs.waiters_for(request.segment("event"))
        return [self.runs.waiter_record(one) for one in found]

    def webhook(self, request: Request) -> object:
        event = {
            "method": request.method,
            "header": header_map(request.headers.pairs),
            "body": encoded(request.body),
            "proto": "http",
            "host": request.headers.get("Host") or "127.0.0.1",
            "url": request.target,
        }
        run_id = request.segment("run")
        self.runs.notify(request.segment("event"), json.dumps(event).encode(), run_id)
        return {}

    # -- dead letters of runs ----------------------------------------------------------------------

    def list_dead_letters(self, request: Request) -> object:
        letters, cursor = self._letters(query_of(request), request)
        shown = [records.dead_letter_record(self.engine, letter) for letter in letters]
        return {"messages": shown} | without_none(cursor=cursor)

    def get_dead_letter(self, request: Request) -> object:
        return records.dead_letter_record(self.engine, self._letter(request.segment("id")))

    def delete_one(self, request: Request) -> object:
        return {"deleted": self.engine.delete_dead_letters([self._letter(request.segment("id"))])}

    def delete_dead_letters(self, request: Request) -> object:
        pairs, asynchronous = split_async(bulk_pairs(request, "dlqIds"))
        letters, cursor = self._letters(pairs, request)
        count = self.engine.delete_dead_letters(letters)
        action = recorded_action(
            self.engine, "delete", "workflow", count, pairs, asynchronous=asynchronous
        )
        return {"deleted": count} | action | without_none(cursor=cursor)

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
        run = self.runs.require_run_of(self._letter(request.segment("id")))
        return run, self.runs.failure_callback(run)

    def start_again(self, request: Request) -> object:
        resumes = request.route == "resume_workflow_runs"
        start = self.runs.resume if resumes else self.runs.restart
        given = read_given(
            pair
            for pair in request.headers.pairs
            if (unprefixed(pair[0]) or "").startswith(_OVERRIDES)
        )
        single = "id" in request.params
        pairs: list[tuple[str, str]] = []
        asynchronous = False
        if single:
            letters, cursor = [self._letter(request.segment("id"))], None
        else:
            pairs, asynchronous = split_async(bulk_pairs(request, "dlqIds"))
            letters, cursor = self._letters(pairs, request)
        # If the daily limit has no room for all selected runs, or the first message of one of them
        # has been forgotten, start none of them.
        engine = self.engine
        engine.quota.check_room(len(letters))
        for letter in letters:
            if not resumes or not self.runs.can_resume(letter):
                self.runs.first_message(letter)
        runs = []
        for letter in letters:
            runs.append(start(letter, given))
            engine.delete_dead_letters([letter])
        if single:
            return _created(runs[0])
        kind = "resume" if resumes else "restart"
        action = recorded_action(
            engine, kind, "workflow", len(runs), pairs, asynchronous=asynchronous
        )
        started = {"workflowRuns": [_created(run) for run in runs]}
        return started | action | without_none(cursor=cursor)

    def _letter(self, dlq_id: str) -> Message:
        letter = self.engine.dead_letter(dlq_id)
        if letter.workflow is None:
            raise not_found("dlq message", dlq_id)
        return letter

    def _letters(
        self, pairs: list[tuple[str, str]], request: Request
    ) -> tuple[list[Message], str | None]:
        kept = [pair for pair in pairs if pair[1] and pair[0] != "source"]
        chosen = records.read_filters(kept, records.FOR_DEAD_LETTERS)
        if chosen.empty and has_id_field(request, "dlqIds"):
            return [], None
        chosen.fields["source"] = ["workflow"]
        return self.engine.select_dead_letters(chosen)
