"""Test callbacks and failure callbacks: fields, order and inherited settings."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_fakecloud.queue.delivery.routes import Response

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
        spellings = {name for name in scene.to(CALLBACK)[0].json() if name.startswith("sourceMess")}
        assert spellings == names


@pytest.mark.parametrize(("setting", "status"), [(0, 0), (599, 599)])
def test_the_status_when_nobody_answered(setting: int, status: int) -> None:
    with Scene(no_answer_status=setting) as scene:
        scene.answer = lambda request: Response.refuse() if request.url == DEST else 200
        scene.publish({**BOTH, "Upstash-Retries": "0"})
        scene.queue.run_until_idle()
        body = scene.to(FAILURE)[0].json()
        assert body["status"] == status
        assert b"refuse" in decoded(body["body"])
        (letter,) = scene.get("/v2/dlq")["messages"]
        assert letter["responseStatus"] == status


def test_a_callback_that_fails_out_is_a_dead_letter(scene: Scene) -> None:
    scene.fail(CALLBACK)
    message_id = scene.publish({"Upstash-Callback": CALLBACK, "Upstash-Callback-Retries": "0"})
    scene.queue.run_until_idle()
    letter = scene.queue.dead_letters().only()
    assert (letter.url, letter.message.kind) == (CALLBACK, "callback")
    assert letter.message.source is not None
    assert letter.message.source.id == message_id
    assert scene.queue.message(message_id).state == "delivered"


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
