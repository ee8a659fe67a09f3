"""The queue: messages that wait for an hour and are cancelled, so that nothing is ever delivered.

A side cancels every message and deletes every schedule that an answer names: see ``Side.clean``.
"""

from __future__ import annotations

from typing import Any

from ..scenario import Scenario, Step

__all__ = ["SCENARIOS"]

_URL = "https://example.com/{p}"
_WAIT = {"Upstash-Delay": "1h"}
_TIMES = frozenset(
    {"createdAt", "updatedAt", "notBefore", "nextScheduleTime", "lastScheduleTime", "callerIP"}
    | {"callerIp", "creator", "time", "nextDeliveryTime", "callerRegion", "region"}
)


def _publish(path: str = _URL, headers: dict[str, str] | None = None, **rest: Any) -> Step:
    settings = {**_WAIT, "Content-Type": "text/plain", **(headers or {})}
    return Step("POST", f"/v2/publish/{path}", body="hello", headers=settings, **rest)


def _refused(name: str, value: str) -> Step:
    return _publish(headers={f"Upstash-{name}": value})


_CANCEL = Step("DELETE", "/v2/messages/{id}")
_KEPT = {"id": "messageId"}

SCENARIOS = (
    Scenario(
        "queue",
        "publish, read, cancel",
        (
            _publish(keep=_KEPT),
            Step("GET", "/v2/messages/{id}", loose=_TIMES),
            _CANCEL,
            _CANCEL,
            Step("GET", "/v2/messages/msg_none"),
        ),
    ),
    Scenario(
        "queue",
        "what a message says of itself",
        (
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
    ),
    Scenario(
        "queue",
        "deduplication",
        (
            _publish(headers={"Upstash-Deduplication-Id": "{p}d"}, keep=_KEPT),
            _publish(headers={"Upstash-Deduplication-Id": "{p}d"}),
        ),
    ),
    Scenario(
        "queue",
        "what a publish refuses",
        (
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
    ),
    Scenario(
        "queue",
        "batches",
        (
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
    ),
    Scenario(
        "queue",
        "queues",
        (
            Step("POST", "/v2/queues", json={"queueName": "{p}q", "parallelism": 1}),
            Step("GET", "/v2/queues/{p}q", loose=_TIMES),
            Step("POST", "/v2/queues/{p}q/pause"),
            Step("GET", "/v2/queues/{p}q", loose=_TIMES),
            Step("POST", "/v2/queues/{p}q/resume"),
            Step("POST", "/v2/queues", json={"queueName": "{p}q", "parallelism": 0}),
            Step("POST", "/v2/queues", json={"queueName": "bad name!"}),
            Step("POST", "/v2/queues", json={}),
            Step("GET", "/v2/queues/{p}none"),
            Step("DELETE", "/v2/queues/{p}q"),
            Step("DELETE", "/v2/queues/{p}q"),
        ),
        cleanup=(Step("DELETE", "/v2/queues/{p}q"),),
    ),
    Scenario(
        "queue",
        "URL groups",
        (
            Step(
                "POST",
                "/v2/topics/{p}g/endpoints",
                json={"endpoints": [{"name": "one", "url": "https://example.com/1"}]},
            ),
            Step("GET", "/v2/topics/{p}g", loose=_TIMES),
            Step("POST", "/v2/topics/{p}g/endpoints", json={"endpoints": [{"url": "bad"}]}),
            Step("POST", "/v2/topics/{p}g/endpoints", json={}),
            Step("DELETE", "/v2/topics/{p}g/endpoints", json={"endpoints": [{"name": "none"}]}),
            Step("GET", "/v2/topics/{p}none"),
            Step("DELETE", "/v2/topics/{p}g"),
            Step("DELETE", "/v2/topics/{p}g"),
        ),
        cleanup=(Step("DELETE", "/v2/topics/{p}g"),),
    ),
    Scenario(
        "queue",
        "schedules",
        (
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
        ),
        cleanup=(Step("DELETE", "/v2/schedules/{p}s"),),
    ),
    Scenario(
        "queue",
        "dead letters, logs, flow control",
        (
            Step("GET", "/v2/dlq?messageId=msg_none"),
            Step("GET", "/v2/dlq/none"),
            Step("DELETE", "/v2/dlq/none"),
            Step("POST", "/v2/dlq/retry/none"),
            Step("GET", "/v2/logs?messageId=msg_none"),
            Step("GET", "/v2/events?messageId=msg_none"),
            Step("GET", "/v2/logs?count=many"),
            Step("GET", "/v2/flowControl/{p}none"),
            Step("GET", "/v2/workflows/logs?workflowRunId=wfr_none"),
            Step("GET", "/v2/keys", compare="shape"),
        ),
    ),
    Scenario(
        "queue",
        "credentials and unknown paths",
        (
            Step("GET", "/v2/queues", token=None),
            Step("GET", "/v2/queues", token="wrong"),
            Step("GET", "/v2/nothing-here"),
        ),
    ),
)
