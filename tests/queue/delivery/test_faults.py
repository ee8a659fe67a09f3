"""Test injected faults of deliveries, signatures and publish requests."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.queue.delivery.routes import DeliveredRequest
from pytest_fakecloud.queue.signatures import explain

from ..scene import CALLBACK, DEST, FAILURE, Scene


def why_not(scene: Scene, request: DeliveredRequest, keys: Any = None) -> str | None:
    """Return why a delivery does not verify with these keys, by default those of the queue."""
    return explain(
        request.headers.get("Upstash-Signature"),
        body=request.body,
        keys=keys or scene.queue._engine.keys,
        at=time.time(),
        url=request.url,
    )


def test_without_faults_everything_verifies(scene: Scene) -> None:
    scene.publish({"Upstash-Callback": CALLBACK})
    scene.queue.run_until_idle()
    assert [why_not(scene, request) for request in scene.came] == [None, None]


def test_a_crash_after_the_answer_means_a_second_delivery(scene: Scene) -> None:
    fault = scene.queue.faults.crash_after_response()
    message_id = scene.publish({"Upstash-Callback": CALLBACK})
    attempts = scene.queue.deliver_due()
    assert [
        (request.message_id, request.headers.get("Upstash-Retried")) for request in scene.to(DEST)
    ] == [(message_id, "0"), (message_id, "0")]
    assert [attempt.state for attempt in attempts if attempt.url == DEST] == ["lost", "delivered"]
    # The queue lost the first response, so it publishes no callback about it.
    assert len(scene.to(CALLBACK)) == 1
    assert fault.hits == 1
    assert "fault: crash_after_response" in scene.queue.message(message_id).timeline


@pytest.mark.parametrize("kind", ["duplicate", "reorder", "tamper", "drop_callback", "unsigned"])
def test_faults_of_deliveries_name_no_route_of_requests(scene: Scene, kind: str) -> None:
    with pytest.raises(
        ContractError, match=r"'publish' names requests, .* applies to none: pass topic="
    ):
        getattr(scene.queue.faults, kind)(route="publish")
    getattr(scene.queue.faults, kind)(route=None)


def test_duplicates(scene: Scene) -> None:
    fault = scene.queue.faults.duplicate(times=1)
    first = scene.publish()
    second = scene.publish()
    scene.queue.deliver_due()
    assert [request.message_id for request in scene.came] == [first, first, second]
    assert len({request.headers.get("Upstash-Signature") for request in scene.came[:2]}) == 1
    assert len(scene.queue.attempts()) == 2
    assert fault.hits == 1


def test_reordering(scene: Scene) -> None:
    scene.queue.faults.reorder(times=1)
    ids = [scene.publish() for _ in range(3)]
    scene.queue.deliver_due()
    assert [request.message_id for request in scene.came] == [ids[1], ids[2], ids[0]]


def test_reordering_in_an_ordered_queue(scene: Scene) -> None:
    scene.queue.faults.reorder(times=1)
    ids = [scene.publish(way="/v2/enqueue/orders/") for _ in range(3)]
    saved: list[Any] = []
    scene.answer = lambda request: saved.append(scene.queue.snapshot()) or 200
    scene.queue.deliver_due()
    assert [request.message_id for request in scene.came] == [ids[1], ids[0], ids[2]]
    # The snapshot includes the message that was delivered out of order.
    scene.queue.restore(saved[0])
    scene.queue.deliver_due()
    assert [request.message_id for request in scene.came[3:]] == [ids[1], ids[0], ids[2]]


def test_a_reordered_message_without_another_is_delivered_a_second_later(scene: Scene) -> None:
    scene.queue.faults.reorder()
    message = scene.publish()
    assert scene.queue.deliver_due() == []
    scene.queue.run_until_idle()
    assert scene.times == [1]
    assert "attempt 1 after 1 s (at once)" in scene.queue.message(message).timeline


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("tamper", "for another body"),
        ("wrong_key", "neither the current key nor the next key"),
        ("next_key", "None"),
        ("expired_token", "has expired"),
        ("unsigned", "no Upstash-Signature header"),
    ],
)
def test_signatures_that_do_not_verify(scene: Scene, fault: str, text: str) -> None:
    with getattr(scene.queue.faults, fault)():
        for _ in range(2):
            scene.publish({"Upstash-Callback": CALLBACK})
            scene.queue.deliver_due()
    keys = {"current": scene.queue.current_signing_key}
    for request in scene.came:
        assert text in str(why_not(scene, request))
        assert why_not(scene, request, keys) is not None
    scene.publish()
    scene.queue.deliver_due()
    assert why_not(scene, scene.came[-1], keys) is None


def test_a_rotation_under_way(scene: Scene) -> None:
    scene.fail()
    scene.publish({"Upstash-Retries": "1"})
    scene.queue.deliver_due()
    old = {"current": scene.queue.current_signing_key}
    scene.queue.rotate_keys()
    scene.queue.run_until_idle()
    assert [why_not(scene, request, old) is None for request in scene.came] == [True, False]


def test_lost_callbacks(scene: Scene) -> None:
    scene.fail()
    scene.queue.faults.drop_callback(kind="callback", times=1)
    scene.publish(
        {"Upstash-Retries": "1", "Upstash-Callback": CALLBACK, "Upstash-Failure-Callback": FAILURE}
    )
    scene.queue.run_until_idle()
    assert [request.json()["retried"] for request in scene.to(CALLBACK)] == [1]
    assert len(scene.to(FAILURE)) == 1
    scene.queue.faults.drop_callback(url=FAILURE)
    scene.publish({"Upstash-Retries": "0", "Upstash-Failure-Callback": FAILURE})
    scene.queue.run_until_idle()
    assert len(scene.to(FAILURE)) == 1


@pytest.mark.parametrize(
    "matcher",
    [
        {"url": DEST},
        {"label": "red"},
        {"kind": "message"},
        {"queue": "orders"},
        {"when": lambda subject: subject.attempt == 0 and b"hit" in subject.body},
        {"when": lambda subject: subject.method == "PUT"},
    ],
)
def test_matchers(scene: Scene, matcher: Any) -> None:
    fault = scene.queue.faults.tamper(**matcher)
    sent = {"Upstash-Label": "red,blue", "Upstash-Method": "PUT", "Upstash-Callback": CALLBACK}
    scene.publish(sent, b"hit", way="/v2/enqueue/orders/")
    scene.publish({}, b"miss", url="https://other.example.com/", way="/v2/enqueue/other/")
    scene.queue.run_until_idle()
    expected = 2 if matcher == {"kind": "message"} else 1
    assert fault.hits == expected
    assert scene.to(DEST)[0].body == b"hittampered"


def test_skipping_and_counting(scene: Scene) -> None:
    fault = scene.queue.faults.unsigned(skip=1, times=1)
    for _ in range(3):
        scene.publish()
    scene.queue.deliver_due()
    assert [request.headers.get("Upstash-Signature") is None for request in scene.came] == [
        False,
        True,
        False,
    ]
    assert fault.hits == 1
    with pytest.raises(ContractError, match="'colour' is not a field of a fault"):
        scene.queue.faults.tamper(colour="red")


def test_limits_while_publishing(scene: Scene) -> None:
    scene.queue.faults.daily_limit(limit=5, times=1)
    assert scene.request("GET", "/v2/keys").status == 200
    scene.queue.faults.burst_limit(limit=7, times=1)
    daily = scene.request("POST", f"/v2/publish/{DEST}")
    assert (daily.status, daily.headers["RateLimit-Limit"]) == (429, "5")
    assert daily.headers["RateLimit-Remaining"] == "0"
    assert scene.publish()
    burst = scene.request("GET", "/v2/keys")
    assert (burst.status, burst.headers["Burst-RateLimit-Limit"]) == (429, "7")
    assert "RateLimit-Limit" not in burst.headers
    scene.queue.faults.burst_limit(limit=7, route="publish")
    assert scene.request("POST", f"/v2/publish/{DEST}").status == 429


def test_common_faults_while_publishing(scene: Scene) -> None:
    scene.queue.faults.respond(503, route="publish", times=1)
    refused = scene.request("POST", f"/v2/publish/{DEST}")
    assert refused.status == 503
    assert "error" in json.loads(refused.body)
    scene.queue.faults.respond(500, url=DEST, times=1)
    assert scene.request("POST", "/v2/publish/https://other.example.com/").status == 200
    assert scene.request("POST", f"/v2/publish/{DEST}").status == 500


async def awaited(request: object) -> bool:
    return False


@pytest.mark.parametrize(
    ("word", "arguments", "text"),
    [
        ("burst_limit", {"limit": "7"}, "limit='7' must be a whole number of at least 0"),
        ("burst_limit", {"limit": True}, "limit=True must be a whole number of at least 0"),
        ("burst_limit", {"limit": None}, "limit=None must be a whole number of at least 0"),
        ("daily_limit", {"limit": -1}, "limit=-1 must be a whole number of at least 0"),
        ("daily_limit", {"limit": 2.5}, "limit=2.5 must be a whole number of at least 0"),
        ("burst_limit", {"limit": 1, "when": 5}, "when=5 is not a function"),
        (
            "burst_limit",
            {"limit": 1, "when": awaited},
            "must be awaited or iterated, so it would match everything",
        ),
        ("tamper", {"kind": "calback"}, "kind='calback' is not a kind; did you mean 'callback'?"),
        (
            "drop_callback",
            {"kind": "message"},
            "kind='message' is not a kind. Known kinds: callback, failure_callback",
        ),
        ("unsigned", {"command": "GET"}, "'command' is not a field of a fault"),
        ("reorder", {"url": 5}, "url=5 can never match: pass an absolute URL"),
        ("tamper", {"label": [5]}, "label=5 can never match: pass a label"),
        ("drop", {"url": b"https://a/"}, "url=b'https://a/' can never match: pass an absolute URL"),
    ],
)
def test_faults_that_could_never_fire(scene: Scene, word: str, arguments: Any, text: str) -> None:
    with pytest.raises(ContractError, match=re.escape(text)):
        getattr(scene.queue.faults, word)(**arguments)
    assert list(scene.queue.faults) == []


def test_matchers_may_be_predicates(scene: Scene) -> None:
    kind = scene.queue.faults.duplicate(kind=lambda kind: kind != "message")
    url = scene.queue.faults.tamper(url=lambda url: url.startswith(DEST))
    scene.publish({"Upstash-Callback": CALLBACK})
    scene.queue.run_until_idle()
    assert (kind.hits, url.hits) == (1, 1)


def test_limits_tell_of_the_time_they_are_met_at(scene: Scene) -> None:
    def reset(name: str, way: str = f"POST /v2/publish/{DEST}") -> int:
        refused = scene.request(*way.split())
        assert refused.status == 429
        return int(refused.headers[name])

    def now() -> int:
        return scene.queue.clock.now_us() // 1_000_000

    with scene.queue.faults.burst_limit(100):
        scene.queue.clock.advance("3d")
        assert reset("Burst-RateLimit-Reset", "GET /v2/keys") == now() + 1
    with scene.queue.faults.daily_limit(1000):
        scene.queue.clock.advance("3d")
        assert now() < reset("RateLimit-Reset") <= now() + 86_400
        assert now() < reset("RateLimit-Reset", f"POST /v2/schedules/{DEST}") <= now() + 86_400


@pytest.mark.parametrize(
    "url",
    [
        "https://app.example.com/*",
        "https://app.example.com/h*k",
        re.compile("hook$"),
        lambda url: url.endswith("hook"),
    ],
)
def test_faults_are_meant_in_the_words_of_assertions(scene: Scene, url: Any) -> None:
    unsigned = scene.queue.faults.unsigned(url=url)
    refused = scene.queue.faults.respond(503, url=url, times=1)
    assert scene.request("POST", f"/v2/publish/{DEST}").status == 503
    scene.publish()
    scene.publish(url="https://other.example.com/")
    scene.queue.deliver_due()
    assert (unsigned.hits, refused.hits) == (1, 1)
    assert [request.headers.get("Upstash-Signature") is None for request in scene.came] == [
        True,
        False,
    ]
    if not callable(url):
        assert f"url={url!r}" in repr(unsigned)


def test_kinds_of_faults_may_be_patterns(scene: Scene) -> None:
    lost = scene.queue.faults.drop_callback(kind="*callback")
    scene.publish({"Upstash-Callback": CALLBACK})
    scene.queue.run_until_idle()
    assert lost.hits == 1
    with pytest.raises(ContractError, match=r"is not a kind. Known kinds: callback"):
        scene.queue.faults.drop_callback(kind="mess*")
