"""Test every header, endpoint and filter with one table: effects, refusals and nested forms.

The tests ``test_every_…_has_a_row`` compare the table with the code, so an addition to the API
needs a row here, or a scenario in ``tests/queue/scenarios/endpoints.txt``.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest

from pytest_fakecloud.queue.delivery.destinations import route_to
from pytest_fakecloud.queue.delivery.replies import Reply
from pytest_fakecloud.queue.handle import Queue
from pytest_fakecloud.queue.rest.admin import AdministrationRoutes, FlowRoutes
from pytest_fakecloud.queue.rest.dead_letters import HistoryRoutes
from pytest_fakecloud.queue.rest.routes import QueueApp
from pytest_fakecloud.queue.rest.v1 import V1Routes
from pytest_fakecloud.queue.wire import filters, headers

from ..scenarios import scenarios
from ..scene import CALLBACK, DEST, FAILURE, NOW_MS, Scene, decoded

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
    again = scene.request("POST", f"/v2/publish/{DEST}", scene.last_headers, b"hello")
    assert again.status == 202
    assert again.json() == {"messageId": message_id, "url": DEST, "deduplicated": True}
    scene.queue.run_until_idle()
    assert len(scene.came) == 1
    scene.queue.advance("10m")
    later = scene.request("POST", f"/v2/publish/{DEST}", scene.last_headers, b"hello")
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
    scene.publish(scene.last_headers)
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
    scene.last_headers = sent = {**row.headers, **spelled(row.settings, prefix)}
    answer = scene.ok("POST", f"/v2/publish/{DEST}", headers=sent, body=b"hello").json()
    row.effect(scene, answer["scheduleId" if row.scheduled else "messageId"])


@pytest.mark.parametrize("row", [row for row in HEADERS if row.settings], ids=str)
def test_a_header_may_be_a_query_key(scene: Scene, row: Header) -> None:
    row.before(scene)
    query = "&".join(
        f"upstash-{name.lower()}={quote(value)}" for name, value in row.settings.items()
    )
    answer = scene.ok("POST", f"/v2/publish/{DEST}?{query}", headers=row.headers, body=b"hello")
    scene.last_headers = {**row.headers, **spelled(row.settings, "Upstash")}
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


def test_get_keys(scene: Scene) -> None:
    keys = scene.get("/v2/keys")
    assert keys == {
        "current": scene.queue.current_signing_key,
        "next": scene.queue.next_signing_key,
    }
    assert keys["current"].startswith("sig_")


def test_rotate_keys(scene: Scene) -> None:
    before = scene.get("/v2/keys")
    rotated = scene.ok("POST", "/v2/keys/rotate").json()
    assert rotated["current"] == before["next"]
    assert rotated["next"] not in before.values()
    assert scene.get("/v2/keys/rotate")["current"] == rotated["next"]


def with_flow(scene: Scene, value: str, count: int = 1, key: str = "k") -> list[str]:
    sent = {"Upstash-Flow-Control-Key": key, "Upstash-Flow-Control-Value": value}
    return [scene.publish(sent) for _ in range(count)]


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


def test_chat(scene: Scene) -> None:
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


ENDPOINTS = {"get_keys", "rotate_keys", "chat"}
"""Endpoints with tests above, because they compare more than responses."""


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


def test_a_v1_message_to_a_topic_is_found_by_its_id(scene: Scene) -> None:
    add_group(scene)
    message_id = scene.ok("POST", "/v1/publish/news").json()["messageId"]
    assert scene.queue.message(message_id).url == DEST


def test_every_endpoint_has_a_row(scene: Scene) -> None:
    rows = {name.partition(":")[0] for name in scenarios("endpoints")}
    assert {route.name for route in own_routes(scene.queue)} == ENDPOINTS | rows


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
