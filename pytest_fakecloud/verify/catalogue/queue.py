"""Scenarios of the queue: messages with a delay of an hour, which are cancelled before delivery.

``Side.clean()`` cancels every message and deletes every schedule whose ID was in a response.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from . import Step, scenario

_URL = "https://example.com/{p}"
_WAIT = {"Upstash-Delay": "1h"}
_TIMES = frozenset(
    {"createdAt", "updatedAt", "notBefore", "nextScheduleTime", "lastScheduleTime", "callerIP"}
    | {"callerIp", "creator", "time", "nextDeliveryTime", "callerRegion", "region"}
    | {"ratePeriodStart", "workflowCreatedAt", "workflowRunCreatedAt"}
)


def _publish(path: str = _URL, headers: dict[str, str] | None = None, **rest: Any) -> Step:
    settings = {**_WAIT, "Content-Type": "text/plain", **(headers or {})}
    return Step("POST", f"/v2/publish/{path}", body="hello", headers=settings, **rest)


def _refused(name: str, value: str) -> Step:
    return _publish(headers={f"Upstash-{name}": value})


_scenario = partial(scenario, "queue")
_CANCEL = Step("DELETE", "/v2/messages/{id}")
_KEPT = {"id": "messageId"}
_RUN = {"id": "messageId", "run": "workflowRunId"}

SCENARIOS = (
    _scenario(
        "publish, read, cancel",
        _publish(keep=_KEPT),
        Step("GET", "/v2/messages/{id}", loose=_TIMES),
        _CANCEL,
        _CANCEL,
        Step("GET", "/v2/messages/msg_none"),
    ),
    _scenario(
        "cancelling several messages",
        _publish(headers={"Upstash-Label": "{p}bulk"}, keep=_KEPT),
        _publish(headers={"Upstash-Label": "{p}bulk"}, keep={"other": "messageId"}),
        Step("DELETE", "/v2/messages", json={"messageIds": ["{id}", "msg_none"]}),
        Step("DELETE", "/v2/messages?label={p}bulk"),
        Step("DELETE", "/v2/messages?label={p}bulk"),
    ),
    _scenario(
        "fields of a message",
        _publish(
            headers={
                "Upstash-Method": "PUT",
                "Upstash-Retries": "2",
                "Upstash-Timeout": "30s",
                "Upstash-Callback": "https://example.com/callback",
                "Upstash-Failure-Callback": "https://example.com/failure",
                "Upstash-Forward-X-Own": "1",
                "Upstash-Label": "{p}label",
            },
            keep=_KEPT,
        ),
        Step("GET", "/v2/messages/{id}", loose=_TIMES),
    ),
    _scenario(
        "deduplication",
        _publish(headers={"Upstash-Deduplication-Id": "{p}d"}, keep=_KEPT),
        _publish(headers={"Upstash-Deduplication-Id": "{p}d"}),
    ),
    _scenario(
        "rejected publishes",
        _publish("ftp://example.com"),
        _publish("not-a-url-{p}"),
        _publish("http://127.0.0.1/x"),
        _refused("Delay", "soon"),
        _refused("Not-Before", "tomorrow"),
        _refused("Retries", "many"),
        _refused("Retries", "-1"),
        _refused("Method", "BREW"),
        _refused("Timeout", "x"),
        _refused("Callback", "nowhere"),
        _refused("Content-Based-Deduplication", "maybe"),
        _refused("Flow-Control-Value", "parallelism=x"),
    ),
    _scenario(
        "batches",
        Step("POST", "/v2/batch", json=[{"destination": "ftp://x"}]),
        Step("POST", "/v2/batch", json={}),
        Step("POST", "/v2/batch", body="not json"),
        Step("POST", "/v2/batch", json=[]),
        Step(
            "POST",
            "/v2/batch",
            json=[{"destination": _URL, "headers": _WAIT, "body": "x"}],
            keep={"id": "0.messageId"},
        ),
    ),
    _scenario(
        "queues",
        Step("POST", "/v2/queues", json={"queueName": "{p}q", "parallelism": 1}),
        Step("GET", "/v2/queues/{p}q", loose=_TIMES),
        Step("POST", "/v2/queues/{p}q/pause"),
        Step("GET", "/v2/queues/{p}q", loose=_TIMES),
        Step("POST", "/v2/queues/{p}q/resume"),
        Step("POST", f"/v2/enqueue/{{p}}q/{_URL}", body="x", headers=_WAIT, keep=_KEPT),
        Step("GET", "/v2/messages/{id}", loose=_TIMES),
        _CANCEL,
        Step("POST", "/v2/queues", json={"queueName": "{p}q", "parallelism": 0}),
        Step("POST", "/v2/queues", json={"queueName": "bad name!"}),
        Step("POST", "/v2/queues", json={}),
        Step("GET", "/v2/queues/{p}none"),
        Step("DELETE", "/v2/queues/{p}q"),
        Step("DELETE", "/v2/queues/{p}q"),
        cleanup=(Step("DELETE", "/v2/queues/{p}q"),),
    ),
    _scenario(
        "URL groups",
        Step(
            "POST",
            "/v2/topics/{p}g/endpoints",
            json={"endpoints": [{"name": "one", "url": "https://example.com/1"}]},
        ),
        Step("GET", "/v2/topics/{p}g", loose=_TIMES),
        Step("PATCH", "/v2/topics/{p}g", json={"headers": {"Upstash-Retries": "1"}}),
        Step("GET", "/v2/topics/{p}g", loose=_TIMES),
        Step("PATCH", "/v2/topics/{p}g", json={"headers": "none"}),
        Step("POST", "/v2/topics/{p}g/endpoints", json={"endpoints": [{"url": "bad"}]}),
        Step("POST", "/v2/topics/{p}g/endpoints", json={}),
        Step("DELETE", "/v2/topics/{p}g/endpoints", json={"endpoints": [{"name": "none"}]}),
        Step("GET", "/v2/topics/{p}none"),
        Step("DELETE", "/v2/topics/{p}g"),
        Step("DELETE", "/v2/topics/{p}g"),
        cleanup=(Step("DELETE", "/v2/topics/{p}g"),),
    ),
    _scenario(
        "schedules",
        Step(
            "POST",
            f"/v2/schedules/{_URL}",
            body="tick",
            headers={"Upstash-Cron": "0 0 1 1 *", "Upstash-Schedule-Id": "{p}s"},
        ),
        Step("GET", "/v2/schedules/{p}s", loose=_TIMES),
        Step("PATCH", "/v2/schedules/{p}s/pause"),
        Step("GET", "/v2/schedules/{p}s", loose=_TIMES),
        Step("PATCH", "/v2/schedules/{p}s/resume"),
        Step("POST", f"/v2/schedules/{_URL}", headers={"Upstash-Cron": "never"}),
        Step("POST", f"/v2/schedules/{_URL}"),
        Step("GET", "/v2/schedules/{p}none"),
        Step("DELETE", "/v2/schedules/{p}s"),
        Step("DELETE", "/v2/schedules/{p}s"),
        cleanup=(Step("DELETE", "/v2/schedules/{p}s"),),
    ),
    _scenario(
        "flow control",
        Step("GET", "/v2/flowControl/{p}none"),
        _publish(
            headers={
                "Upstash-Flow-Control-Key": "{p}f",
                "Upstash-Flow-Control-Value": "parallelism=2, rate=5, period=1m",
            },
            keep=_KEPT,
        ),
        Step("GET", "/v2/flowControl/{p}f", loose=_TIMES),
        Step("GET", "/v2/flowControl?search={p}f", loose=_TIMES),
        Step("POST", "/v2/flowControl/{p}f/pause"),
        Step("GET", "/v2/flowControl/{p}f", loose=_TIMES),
        Step("POST", "/v2/flowControl/{p}f/resume"),
        Step("POST", "/v2/flowControl/{p}f/pin?parallelism=3&rate=4&period=60"),
        Step("GET", "/v2/flowControl/{p}f", loose=_TIMES),
        Step("POST", "/v2/flowControl/{p}f/pin?parallelism=0"),
        Step("POST", "/v2/flowControl/{p}f/unpin?parallelism=true&rate=true"),
        Step("POST", "/v2/flowControl/{p}f/resetRate"),
        Step("GET", "/v2/flowControl/{p}f", loose=_TIMES),
        Step("GET", "/v2/globalParallelism", compare="shape"),
        cleanup=(
            Step("POST", "/v2/flowControl/{p}f/resume"),
            Step("POST", "/v2/flowControl/{p}f/unpin?parallelism=true&rate=true"),
        ),
    ),
    _scenario(
        "workflow runs",
        Step("POST", f"/v2/trigger/{_URL}", body="x", headers=_WAIT, loose=_TIMES, keep=_RUN),
        Step("GET", "/v2/workflows/logs?workflowRunId={run}", loose=_TIMES),
        Step("GET", "/v2/workflows/runs/{run}"),
        Step("DELETE", "/v2/workflows/runs/{run}"),
        Step("DELETE", "/v2/workflows/runs", json={"workflowRunIds": ["{run}"]}),
        Step("GET", "/v2/workflows/runs/wfr_none"),
        Step("DELETE", "/v2/workflows/runs/wfr_none"),
        Step("GET", "/v2/workflows/logs?workflowRunId=wfr_none"),
        Step("GET", "/v2/workflows/logs?state=HAPPY"),
        Step("POST", "/v2/trigger/ftp://example.com", headers=_WAIT),
        Step("POST", "/v2/batch/trigger", json={}),
        Step("POST", "/v2/batch/trigger", json=[]),
        cleanup=(Step("DELETE", "/v2/workflows/runs/{run}"),),
    ),
    _scenario(
        "workflow events",
        Step("GET", "/v2/waiters/{p}event"),
        Step("POST", "/v2/notify/{p}event", body="x"),
        Step("POST", "/v2/notify/wfr_none/{p}event", body="x"),
        Step("POST", "/v2/wait/{p}event", json={}),
        Step("POST", "/v2/workflows/hooks/none/wfr_none/{p}event", body="x", token=None),
    ),
    _scenario(
        "dead letters of workflow runs",
        Step("GET", "/v2/workflows/dlq?workflowRunId=wfr_none"),
        Step("GET", "/v2/workflows/dlq/none"),
        Step("DELETE", "/v2/workflows/dlq/none"),
        Step("DELETE", "/v2/workflows/dlq?dlqIds=none"),
        Step("POST", "/v2/workflows/dlq/resume/none"),
        Step("POST", "/v2/workflows/dlq/restart/none"),
        Step("POST", "/v2/workflows/dlq/callback/none"),
        Step("DELETE", "/v2/workflows/dlq/callback/none"),
    ),
    _scenario(
        "dead letters and logs",
        Step("GET", "/v2/dlq?messageId=msg_none"),
        Step("GET", "/v2/dlq/none"),
        Step("DELETE", "/v2/dlq/none"),
        Step("POST", "/v2/dlq/retry/none"),
        Step("POST", "/v2/dlq/retry?dlqIds=none"),
        Step("DELETE", "/v2/dlq?dlqIds=none"),
        Step("GET", "/v2/logs?messageId=msg_none"),
        Step("GET", "/v2/events?messageId=msg_none"),
        Step("GET", "/v2/logs?count=many"),
        Step("GET", "/v2/keys", compare="shape"),
    ),
    _scenario(
        "credentials and unknown paths",
        Step("GET", "/v2/queues", token=None),
        Step("GET", "/v2/queues", token="wrong"),
        Step("GET", "/v2/nothing-here"),
    ),
)
