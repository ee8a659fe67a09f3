"""Test dead letters: retention, settings of a retry, records and filters."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from pytest_fakecloud.queue.model import Outcome, WorkflowPart
from pytest_fakecloud.queue.wire.filters import Filters

from ..scene import CALLBACK, FAILURE, Scene
from .bench import URL, Bench


@pytest.fixture
def scene(scene: Scene) -> Scene:
    scene.fail()
    return scene


def dead(scene: Scene, headers: dict[str, str] | None = None, body: bytes = b"payload") -> str:
    scene.publish({"Upstash-Retries": "0", **(headers or {})}, body)
    scene.queue.run_until_idle()
    return scene.queue.dead_letters()[-1].id


@pytest.mark.parametrize(
    ("settings", "days"),
    [({}, 7), ({"profile": "free"}, 3), ({"profile": "payg"}, 7), ({"dlq_retention": "30d"}, 30)],
)
def test_retention(settings: Any, days: int) -> None:
    with Scene(**settings) as scene:
        scene.fail()
        dlq_id = dead(scene)
        scene.queue.advance(days * 86_400 - 1)
        assert scene.request("GET", f"/v2/dlq/{dlq_id}").status == 200
        scene.queue.advance(1)
        assert scene.request("GET", f"/v2/dlq/{dlq_id}").status == 404
        assert scene.request("POST", f"/v2/dlq/retry/{dlq_id}").status == 404


def test_ids_are_an_instant_and_a_counter(scene: Scene) -> None:
    ids = [dead(scene) for _ in range(3)]
    assert [one.split("-")[1] for one in ids] == ["0", "1", "2"]
    assert all(len(one.split("-")[0]) == 13 for one in ids)


def test_settings_survive_the_round_trip(scene: Scene) -> None:
    sent = {
        "Upstash-Label": "red,blue",
        "Upstash-Flow-Control-Key": "k",
        "Upstash-Flow-Control-Value": "parallelism=3,rate=5,period=2m",
        "Upstash-Retry-Delay": "1000",
        "Upstash-Callback": CALLBACK,
        "Upstash-Failure-Callback": FAILURE,
        "Upstash-Timeout": "9s",
        "Upstash-Method": "PATCH",
    }
    dlq_id = dead(scene, sent)
    shown = scene.get(f"/v2/dlq/{dlq_id}")
    wanted = {
        "label": "red",
        "labels": ["red", "blue"],
        "flowControlKey": "k",
        "parallelism": 3,
        "rate": 5,
        "period": 120,
        "retryDelayExpression": "1000",
        "callback": CALLBACK,
        "failureCallback": FAILURE,
        "method": "PATCH",
        "maxRetries": 0,
        "state": "failed",
    }
    assert {name: shown[name] for name in wanted} == wanted
    again = scene.ok("POST", f"/v2/dlq/retry/{dlq_id}").json()["messageId"]
    record = scene.get(f"/v2/messages/{again}")
    del wanted["state"]
    assert {name: record[name] for name in wanted} == wanted


def test_a_retry_has_its_own_life(scene: Scene) -> None:
    dlq_id = dead(scene, {"Upstash-Delay": "1h", "Upstash-Deduplication-Id": "once"})
    before = scene.queue.clock.now()
    scene.answer = lambda request: 200
    again = scene.queue.retry_dead_letter(dlq_id)
    # A retry ignores the delay and the deduplication id of the original message.
    scene.queue.deliver_due()
    assert again.state == "delivered"
    assert again.attempts.only().at == before
    assert scene.came[-1].headers.get("Upstash-Retried") == "0"


def test_a_retry_that_fails_is_a_new_dead_letter(scene: Scene) -> None:
    dlq_id = dead(scene)
    scene.ok("POST", f"/v2/dlq/retry/{dlq_id}", headers={"Upstash-Retries": "1"})
    scene.queue.run_until_idle()
    letter = scene.queue.dead_letters().only()
    assert letter.id != dlq_id
    assert len(letter.message.attempts) == 2


def test_a_retry_with_malformed_headers_keeps_the_dead_letter(scene: Scene) -> None:
    dlq_id = dead(scene)
    refused = scene.request("POST", f"/v2/dlq/retry/{dlq_id}", {"Upstash-Retries": "x"})
    assert refused.status == 400
    assert scene.queue.dead_letters().only().id == dlq_id


def test_redacted_parts_stay_hidden_and_are_delivered_in_clear(scene: Scene) -> None:
    sent = {"Upstash-Redact-Fields": "body,headers", "Upstash-Forward-X-Key": "secret"}
    dlq_id = dead(scene, sent)
    shown = scene.get(f"/v2/dlq/{dlq_id}")
    assert shown["body"] == "REDACTED:" + hashlib.sha256(b"payload").hexdigest()
    assert shown["header"]["X-Key"] == ["REDACTED:" + hashlib.sha256(b"secret").hexdigest()]
    scene.ok("POST", f"/v2/dlq/retry/{dlq_id}")
    scene.queue.deliver_due()
    assert (scene.came[-1].body, scene.came[-1].headers.get("X-Key")) == (b"payload", "secret")


def test_an_enqueued_one_goes_to_the_end_of_its_queue(scene: Scene) -> None:
    scene.publish({"Upstash-Retries": "0"}, b"1", way="/v2/enqueue/orders/")
    scene.queue.run_until_idle()
    scene.answer = lambda request: 200
    scene.publish({}, b"2", way="/v2/enqueue/orders/")
    scene.queue.retry_dead_letter(scene.queue.dead_letters().only())
    scene.queue.run_until_idle()
    assert [one.body for one in scene.came] == [b"1", b"2", b"1"]


def test_pages_are_steady_while_rows_come_and_go(scene: Scene) -> None:
    ids = [dead(scene) for _ in range(6)]
    first = scene.get("/v2/dlq?count=3")
    scene.ok("DELETE", f"/v2/dlq/{ids[0]}")
    scene.ok("DELETE", f"/v2/dlq/{ids[3]}")
    dead(scene)
    rest = scene.get(f"/v2/dlq?cursor={first['cursor']}")
    seen = [one["dlqId"] for one in first["messages"] + rest["messages"]]
    assert seen[:5] == [ids[0], ids[1], ids[2], ids[4], ids[5]]
    assert len(seen) == 6


def test_dead_letters_that_the_day_has_no_room_for_are_retried_all_or_none() -> None:
    with Scene(limits={"daily_messages": 5}) as scene:
        scene.fail()
        ids = [dead(scene) for _ in range(3)]
        messages = scene.queue.messages()
        assert scene.request("POST", "/v2/dlq/retry").status == 429
        assert [one.id for one in scene.queue.dead_letters()] == ids
        assert scene.queue.messages() == messages
        # Duplicates of each other count as one message.
        sent = {"Upstash-Deduplication-Id": "once"}
        responses = scene.ok("POST", "/v2/dlq/retry", headers=sent).json()["responses"]
        assert [one.get("deduplicated", False) for one in responses] == [False, True, True]
        assert len({one["messageId"] for one in responses}) == 1
        assert scene.queue.dead_letters() == []


def test_dead_letters_whose_queues_are_too_many_are_retried_all_or_none() -> None:
    with Scene(limits={"queues": 2}) as scene:
        scene.fail()
        for name in ("a", "b"):
            dead(scene, {"Upstash-Queue-Name": name})
            scene.ok("DELETE", f"/v2/queues/{name}")
        scene.ok("POST", "/v2/queues", json={"queueName": "c"})
        assert scene.request("POST", "/v2/dlq/retry").status == 412
        assert len(scene.queue.dead_letters()) == 2
        assert [one["name"] for one in scene.get("/v2/queues")] == ["c"]
        scene.ok("DELETE", "/v2/queues/c")
        scene.ok("POST", "/v2/dlq/retry")
        assert [one["name"] for one in scene.get("/v2/queues")] == ["a", "b"]


def test_dead_letters_without_an_answer_are_found_by_their_status(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(exception=ConnectionRefusedError("refused"))
    bench.publish(Retries="0")
    bench.clock.run_due()
    bench.answer = lambda delivery: Outcome(503)
    bench.publish(Retries="0")
    bench.clock.run_due()
    letters = bench.engine.dead_letters
    none, unavailable = letters.all()
    assert letters.select(Filters({"responseStatus": ["0"]})) == ([none], None)
    assert letters.select(Filters({"responseStatus": ["503"]})) == ([unavailable], None)


def test_a_failure_callback_hides_no_run_that_comes_after_it(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(500)
    for _ in range(3):
        bench.publish(Retries="0")
    bench.clock.run_due()
    letters = bench.engine.dead_letters
    first, report, last = letters.all()
    for row in (first, report, last):
        letters.message(row).workflow = WorkflowPart("r", URL, "step")
    letters.message(report).failure_of = first.message_id
    assert letters.select(Filters({"source": ["workflow"]})) == ([first, last], None)
    # For other filters, the callback is an ordinary dead letter.
    assert letters.select(Filters({"url": [URL]})) == ([first, report, last], None)


def test_a_row_is_deleted_once(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(500)
    bench.publish(Retries="0")
    bench.clock.run_due()
    (row,) = bench.engine.dead_letters.all()
    assert bench.engine.dead_letters.delete([row, row]) == 1
    assert bench.engine.dead_letters.delete([row]) == 0
