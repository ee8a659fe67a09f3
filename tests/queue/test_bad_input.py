"""Test invalid and unusual requests: correct errors, never a 500, a hang or a stored message."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
import werkzeug
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_fakecloud.queue.delivery.routes import DeliveredRequest
from pytest_fakecloud.queue.errors import QueueError
from pytest_fakecloud.queue.wire.values import as_wire

from ..robustness.grammar import MALFORMED
from .scene import DEST, Scene


@pytest.mark.parametrize("url", ["http://\u2100/", "http://a.\u2100.example.com:80/x"])
def test_a_host_that_only_its_text_gives_away_is_refused_everywhere(scene: Scene, url: str) -> None:
    text = "contains invalid characters under NFKC normalization"
    item = {"destination": url}
    (answer,) = scene.ok("POST", "/v2/batch", json=[item]).json()
    assert answer["status"] == 400
    assert answer["error"].startswith("invalid destination url: netloc '")
    assert text in answer["error"]
    endpoints = {"endpoints": [{"url": url}]}
    refused = scene.request("POST", "/v2/topics/news/endpoints", json=endpoints)
    assert (refused.status, text in refused.error) == (400, True)
    with pytest.raises(QueueError, match="invalid destination url"):
        scene.queue.publish(url)
    with pytest.raises(QueueError, match="invalid callback url"):
        scene.queue.publish(DEST, callback=url)
    with pytest.raises(QueueError, match="invalid destination url"):
        scene.queue.schedule(url, "* * * * *")
    assert scene.queue.messages() == []


def test_text_in_json_is_utf8_on_the_wire(scene: Scene) -> None:
    for text in ("é", "日本", "Ã©"):
        url = f"{DEST}/{text}"
        item = {"destination": url, "headers": {"Upstash-Forward-X": text}}
        (answer,) = scene.ok("POST", "/v2/batch", json=[item]).json()
        assert answer["url"] == scene.queue.message(answer["messageId"]).url == url
        scene.queue.deliver_due()
        assert scene.came[-1].delivery.url.encode("latin-1") == url.encode()
        assert (scene.came[-1].headers.get("X") or "").encode("latin-1") == text.encode()


def test_labels_and_flow_control_keys_beyond_ascii(scene: Scene) -> None:
    headers = {"Upstash-Label": "日本, é", "Upstash-Flow-Control-Key": "ключ"}
    item = {"destination": DEST, "headers": headers}
    scene.ok("POST", "/v2/batch", json=[item])
    pairs = [(name, value.encode().decode("latin-1")) for name, value in headers.items()]
    scene.ok("POST", f"/v2/publish/{DEST}", headers=pairs)
    for message in scene.queue.messages():
        shown = scene.get(f"/v2/messages/{message.id}")
        assert (shown["labels"], shown["flowControlKey"]) == (["日本", "é"], "ключ")
    key = quote("ключ")
    assert scene.get(f"/v2/flowControl/{key}")["flowControlKey"] == "ключ"
    assert len(scene.get(f"/v2/flowControl?search={key}")) == 1
    assert len(scene.get(f"/v2/events?label={quote('日本')}&flowControlKey={key}")["events"]) == 2


class Gaps:
    """A lock that calls a function the first time it is released."""

    def __init__(self, lock: Any, meanwhile: Callable[[], object]) -> None:
        self.lock, self.meanwhile, self.depth = lock, meanwhile, 0

    def __enter__(self) -> None:
        self.lock.acquire()
        self.depth += 1

    def __exit__(self, *error: object) -> None:
        self.depth -= 1
        self.lock.release()
        if self.depth == 0:
            meanwhile, self.meanwhile = self.meanwhile, int
            meanwhile()


@pytest.mark.parametrize("path", ["/v2/schedules", "/v1/schedules", "/v2/queues", "/v2/dlq"])
def test_a_listing_is_of_one_instant(scene: Scene, path: str) -> None:
    scene.fail()
    for name in "ab":
        scene.ok("POST", "/v2/queues", json={"queueName": name})
        headers = {"Upstash-Cron": "0 0 1 1 *", "Upstash-Schedule-Id": name}
        scene.ok("POST", f"/v2/schedules/{DEST}", headers=headers)
        scene.publish({"Upstash-Retries": "0"})
    scene.queue.deliver_due()
    engine = scene.queue._engine

    def others() -> None:
        engine.schedules.delete("b")
        engine.lifecycle.delete_queue("b")
        engine.dead_letters.by_id.popitem()

    engine.lock = Gaps(engine.lock, others)  # type: ignore[assignment]
    listed = scene.get(path)
    assert len(listed["messages"] if path == "/v2/dlq" else listed) == 2


def test_the_journal_knows_the_labels_under_either_prefix(scene: Scene) -> None:
    for headers, query in (
        ({"Service-Label": "red"}, ""),
        ({}, "?upstash-label=red"),
        ({"upstash-label": "red"}, ""),
    ):
        scene.publish(headers, url=DEST + query)
        assert scene.queue.journal.calls().last.facts["label"] == ["red"]
    scene.publish({"Upstash-Label": "red, blue"})
    scene.queue.assert_called("publish", label="blue", times=1)
    with scene.queue.faults.respond(503, route="publish", label="blue", times=1):
        answer = scene.request("POST", f"/v2/publish/{DEST}", {"Upstash-Label": "red,blue"})
    assert answer.status == 503


def test_a_body_of_60_megabytes(scene: Scene) -> None:
    response = scene.request("POST", f"/v2/publish/{DEST}", {}, bytes(60_000_000))
    assert response.status == 413
    assert response.error == "quota maxMessageSize exceeded, current limit: 52428800"
    assert scene.queue.messages() == []
    big = bytes(40_000_000)
    scene.publish(body=big)
    scene.queue.deliver_due()
    assert scene.came[0].body == big


@pytest.mark.slow
def test_a_batch_larger_than_any_message(scene: Scene) -> None:
    item = {"destination": DEST, "body": "x" * 14_000_000}
    answered = scene.request("POST", "/v2/batch", {}, json.dumps([item] * 5).encode())
    assert answered.status == 200
    assert len(scene.queue.messages()) == 5
    refused = scene.request("POST", "/v2/batch", {}, bytes(105_000_000))
    assert (refused.status, refused.error) == (
        413, "quota maxBatchSize exceeded, current limit: 104857600",
    )  # fmt: skip


def test_a_message_to_the_queue_itself_is_a_message_like_any_other(scene: Scene) -> None:
    # The destination is the queue's own publish endpoint, which rejects requests without a token.
    own = f"{scene.queue.url}/v2/publish/{DEST}"
    scene.queue.destinations.clear()
    scene.queue.destinations.accept(DEST)
    scene.publish({"Upstash-Retries": "0"}, url=own)
    scene.queue.run_until_idle()
    assert scene.queue.attempts(url=own).only().status == 401
    scene.queue.assert_dead_lettered(own, times=1)
    token = {"Upstash-Forward-Authorization": f"Bearer {scene.queue.token}"}
    scene.publish(token, url=own)
    scene.queue.run_until_idle()
    scene.queue.assert_delivered(own, times=1)
    scene.queue.assert_delivered(DEST, times=1)


def test_bodies_that_are_no_json(scene: Scene) -> None:
    # An empty body and an empty object are valid for some endpoints.
    malformed = [body for body in MALFORMED.values() if body and not body.endswith(b"{}")]
    for method, path in (
        ("POST", "/v2/batch"),
        ("POST", "/v2/queues"),
        ("POST", "/v2/topics/a/endpoints"),
        ("DELETE", "/v2/topics/a/endpoints"),
        ("PATCH", "/v2/topics/a"),
        ("DELETE", "/v2/messages"),
        ("DELETE", "/v2/dlq"),
        ("POST", "/v2/dlq/retry"),
        ("POST", "/v1/endpoints"),
        ("POST", "/v1/topics"),
    ):
        for body in (*malformed, b'"text"', b"[1]"):
            response = scene.request(method, path, {}, body)
            if path == "/v2/batch" and response.status == 200:
                assert all("error" in answer for answer in response.json())
            else:
                assert response.status == 400, (method, path, body[:10])
                assert response.error


def test_a_response_has_the_rest_of_the_daily_limit() -> None:
    with Scene(limits={"daily_messages": 3}) as scene:
        response = scene.ok("POST", f"/v2/publish/{DEST}")
        assert response.headers["RateLimit-Remaining"] == "2"


NAMES = (
    "Method Delay Not-Before Retries Retry-Delay Timeout Callback Failure-Callback Cron Label",
    "Schedule-Id Queue-Name Deduplication-Id Content-Based-Deduplication Flow-Control-Key",
    "Flow-Control-Value Redact-Fields Callback-Retries Callback-Delay Header-Forward Forward-X",
    "Failure-Callback-Callback Workflow-RunId Workflow-Init Feature-Set",
)
names = st.sampled_from([name for line in NAMES for name in line.split()])
values = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["1", "true", "5s", DEST, "rate=1", "* * * * *", "body", "PUT", "0"]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.one_of(st.text(max_size=20), st.just(DEST)),
    st.dictionaries(names, values, max_size=4),
    st.one_of(st.none(), st.text(max_size=10)),
)
def test_any_batch_item_is_a_message_or_an_error(
    scene: Scene, destination: str, headers: dict[str, str], body: str | None
) -> None:
    sent = {f"Upstash-{name}": value for name, value in headers.items()}
    item = {"destination": destination, "headers": sent, "body": body}
    response = scene.request("POST", "/v2/batch", body=json.dumps([item]).encode())
    assert response.status == 200
    (answer,) = response.json()
    if "error" in answer:
        # A destination that is no URL is the name of a URL group, and there is none.
        assert answer["status"] in (400, 404, 412)
    else:
        assert set(answer) & {"messageId", "scheduleId"}
    assert {violation.kind for violation in scene.violations} <= {"rejected_step"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Upstash-Delay", "grün€"),
        ("Upstash-Retries", "grün€"),
        ("Upstash-Content-Based-Deduplication", "grün€"),
        ("Upstash-Method", "grün€"),
        ("Upstash-Timeout", "grün€"),
        ("Upstash-Not-Before", "grün€"),
        ("Upstash-Retry-Delay", "grün€"),
        ("Upstash-Cron", "grün€"),
        ("Upstash-Cron", "CRON_TZ=grün€ * * * * *"),
        ("Upstash-Queue-Name", "grün€"),
        ("Upstash-Schedule-Id", "grün€"),
        ("Upstash-Redact-Fields", "grün€"),
        ("Upstash-Callback", "https://app.example.com:grün€/"),
        ("Upstash-Failure-Callback-Delay", "grün€"),
        ("Upstash-Workflow-RunId", "grün€"),
    ],
)
def test_quoted_values_in_errors_are_readable(scene: Scene, name: str, value: str) -> None:
    response = scene.request("POST", f"/v2/publish/{DEST}", {name: as_wire(value)})
    assert response.status == 400
    assert "grün€" in response.error


def test_an_error_about_flow_control_is_readable(scene: Scene) -> None:
    for value in ("grün€", "period=grün€", "rate=grün€"):
        sent = {"Upstash-Flow-Control-Key": "k", "Upstash-Flow-Control-Value": as_wire(value)}
        assert "grün€" in scene.request("POST", f"/v2/publish/{DEST}", sent).error


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "/v2/messages/"),
        ("DELETE", "/v2/dlq/"),
        ("POST", "/v2/dlq/retry/"),
        ("DELETE", "/v2/workflows/runs/"),
        ("DELETE", "/v2/workflows/dlq/"),
        ("POST", "/v2/workflows/dlq/resume/"),
        ("POST", "/v2/workflows/dlq/restart/"),
    ],
)
def test_an_empty_id_never_means_all(scene: Scene, method: str, path: str) -> None:
    def start(run: str) -> None:
        scene.publish({"Upstash-Workflow-RunId": run, "Upstash-Workflow-Init": "true"})

    scene.fail()
    scene.publish({"Upstash-Retries": "0"})
    start("failed")
    scene.queue.run_until_idle()
    scene.publish({"Upstash-Delay": "1h"})
    start("live")
    before = [(message.id, message.state) for message in scene.queue.messages()]
    letters = [letter.id for letter in scene.queue.dead_letters()]
    assert len(letters) == 2
    for query in ("", "?count=5"):
        response = scene.request(method, path + query)
        assert response.status == 404
        assert "with an empty id not found" in response.error
    assert [(message.id, message.state) for message in scene.queue.messages()] == before
    assert [letter.id for letter in scene.queue.dead_letters()] == letters
    # Without the slash, the path is the bulk operation.
    scene.ok(method, path.rstrip("/"))
    assert [
        (message.id, message.state) for message in scene.queue.messages()
    ] != before or letters != [letter.id for letter in scene.queue.dead_letters()]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    host=st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=6),
    rest=st.sampled_from(["", "/", ":80/", ":/x", ".localhost/", "]/", "?x", "#y", ".:1/"]),
)
def test_a_destination_is_refused_or_can_be_read_by_everybody(host: str, rest: str) -> None:
    """An accepted URL raises no error later, in a route, an application, a handler or a listing."""
    url = f"http://{host}{rest}"
    with Scene() as scene:

        def handler(request: DeliveredRequest) -> str:
            return f"{request.url} {request.path} {request.query}"

        def application(environ: Any, start_response: Any) -> list[bytes]:
            start_response("200 OK", [])
            return [werkzeug.Request(environ).url.encode()]

        for way in ("call", "wsgi", "nobody", "callback"):
            scene.queue.destinations.clear()
            headers = {"Upstash-Retries": "0"}
            if way == "callback":
                headers["Upstash-Callback"] = url
            item = {"destination": DEST if way == "callback" else url, "headers": headers}
            (answer,) = scene.ok("POST", "/v2/batch", json=[item]).json()
            if "error" in answer:
                assert answer["status"] == 400
                continue
            if way == "wsgi":
                scene.queue.destinations.wsgi(url, application)
            elif way != "nobody":
                scene.queue.destinations.call("*", handler)
            attempts = scene.queue.run_until_idle()
            assert attempts
            for attempt in attempts:
                assert attempt.status == 200 or way == "nobody", attempt.exception
                assert not isinstance(attempt.exception, ValueError)
            scene.get("/v2/events")
            scene.get(f"/v2/messages/{answer['messageId']}")
            assert str(scene.queue.messages()[-1].timeline)
        assert {violation.kind for violation in scene.violations} <= {"unstubbed"}
