"""Endpoints for workflow runs: ``/v2/workflows/...``, triggers, events and webhooks.

Source: the official clients' code and the vendor's documentation. Decided here: a listing of runs
starts with the newest run. The steps of a finished run cannot be fetched (404, which clients treat
as the end of the run). The ``workflowRuns`` parameter of a listing is a list of run ids, alone or
as ``<id>@<created, Unix ms>``, or ``true`` for all runs. Triggers return 200, as in the vendor's
OpenAPI file, also for a duplicate. The sources disagree about the response of
``POST /v2/notify/{run}/{event}``: it is a list, with 201, as for an event without a run and as the
JavaScript client expects.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, get_args
from urllib.parse import urlsplit

from ...http.messages import Answer, Request
from ...http.routing import Route
from ..errors import QueueError, bad_request
from ..model import HeaderList
from ..wire import records
from ..wire.delivery import encoded
from ..wire.headers import read_given
from ..wire.values import (
    as_text,
    as_wire,
    check_url,
    first_setting,
    header_map,
    read_flag,
    unprefixed,
)
from ..workflow.log import run_record
from ..workflow.model import SDK_VERSION, RunState, WorkflowRun
from ..workflow.runs import wire_pairs
from .payloads import (
    RouteFamily,
    bulk_pairs,
    caller_of,
    cursor_field,
    destination_of,
    error_item,
    has_id_field,
    json_array,
    json_object,
    query_of,
)

HOOKS = "/v2/workflows/hooks/"
"""Prefix of paths that need no token, because the sender of a workflow's webhook has only the URL."""
_METHODS = "GET POST PUT PATCH DELETE HEAD OPTIONS"
_STATES = get_args(RunState)
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
    "host": lambda run: (urlsplit(run.url).netloc,),
    "path": lambda run: (urlsplit(run.url).path,),
    "flowControlKey": lambda run: (run.settings.flow.key,) if run.settings.flow else (),
}
_FILTERS = frozenset({*_RUN_FIELDS, "count", "cursor", "fromDate", "toDate"})


class WorkflowRoutes(RouteFamily):
    """Endpoints for workflow runs."""

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/v2/workflows/runs/{id}", "get_workflow_steps", self.get_steps),
            Route("DELETE", "/v2/workflows/runs/{id}", "end_workflow_run", self.end_run),
            Route("DELETE", "/v2/workflows/runs", "cancel_workflow_runs", self.cancel_runs),
            Route("GET", "/v2/workflows/events", "list_workflow_runs", self.list_runs),
            Route("GET", "/v2/workflows/logs", "list_workflow_runs", self.list_runs),
            Route("POST", "/v2/trigger/{destination*}", "trigger_workflow", self.trigger),
            Route("POST", "/v2/batch/trigger", "trigger_workflows", self.trigger_many),
            Route("POST", "/v2/wait/{event}", "wait_for_event", self.wait),
            Route("POST", "/v2/notify/{event}", "notify_event", self.notify),
            Route("POST", "/v2/notify/{run}/{event}", "notify_event", self.notify),
            Route("GET", "/v2/waiters/{event}", "list_waiters", self.waiters),
            Route(_METHODS, HOOKS + "{user}/{run}/{event}", "workflow_webhook", self.webhook),
        ]

    # -- runs ------------------------------------------------------------------------------------

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
        pairs = bulk_pairs(request, "workflowRunIds")
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
        return {"cancelled": len(found)} | cursor_field(cursor)

    def list_runs(self, request: Request) -> object:
        pairs = []
        for name, value in query_of(request):
            if name == "groupBy" and value not in ("", "workflowRunId"):
                raise bad_request(f"invalid groupBy: {value!r}, expected workflowRunId")
            if value and name not in ("groupBy", "trimBody") and (name, value) != _ALL_RUNS:
                pairs.append((name, value))
        found, cursor = self._select(pairs, latest_first=True, default=10)
        return {"runs": [run_record(self.engine, run) for run in found]} | cursor_field(cursor)

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
        chosen = records.read_filters(pairs, _FILTERS, states=_read_states)
        # Compare the beginnings of URLs here, because filters compare whole values.
        prefixes = chosen.fields.pop("workflowUrl", None) if url_prefix else None
        self.engine.sweep()
        found = [
            run
            for run in self.runs.runs.values()
            if (run.live or not only_live)
            and (prefixes is None or as_text(run.url).startswith(tuple(prefixes)))
            and chosen.spans(run.created_us)
            and chosen.accept(partial(_values_of, run))
        ]
        # A run that was restarted under its old id is newer than its position in the dict.
        found.sort(key=lambda run: run.number)
        return records.page(
            found, lambda run: run.number, chosen, latest_first=latest_first, default=default
        )

    # -- triggers --------------------------------------------------------------------------------

    def trigger(self, request: Request) -> object:
        target, settings = destination_of(request)
        headers = [*request.headers.pairs, *settings]
        return self._trigger(target, headers, request.body, request)

    def trigger_many(self, request: Request) -> object:
        return [self._trigger_item(item, request) for item in json_array(request)]

    def _trigger_item(self, item: Any, request: Request) -> object:
        try:
            given = item if isinstance(item, dict) else {}
            target = given.get("url") or given.get("destination")
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
        check_url(target, "destination")
        if "cron" in read_given(headers):
            raise bad_request("invalid trigger: publish a schedule to the workflow instead")
        run_id = first_setting(headers, "workflow-runid") or self.engine.new_id("wfr_")
        sent = _trigger_headers(headers, run_id, target)
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

    # -- events ----------------------------------------------------------------------------------

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


def _values_of(run: WorkflowRun, field: str) -> tuple[str, ...]:
    return _RUN_FIELDS[field](run)


def _trigger_headers(headers: HeaderList, run_id: str, url: str) -> HeaderList:
    """Return the headers of the message that starts a triggered run."""
    own = {"workflow-init", "workflow-runid", "workflow-url"}
    sent = [pair for pair in headers if unprefixed(pair[0]) not in own]
    sent += [
        ("Upstash-Workflow-Init", "true"),
        ("Upstash-Workflow-RunId", run_id),
        ("Upstash-Workflow-Url", url),
        (f"Upstash-Forward-{SDK_VERSION}", "1"),
    ]
    if first_setting(sent, "feature-set") is None:
        sent.append(("Upstash-Feature-Set", _DEFAULT_FEATURES))
    return sent


def _read_states(values: list[str]) -> list[str]:
    states = ["RUN_CANCELED" if one == "RUN_CANCELLED" else one for one in values]
    for state in states:
        if state not in _STATES:
            raise bad_request(f"invalid state: {state!r}, expected one of {', '.join(_STATES)}")
    return states
