"""Test callbacks and failure callbacks: fields, order and inherited settings."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_fakecloud.queue.delivery.replies import Reply

from ..scene import CALLBACK, DEST, FAILURE, NOW_MS, Scene, decoded

BOTH = {"Upstash-Callback": CALLBACK, "Upstash-Failure-Callback": FAILURE}


def test_every_field_of_a_callback(scene: Scene) -> None:
    scene.answer = lambda request: (
        (404, b"not \xff there", [("x-many", "1"), ("X-Many", "2"), ("Content-Type", "text/x")])
        if request.url == DEST
        else 200
    )
    sent = {
        **BOTH,
        "Upstash-Retries": "0",
        "Upstash-Method": "PUT",
        "Upstash-Delay": "5s",
        "Upstash-Forward-X-A": "1",
        "Content-Type": "application/json",
    }
    message_id = scene.publish(sent, b"\x00payload")
    scene.queue.run_until_idle()
    (callback,) = scene.to(CALLBACK)
    (failure,) = scene.to(FAILURE)
    common = {
        "status": 404,
        "header": {"X-Many": ["1", "2"], "Content-Type": ["text/x"]},
        "retried": 0,
        "maxRetries": 0,
        "sourceMessageId": message_id,
        "sourceMessasgeId": message_id,
        "url": DEST,
        "method": "PUT",
        "sourceHeader": {"X-A": ["1"], "Content-Type": ["application/json"]},
        "notBefore": str(NOW_MS + 5000),
        "createdAt": str(NOW_MS),
        "callerIP": "127.0.0.1",
    }
    dlq_id = scene.queue.dead_letters().only().id
    for request, more in ((callback, {}), (failure, {"dlqId": dlq_id})):
        body = request.json()
        assert decoded(body.pop("body")) == b"not \xff there"
        assert decoded(body.pop("sourceBody")) == b"\x00payload"
        assert body == common | more
        assert request.method == "POST"
        assert request.headers.get("Content-Type") == "application/json"
        assert request.headers.get("Upstash-Message-Id") not in (None, message_id)
        assert request.headers.get("Upstash-Retried") == "0"
        assert request.headers.get("Upstash-Signature")
        assert request.headers.get("X-A") is None
    assert callback.message_id != failure.message_id


def test_fields_of_groups_and_schedules(scene: Scene) -> None:
    named = {"endpoints": [{"url": DEST, "name": "main"}]}
    scene.ok("POST", "/v2/topics/news/endpoints", json=named)
    sent = {"Upstash-Callback": CALLBACK, "Upstash-Cron": "* * * * *"}
    sent["Upstash-Schedule-Id"] = "each-minute"
    scene.ok("POST", "/v2/schedules/news", headers=sent)
    scene.queue.advance("1m")
    body = scene.to(CALLBACK)[0].json()
    assert (body["topicName"], body["endpointName"]) == ("news", "main")
    assert body["scheduleId"] == "each-minute"


@pytest.mark.parametrize(
    ("source_id", "names"),
    [
        ("both", {"sourceMessageId", "sourceMessasgeId"}),
        ("service", {"sourceMessageId"}),
        ("specification", {"sourceMessasgeId"}),
    ],
)
def test_the_spelling_of_the_source_id(source_id: Any, names: set[str]) -> None:
    with Scene(source_id=source_id) as scene:
        scene.publish({"Upstash-Callback": CALLBACK})
        scene.queue.run_until_idle()
        found = {name for name in scene.to(CALLBACK)[0].json() if name.startswith("sourceMess")}
        assert found == names


@pytest.mark.parametrize(("setting", "status"), [(0, 0), (599, 599)])
def test_the_status_when_nobody_answered(setting: int, status: int) -> None:
    with Scene(no_answer_status=setting) as scene:
        scene.answer = lambda request: Reply.refuse() if request.url == DEST else 200
        scene.publish({**BOTH, "Upstash-Retries": "0"})
        scene.queue.run_until_idle()
        body = scene.to(FAILURE)[0].json()
        assert body["status"] == status
        assert b"refuse" in decoded(body["body"])
        (letter,) = scene.get("/v2/dlq")["messages"]
        assert letter["responseStatus"] == status


@pytest.mark.parametrize("inherited", ["inherit", 1])
def test_retries_of_a_callback(inherited: Any) -> None:
    with Scene(callback_retries=inherited) as scene:
        scene.fail(CALLBACK)
        scene.publish({"Upstash-Callback": CALLBACK, "Upstash-Retries": "2"})
        scene.queue.run_until_idle()
        assert len(scene.to(CALLBACK)) == (3 if inherited == "inherit" else 2)
        own = {"Upstash-Callback": CALLBACK, "Upstash-Callback-Retries": "0"}
        scene.came.clear()
        scene.publish(own)
        scene.queue.run_until_idle()
        assert len(scene.to(CALLBACK)) == 1


def test_a_callback_that_fails_out_is_a_dead_letter(scene: Scene) -> None:
    scene.fail(CALLBACK)
    message_id = scene.publish({"Upstash-Callback": CALLBACK, "Upstash-Callback-Retries": "0"})
    scene.queue.run_until_idle()
    letter = scene.queue.dead_letters().only()
    assert (letter.url, letter.message.kind) == (CALLBACK, "callback")
    assert letter.message.source is not None
    assert letter.message.source.id == message_id
    assert scene.queue.message(message_id).state == "delivered"


def test_settings_nest_further_and_end(scene: Scene) -> None:
    scene.fail(DEST, CALLBACK)
    prefix = "Upstash-Failure-Callback"
    scene.publish(
        {
            "Upstash-Retries": "0",
            prefix: CALLBACK,
            f"{prefix}-Retries": "0",
            f"{prefix}-Failure-Callback": FAILURE,
            f"{prefix}-Failure-Callback-Method": "PATCH",
            f"{prefix}-Failure-Callback-Forward-X-Deep": "yes",
        }
    )
    scene.queue.run_until_idle()
    (deep,) = scene.to(FAILURE)
    assert (deep.method, deep.headers.get("X-Deep")) == ("PATCH", "yes")
    assert decoded(deep.json()["sourceBody"])[:10] == b'{"status":'
    name = "Upstash-" + "Callback-" * 900 + "Retries"
    refused = scene.request("POST", f"/v2/publish/{DEST}", {name: "1"})
    assert (refused.status, "nested deeper" in refused.error) == (400, True)


def test_a_long_answer_is_cut() -> None:
    with Scene(limits={"message_size": 1000}) as scene:
        scene.answer = lambda request: (200, b"x" * 5000) if request.url == DEST else 200
        scene.publish({"Upstash-Callback": CALLBACK})
        scene.queue.run_until_idle()
        assert decoded(scene.to(CALLBACK)[0].json()["body"]) == b"x" * 1000
        assert scene.request("POST", f"/v2/publish/{DEST}", {}, b"x" * 1001).status == 413


def test_callbacks_of_every_endpoint_of_a_group(scene: Scene) -> None:
    scene.ok(
        "POST",
        "/v2/topics/news/endpoints",
        json={"endpoints": [{"url": DEST}, {"url": DEST + "2"}]},
    )
    scene.fail(DEST)
    scene.ok("POST", "/v2/publish/news", headers={**BOTH, "Upstash-Retries": "0"})
    scene.queue.run_until_idle()
    assert sorted(one.json()["url"] for one in scene.to(CALLBACK)) == [DEST, DEST + "2"]
    assert [one.json()["url"] for one in scene.to(FAILURE)] == [DEST]


def test_header_values_beyond_latin_1(scene: Scene) -> None:
    item = {
        "destination": DEST,
        "headers": {"Upstash-Forward-X-Name": "Łódź", "Upstash-Callback": CALLBACK},
        "body": "grüße",
    }
    (answer,) = scene.ok("POST", "/v2/batch", json=[item]).json()
    shown = scene.get(f"/v2/messages/{answer['messageId']}")
    assert shown["header"] == {"X-Name": ["Łódź"]}
    scene.queue.run_until_idle()
    assert scene.to(DEST)[0].headers.get("X-Name") == "Łódź".encode().decode("latin-1")
    assert scene.to(CALLBACK)[0].json()["sourceHeader"] == {"X-Name": ["Łódź"]}


@pytest.mark.parametrize("other", ["q", "r"])
def test_a_callback_in_a_queue_holds_up_no_other(scene: Scene, other: str) -> None:
    there = {"Upstash-Callback": CALLBACK, "Upstash-Callback-Queue-Name": other}
    back = {"Upstash-Callback": CALLBACK, "Upstash-Callback-Queue-Name": "q"}
    scene.publish(there, way="/v2/enqueue/q/")
    scene.publish(back, way=f"/v2/enqueue/{other}/")
    scene.publish(way="/v2/enqueue/q/")
    scene.queue.run_until_idle()
    assert (len(scene.to(DEST)), len(scene.to(CALLBACK))) == (3, 2)
    assert {one["name"]: one["lag"] for one in scene.get("/v2/queues")} == {"q": 0, other: 0}


def test_a_callback_in_a_paused_queue_holds_up_no_other(scene: Scene) -> None:
    scene.ok("POST", "/v2/queues", json={"queueName": "r", "paused": True})
    headers = {"Upstash-Callback": CALLBACK, "Upstash-Callback-Queue-Name": "r"}
    for _ in range(2):
        scene.publish(headers, way="/v2/enqueue/q/")
    scene.queue.advance("1m")
    assert (len(scene.to(DEST)), len(scene.to(CALLBACK))) == (2, 0)
    scene.ok("POST", "/v2/queues/r/resume")
    scene.queue.run_until_idle()
    assert len(scene.to(CALLBACK)) == 2
