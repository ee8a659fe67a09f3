"""Test why messages wait and which start next, beside ``scenarios/admission.txt``."""

from __future__ import annotations

import pytest

from pytest_fakecloud.queue.delivery.replies import Reply

from ..scene import DEST, Scene

SLOW = "https://slow.example.com/hook"


def publish(scene: Scene, name: str, flow: str | None = None, *, to: str = DEST) -> str:
    """Publish a message with the flow-control key ``tenant`` and these limits; return its id."""
    headers = {"Upstash-Flow-Control-Key": "tenant", "Upstash-Flow-Control-Value": flow or ""}
    return scene.publish({} if flow is None else headers, name.encode(), url=to)


def delivered(scene: Scene) -> list[str]:
    """Deliver what is due and return the bodies of all deliveries so far, except slow ones."""
    scene.queue.deliver_due()
    return [request.text for request in scene.to(DEST)]


def waits_for(scene: Scene, *ids: str) -> list[str]:
    """Return the wait reasons of messages that have no due time."""
    found = [scene.queue.message(each)._record for each in ids]
    assert [one.due_us for one in found] == [None] * len(ids)
    return [one.wait_reason for one in found]


def with_slow_destination(parallelism: int) -> Scene:
    scene = Scene(limits={"parallelism": parallelism})
    scene.answer = lambda request: Reply(200, after=10 if request.url == SLOW else 0)
    return scene


def test_a_paused_queue_keeps_its_order_and_forgets_the_cancelled(scene: Scene) -> None:
    way = "/v2/enqueue/line/"
    scene.ok("POST", "/v2/queues/", json={"queueName": "line", "parallelism": 2})
    first = scene.publish({}, b"first", way=way)
    scene.ok("POST", "/v2/queues/line/pause")
    second, _, last = (
        scene.publish({}, body, way=way) for body in (b"second", b"third", b"fourth")
    )
    assert delivered(scene) == []
    scene.ok("DELETE", f"/v2/messages/{second}")
    assert delivered(scene) == []
    assert scene.get("/v2/queues/line")["paused"] is True
    scene.ok("POST", "/v2/queues/line/resume")
    assert scene.get("/v2/queues/line")["paused"] is False
    assert delivered(scene) == ["first", "third", "fourth"]
    resumed = "(queue line resumed)"
    assert [resumed in scene.queue.message(one).timeline for one in (first, last)] == [True, False]


def test_the_wait_reason_for_global_parallelism() -> None:
    with with_slow_destination(1) as scene:
        publish(scene, "slow", to=SLOW)
        ids = [publish(scene, "plain"), publish(scene, "keyed", "parallelism=1")]
        assert delivered(scene) == []
        assert waits_for(scene, *ids) == ["global parallelism 1", "global parallelism 1"]
        scene.queue.advance("9s")
        assert delivered(scene) == []
        scene.queue.advance("1s")
        assert delivered(scene) == ["plain", "keyed"]
        for each in ids:
            assert "after 10 s (global parallelism 1)" in scene.queue.message(each).timeline


def test_a_key_that_lets_nobody_in_is_what_its_messages_wait_for() -> None:
    with with_slow_destination(2) as scene:
        publish(scene, "slow", "parallelism=1", to=SLOW)
        keyed = publish(scene, "keyed", "parallelism=1")
        assert delivered(scene) == []
        assert waits_for(scene, keyed) == ["flow control tenant"]
        # The wait reason stays the same when global parallelism is exhausted as well.
        publish(scene, "slow too", to=SLOW)
        late = publish(scene, "late", "parallelism=1")
        assert delivered(scene) == []
        assert waits_for(scene, keyed, late) == ["flow control tenant", "flow control tenant"]
        scene.queue.advance("10s")
        assert delivered(scene) == ["keyed", "late"]


@pytest.mark.parametrize("keyed", range(4))
def test_room_goes_to_the_oldest_of_all_lines(keyed: int) -> None:
    with with_slow_destination(1) as scene:
        publish(scene, "slow", to=SLOW)
        names = ["first", "second", "third", "fourth"]
        for number, name in enumerate(names):
            publish(scene, name, "parallelism=1" if number == keyed else None)
        gone = [publish(scene, "gone"), publish(scene, "gone", "parallelism=1")]
        publish(scene, "last")
        assert delivered(scene) == []
        for each in gone:
            scene.ok("DELETE", f"/v2/messages/{each}")
        scene.queue.advance("10s")
        assert delivered(scene) == [*names, "last"]
