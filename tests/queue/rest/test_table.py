"""Test every header, endpoint and filter with one table: effects, refusals and nested forms.

The tests ``test_every_…_has_a_row`` compare the table with the code, so an addition to the API
needs a row here.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest

from pytest_fakecloud.queue.delivery.destinations import route_to
from pytest_fakecloud.queue.delivery.replies import Reply
from pytest_fakecloud.queue.handle import Queue
from pytest_fakecloud.queue.rest.admin import AdministrationRoutes, FlowRoutes
from pytest_fakecloud.queue.rest.history import HistoryRoutes
from pytest_fakecloud.queue.rest.routes import QueueApp
from pytest_fakecloud.queue.rest.v1 import V1Routes
from pytest_fakecloud.queue.wire import filters, headers

from ..scene import CALLBACK, DEST, FAILURE, NOW_MS, Response, Scene, decoded

Effect = Callable[[Scene, str], None]
Settings = Mapping[str, str]


# -- headers ---------------------------------------------------------------------------------------


@dataclass
class Header:
    """A row for one header: settings, their effect on a published message, and refused values.

    ``nested`` checks the effect of the same settings behind ``Callback-`` on the callback;
    ``nested_refused`` is the error if a callback may not have them. ``headers`` have no prefix.
    """

    covers: str
    settings: Settings
    effect: Effect
    invalid: list[tuple[Settings, int, str]] = field(default_factory=list)
    nested: Callable[[Scene], None] | None = None
    nested_refused: str | None = None
    headers: Settings = field(default_factory=dict)
    before: Callable[[Scene], None] = lambda scene: None
    scheduled: bool = False

    def __str__(self) -> str:
        return self.covers


def record(scene: Scene, message_id: str) -> dict[str, Any]:
    found: dict[str, Any] = scene.get(f"/v2/messages/{message_id}")
    return found


def method(scene: Scene, message_id: str) -> None:
    assert record(scene, message_id)["method"] == "PUT"
    scene.queue.run_until_idle()
    assert [one.method for one in scene.came] == ["PUT"]


def nested_method(scene: Scene) -> None:
    assert [one.method for one in scene.to(CALLBACK)] == ["PUT"]


def delay(scene: Scene, message_id: str) -> None:
    wait = 86_400 + 36_000 + 1_800
    shown = record(scene, message_id)
    assert shown["notBefore"] == NOW_MS + wait * 1000
    assert shown["createdAt"] == NOW_MS
    assert scene.queue.advance(wait - 1) == []
    scene.queue.advance(1)
    assert scene.times == [wait]


def not_before(scene: Scene, message_id: str) -> None:
    assert record(scene, message_id)["notBefore"] == NOW_MS + 90_000
    scene.queue.run_until_idle()
    assert scene.times == [90]


def retries(scene: Scene, message_id: str) -> None:
    assert record(scene, message_id)["maxRetries"] == 2
    scene.queue.run_until_idle()
    assert [one.headers.get("Upstash-Retried") for one in scene.came] == ["0", "1", "2"]
    assert scene.states(message_id)[-2:] == ["ERROR", "FAILED"]


def nested_retries(scene: Scene) -> None:
    assert len(scene.to(CALLBACK)) == 3


def retry_delay(scene: Scene, message_id: str) -> None:
    assert record(scene, message_id)["retryDelayExpression"] == "1000 * (1 + retried)"
    scene.queue.run_until_idle()
    assert scene.times == [0, 1, 3, 6]


def nested_retry_delay(scene: Scene) -> None:
    assert scene.at(CALLBACK) == [0, 1, 3, 6]


def timeout(scene: Scene, message_id: str) -> None:
    assert record(scene, message_id)["timeout"] == 10_000
    attempts = scene.queue.deliver_due()
    assert attempts.only().state == "in flight"
    scene.queue.advance(10)
    assert attempts.only().state == "failed"
    assert isinstance(attempts.only().exception, TimeoutError)
    # The wait before a retry starts when the attempt ends.
    scene.queue.advance("12.2s")
    assert scene.times == [0, pytest.approx(22.182, abs=0.001)]


def nested_timeout(scene: Scene) -> None:
    attempt = scene.queue.attempts(url=CALLBACK)[0]
    assert isinstance(attempt.exception, TimeoutError)


def callback(scene: Scene, message_id: str) -> None:
    assert record(scene, message_id)["callback"] == CALLBACK
    scene.queue.run_until_idle()
    body = scene.to(CALLBACK)[0].json()
    assert (body["status"], body["sourceMessageId"]) == (500, message_id)
    assert len(scene.to(CALLBACK)) == 4


def nested_callback(scene: Scene) -> None:
    # The inner callback reports the delivery of the outer one.
    outer, inner = scene.to(CALLBACK)
    assert inner.json()["sourceMessageId"] == outer.message_id
    assert inner.json()["status"] == 500


def failure_callback(scene: Scene, message_id: str) -> None:
    assert record(scene, message_id)["failureCallback"] == FAILURE
    scene.queue.run_until_idle()
    (only,) = scene.to(FAILURE)
    assert only.json()["sourceMessageId"] == message_id
    assert only.json()["dlqId"] == scene.queue.dead_letters().only().id


def nested_failure_callback(scene: Scene) -> None:
    (only,) = scene.to(FAILURE)
    assert only.json()["sourceMessageId"] == scene.to(CALLBACK)[0].message_id


def nested_settings(scene: Scene, message_id: str) -> None:
    assert record(scene, message_id)["callbackHeader"] == {"Retries": ["1"], "X-Own": ["yes"]}
    scene.fail(CALLBACK)
    scene.queue.run_until_idle()
    assert [one.headers.get("X-Own") for one in scene.to(CALLBACK)] == ["yes", "yes"]


def nested_failure_settings(scene: Scene, message_id: str) -> None:
    shown = record(scene, message_id)["failureCallbackHeader"]
    assert shown == {"Method": ["PATCH"], "X-Own": ["yes"]}
    scene.queue.run_until_idle()
    (only,) = scene.to(FAILURE)
    assert (only.method, only.headers.get("X-Own")) == ("PATCH", "yes")


def forward(scene: Scene, message_id: str) -> None:
    assert record(scene, message_id)["header"] == {
        "X-Tenant": ["acme"],
        "Content-Type": ["text/plain"],
    }
    scene.queue.run_until_idle()
    (only,) = scene.came
    assert only.headers.get("x-tenant") == "acme"
    assert only.headers.get("Content-Type") == "text/plain"
    for name in ("Content-Length", "Host", "Connection", "Upstash-Forward-X-Tenant"):
        assert only.headers.get(name) is None


def nested_forward(scene: Scene) -> None:
    assert scene.to(CALLBACK)[0].headers.get("X-Tenant") == "acme"


def forward_all(scene: Scene, message_id: str) -> None:
    scene.queue.run_until_idle()
    (only,) = scene.came
    assert only.headers.get("X-Plain") == "1"
    assert only.headers.get("Authorization") is None
    assert only.headers.get("User-Agent") == "Upstash-QStash"


def content_type(scene: Scene, message_id: str) -> None:
    scene.queue.run_until_idle()
    assert scene.came[0].headers.get("Content-Type") == "application/x-own; a=b"


def deduplicated(scene: Scene, message_id: str) -> None:
    again = scene.request("POST", f"/v2/publish/{DEST}", scene.last_headers, b"hello")  # type: ignore[attr-defined]
    assert again.status == 202
    assert again.json() == {"messageId": message_id, "url": DEST, "deduplicated": True}
    scene.queue.run_until_idle()
    assert len(scene.came) == 1
    scene.queue.advance("10m")
    later = scene.request("POST", f"/v2/publish/{DEST}", scene.last_headers, b"hello")  # type: ignore[attr-defined]
    assert later.status == 201
    assert later.json()["messageId"] != message_id


def cron(scene: Scene, schedule_id: str) -> None:
    shown = scene.get(f"/v2/schedules/{schedule_id}")
    assert shown["cron"] == "*/5 * * * *"
    assert shown["nextScheduleTime"] == NOW_MS + 300_000
    scene.queue.advance("11m")
    assert scene.times == [300, 600]
    assert {one.headers.get("Upstash-Schedule-Id") for one in scene.came} == {schedule_id}


def schedule_id(scene: Scene, given: str) -> None:
    assert given == "my-schedule.1"
    assert [one["scheduleId"] for one in scene.get("/v2/schedules")] == ["my-schedule.1"]


def queue_name(scene: Scene, message_id: str) -> None:
    assert record(scene, message_id)["queueName"] == "orders"
    assert scene.get("/v2/queues/orders")["lag"] == 1
    scene.queue.run_until_idle()
    assert scene.get("/v2/queues/orders")["lag"] == 0


def flow(scene: Scene, message_id: str) -> None:
    shown = record(scene, message_id)
    assert shown["flowControlKey"] == "tenant-1"
    assert (shown["rate"], shown["period"]) == (1, 60)
    assert "parallelism" not in shown
    scene.publish(scene.last_headers)  # type: ignore[attr-defined]
    scene.queue.run_until_idle()
    assert scene.times == [0, 60]


def nested_flow(scene: Scene) -> None:
    assert scene.get("/v2/flowControl/tenant-1")["rateMax"] == 1


def label(scene: Scene, message_id: str) -> None:
    shown = record(scene, message_id)
    assert (shown["label"], shown["labels"]) == ("red", ["red", "blue"])
    assert [one.id for one in scene.queue.messages(label="blue")] == [message_id]


def redact(scene: Scene, message_id: str) -> None:
    hidden = "REDACTED:" + hashlib.sha256(b"hello").hexdigest()
    shown = record(scene, message_id)
    assert shown["body"] == hidden
    secret = "REDACTED:" + hashlib.sha256(b"s3cret").hexdigest()
    assert shown["header"] == {"X-Key": [secret], "X-Open": ["1"]}
    assert scene.get("/v2/events")["events"][0]["body"] == hidden
    scene.queue.run_until_idle()
    assert scene.came[0].body == b"hello"
    assert scene.came[0].headers.get("X-Key") == "s3cret"


def ignored(scene: Scene, message_id: str) -> None:
    scene.queue.run_until_idle()
    assert not any(name.lower().startswith("upstash-telemetry") for name in scene.came[0].headers)


def kept(scene: Scene, message_id: str) -> None:
    scene.queue.run_until_idle()
    assert scene.came[0].headers.get("Upstash-Feature-Set") == "LazyFetch"


def workflow(scene: Scene, message_id: str) -> None:
    scene.queue.run_until_idle()
    (only,) = scene.came
    assert only.headers.get("Upstash-Workflow-RunId") == "wfr_1"
    step = only.json()[0]
    assert step["messageId"] == message_id
    assert (decoded(step["body"]), step["callType"]) == (b"hello", "step")


HEADERS = [
    Header(
        "method",
        {"Method": "put"},
        method,
        [({"Method": "FETCH"}, 400, "invalid method: 'FETCH'")],
        nested_method,
    ),
    Header(
        "delay",
        {"Delay": "1d10h30m"},
        delay,
        [
            ({"Delay": text}, 400, "invalid delay")
            for text in ("10", "", "1w", "-5s", "1.5h", "99999999d", "9" * 5000 + "s")
        ],
        nested_refused="a callback cannot be delayed",
    ),
    Header(
        "not-before",
        {"Not-Before": str(NOW_MS // 1000 + 90), "Delay": "1h"},
        not_before,
        [
            ({"Not-Before": text}, 400, "invalid not before")
            for text in ("soon", "-1", "1.5", "9" * 17)
        ],
        nested_refused="a callback cannot be delayed",
    ),
    Header("notbefore", {"NotBefore": str(NOW_MS // 1000 + 90)}, not_before),
    Header(
        "retries",
        {"Retries": "2"},
        retries,
        [
            ({"Retries": "-1"}, 400, "invalid retries"),
            ({"Retries": "many"}, 400, "invalid retries"),
            ({"Retries": "21"}, 412, "quota maxRetries exceeded"),
        ],
        nested_retries,
        before=lambda scene: scene.fail(DEST, CALLBACK),
    ),
    Header(
        "retry-delay",
        {"Retry-Delay": "1000 * (1 + retried)"},
        retry_delay,
        [
            ({"Retry-Delay": "1000 / retried"}, 400, "divides by zero when retried is 0"),
            ({"Retry-Delay": "exp(1000)"}, 400, "overflows when retried is 0"),
            ({"Retry-Delay": "__import__('os')"}, 400, "unexpected '__import__'"),
            ({"Retry-Delay": "1 +"}, 400, "it ends too early"),
        ],
        nested_retry_delay,
        before=lambda scene: scene.fail(DEST, CALLBACK),
    ),
    Header(
        "timeout",
        {"Timeout": "10s"},
        timeout,
        [
            ({"Timeout": "0s"}, 400, "must be longer than 0s"),
            ({"Timeout": "ten"}, 400, "invalid timeout"),
        ],
        nested_timeout,
        before=lambda scene: setattr(scene, "answer", lambda request: Reply(200, after=30)),
    ),
    Header(
        "callback",
        {"Callback": CALLBACK},
        callback,
        [
            ({"Callback": "callback"}, 400, "invalid callback url: endpoint has invalid scheme"),
            ({"Callback": "https://"}, 400, "invalid callback url: endpoint has no host"),
            ({"Callback": "http://[::1"}, 400, "invalid callback url"),
        ],
        nested_callback,
        before=lambda scene: scene.fail(DEST),
    ),
    Header(
        "failure-callback",
        {"Failure-Callback": FAILURE},
        failure_callback,
        [({"Failure-Callback": "ftp://x/"}, 400, "invalid failure callback url")],
        nested_failure_callback,
        before=lambda scene: scene.fail(DEST, CALLBACK),
    ),
    Header(
        "callback-*",
        {"Callback": CALLBACK, "Callback-Retries": "1", "Callback-Forward-X-Own": "yes"},
        nested_settings,
        [({"Callback": CALLBACK, "Callback-Retries": "x"}, 400, "invalid retries")],
    ),
    Header(
        "failure-callback-*",
        {
            "Failure-Callback": FAILURE,
            "Failure-Callback-Method": "PATCH",
            "Failure-Callback-Forward-X-Own": "yes",
        },
        nested_failure_settings,
        [({"Failure-Callback-Method": "x"}, 400, "invalid method")],
        before=lambda scene: scene.fail(DEST),
    ),
    Header(
        "forward-*",
        {
            "Forward-X-Tenant": "acme",
            "Forward-Content-Length": "3",
            "Forward-Host": "evil",
            "Forward-Connection": "close",
            "Forward-Content-Type": "text/ignored",
        },
        forward,
        [({"Forward-X Y": "1"}, 400, "invalid header name: 'X Y'")],
        nested_forward,
        headers={"Content-Type": "text/plain"},
    ),
    Header(
        "header-forward",
        {"Header-Forward": "true"},
        forward_all,
        [({"Header-Forward": "maybe"}, 400, "expected true or false")],
        headers={"X-Plain": "1", "User-Agent": "test"},
    ),
    Header("content-type", {}, content_type, headers={"Content-Type": "application/x-own; a=b"}),
    Header(
        "deduplication-id",
        {"Deduplication-Id": "order-1"},
        deduplicated,
        [
            ({"Deduplication-Id": "a:b"}, 400, "DeduplicationId cannot contain ':'"),
            ({"Deduplication-Id": "a b"}, 400, "DeduplicationId cannot be empty or contain"),
        ],
    ),
    Header(
        "content-based-deduplication",
        {"Content-Based-Deduplication": "True"},
        deduplicated,
        [({"Content-Based-Deduplication": "1"}, 400, "expected true or false")],
    ),
    Header(
        "cron",
        {"Cron": " */5 * * * * "},
        cron,
        [
            ({"Cron": "0 */5 * * * *"}, 400, "expected 5 fields, got 6"),
            ({"Cron": "61 * * * *"}, 400, "invalid cron expression"),
            ({"Cron": "CRON_TZ=Mars/Base * * * * *"}, 400, "unknown time zone 'Mars/Base'"),
            ({"Cron": "0 0 30 2 *"}, 400, "invalid cron expression"),
            ({"Cron": "@every 1s"}, 400, "the finest step is one minute"),
            ({"Cron": "* * * * *", "Not-Before": "1"}, 400, "Upstash-Not-Before cannot be used"),
        ],
        nested_refused="a callback cannot be scheduled",
        scheduled=True,
    ),
    Header(
        "schedule-id",
        {"Cron": "* * * * *", "Schedule-Id": "my-schedule.1"},
        schedule_id,
        [({"Cron": "* * * * *", "Schedule-Id": "a:b"}, 400, "invalid schedule id: 'a:b'")],
        scheduled=True,
    ),
    Header(
        "queue-name",
        {"Queue-Name": "orders"},
        queue_name,
        [({"Queue-Name": "a/b"}, 400, "invalid queue name: 'a/b'")],
    ),
    Header(
        "flow-control-key",
        {"Flow-Control-Key": "tenant-1", "Flow-Control-Value": "rate=1,period=1m"},
        flow,
        [
            ({"Flow-Control-Value": "rate=1"}, 400, "a value was given without a key"),
            ({"Flow-Control-Key": " ", "Flow-Control-Value": "rate=1"}, 400, "it is empty"),
        ],
        nested_flow,
    ),
    Header(
        "flow-control-value",
        {"Flow-Control-Key": "tenant-1", "Flow-Control-Value": " period=60 , rate=1 "},
        flow,
        [
            ({"Flow-Control-Key": "k", "Flow-Control-Value": value}, 400, text)
            for value, text in (
                ("rate=0", "invalid flow control rate"),
                ("parallelism=x", "invalid flow control parallelism"),
                ("rate=1,period=8d", "it must be from 1s to 7d"),
                ("rate=1,period=0s", "it must be from 1s to 7d"),
                ("speed=1", "invalid flow control value: 'speed=1'"),
                ("rate", "invalid flow control value: 'rate'"),
            )
        ],
    ),
    Header("label", {"Label": "red, blue"}, label),
    Header(
        "redact-fields",
        {"Redact-Fields": "body, header[x-key]", "Forward-X-Key": "s3cret", "Forward-X-Open": "1"},
        redact,
        [({"Redact-Fields": "everything"}, 400, "invalid redact field: 'everything'")],
    ),
    Header(
        "redact-fields",
        {"Redact-Fields": "headers[X-KEY], body", "Forward-X-Key": "s3cret", "Forward-X-Open": "1"},
        redact,
    ),
    Header("telemetry-*", {"Telemetry-Sdk": "test"}, ignored),
    Header("feature-set", {"Feature-Set": "LazyFetch"}, kept),
    Header(
        "workflow-*",
        {"Workflow-Init": "true", "Workflow-RunId": "wfr_1", "Workflow-Url": DEST},
        workflow,
        [({"Workflow-RunId": "wfr_unknown"}, 400, "wfr_unknown")],
    ),
]


def spelled(settings: Settings, prefix: str) -> dict[str, str]:
    return {f"{prefix}-{name}": value for name, value in settings.items()}


@pytest.mark.parametrize("prefix", ["Upstash", "Service", "upstash"])
@pytest.mark.parametrize("row", HEADERS, ids=str)
def test_a_header_has_its_effect(scene: Scene, row: Header, prefix: str) -> None:
    row.before(scene)
    sent = {**row.headers, **spelled(row.settings, prefix)}
    scene.last_headers = sent  # type: ignore[attr-defined]
    answer = scene.ok("POST", f"/v2/publish/{DEST}", headers=sent, body=b"hello").json()
    row.effect(scene, answer["scheduleId" if row.scheduled else "messageId"])


@pytest.mark.parametrize("row", [row for row in HEADERS if row.settings], ids=str)
def test_a_header_may_be_a_query_key(scene: Scene, row: Header) -> None:
    row.before(scene)
    query = "&".join(
        f"upstash-{name.lower()}={quote(value)}" for name, value in row.settings.items()
    )
    answer = scene.ok("POST", f"/v2/publish/{DEST}?{query}", headers=row.headers, body=b"hello")
    scene.last_headers = {**row.headers, **spelled(row.settings, "Upstash")}  # type: ignore[attr-defined]
    row.effect(scene, answer.json()["scheduleId" if row.scheduled else "messageId"])


INVALID = [
    pytest.param(settings, status, text, id=f"{row.covers}-{number}")
    for row in HEADERS
    for number, (settings, status, text) in enumerate(row.invalid)
]


@pytest.mark.parametrize(("settings", "status", "text"), INVALID)
def test_a_malformed_header_is_refused(
    scene: Scene, settings: Settings, status: int, text: str
) -> None:
    item = {"destination": DEST, "headers": spelled(settings, "Upstash"), "body": "x"}
    (refused,) = scene.ok("POST", "/v2/batch", json=[item]).json()
    assert refused["status"] == status
    assert text in refused["error"]
    if not any(" " in name for name in settings):
        response = scene.request("POST", f"/v2/publish/{DEST}", spelled(settings, "Upstash"))
        assert (response.status, response.json()) == (status, {"error": refused["error"]})
    assert scene.queue.messages() == []
    assert scene.get("/v2/schedules") == []


@pytest.mark.parametrize("kind", ["Callback", "Failure-Callback"])
@pytest.mark.parametrize("row", [row for row in HEADERS if row.nested], ids=str)
def test_a_header_configures_a_callback(scene: Scene, row: Header, kind: str) -> None:
    row.before(scene)
    plain = scene.answer
    # Responses apply to the callback only; the message fails once, or is delivered immediately.
    scene.answer = lambda request: (
        plain(request) if request.url != DEST else 500 if kind == "Failure-Callback" else 200
    )
    sent = {"Upstash-Retries": "0", f"Upstash-{kind}": CALLBACK}
    sent[f"Upstash-{kind}-Retries"] = "3"
    sent |= spelled(row.settings, f"Upstash-{kind}")
    if row.covers == "callback":
        scene.answer = lambda request: 500 if len(scene.came) < 3 else 200
        sent[f"Upstash-{kind}-Retries"] = "0"
        if kind == "Callback":
            sent[f"Upstash-{kind}-Callback"] = CALLBACK
    scene.publish(sent)
    scene.queue.run_until_idle()
    assert row.nested is not None
    row.nested(scene)


@pytest.mark.parametrize("kind", ["Callback", "Failure-Callback"])
@pytest.mark.parametrize("row", [row for row in HEADERS if row.nested_refused], ids=str)
def test_a_header_that_no_callback_takes_is_refused(scene: Scene, row: Header, kind: str) -> None:
    sent = {f"Upstash-{kind}": CALLBACK, **spelled(row.settings, f"Upstash-{kind}")}
    response = scene.request("POST", f"/v2/publish/{DEST}", sent)
    assert response.status == 400
    assert row.nested_refused in response.error
    assert scene.queue.messages() == []


def test_every_header_has_a_row() -> None:
    read = set(headers._SETTINGS) | {
        "callback-*",
        "failure-callback-*",
        "forward-*",
        "header-forward",
        "content-type",
        "flow-control-key",
        "flow-control-value",
        "telemetry-*",
        "feature-set",
        "workflow-*",
    }
    assert {row.covers for row in HEADERS} == read


def test_a_delayed_callback_where_the_tester_allows_it() -> None:
    with Scene(delayed_callbacks=True) as scene:
        scene.publish({"Upstash-Callback": CALLBACK, "Upstash-Callback-Delay": "1h"})
        scene.queue.run_until_idle()
        assert scene.at(CALLBACK) == [3600]


# -- endpoints -------------------------------------------------------------------------------------

GROUP = {"endpoints": [{"url": DEST, "name": "main"}, {"url": DEST + "2"}]}


def add_group(scene: Scene) -> None:
    scene.ok("POST", "/v2/topics/news/endpoints", json=GROUP)


def dead_letter(scene: Scene, **headers: str) -> str:
    scene.fail()
    message_id = scene.publish({"Upstash-Retries": "0", **headers}, b"payload")
    scene.queue.deliver_due()
    found = next(one for one in scene.queue.dead_letters() if one.message.id == message_id)
    return found.id


def publish_endpoint(scene: Scene) -> None:
    url = "https://app.example.com/p%20q%2Fr//s?x=1&y=%2F&z"
    response = scene.ok("POST", f"/v2/publish/{url}&qstash_token=unused", body=b"\x00\xff")
    assert response.status == 201
    assert response.json() == {"messageId": response.json()["messageId"], "url": url}
    scene.queue.deliver_due()
    (only,) = scene.came
    assert (only.url, only.body) == (url, b"\x00\xff")
    add_group(scene)
    answers = scene.ok("POST", "/v2/publish/news").json()
    assert [one["url"] for one in answers] == [DEST, DEST + "2"]
    scene.queue.deliver_due()
    assert [one.headers.get("Upstash-Topic-Name") for one in scene.came[1:]] == ["news", "news"]


def enqueue_endpoint(scene: Scene) -> None:
    scene.fail()
    first = scene.publish({"Upstash-Retries": "1"}, b"1", way="/v2/enqueue/orders/")
    second = scene.publish({"Upstash-Retries": "0"}, b"2", way="/v2/enqueue/orders/")
    scene.queue.run_until_idle()
    assert [one.message_id for one in scene.came] == [first, first, second]
    assert scene.request("POST", f"/v2/enqueue/a%20b/{DEST}").status == 400


def batch_endpoint(scene: Scene) -> None:
    add_group(scene)
    items = [
        {"destination": DEST, "headers": {"content-type": "text/x"}, "body": "ä", "queue": None},
        {"destination": "nowhere", "body": None},
        {"destination": "news", "headers": {"Upstash-Method": "GET"}},
        {"destination": DEST, "queue": "orders"},
        {"destination": DEST, "headers": {"Upstash-Retries": "x"}},
        "no object",
    ]
    response = scene.ok("POST", "/v2/batch", json=items)
    first, bad, group, queued, refused, junk = response.json()
    assert first["url"] == DEST
    assert bad["error"] == (
        "invalid destination url: endpoint has invalid scheme, add http:// or https://"
    )
    assert len(group) == 2
    assert record(scene, queued["messageId"])["queueName"] == "orders"
    assert "retries" in refused["error"]
    assert "object" in junk["error"]
    scene.queue.run_until_idle()
    assert len(scene.came) == 4
    assert (scene.came[0].body, scene.came[0].headers.get("Content-Type")) == (
        "ä".encode(),
        "text/x",
    )
    assert scene.request("POST", "/v2/batch", json={"a": 1}).status == 400
    assert scene.request("POST", "/v2/batch", body=b"[").status == 400


def get_message_endpoint(scene: Scene) -> None:
    message_id = scene.publish({"Upstash-Forward-x-my-id": "7"}, "grüße".encode())
    assert record(scene, message_id) == {
        "messageId": message_id,
        "url": DEST,
        "method": "POST",
        "header": {"X-My-Id": ["7"]},
        "body": "grüße",
        "maxRetries": 3,
        "notBefore": NOW_MS,
        "createdAt": NOW_MS,
        "callerIP": "127.0.0.1",
        "callerIp": "127.0.0.1",
    }
    binary = record(scene, scene.publish({}, b"\xff\x00"))
    assert decoded(binary["bodyBase64"]) == b"\xff\x00"
    assert "body" not in binary
    assert not {"body", "bodyBase64"} & set(record(scene, scene.publish({}, b"")))
    scene.queue.deliver_due()
    scene.queue.advance(30)
    assert record(scene, message_id)["messageId"] == message_id
    scene.queue.advance("1ms")
    gone = scene.request("GET", f"/v2/messages/{message_id}")
    assert (gone.status, gone.error) == (404, f"message {message_id} not found")


def cancel_message_endpoint(scene: Scene) -> None:
    message_id = scene.publish({"Upstash-Delay": "1h"})
    assert scene.ok("DELETE", f"/v2/messages/{message_id}").json() == {"cancelled": 1}
    assert scene.states(message_id) == ["CREATED", "CANCEL_REQUESTED"]
    assert record(scene, message_id)["messageId"] == message_id
    scene.queue.advance("1h")
    assert scene.states(message_id) == ["CREATED", "CANCEL_REQUESTED", "CANCELED"]
    assert scene.request("GET", f"/v2/messages/{message_id}").status == 404
    assert scene.came == []
    assert scene.request("DELETE", f"/v2/messages/{message_id}").status == 404
    assert scene.request("DELETE", "/v2/messages/msg_unknown").status == 404


def cancel_messages_endpoint(scene: Scene) -> None:
    ids = [scene.publish() for _ in range(4)]
    by_body = scene.ok("DELETE", "/v2/messages", json={"messageIds": ids[:1]})
    assert by_body.json() == {"cancelled": 1}
    by_query = scene.ok("DELETE", f"/v2/messages?messageIds={ids[0]}&messageIds={ids[1]}")
    assert by_query.json() == {"cancelled": 1}
    assert scene.ok("DELETE", "/v2/messages", json={"messageIds": []}).json() == {"cancelled": 0}
    assert scene.ok("DELETE", "/v2/messages?count=1").json() == {"cancelled": 1}
    assert scene.ok("DELETE", "/v2/messages").json() == {"cancelled": 1}
    assert scene.ok("DELETE", "/v2/messages").json() == {"cancelled": 0}
    assert scene.queue.deliver_due() == []


def create_schedule_endpoint(scene: Scene) -> None:
    sent = {
        "Upstash-Cron": "0 12 * * *",
        "Upstash-Schedule-Id": "noon",
        "Upstash-Delay": "1m",
        "Upstash-Retries": "1",
        "Upstash-Timeout": "9s",
        "Upstash-Callback": CALLBACK,
        "Upstash-Forward-test-header": "v",
        "Content-Type": "application/json",
    }
    created = scene.ok("POST", f"/v2/schedules/{DEST}", headers=sent, body=b'{"a":1}')
    assert created.json() == {"scheduleId": "noon"}
    assert scene.get("/v2/schedules/noon") == {
        "scheduleId": "noon",
        "cron": "0 12 * * *",
        "destination": DEST,
        "createdAt": NOW_MS,
        "method": "POST",
        "header": {"Content-Type": ["application/json"], "Test-Header": ["v"]},
        "body": '{"a":1}',
        "retries": 1,
        "delay": 60,
        "timeout": 9,
        "callback": CALLBACK,
        "callerIP": "127.0.0.1",
        "callerIp": "127.0.0.1",
        "isPaused": False,
        "nextScheduleTime": NOW_MS + 12 * 3_600_000,
    }
    scene.queue.advance("13h")
    assert scene.at(DEST) == [12 * 3600 + 60]
    again = {"Upstash-Cron": "0 13 * * *", "Upstash-Schedule-Id": "noon"}
    scene.ok("POST", f"/v2/schedules/{DEST}", headers=again)
    shown = scene.get("/v2/schedules/noon")
    assert (shown["cron"], shown["retries"]) == ("0 13 * * *", 3)
    assert not {"body", "callback", "delay", "timeout"} & set(shown)
    missing = scene.request("POST", f"/v2/schedules/{DEST}")
    assert (missing.status, "Upstash-Cron" in missing.error) == (400, True)


def schedule(scene: Scene, **settings: str) -> str:
    sent = {"Upstash-Cron": "0 * * * *", **settings}
    answer = scene.ok("POST", f"/v2/schedules/{DEST}", headers=sent).json()
    return str(answer["scheduleId"])


def list_schedules_endpoint(scene: Scene) -> None:
    ids = [schedule(scene), schedule(scene)]
    assert [one["scheduleId"] for one in scene.get("/v2/schedules")] == ids


def get_schedule_endpoint(scene: Scene) -> None:
    schedule_id = schedule(scene)
    assert schedule_id.startswith("scd_")
    scene.queue.advance("1h")
    shown = scene.get(f"/v2/schedules/{schedule_id}")
    assert shown["lastScheduleTime"] == NOW_MS + 3_600_000
    assert shown["nextScheduleTime"] == NOW_MS + 7_200_000
    assert shown["lastScheduleStates"] == {scene.came[0].message_id: "SUCCESS"}
    assert scene.request("GET", "/v2/schedules/unknown").status == 404


def delete_schedule_endpoint(scene: Scene) -> None:
    schedule_id = schedule(scene)
    scene.ok("DELETE", f"/v2/schedules/{schedule_id}")
    scene.queue.advance("2h")
    assert scene.came == []
    assert scene.request("DELETE", f"/v2/schedules/{schedule_id}").status == 404


def pause_schedule_endpoint(scene: Scene) -> None:
    schedule_id = schedule(scene)
    scene.ok("PATCH", f"/v2/schedules/{schedule_id}/pause")
    assert scene.get(f"/v2/schedules/{schedule_id}")["isPaused"] is True
    scene.queue.advance("3h")
    assert scene.came == []
    assert scene.request("POST", "/v2/schedules/unknown/pause").status == 404


def resume_schedule_endpoint(scene: Scene) -> None:
    pause_schedule_endpoint(scene)
    (shown,) = scene.get("/v2/schedules")
    scene.ok("POST", f"/v2/schedules/{shown['scheduleId']}/resume")
    scene.queue.advance("1h")
    # Runs that were due during the pause are not made up for.
    assert scene.times == [4 * 3600]


def upsert_queue_endpoint(scene: Scene) -> None:
    body = {"queueName": "orders", "parallelism": 2, "paused": True}
    assert scene.ok("POST", "/v2/queues", json=body).body == b""
    scene.queue.advance(1)
    scene.ok("POST", "/v2/queues", json={"queueName": "orders", "parallelism": 3})
    assert scene.get("/v2/queues/orders") == {
        "name": "orders",
        "parallelism": 3,
        "createdAt": NOW_MS,
        "updatedAt": NOW_MS + 1000,
        "lag": 0,
        "paused": True,
    }
    for bad in (
        {"queueName": "a b"},
        {"queueName": 1},
        {"queueName": "a", "parallelism": 0},
        {"queueName": "a", "parallelism": True},
        {"queueName": "a", "paused": "yes"},
        [],
    ):
        assert scene.request("POST", "/v2/queues", json=bad).status == 400


def list_queues_endpoint(scene: Scene) -> None:
    assert scene.get("/v2/queues") == []
    scene.publish(way="/v2/enqueue/b/")
    scene.publish(way="/v2/enqueue/a/")
    assert [(one["name"], one["parallelism"]) for one in scene.get("/v2/queues")] == [
        ("b", 1),
        ("a", 1),
    ]


def get_queue_endpoint(scene: Scene) -> None:
    for _ in range(3):
        scene.publish(way="/v2/enqueue/orders/")
    assert scene.get("/v2/queues/orders")["lag"] == 3
    assert scene.request("GET", "/v2/queues/unknown").status == 404


def delete_queue_endpoint(scene: Scene) -> None:
    ids = [scene.publish(way="/v2/enqueue/orders/") for _ in range(2)]
    scene.ok("DELETE", "/v2/queues/orders")
    assert scene.get("/v2/queues") == []
    scene.queue.run_until_idle()
    assert scene.came == []
    assert {one.state for one in scene.queue.messages()} == {"cancelled"}
    assert len(ids) == 2
    scene.ok("DELETE", "/v2/queues/orders")


@pytest.mark.parametrize(("method", "verb"), [("GET", ""), ("POST", "/pause"), ("POST", "/resume")])
def test_a_queue_with_a_name_that_is_none(scene: Scene, method: str, verb: str) -> None:
    refused = scene.request(method, f"/v2/queues/a%20b{verb}")
    assert (refused.status, "invalid queue name: 'a b'" in refused.error) == (400, True)


def pause_queue_endpoint(scene: Scene) -> None:
    scene.fail()
    message_id = scene.publish(way="/v2/enqueue/orders/")
    scene.queue.deliver_due()
    scene.ok("POST", "/v2/queues/orders/pause")
    scene.publish(way="/v2/enqueue/orders/")
    left = scene.queue.run_until_idle()
    assert left == []
    assert "queue" in left.waiting
    assert scene.get("/v2/queues/orders")["paused"] is True
    assert record(scene, message_id)["queueName"] == "orders"
    assert scene.request("POST", "/v2/queues/unknown/pause").status == 404


def resume_queue_endpoint(scene: Scene) -> None:
    pause_queue_endpoint(scene)
    scene.answer = lambda request: 200
    scene.ok("POST", "/v2/queues/orders/resume")
    scene.queue.run_until_idle()
    assert [one.state for one in scene.queue.messages()] == ["delivered", "delivered"]
    assert scene.request("POST", "/v2/queues/unknown/resume").status == 404


def list_groups_endpoint(scene: Scene) -> None:
    assert scene.get("/v2/topics") == []
    add_group(scene)
    assert [one["name"] for one in scene.get("/v2/topics")] == ["news"]


def get_group_endpoint(scene: Scene) -> None:
    add_group(scene)
    assert scene.get("/v2/topics/news") == {
        "name": "news",
        "createdAt": NOW_MS,
        "updatedAt": NOW_MS,
        "endpoints": [{"url": DEST, "name": "main"}, {"url": DEST + "2"}],
    }
    assert scene.request("GET", "/v2/topics/unknown").status == 404


def delete_group_endpoint(scene: Scene) -> None:
    add_group(scene)
    scene.ok("DELETE", "/v2/topics/news")
    scene.ok("DELETE", "/v2/topics/news")
    assert scene.request("POST", "/v2/publish/news").status == 400


def change_group_endpoint(scene: Scene) -> None:
    add_group(scene)
    defaults = {"X-One": "1", "X-Many": ["a", "b"], "Upstash-Method": "PUT", "X-Own": "group"}
    scene.ok("PATCH", "/v2/topics/news", json={"headers": defaults})
    scene.ok("POST", "/v2/publish/news", headers={"Upstash-Forward-X-Own": "message"})
    scene.queue.deliver_due()
    only = scene.came[0]
    assert (only.method, only.headers.get("X-One"), only.headers.get("X-Own")) == (
        "PUT",
        "1",
        "message",
    )
    assert only.headers.getlist("X-Many") == ["a", "b"]
    assert scene.request("PATCH", "/v2/topics/unknown", json={"headers": {}}).status == 404
    assert scene.request("PATCH", "/v2/topics/news", json={"headers": []}).status == 400
    bad = scene.request("PATCH", "/v2/topics/news", json={"headers": {"Upstash-Method": "x"}})
    assert bad.status == 400


@pytest.mark.parametrize("prefix", ["Upstash", "Service"])
@pytest.mark.parametrize(
    ("defaults", "sent", "shown"),
    [
        ({"Retries": "1"}, {}, {"maxRetries": 1}),
        ({"Retries": "1"}, {"Retries": "2"}, {"maxRetries": 2}),
        ({"Delay": ["10s"]}, {}, {"notBefore": NOW_MS + 10_000}),
        ({"Not-Before": "1767225700"}, {"Delay": "10s"}, {"notBefore": NOW_MS + 10_000}),
        ({"Delay": "10s"}, {"Not-Before": "1767225700"}, {"notBefore": NOW_MS + 100_000}),
        ({"Header-Forward": "true"}, {}, {"header": {"X-Plain": ["mine"]}}),
        ({"Header-Forward": "true"}, {"Header-Forward": "false"}, {"header": {}}),
        (
            {"Header-Forward": "true", "Forward-X-Plain": "group", "Forward-X-More": "m"},
            {},
            {"header": {"X-Plain": ["mine"], "X-More": ["m"]}},
        ),
        (
            {"Forward-X-Plain": "group"},
            {"Header-Forward": "true"},
            {"header": {"X-Plain": ["mine"]}},
        ),
        (
            {"Flow-Control-Key": "k", "Flow-Control-Value": "rate=3"},
            {"Flow-Control-Value": "rate=9"},
            {"flowControlKey": "k", "rate": 9},
        ),
        (
            {"Flow-Control-Key": "k", "Flow-Control-Value": "rate=3"},
            {},
            {"flowControlKey": "k", "rate": 3},
        ),
        ({"Label": "group", "Timeout": "5s"}, {"Label": "own"}, {"label": "own", "timeout": 5000}),
        (
            {"Callback": CALLBACK, "Callback-Retries": "1", "Callback-Forward-X": "g"},
            {"Callback-Forward-X": "own"},
            {"callback": CALLBACK, "callbackHeader": {"Retries": ["1"], "X": ["own"]}},
        ),
    ],
)
def test_default_headers_of_a_group_count_as_sent_and_what_was_sent_wins(
    scene: Scene, prefix: str, defaults: Settings, sent: Settings, shown: dict[str, Any]
) -> None:
    add_group(scene)
    named = {f"{prefix}-{name}": value for name, value in defaults.items()}
    scene.ok("PATCH", "/v2/topics/news", json={"headers": named})
    own = {"X-Plain": "mine", **{f"{prefix}-{name}": value for name, value in sent.items()}}
    batch = [{"destination": "news", "headers": own}]
    for answers in (
        scene.ok("POST", "/v2/publish/news", headers=own).json(),
        scene.ok("POST", "/v2/enqueue/line/news", headers=own).json(),
        scene.ok("POST", "/v2/batch", json=batch).json()[0],
    ):
        assert len(answers) == 2
        for one in answers:
            found = record(scene, one["messageId"])
            assert {name: found[name] for name in shown} == shown


def add_endpoints_endpoint(scene: Scene) -> None:
    add_group(scene)
    change = {"endpoints": [{"url": DEST + "3", "name": "main"}]}
    scene.ok("POST", "/v2/topics/news/endpoints", json=change)
    assert [one["url"] for one in scene.get("/v2/topics/news")["endpoints"]] == [
        DEST + "3",
        DEST + "2",
    ]
    for bad in (
        {"endpoints": [{"url": DEST + "9"}, {"url": "ftp://x"}]},
        {"endpoints": [{"name": "x"}]},
        {"endpoints": {}},
        {},
        {"endpoints": [{"url": 7}]},
        {"endpoints": [{"url": DEST, "name": "a\nb"}]},
    ):
        assert scene.request("POST", "/v2/topics/news/endpoints", json=bad).status == 400
    assert len(scene.get("/v2/topics/news")["endpoints"]) == 2
    assert scene.request("POST", "/v2/topics/a%20b/endpoints", json=change).status == 400
    spaced = {"endpoints": [{"url": DEST + "4", "name": "My end point"}]}
    scene.ok("POST", "/v2/topics/news/endpoints", json=spaced)
    assert scene.get("/v2/topics/news")["endpoints"][-1]["name"] == "My end point"
    scene.ok("POST", "/v2/publish/news", headers={"Upstash-Callback": CALLBACK})
    scene.queue.deliver_due()
    names = [one.json().get("endpointName") for one in scene.to(CALLBACK)]
    assert names == ["main", None, "My end point"]
    removed = {"endpoints": [{"name": "My end point"}]}
    scene.ok("DELETE", "/v2/topics/news/endpoints", json=removed)
    assert len(scene.get("/v2/topics/news")["endpoints"]) == 2


def remove_endpoints_endpoint(scene: Scene) -> None:
    add_group(scene)
    scene.ok("DELETE", "/v2/topics/news/endpoints", json={"endpoints": [{"name": "main"}]})
    assert scene.get("/v2/topics/news")["endpoints"] == [{"url": DEST + "2"}]
    refused = scene.request("DELETE", "/v2/topics/news/endpoints", json={"endpoints": [{}]})
    assert (refused.status, refused.error) == (400, "invalid endpoint: pass url or name")
    scene.ok("DELETE", "/v2/topics/news/endpoints", json={"endpoints": [{"url": DEST + "2"}]})
    assert scene.request("GET", "/v2/topics/news").status == 404
    gone = scene.request("DELETE", "/v2/topics/news/endpoints", json={"endpoints": []})
    assert gone.status == 404


def list_dead_letters_endpoint(scene: Scene) -> None:
    ids = [dead_letter(scene) for _ in range(3)]
    page = scene.get("/v2/dlq?count=2")
    assert [one["dlqId"] for one in page["messages"]] == ids[:2]
    rest = scene.get(f"/v2/dlq?cursor={page['cursor']}")
    assert [one["dlqId"] for one in rest["messages"]] == ids[2:]
    assert "cursor" not in rest
    assert scene.request("GET", "/v2/dlq?cursor=zzz").status == 400
    scene.queue.advance("7d")
    assert scene.get("/v2/dlq") == {"messages": []}


def get_dead_letter_endpoint(scene: Scene) -> None:
    scene.answer = lambda request: (503, b"\xff", {"X-Reason": "full"})
    message_id = scene.publish({"Upstash-Retries": "0"}, b"payload")
    scene.queue.deliver_due()
    dlq_id = scene.queue.dead_letters().only().id
    shown = scene.get(f"/v2/dlq/{dlq_id}")
    assert dlq_id.split("-")[0] == str(NOW_MS)
    assert (shown["messageId"], shown["dlqId"]) == (message_id, dlq_id)
    assert (shown["body"], shown["responseStatus"]) == ("payload", 503)
    assert shown["responseHeader"]["X-Reason"] == ["full"]
    assert decoded(shown["responseBodyBase64"]) == b"\xff"
    assert scene.request("GET", "/v2/dlq/unknown").status == 404


def delete_dead_letter_endpoint(scene: Scene) -> None:
    dlq_id = dead_letter(scene)
    scene.ok("DELETE", f"/v2/dlq/{dlq_id}")
    assert scene.request("DELETE", f"/v2/dlq/{dlq_id}").status == 404


def delete_dead_letters_endpoint(scene: Scene) -> None:
    ids = [dead_letter(scene) for _ in range(5)]
    assert scene.ok("DELETE", "/v2/dlq", json={"dlqIds": ids[:1]}).json() == {"deleted": 1}
    assert scene.ok("DELETE", f"/v2/dlq?dlqIds={ids[0]}&dlqIds={ids[1]}").json() == {"deleted": 1}
    paged = scene.ok("DELETE", "/v2/dlq?count=2").json()
    assert (paged["deleted"], bool(paged["cursor"])) == (2, True)
    assert scene.ok("DELETE", "/v2/dlq", json={"dlqIds": []}).json() == {"deleted": 0}
    assert scene.ok("DELETE", "/v2/dlq?count=100").json() == {"deleted": 1}


def retry_dead_letter_endpoint(scene: Scene) -> None:
    dlq_id = dead_letter(scene, **{"Upstash-Forward-X-A": "1", "Upstash-Label": "l"})
    scene.answer = lambda request: 200
    response = scene.ok(
        "POST", f"/v2/dlq/retry/{dlq_id}", headers={"Upstash-Method": "PUT", "Upstash-Delay": "5s"}
    )
    assert response.status == 201
    assert scene.get("/v2/dlq") == {"messages": []}
    scene.queue.run_until_idle()
    only = scene.came[-1]
    assert only.message_id == response.json()["messageId"]
    assert (only.method, only.body, only.headers.get("X-A")) == ("PUT", b"payload", "1")
    assert scene.times[-1] == 5
    assert scene.request("POST", f"/v2/dlq/retry/{dlq_id}").status == 404


def retry_dead_letters_endpoint(scene: Scene) -> None:
    ids = [dead_letter(scene) for _ in range(3)]
    scene.answer = lambda request: 200
    first = scene.ok("POST", "/v2/dlq/retry?count=2")
    assert first.status == 201
    assert len(first.json()["responses"]) == 2
    assert first.json()["cursor"]
    rest = scene.ok("POST", "/v2/dlq/retry", json={"dlqIds": ids}).json()
    assert len(rest["responses"]) == 1
    assert rest["cursor"] == ""
    assert len(scene.queue.run_until_idle()) == 3
    for name in ("dlqIds", "dlqId"):
        unknown = scene.request("POST", f"/v2/dlq/retry?{name}=unknown,{ids[0]}")
        assert (unknown.status, unknown.error) == (404, f"dlq message unknown, {ids[0]} not found")
    known = dead_letter(scene)
    some = scene.ok("POST", f"/v2/dlq/retry?dlqIds=unknown&dlqIds={known}").json()
    assert len(some["responses"]) == 1
    assert scene.ok("POST", "/v2/dlq/retry?label=none").json()["responses"] == []


def list_events_endpoint(scene: Scene) -> None:
    scene.fail()
    message_id = scene.publish({"Upstash-Retries": "1", "Upstash-Retry-Delay": "1000"})
    scene.queue.run_until_idle()
    rows = scene.get("/v2/events")["events"]
    assert [row["state"] for row in rows] == [
        "FAILED",
        "ERROR",
        "ACTIVE",
        "RETRY",
        "ERROR",
        "ACTIVE",
        "CREATED",
    ]
    error, retry = rows[4], rows[3]
    assert (error["responseStatus"], error["error"]) == (500, "destination answered 500")
    assert error["responseHeader"] == error["responseHeaders"]
    assert (retry["time"], retry["nextDeliveryTime"]) == (NOW_MS, NOW_MS + 1000)
    assert retry["retryDelayExpr"] == retry["retryDelayExpression"] == "1000"
    assert decoded(rows[0]["body"]) == b"hello"
    assert {row["messageId"] for row in rows} == {message_id}
    seen: list[str] = []
    path = "/v2/events?count=3"
    page = scene.get(path)
    while True:
        seen += [row["state"] for row in page["events"]]
        if "cursor" not in page:
            break
        page = scene.get(f"{path}&cursor={page['cursor']}")
    assert seen == [row["state"] for row in rows]


def list_logs_endpoint(scene: Scene) -> None:
    scene.publish()
    answer = scene.get("/v2/logs")
    assert answer["logs"] == answer["events"]
    assert [row["state"] for row in answer["logs"]] == ["CREATED"]


def get_keys_endpoint(scene: Scene) -> None:
    keys = scene.get("/v2/keys")
    assert keys == {
        "current": scene.queue.current_signing_key,
        "next": scene.queue.next_signing_key,
    }
    assert keys["current"].startswith("sig_")


def rotate_keys_endpoint(scene: Scene) -> None:
    before = scene.get("/v2/keys")
    rotated = scene.ok("POST", "/v2/keys/rotate").json()
    assert rotated["current"] == before["next"]
    assert rotated["next"] not in before.values()
    assert scene.get("/v2/keys/rotate")["current"] == rotated["next"]


def with_flow(scene: Scene, value: str, count: int = 1, key: str = "k") -> list[str]:
    sent = {"Upstash-Flow-Control-Key": key, "Upstash-Flow-Control-Value": value}
    return [scene.publish(sent) for _ in range(count)]


def list_flow_controls_endpoint(scene: Scene) -> None:
    with_flow(scene, "rate=1", key="alpha")
    with_flow(scene, "rate=1", key="beta")
    assert [one["flowControlKey"] for one in scene.get("/v2/flowControl")] == ["alpha", "beta"]
    found = scene.get("/v2/flowControl?search=et")
    assert [one["flowControlKey"] for one in found] == ["beta"]


def get_flow_control_endpoint(scene: Scene) -> None:
    scene.answer = lambda request: Reply(200, after=10)
    with_flow(scene, "parallelism=1, rate=5, period=1m", 3)
    scene.queue.deliver_due()
    assert scene.get("/v2/flowControl/k") == {
        "flowControlKey": "k",
        "waitListSize": 2,
        "parallelismMax": 1,
        "parallelismCount": 1,
        "rateMax": 5,
        "rateCount": 1,
        "ratePeriod": 60,
        "ratePeriodStart": NOW_MS // 1000,
        "isPaused": False,
        "isPinnedParallelism": False,
        "isPinnedRate": False,
    }
    scene.queue.run_until_idle()
    assert scene.times == [0, 10, 20]
    assert scene.request("GET", "/v2/flowControl/unknown").status == 404


def pause_flow_endpoint(scene: Scene) -> None:
    with_flow(scene, "rate=1,period=1m")
    scene.ok("POST", "/v2/flowControl/k/pause")
    assert scene.queue.run_until_idle() == []
    shown = scene.get("/v2/flowControl/k")
    assert (shown["isPaused"], shown["waitListSize"]) == (True, 1)


def resume_flow_endpoint(scene: Scene) -> None:
    pause_flow_endpoint(scene)
    scene.ok("POST", "/v2/flowControl/k/resume")
    scene.queue.run_until_idle()
    assert scene.times == [0]


def pin_flow_endpoint(scene: Scene) -> None:
    scene.ok("POST", "/v2/flowControl/k/pin?rate=1&period=10&parallelism=4")
    with_flow(scene, "rate=100", 3)
    shown = scene.get("/v2/flowControl/k")
    assert (shown["rateMax"], shown["ratePeriod"], shown["parallelismMax"]) == (1, 10, 4)
    assert shown["isPinnedRate"] is shown["isPinnedParallelism"] is True
    scene.ok("POST", "/v2/flowControl/other/pin?parallelism=4")
    shown = scene.get("/v2/flowControl/other")
    assert (shown["isPinnedRate"], shown["isPinnedParallelism"]) == (False, True)
    scene.queue.run_until_idle()
    assert scene.times == [0, 10, 20]
    # Pinning starts a new period, so a message waiting for the end of the old one is delivered.
    with_flow(scene, "rate=1", key="slow")
    with_flow(scene, "rate=1,period=1h", 2, key="slow")
    scene.queue.deliver_due()
    sent = len(scene.came)
    scene.ok("POST", "/v2/flowControl/slow/pin?rate=1&period=3600")
    assert len(scene.queue.deliver_due()) == 1
    assert len(scene.came) == sent + 1
    for bad in ("", "rate=0", "speed=1", "period=5", "rate=1&period=604801"):
        assert scene.request("POST", f"/v2/flowControl/k/pin?{bad}").status == 400


def unpin_flow_endpoint(scene: Scene) -> None:
    scene.ok("POST", "/v2/flowControl/k/pin?rate=1&parallelism=1")
    scene.ok("POST", "/v2/flowControl/k/unpin?rate=true&parallelism=false")
    with_flow(scene, "rate=7, parallelism=7")
    shown = scene.get("/v2/flowControl/k")
    assert (shown["rateMax"], shown["parallelismMax"]) == (7, 1)
    for query, error in (
        ("rate=maybe", "invalid rate: 'maybe', expected true or false"),
        ("speed=true", "unknown setting 'speed', expected parallelism, rate"),
    ):
        refused = scene.request("POST", f"/v2/flowControl/k/unpin?{query}")
        assert (refused.status, refused.error) == (400, error)
    assert scene.request("POST", "/v2/flowControl/unknown/unpin?rate=true").status == 404


def reset_rate_endpoint(scene: Scene) -> None:
    with_flow(scene, "rate=1,period=1h", 2)
    scene.queue.advance(60)
    assert scene.times == [0]
    scene.ok("POST", "/v2/flowControl/k/resetRate")
    scene.queue.deliver_due()
    assert scene.times == [0, 60]
    shown = scene.get("/v2/flowControl/k")
    assert (shown["rateCount"], shown["ratePeriodStart"]) == (1, NOW_MS // 1000 + 60)
    scene.ok("POST", "/v2/flowControl/k/reset")
    assert scene.request("POST", "/v2/flowControl/unknown/resetRate").status == 404


@pytest.mark.parametrize("again", ["resetRate", "reset", "pin?rate=2&period=60"])
def test_a_fresh_period_counts_who_was_let_through_and_has_not_started(
    scene: Scene, again: str
) -> None:
    with_flow(scene, "rate=2,period=60s", 8)
    scene.queue.advance(30)
    scene.ok("POST", "/v2/flowControl/k/resetRate")
    scene.ok("POST", f"/v2/flowControl/k/{again}")
    shown = scene.get("/v2/flowControl/k")
    assert (shown["rateCount"], shown["waitListSize"]) == (2, 4)
    scene.queue.run_until_idle()
    assert scene.times == [0, 0, 30, 30, 90, 90, 150, 150]


def chat_endpoint(scene: Scene) -> None:
    path = "/llm/v1/chat/completions"
    stub = scene.queue.destinations.answers(
        "api/llm",
        (200, b'{"choices": []}', {"Content-Type": "application/json", "X-Model": "m"}),
        (429, "slow down", {"x-ratelimit-limit-requests": "5"}),
        (200, b"data: [DONE]\n\n", {"Content-Type": "text/event-stream"}),
        ConnectionError("cut"),
    )
    sent = {"Content-Type": "application/json", "X-Own": "1", "Connection": "keep-alive"}
    first = scene.ok("POST", path, headers=sent, json={"model": "m"})
    assert (first.json(), first.headers["X-Model"]) == ({"choices": []}, "m")
    (came,) = stub.deliveries
    assert (came.method, came.json()) == ("POST", {"model": "m"})
    assert came.url == "https://qstash.upstash.io/llm/v1/chat/completions"
    assert came.headers.get("X-Own") == "1"
    assert came.headers.get("Authorization") is None
    limited = scene.request("POST", path, json={})
    assert (limited.status, limited.headers["x-ratelimit-limit-requests"]) == (429, "5")
    streamed = scene.ok("POST", path, json={"stream": True})
    assert streamed.headers["Content-Type"] == "text/event-stream"
    assert streamed.body == b"data: [DONE]\n\n"
    broken = scene.request("POST", path, json={})
    assert (broken.status, broken.body) == (500, b"Internal Server Error")


def global_parallelism_endpoint(scene: Scene) -> None:
    scene.answer = lambda request: Reply(200, after=10)
    scene.publish()
    scene.queue.deliver_due()
    assert scene.get("/v2/globalParallelism") == {"parallelismMax": 0, "parallelismCount": 1}
    with Scene(limits={"parallelism": 2}) as other:
        other.answer = lambda request: Reply(200, after=10)
        for _ in range(5):
            other.publish()
        other.queue.deliver_due()
        shown = other.get("/v2/globalParallelism")
        assert shown == {"parallelismMax": 2, "parallelismCount": 2}
        other.queue.run_until_idle()
        assert other.times == [0, 0, 10, 10, 20]


# -- API v1 ----------------------------------------------------------------------------------------


def v1_endpoint(scene: Scene, url: str = DEST, name: str = "news") -> str:
    body = {"url": url, "topicName": name}
    return str(scene.ok("POST", "/v1/endpoints", json=body).json()["endpointId"])


def publish_v1_endpoint(scene: Scene) -> None:
    scene.fail()
    sent = {
        "Upstash-Retries": "0",
        "Upstash-Callback": CALLBACK,
        "Upstash-Failure-Callback": FAILURE,
    }
    message_id = scene.publish(sent, way="/v1/publish/")
    scene.queue.run_until_idle()
    assert len(scene.to(CALLBACK)) == 1
    assert scene.to(FAILURE) == []
    assert scene.queue.message(message_id).state == "dead_lettered"
    v1_endpoint(scene)
    v1_endpoint(scene, DEST + "2")
    topic_id = scene.get("/v1/topics/news")["topicId"]
    for name in ("news", topic_id):
        answer = scene.ok("POST", f"/v1/publish/{name}").json()
        assert list(answer) == ["messageId"]
        assert len(scene.get(f"/v1/messages/{answer['messageId']}/tasks")) == 2
        assert scene.queue.message(answer["messageId"]).url == DEST
    scene.queue.deliver_due()
    once = {"Upstash-Deduplication-Id": "order-1"}
    first = scene.ok("POST", "/v1/publish/news", headers=once).json()
    again = scene.ok("POST", "/v1/publish/news", headers=once)
    assert (again.status, again.json()) == (202, {**first, "deduplicated": True})
    assert [one.url for one in scene.came[-2:]] == [DEST, DEST + "2"]
    assert len({one.headers.get("Upstash-Message-Id") for one in scene.came[-2:]}) == 1


def list_endpoints_v1_endpoint(scene: Scene) -> None:
    assert scene.get("/v1/endpoints") == []
    endpoint_id = v1_endpoint(scene)
    assert scene.get("/v1/endpoints") == [
        {"endpointId": endpoint_id, "url": DEST, "topicName": "news"}
    ]


def create_endpoint_v1_endpoint(scene: Scene) -> None:
    assert v1_endpoint(scene).startswith("ept_")
    topic_id = scene.get("/v1/topics/news")["topicId"]
    by_id = scene.ok("POST", "/v1/endpoints", json={"url": DEST + "2", "topicId": topic_id})
    assert by_id.json()["topicId"] == topic_id
    assert "topicName" not in by_id.json()
    for bad in (
        {"url": DEST},
        {"url": DEST, "topicName": "a", "topicId": "b"},
        {"topicName": "a"},
        {"url": "x", "topicName": "a"},
        {"url": DEST, "topicName": "a b"},
        [],
    ):
        assert scene.request("POST", "/v1/endpoints", json=bad).status == 400
    missing = scene.request("POST", "/v1/endpoints", json={"url": DEST, "topicId": "tpc_no"})
    assert missing.status == 404
    assert [one["name"] for one in scene.get("/v2/topics")] == ["news"]


def get_endpoint_v1_endpoint(scene: Scene) -> None:
    endpoint_id = v1_endpoint(scene)
    assert scene.get(f"/v1/endpoints/{endpoint_id}")["url"] == DEST
    assert scene.request("GET", "/v1/endpoints/ept_no").status == 404


def change_endpoint_v1_endpoint(scene: Scene) -> None:
    endpoint_id = v1_endpoint(scene)
    scene.fail(DEST)
    scene.ok("POST", "/v2/publish/news", headers={"Upstash-Retries": "1"})
    scene.queue.deliver_due()
    changed = scene.ok("PUT", f"/v1/endpoints/{endpoint_id}", json={"url": DEST + "/new"})
    assert changed.json() == {"endpointId": endpoint_id, "url": DEST + "/new", "topicName": "news"}
    scene.ok("POST", "/v2/publish/news")
    scene.queue.run_until_idle()
    # A message waiting for its retry keeps its URL.
    assert [one.url for one in scene.came] == [DEST, DEST + "/new", DEST]
    for bad in ({}, {"url": ""}, {"url": 1}, {"url": "nowhere"}):
        assert scene.request("PUT", f"/v1/endpoints/{endpoint_id}", json=bad).status == 400
    assert scene.request("PUT", "/v1/endpoints/ept_no", json={"url": DEST}).status == 404


def delete_endpoint_v1_endpoint(scene: Scene) -> None:
    endpoint_id = v1_endpoint(scene)
    assert scene.ok("DELETE", f"/v1/endpoints/{endpoint_id}").json() == {"status": "ok"}
    assert scene.get("/v1/topics/news")["endpoints"] == []
    assert scene.request("DELETE", f"/v1/endpoints/{endpoint_id}").status == 404
    assert scene.request("POST", "/v1/publish/news").status == 400


def list_topics_v1_endpoint(scene: Scene) -> None:
    v1_endpoint(scene)
    (only,) = scene.get("/v1/topics")
    assert only["topicId"].startswith("tpc_")
    assert [one["url"] for one in only["endpoints"]] == [DEST]


def create_topic_v1_endpoint(scene: Scene) -> None:
    created = scene.ok("POST", "/v1/topics", json={"name": "a.b-c_1"}).json()
    assert (created["name"], created["endpoints"]) == ("a.b-c_1", [])
    assert scene.request("POST", "/v1/topics", json={"name": "a.b-c_1"}).status == 400
    assert scene.request("POST", "/v1/topics", json={"name": "a/b"}).status == 400


def get_topic_v1_endpoint(scene: Scene) -> None:
    v1_endpoint(scene)
    shown = scene.get("/v1/topics/news")
    assert scene.get(f"/v1/topics/{shown['topicId']}") == shown
    assert scene.request("GET", "/v1/topics/unknown").status == 404


def rename_topic_v1_endpoint(scene: Scene) -> None:
    endpoint_id = v1_endpoint(scene)
    scene.ok("PUT", "/v1/topics/news", json={"name": "letters"})
    assert scene.get(f"/v1/endpoints/{endpoint_id}")["topicName"] == "letters"
    scene.ok("POST", "/v2/publish/letters")
    assert scene.request("GET", "/v1/topics/news").status == 404
    v1_endpoint(scene, name="other")
    taken = scene.request("PUT", "/v1/topics/other", json={"name": "letters"})
    assert taken.status == 400


def delete_topic_v1_endpoint(scene: Scene) -> None:
    v1_endpoint(scene)
    assert scene.ok("DELETE", "/v1/topics/news").json() == {"status": "ok"}
    assert scene.request("DELETE", "/v1/topics/news").status == 404


def get_message_v1_endpoint(scene: Scene) -> None:
    message_id = scene.publish(way="/v1/publish/")
    assert scene.get(f"/v1/messages/{message_id}")["url"] == DEST


def cancel_message_v1_endpoint(scene: Scene) -> None:
    v1_endpoint(scene)
    v1_endpoint(scene, DEST + "2")
    message_id = scene.ok("POST", "/v1/publish/news").json()["messageId"]
    cancelled = scene.ok("DELETE", f"/v1/messages/{message_id}")
    assert (cancelled.status, cancelled.json()) == (202, {"status": "accepted"})
    assert scene.queue.run_until_idle() == []
    assert scene.request("DELETE", f"/v1/messages/{message_id}").status == 404


def list_tasks_v1_endpoint(scene: Scene) -> None:
    scene.fail()
    message_id = scene.publish({"Upstash-Retries": "1"}, way="/v1/publish/")
    (task,) = scene.get(f"/v1/messages/{message_id}/tasks")
    assert (task["state"], task["retried"], task["maxRetry"]) == ("pending", 0, 1)
    scene.queue.deliver_due()
    (task,) = scene.get(f"/v1/messages/{message_id}/tasks")
    assert task["state"] == "retry"
    assert task["nextProcessAt"] == NOW_MS + 12_182
    assert (task["lastErrorAt"], task["error"]) == (NOW_MS, "destination answered 500")
    assert scene.request("GET", "/v1/messages/msg_no/tasks").status == 404


def get_task_v1_endpoint(scene: Scene) -> None:
    message_id = scene.publish(way="/v1/publish/")
    (task,) = scene.get(f"/v1/messages/{message_id}/tasks")
    scene.queue.deliver_due()
    shown = scene.get(f"/v1/tasks/{task['taskId']}")
    assert (shown["state"], shown["completedAt"]) == ("completed", NOW_MS)
    assert shown["messageId"] == message_id
    assert scene.request("GET", "/v1/tasks/task_no").status == 404
    assert scene.request("GET", f"/v1/tasks/{message_id}").status == 404


def get_keys_v1_endpoint(scene: Scene) -> None:
    assert scene.get("/v1/keys") == scene.get("/v2/keys")


def rotate_keys_v1_endpoint(scene: Scene) -> None:
    following = scene.get("/v1/keys")["next"]
    assert scene.get("/v1/keys/rotate")["current"] == following


def quota_v1_endpoint(scene: Scene) -> None:
    shown = scene.get("/v1/quota")
    assert (shown["maxTopics"], shown["maxEndpointsPerTopic"]) == (20, 100)
    with Scene(profile="free") as other:
        shown = other.get("/v1/quota")
        assert (shown["maxRetries"], shown["maxDelay"]) == (5, 604_800)
        assert (shown["maxMessageSize"], shown["retention"]) == (1_048_576, 259_200)


def list_schedules_v1_endpoint(scene: Scene) -> None:
    schedule(scene)
    assert scene.get("/v1/schedules") == scene.get("/v2/schedules")


def get_schedule_v1_endpoint(scene: Scene) -> None:
    schedule_id = schedule(scene)
    shown = scene.get(f"/v1/schedules/{schedule_id}")
    assert shown == scene.get(f"/v2/schedules/{schedule_id}")


ENDPOINTS: dict[str, Callable[[Scene], None]] = {
    name.removesuffix("_endpoint"): function
    for name, function in list(globals().items())
    if name.endswith("_endpoint") and callable(function) and name != "v1_endpoint"
}


@pytest.mark.parametrize("name", ENDPOINTS)
def test_an_endpoint_does_its_work(scene: Scene, name: str) -> None:
    ENDPOINTS[name](scene)


OWN = (QueueApp, V1Routes, AdministrationRoutes, FlowRoutes, HistoryRoutes)


def own_routes(queue: Queue) -> list[Any]:
    """Return the routes except those of workflow runs, which have their own tests."""
    return [
        route
        for route in queue._app.table.routes
        if isinstance(inspect.unwrap(route.endpoint).__self__, OWN)  # type: ignore[attr-defined]
    ]


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("api/llm", "https://qstash.upstash.io/llm/v1/chat/completions"),
        ("api/email", "https://api.resend.com/emails"),
    ],
)
@pytest.mark.parametrize("by", ["name", "url"])
@pytest.mark.parametrize("way", ["/v2/publish/", "/v2/enqueue/line/", "/v2/schedules/", "batch"])
def test_a_destination_that_has_a_name(
    scene: Scene, name: str, url: str, by: str, way: str
) -> None:
    stub = scene.queue.destinations.answers(name if by == "name" else url, 200)
    headers = {"Upstash-Callback": CALLBACK, "Upstash-Forward-X-Api-Key": "k"}
    if way == "batch":
        scene.ok("POST", "/v2/batch", json=[{"destination": name, "headers": headers}])
    else:
        cron = {"Upstash-Cron": "* * * * *"} if "schedules" in way else {}
        scene.ok("POST", way + name, headers=headers | cron)
    scene.queue.advance("1m")
    (came,) = stub.deliveries
    assert (came.url, came.headers.get("X-Api-Key")) == (url, "k")
    assert route_to(scene.queue.destinations, name) is stub
    assert scene.to(CALLBACK)[0].json()["url"] == url


def test_a_named_destination_without_a_handler() -> None:
    with Scene() as scene:
        scene.queue.destinations.clear()
        scene.publish({"Upstash-Retries": "0"}, url="api/email")
        (attempt,) = scene.queue.deliver_due()
        assert "https://api.resend.com/emails" in str(attempt.exception)
        refused = scene.request("POST", "/llm/v1/chat/completions", json={})
        assert refused.status == 502
        assert "no handler for POST https://qstash.upstash.io/llm" in refused.error
        assert [one.kind for one in scene.queue._context.problems] == ["unstubbed", "unstubbed"]
        unknown = scene.request("POST", "/v2/publish/api/fax")
        assert unknown.status == 400
        assert "endpoint has invalid scheme" in unknown.error
        assert "api/llm and api/email" in unknown.error


def test_a_stand_in_for_the_language_model_that_fails_its_test(scene: Scene) -> None:
    def fail(request: Any) -> None:
        pytest.fail("no such model")

    scene.queue.destinations.call("api/llm", fail)
    assert scene.request("POST", "/llm/v1/chat/completions", json={}).status == 500
    (problem,) = scene.queue._context.problems
    assert "no such model" in problem.text
    assert scene.get("/v2/keys")["current"]


def test_every_endpoint_has_a_row(scene: Scene) -> None:
    assert {route.name for route in own_routes(scene.queue)} == set(ENDPOINTS)


def test_every_endpoint_wants_the_token(scene: Scene) -> None:
    for route in own_routes(scene.queue):
        path = route.pattern.replace("{destination*}", DEST)
        for name in ("id", "name", "key", "queue"):
            path = path.replace("{" + name + "}", "x")
        for verb in route.allowed:
            response = scene.request(verb, path, token="wrong")
            assert (response.status, response.error) == (
                401,
                "unable to authenticate: invalid token",
            )
        verb = next(one for one in ("PUT", "PATCH", "GET", "OPTIONS") if one not in route.allowed)
        other = scene.request(verb, path)
        if other.status == 405:
            assert other.body == b"Method Not Allowed"
            assert other.headers["Content-Type"].startswith("text/plain")


def test_the_read_only_token_may_only_get(scene: Scene) -> None:
    message = scene.publish({"Upstash-Delay": "1h"})
    keys = scene.queue._engine.keys.current
    token = scene.queue.read_only_token
    shown = scene.request("GET", f"/v2/messages/{message}", token=token)
    assert (shown.status, shown.json()["messageId"]) == (200, message)
    changes = 0
    for route in scene.queue._app.table.routes:
        if "hooks" in route.pattern:
            continue
        path = route.pattern.replace("{destination*}", DEST)
        for name in ("id", "name", "key", "queue", "run", "event"):
            path = path.replace("{" + name + "}", message)
        for verb in route.allowed:
            response = scene.request(verb, path, token=token)
            if verb == "GET" and not path.endswith("/keys/rotate"):
                assert response.status in (200, 404)
                continue
            changes += 1
            assert response.status == 403
            assert response.error.startswith("forbidden: the read-only token can only GET")
            assert scene.request(verb, f"{path}?qstash_token={token}", token="").status == 403
    assert changes > 40
    assert scene.queue._engine.keys.current == keys
    assert [one.id for one in scene.queue.pending()] == [message]
    assert scene.request("PUT", "/v2/nowhere", token=token).status == 403
    old = scene.queue.token, token
    scene.queue.rotate_token()
    assert not {scene.queue.token, scene.queue.read_only_token} & set(old)
    assert [scene.request("GET", "/v2/keys", token=one).status for one in old] == [401, 401]


def test_the_token_may_be_in_the_query(scene: Scene) -> None:
    path = f"/v2/keys?qstash_token={scene.queue.token}"
    assert scene.request("GET", path, token="").status == 200


# -- filters ---------------------------------------------------------------------------------------

OTHER = "https://other.example.org:8443/path/x?q=1"


def fill(scene: Scene) -> dict[str, str]:
    """Fail two messages that differ in every property; return their ids."""
    scene.answer = lambda request: 404 if request.url == DEST else 500
    add = scene.ok
    add("POST", "/v2/topics/group-a/endpoints", json={"endpoints": [{"url": DEST}]})
    a = add(
        "POST",
        "/v2/enqueue/queue-a/group-a",
        headers={
            "Upstash-Label": "red,round",
            "Upstash-Retries": "0",
            "Upstash-Flow-Control-Key": "flow-a",
            "Upstash-Flow-Control-Value": "rate=9",
            "Upstash-Workflow-Init": "true",
            "Upstash-Workflow-RunId": "wfr_a",
            "Upstash-Workflow-Url": DEST,
        },
    ).json()[0]["messageId"]
    scene.queue.deliver_due()
    scene.queue.schedule(OTHER, "* * * * *", id="schedule-b", settings={"Upstash-Retries": "0"})
    scene.queue.advance("1m")
    scene.ok("DELETE", "/v2/schedules/schedule-b")
    b = scene.queue.messages(url=OTHER).only().id
    assert [one.message.id for one in scene.queue.dead_letters()] == [a, b]
    return {"a": a, "b": b}


# Filter -> (value that matches only the first message, value that matches only the second).
FILTERS: dict[str, tuple[str, str]] = {
    "messageId": ("{a}", "{b}"),
    "messageIds": ("{a}", "{b}"),
    "url": (DEST, OTHER),
    "topicName": ("group-a", ""),
    "urlGroup": ("group-a", ""),
    "queueName": ("queue-a", ""),
    "scheduleId": ("", "schedule-b"),
    "label": ("round", ""),
    "labels": ("red", ""),
    "flowControlKey": ("flow-a", ""),
    "callerIp": ("", ""),
    "callerIP": ("", ""),
    "workflowRunId": ("wfr_a", ""),
    "workflowUrl": (DEST, ""),
    "workflowCreatedAt": (str(NOW_MS), ""),
    "source": ("workflow", "qstash"),
    "failureFunctionState": ("", ""),
    "responseStatus": ("404", "500"),
    "dlqId": ("{dlq_a}", "{dlq_b}"),
    "dlqIds": ("{dlq_a}", "{dlq_b}"),
    "host": ("app.example.com", "other.example.org:8443"),
    "path": ("/hook", "/path/x"),
    "fromDate": ("", str(NOW_MS + 60_000)),
    "toDate": (str(NOW_MS + 59_999), ""),
    "state": ("", ""),
    "cursor": ("", ""),
    "count": ("", ""),
    "order": ("", ""),
}
# Filters with tests of their own, because they do not select one of the two messages.
ALONE = {"callerIp", "callerIP", "state", "cursor", "count", "order", "failureFunctionState"}


def cases(known: frozenset[str]) -> list[Any]:
    return [
        pytest.param(name, which, FILTERS[name][index], id=f"{name}-{which}")
        for name in sorted(known - ALONE)
        for index, which in enumerate("ab")
        if FILTERS[name][index]
    ]


def value_of(scene: Scene, ids: Mapping[str, str], template: str) -> str:
    letters = scene.queue.dead_letters()
    named = {**ids, "dlq_a": letters[0].id, "dlq_b": letters[1].id}
    return quote(template.format(**named), safe="")


@pytest.mark.parametrize(("name", "which", "template"), cases(filters.FOR_DEAD_LETTERS))
def test_a_filter_of_dead_letters(scene: Scene, name: str, which: str, template: str) -> None:
    ids = fill(scene)
    found = scene.get(f"/v2/dlq?{name}={value_of(scene, ids, template)}")["messages"]
    assert [one["messageId"] for one in found] == [ids[which]]
    deleted = scene.ok("DELETE", f"/v2/dlq?{name}={value_of(scene, ids, template)}")
    assert deleted.json() == {"deleted": 1}
    assert scene.queue.dead_letters().only().message.id != ids[which]


@pytest.mark.parametrize(("name", "which", "template"), cases(filters.FOR_LOGS))
def test_a_filter_of_logs(scene: Scene, name: str, which: str, template: str) -> None:
    ids = fill(scene)
    found = scene.get(f"/v2/events?{name}={value_of(scene, ids, template)}")["events"]
    assert {one["messageId"] for one in found} == {ids[which]}


@pytest.mark.parametrize(("name", "which", "template"), cases(filters.FOR_MESSAGES))
def test_a_filter_of_cancelling(scene: Scene, name: str, which: str, template: str) -> None:
    ids = fill(scene)
    value = value_of(scene, ids, template)
    # Make the two messages pending again.
    for dlq in scene.queue.dead_letters():
        scene.queue.faults.clear()
        if name in ("messageId", "messageIds", "fromDate", "toDate"):
            continue
        kept = dlq.message._record
        again = scene.queue.retry_dead_letter(dlq)
        if which == "a" and kept.public_id == ids["a"]:
            wanted = again.id
        if which == "b" and kept.public_id == ids["b"]:
            wanted = again.id
    if name in ("messageId", "messageIds"):
        pending = scene.publish()
        assert scene.ok("DELETE", f"/v2/messages?{name}={pending}").json() == {"cancelled": 1}
        assert scene.ok("DELETE", f"/v2/messages?{name}={value}").json() == {"cancelled": 0}
        return
    if name in ("fromDate", "toDate"):
        scene.publish({"Upstash-Delay": "1h"})
        date = NOW_MS + 60_000
        assert scene.ok("DELETE", f"/v2/messages?fromDate={date + 1}").json() == {"cancelled": 0}
        assert scene.ok("DELETE", f"/v2/messages?toDate={date - 1}").json() == {"cancelled": 0}
        query = f"fromDate={date}&toDate={date}"
        assert scene.ok("DELETE", f"/v2/messages?{query}").json() == {"cancelled": 1}
        return
    if name == "workflowCreatedAt":
        # A restarted run has a later creation time.
        value = str(record(scene, wanted)["workflowCreatedAt"])
    assert scene.ok("DELETE", f"/v2/messages?{name}={value}").json() == {"cancelled": 1}
    assert scene.queue.messages(state="cancelled").only().id == wanted


def test_every_filter_has_a_row() -> None:
    known = filters.FOR_DEAD_LETTERS | filters.FOR_LOGS | filters.FOR_MESSAGES
    assert set(FILTERS) == known


def test_a_filter_by_caller(scene: Scene) -> None:
    fill(scene)
    for name in ("callerIp", "callerIP"):
        assert len(scene.get(f"/v2/dlq?{name}=127.0.0.1")["messages"]) == 2
        assert scene.get(f"/v2/dlq?{name}=10.0.0.1")["messages"] == []
        assert scene.get(f"/v2/events?{name}=10.0.0.1")["events"] == []


def test_a_filter_by_state(scene: Scene) -> None:
    scene.fail(OTHER)
    delivered = scene.publish()
    failing = scene.publish(url=OTHER)
    cancelled = scene.publish({"Upstash-Delay": "1h"})
    scene.ok("DELETE", f"/v2/messages/{cancelled}")
    scene.queue.deliver_due()

    def ids(query: str) -> list[str]:
        return [row["messageId"] for row in scene.get(f"/v2/events?{query}")["events"]]

    assert ids(f"state=DELIVERED&messageId={delivered}") == [delivered]
    assert set(ids("state=IN_PROGRESS")) == {delivered, failing}
    assert ids("state=RETRY") == [failing]
    assert ids("state=RETRY,CANCEL_REQUESTED") == [failing, cancelled]
    scene.queue.advance("1h")
    assert ids("state=CANCELLED") == ids("state=CANCELED") == [cancelled]
    refused = scene.request("GET", "/v2/events?state=HAPPY")
    assert (refused.status, "HAPPY" in refused.error) == (400, True)


@pytest.mark.parametrize("path", ["/v2/events", "/v2/logs"])
def test_a_page_of_logs_holds_a_hundred_at_most(scene: Scene, path: str) -> None:
    scene.ok("POST", "/v2/batch", json=[{"destination": DEST}] * 250)
    for query in ("", "?count=1000", "?count=101"):
        first = scene.get(path + query)
        assert len(first["events"]) == 100
    sizes, seen, cursor = [], set(), ""
    while cursor is not None:
        page = scene.get(f"{path}?count=1000" + (f"&cursor={cursor}" if cursor else ""))
        sizes.append(len(page["events"]))
        seen |= {row["messageId"] for row in page["events"]}
        cursor = page.get("cursor")
    assert (sizes, len(seen)) == ([100, 100, 50], 250)


def test_orders_of_listings(scene: Scene) -> None:
    ids = fill(scene)

    def letters(query: str) -> list[str]:
        return [one["messageId"] for one in scene.get(f"/v2/dlq{query}")["messages"]]

    assert letters("") == letters("?order=earliestFirst") == [ids["a"], ids["b"]]
    assert letters("?order=latestFirst") == [ids["b"], ids["a"]]
    page = scene.get("/v2/dlq?order=latestFirst&count=1")
    rest = scene.get(f"/v2/dlq?order=latestFirst&cursor={page['cursor']}")
    assert [one["messageId"] for one in rest["messages"]] == [ids["a"]]
    newest = scene.get("/v2/events")["events"]
    oldest = scene.get("/v2/events?order=earliestFirst")["events"]
    assert newest == oldest[::-1]


def test_filters_combine(scene: Scene) -> None:
    ids = fill(scene)

    def found(query: str) -> list[str]:
        return [one["messageId"] for one in scene.get(f"/v2/dlq?{query}")["messages"]]

    assert found("responseStatus=404,500") == list(ids.values())
    assert found("responseStatus=404&responseStatus=500") == list(ids.values())
    assert found("responseStatus=404&label=red") == [ids["a"]]
    assert found("responseStatus=500&label=red") == []
    # A comma is part of a URL.
    comma = scene.publish({"Upstash-Retries": "0"}, url=DEST + "?a,b")
    scene.queue.deliver_due()
    assert found("url=" + quote(DEST + "?a,b", safe="")) == [comma]


# Filters that match neither of the two messages of ``fill()``.
OTHERS = "label=none&fromDate=1&toDate=2&responseStatus=418&url=https%3A%2F%2Fnone.example.com"


def test_ids_of_dead_letters_are_chosen_whatever_else_is_asked_for(scene: Scene) -> None:
    ids = fill(scene)
    first, second = (one.id for one in scene.queue.dead_letters())
    asked = f"/v2/dlq?dlqIds={second}&{OTHERS}"
    assert [one["messageId"] for one in scene.get(asked)["messages"]] == [ids["b"]]
    assert scene.ok("DELETE", asked).json() == {"deleted": 1}
    body = {"dlqIds": [first], "label": "none"}
    (retried,) = scene.ok("POST", "/v2/dlq/retry", json=body).json()["responses"]
    assert scene.queue.pending().only().id == retried["messageId"]
    # Ignored filters are still validated.
    assert scene.request("DELETE", f"/v2/dlq?dlqIds={first}&nonsense=1").status == 400


def test_ids_of_messages_are_chosen_whatever_else_is_asked_for(scene: Scene) -> None:
    kept, first, second = (scene.publish({"Upstash-Delay": "1h"}) for _ in range(3))
    others = "label=none&fromDate=1&toDate=2"
    rows = scene.get(f"/v2/events?messageIds={first}&state=FAILED&{others}")["events"]
    assert [(row["messageId"], row["state"]) for row in rows] == [(first, "CREATED")]
    answer = scene.ok("DELETE", f"/v2/messages?messageIds={first},{second}&count=1&{others}")
    assert answer.json() == {"cancelled": 1}
    body = {"messageIds": [first, second], "label": "none"}
    assert scene.ok("DELETE", "/v2/messages", json=body).json() == {"cancelled": 1}
    # A single ``messageId`` is combined with the other filters.
    body = {"messageId": kept, "label": "none"}
    assert scene.ok("DELETE", "/v2/messages", json=body).json() == {"cancelled": 0}


@pytest.mark.parametrize("template", ["%s", '"%s"', '["%s"]', ' "%s" \n', "%s\n"])
def test_an_id_by_itself_is_a_body_of_a_bulk_operation(scene: Scene, template: str) -> None:
    kept = scene.publish({"Upstash-Delay": "1h"})
    message = scene.publish({"Upstash-Delay": "1h"})
    cancelled = scene.ok("DELETE", "/v2/messages", body=(template % message).encode())
    assert cancelled.json() == {"cancelled": 1}
    assert [one.id for one in scene.queue.pending()] == [kept]
    first, second, last = dead_letter(scene), dead_letter(scene), dead_letter(scene)
    deleted = scene.ok("DELETE", "/v2/dlq", body=(template % first).encode())
    assert deleted.json() == {"deleted": 1}
    retried = scene.ok("POST", "/v2/dlq/retry", body=(template % second).encode())
    assert len(retried.json()["responses"]) == 1
    of_runs = scene.ok("DELETE", "/v2/workflows/dlq", body=(template % last).encode())
    assert of_runs.json() == {"deleted": 0}
    run = {"Upstash-Workflow-RunId": "wfr_1", "Upstash-Workflow-Init": "true"}
    scene.publish(run | {"Upstash-Delay": "1h"})
    ended = scene.ok("DELETE", "/v2/workflows/runs", body=(template % "wfr_1").encode())
    assert ended.json() == {"cancelled": 1}
    assert [one.id for one in scene.queue.dead_letters()] == [last]


@pytest.mark.parametrize("path", ["/v2/messages", "/v2/dlq", "/v2/workflows/runs"])
def test_a_body_without_an_id_never_means_all(scene: Scene, path: str) -> None:
    scene.publish({"Upstash-Workflow-RunId": "r", "Upstash-Workflow-Init": "true"})
    letter = dead_letter(scene)
    assert set(scene.ok("DELETE", path, body=b"[]").json().values()) == {0}
    for body in (
        *(b'""', b'[""]', b"[null]", b'"  "', b"null", b"true", b"17", b"1.5e", b"[{}]", b"[[1]]"),
        *(b'"', b"msg_a b", b"text", b'"text"', b"\xff", b'["msg_a", 1]'),
    ):
        assert scene.request("DELETE", path, body=body).status == 400
    assert [one.id for one in scene.queue.dead_letters()] == [letter]
    assert scene.get("/v2/workflows/events")["runs"][0]["workflowState"] == "RUN_STARTED"


def test_the_segment_of_schedules_in_either_case(scene: Scene) -> None:
    sent = {"Upstash-Cron": "* * * * *", "Upstash-Schedule-Id": "s"}
    scene.ok("POST", f"/v2/Schedules/{DEST}", headers=sent)
    for base in ("/v2/schedules", "/v2/Schedules"):
        assert scene.get(f"{base}/s") == scene.get(base)[0]
        scene.ok("PATCH", f"{base}/s/pause")
        scene.ok("POST", f"{base}/s/resume")
    scene.ok("DELETE", "/v2/Schedules/s")
    assert scene.get("/v2/schedules") == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/v2/dlq?colour=red", "unknown filter 'colour'"),
        ("/v2/dlq?host=app.example.com", "unknown filter 'host'"),
        ("/v2/dlq?path=/hook", "unknown filter 'path'"),
        ("/v2/dlq?count=0", "invalid count"),
        ("/v2/dlq?count=many", "invalid count"),
        ("/v2/dlq?fromDate=yesterday", "invalid fromDate"),
        ("/v2/dlq?toDate=-1", "invalid toDate"),
        ("/v2/dlq?responseStatus=ok", "invalid responseStatus"),
        ("/v2/dlq?order=random", "invalid order"),
        ("/v2/dlq?cursor=%21%21", "invalid cursor"),
        ("/v2/events?colour=red", "unknown filter 'colour'"),
        ("/v2/events?count=-1", "invalid count"),
        ("/v2/logs?order=up", "invalid order"),
        (
            "/v2/logs?state=SENT",
            "invalid state: 'SENT', expected one of CREATED, ACTIVE, RETRY, ERROR, DELIVERED,"
            " FAILED, CANCEL_REQUESTED, CANCELED, IN_PROGRESS",
        ),
    ],
)
def test_a_malformed_filter_is_refused(scene: Scene, path: str, text: str) -> None:
    response = scene.request("GET", path)
    assert response.status == 400
    assert text in response.error


@pytest.mark.parametrize("path", ["/v2/dlq", "/v2/messages"])
def test_a_bulk_deletion_with_an_unknown_filter_deletes_nothing(scene: Scene, path: str) -> None:
    fill(scene)
    scene.publish({"Upstash-Delay": "1h"})
    for response in (
        scene.request("DELETE", f"{path}?colour=red"),
        scene.request("DELETE", path, json={"colour": "red"}),
        scene.request("DELETE", path, json={"label": {"a": 1}}),
        scene.request("DELETE", path, json=["label"]),
    ):
        assert isinstance(response, Response)
        assert response.status == 400
    assert len(scene.queue.dead_letters()) == 2
    assert len(scene.queue.pending()) == 1


def test_a_date_is_inclusive_on_both_ends(scene: Scene) -> None:
    scene.fail()
    scene.publish({"Upstash-Retries": "0"})
    scene.queue.deliver_due()
    at = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
    assert len(scene.get(f"/v2/dlq?fromDate={at}&toDate={at}")["messages"]) == 1
    assert scene.get(f"/v2/dlq?fromDate={at + 1}")["messages"] == []
    assert scene.get(f"/v2/dlq?toDate={at - 1}")["messages"] == []
