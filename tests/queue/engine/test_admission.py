"""Test why messages wait and which start next, beside ``scenarios/admission.txt``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.queue.delivery.routes import Response

from ..scene import DEST, Scene

SLOW = "https://slow.example.com/hook"


def publish(
    scene: Scene, name: str, flow: str | None = None, *, to: str = DEST, way: str = "/v2/publish/"
) -> str:
    """Publish a message with the flow-control key ``tenant`` and these limits; return its id."""
    headers = {"Upstash-Flow-Control-Key": "tenant", "Upstash-Flow-Control-Value": flow or ""}
    return scene.publish({} if flow is None else headers, name.encode(), url=to, way=way)


def delivered(scene: Scene) -> list[str]:
    """Deliver what is due and return the bodies of all deliveries so far, except slow ones."""
    scene.queue.deliver_due()
    return [request.text for request in scene.to(DEST)]


def with_slow_destination(parallelism: int | None) -> Scene:
    scene = Scene(limits={"parallelism": parallelism})
    scene.answer = lambda request: Response(200, after=10 if request.url == SLOW else 0)
    return scene


def test_a_message_stays_due_after_an_error_of_a_fault_that_would_delay_it(scene: Scene) -> None:
    scene.queue.faults.reorder(url=lambda url: 1 // 0 > 0)
    for name in ("first", "second"):
        enqueue(scene, name)
    for _ in range(2):
        with pytest.raises(ContractError, match="a predicate of"):
            delivered(scene)
    assert delivered(scene) == ["first", "second"]


@pytest.fixture(params=[(1, None), (None, "parallelism=1")], ids=["global", "flow control"])
def limited(request: Any) -> Iterator[tuple[Scene, str | None]]:
    """A message that uses up a limit for 10 seconds, and the flow control of messages that wait for
    it: one of the two limits beside the own of an ordered queue.
    """
    parallelism, flow = request.param
    with with_slow_destination(parallelism) as scene:
        publish(scene, "slow", flow, to=SLOW)
        yield scene, flow


def enqueue(scene: Scene, name: str, flow: str | None = None, *, to: str = DEST) -> None:
    """Publish a message to the ordered queue ``line``, which two messages may leave at a time."""
    scene.ok("POST", "/v2/queues/", json={"queueName": "line", "parallelism": 2})
    publish(scene, name, flow, to=to, way="/v2/enqueue/line/")


def test_a_reordered_message_leaves_its_slot_to_the_next(limited: tuple[Scene, str | None]) -> None:
    scene, flow = limited
    for name in ("first", "second"):
        publish(scene, name, flow)
    assert delivered(scene) == []
    # The first message has a slot when the fault applies to it.
    scene.queue.faults.reorder(times=1)
    scene.queue.clock.advance("10s")
    assert delivered(scene) == ["second", "first"]


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
        for message_id in gone:
            scene.ok("DELETE", f"/v2/messages/{message_id}")
        scene.queue.clock.advance("10s")
        assert delivered(scene) == [*names, "last"]
