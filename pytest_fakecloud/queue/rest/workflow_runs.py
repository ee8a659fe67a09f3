"""Endpoints for workflow runs and their triggers.

Source: the official clients' code and the vendor's documentation. Decided here: a listing of runs
starts with the newest run. The steps of a finished run cannot be fetched (404, which clients treat
as the end of the run). The ``workflowRuns`` parameter of a listing is a list of run ids, alone or
as ``<id>@<created, Unix ms>``, or ``true`` for all runs. A trigger returns 200, also for a
duplicate, and a batch of triggers 201, as in the vendor's OpenAPI file. A run that is started by a
trigger without a failure callback calls the failure function at its own URL if it fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, get_args
from urllib.parse import SplitResult, urlsplit

from ...http.messages import Json, Request
from ..engine.engine import Engine
from ..errors import QueueError, bad_request
from ..model import HeaderList, PublishSettings
from ..wire import records
from ..wire.headers import read_given
from ..wire.values import as_text, as_wire, first_setting, read_flag, unprefixed, without_none
from ..workflow.model import (
    SDK_VERSION,
    UNKNOWN_SDK,
    RunState,
    WorkflowRun,
    delivered_header,
    run_record,
)
from ..workflow.runs import wire_pairs
from .bulk_requests import (
    UNLIMITED,
    bulk_filters,
    cancelled_record,
    has_id_field,
    lists_ids,
    split_async,
)
from .requests import caller_of, destination_of, json_array, query_of
from .routing import QueueRoute

_ALL_RUNS = ("workflowRuns", "true")
"""The parameter of a listing that selects all runs."""
_DEFAULT_FEATURES = "LazyFetch,InitialBody,WF_DetectTrigger,WF_TriggerOnConfig"
"""Features of a triggered run that names none. They are those that the JavaScript client sends."""


def _url_parts(run: WorkflowRun) -> SplitResult:
    """Return the parts of a run's URL, which are empty if a client has sent one without a meaning."""
    try:
        return urlsplit(run.url)
    except ValueError:
        return urlsplit("")


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


def get_steps(engine: Engine, request: Request) -> object:
    return [step.raw() for step in engine.workflow.get_live(request.segment("id")).steps]


def end_run(engine: Engine, request: Request) -> object:
    cancel = read_flag(request.query("cancel") or "true", "cancel")
    run_id = request.segment("id")
    if cancel:
        engine.lifecycle.cancel_run(engine.workflow.get_live(run_id))
    else:
        engine.workflow.complete(run_id, request.body)
    return {"cancelled": int(cancel)}


def cancel_runs(engine: Engine, request: Request) -> object:
    pairs, asynchronous = split_async(bulk_filters(request, "workflowRunIds"))
    sent = pairs
    exact = any(name == "workflowUrlExactMatch" and read_flag(value, name) for name, value in pairs)
    pairs = [pair for pair in pairs if pair[0] != "workflowUrlExactMatch"]
    narrowed = any(name in _RUN_FIELDS for name, _ in pairs)
    if not narrowed and has_id_field(request, "workflowRunIds"):
        return {"cancelled": 0}
    filters, chosen = records.filters_by_name(sent), _filters(pairs, most=UNLIMITED)
    if lists_ids(filters):
        chosen.count = None
    runs, cursor = _select(engine, chosen, only_live=True, url_prefix=not exact, default=UNLIMITED)
    if lists_ids(filters):
        for run in runs:
            engine.lifecycle.cancel_run(run)
        return {"cancelled": len(runs)}
    ids = [run.id for run in runs]
    action = engine.bulk_actions.cancel(
        "workflow", filters, ids, asynchronous=asynchronous, count=chosen.count
    )
    cancelled = cancelled_record(action, asynchronous=asynchronous)
    return cancelled | without_none(cursor=cursor)


def list_runs(engine: Engine, request: Request) -> object:
    pairs = []
    for name, value in query_of(request):
        if name == "groupBy" and value not in ("", "workflowRunId"):
            raise bad_request(f"invalid groupBy: {value!r}, expected workflowRunId")
        if value and name not in ("groupBy", "trimBody") and (name, value) != _ALL_RUNS:
            pairs.append((name, value))
    runs, cursor = _select(engine, _filters(pairs), latest_first=True, default=10)
    return {"runs": [run_record(engine, run) for run in runs]} | without_none(cursor=cursor)


def _filters(pairs: list[tuple[str, str]], most: int = 100) -> records.Filters:
    return records.read_filters(pairs, _FILTERS, most, states=get_args(RunState))


def _select(
    engine: Engine,
    chosen: records.Filters,
    *,
    only_live: bool = False,
    url_prefix: bool = False,
    latest_first: bool = False,
    default: int,
) -> tuple[list[WorkflowRun], str | None]:
    """Return a page of the runs that match the filters, and the cursor of the next page.

    ``default`` is its size without a ``count``. ``url_prefix``: match ``workflowUrl`` as prefix.
    """
    # Compare the beginnings of URLs here, because filters compare whole values.
    prefixes = chosen.fields.pop("workflowUrl", None) if url_prefix else None

    def matches(run: WorkflowRun) -> bool:
        return (
            (run.live or not only_live)
            and (prefixes is None or as_text(run.url).startswith(tuple(prefixes)))
            and chosen.spans(run.created_us)
            and chosen.accept(lambda name: _RUN_FIELDS[name](run))
        )

    engine.history.sweep()
    # A run that was restarted under its old id is newer than its position in the dict.
    runs = sorted(filter(matches, engine.workflow.runs.values()), key=lambda run: run.number)
    return records.page(
        runs, lambda run: run.number, chosen, latest_first=latest_first, default=default
    )


def trigger(engine: Engine, request: Request) -> object:
    target, settings = destination_of(request)
    headers = [*request.headers.pairs, *settings]
    return _trigger(engine, target, headers, request.body, request)


def trigger_many(engine: Engine, request: Request) -> Json:
    return Json([_trigger_item(engine, item, request) for item in json_array(request)], 201)


def _trigger_item(engine: Engine, item: Any, request: Request) -> object:
    try:
        fields = item if isinstance(item, dict) else {}
        target = fields.get("url") or fields.get("destination") or ""
        headers = fields.get("headers") or {}
        if not isinstance(target, str) or not isinstance(headers, dict):
            raise bad_request("invalid batch item: expected an object with a url")
        body = fields.get("body")
        if body is not None and not isinstance(body, str):
            body = json.dumps(body)
        data = (body or "").encode("utf-8", "surrogatepass")
        return _trigger(engine, as_wire(target), wire_pairs(headers), data, request)
    except QueueError as error:
        return records.error_record(error)


def _trigger(
    engine: Engine, target: str, headers: HeaderList, body: bytes, request: Request
) -> dict[str, object]:
    engine.publisher.check_destination(target)
    if engine.url_groups.find(target) is not None:
        raise bad_request(f"invalid destination: {target} is a URL group, not a workflow")
    settings = PublishSettings(**read_given(headers))
    if settings.cron is not None:
        raise bad_request("invalid trigger: publish a schedule to the workflow instead")
    run_id = first_setting(headers, "workflow-runid") or engine.data.new_id("wfr_")
    own = {"workflow-init", "workflow-runid", "workflow-url"}
    sent = [pair for pair in headers if unprefixed(pair[0]) not in own]
    sent += [
        ("Upstash-Workflow-Init", "true"),
        ("Upstash-Workflow-RunId", run_id),
        ("Upstash-Workflow-Url", target),
    ]
    if not any(delivered_header(settings, name) for name in (UNKNOWN_SDK, SDK_VERSION)):
        sent.append((UNKNOWN_SDK, "true"))
    if first_setting(sent, "feature-set") is None:
        sent.append(("Upstash-Feature-Set", _DEFAULT_FEATURES))
    if first_setting(sent, "failure-callback") is None:
        sent += _to_failure_function(target, run_id)
    published = engine.publisher.publish(target, sent, body, caller_ip=caller_of(request))
    (accepted,) = published.accepted
    if accepted.deduplicated:
        # For a duplicate by deduplication id, return the run that the first message started.
        started = engine.data.messages.get(accepted.message_id)
        if started is not None and started.workflow is not None:
            run_id = started.workflow.run_id
    run = engine.workflow.runs.get(run_id)
    record: dict[str, object] = {"workflowRunId": run_id, "messageId": accepted.message_id}
    if run is not None:
        record["workflowCreatedAt"] = run.created_ms
    return record | ({"deduplicated": True} if accepted.deduplicated else {})


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


ROUTES = [
    QueueRoute("GET", "/v2/workflows/runs/{id}", "get_workflow_steps", get_steps),
    QueueRoute("DELETE", "/v2/workflows/runs/{id}", "end_workflow_run", end_run),
    QueueRoute("DELETE", "/v2/workflows/runs", "cancel_workflow_runs", cancel_runs),
    QueueRoute("GET", "/v2/workflows/events", "list_workflow_runs", list_runs),
    QueueRoute("GET", "/v2/workflows/logs", "list_workflow_runs", list_runs),
    QueueRoute("POST", "/v2/trigger/{destination*}", "trigger_workflow", trigger, unlimited=True),
    QueueRoute("POST", "/v2/batch/trigger", "trigger_workflows", trigger_many, unlimited=True),
]
