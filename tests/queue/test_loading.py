"""Data that is loaded goes in as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.handle import Context
from pytest_fakecloud.queue.delivery.replies import DeliveredRequest
from pytest_fakecloud.queue.errors import QueueError
from pytest_fakecloud.queue.handle import Queue

from .scene import DEST, NOW

GOOD: dict[str, Any] = {
    "url_groups": {"news": [DEST]},
    "queues": {"orders": {"parallelism": 2, "paused": True}},
    "schedules": [{"destination": "news", "cron": "@daily", "id": "daily"}],
    "messages": [{"url": "news"}, {"url": DEST, "queue": "orders"}],
}


@pytest.fixture
def queue() -> Iterator[Queue]:
    with Queue(Context.alone(now=NOW, seed=1)) as one:
        yield one


def contents(queue: Queue) -> object:
    engine = queue._engine
    return (
        {
            name: [one.url for one in group.endpoints]
            for name, group in engine.url_groups.by_name.items()
        },
        {
            name: (one.parallelism, one.paused, list(one.waiting))
            for name, one in engine.queues.by_name.items()
        },
        {one.id: (one.cron, one._record.body) for one in queue.schedules()},
        [(one.id, one.state, one.due) for one in queue.messages()],
        queue.clock.next_due(),
    )


BAD: list[tuple[str, Any]] = [
    ("url_groups", {**GOOD["url_groups"], "bad": ["nowhere"]}),
    ("url_groups", {**GOOD["url_groups"], "bad name": [DEST]}),
    ("url_groups", {**GOOD["url_groups"], "bad": 5}),
    ("queues", {"more": {}, "bad name": {}}),
    ("queues", {"more": {}, "bad": {"parallelism": 0}}),
    ("queues", [("more", {})]),
    ("schedules", [{"destination": DEST, "cron": "@hourly", "id": "daily"}, {"cron": "@daily"}]),
    ("schedules", [*GOOD["schedules"], {"destination": DEST, "cron": "every day"}]),
    ("messages", [*GOOD["messages"], {"url": "nowhere"}]),
    ("messages", [*GOOD["messages"], {"url": DEST, "json": {1, 2}}]),
    ("messages", [*GOOD["messages"], {"url": DEST, "retries": 99}]),
    ("messages", [*GOOD["messages"], {"url": DEST, "delay": "soon"}]),
    ("messages", [*GOOD["messages"], {"url": DEST, "nothing": 5}]),
]


@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize(("part", "bad"), BAD)
def test_bad_data_changes_nothing(queue: Queue, part: str, bad: Any, filled: bool) -> None:
    if filled:
        queue.load(GOOD)
    before = contents(queue)
    with pytest.raises((ContractError, QueueError)):
        queue.load({**GOOD, part: bad})
    assert contents(queue) == before


def test_what_is_beyond_the_plan_changes_nothing() -> None:
    limits = {"daily_messages": 3, "groups": 1, "queues": 2, "schedules": 1}
    with Queue(Context.alone(now=NOW), limits=limits) as queue:
        queue.load(GOOD)
        before = contents(queue)
        for data in (
            {"messages": [{"url": DEST}, {"url": DEST}]},
            {"queues": {"more": {}}, "messages": [{"url": DEST, "queue": "another"}]},
            {"queues": {"more": {}}, "url_groups": {"other": [DEST]}},
            {"schedules": [{"destination": DEST, "cron": "@daily"}]},
        ):
            with pytest.raises(QueueError):
                queue.load(data)
            assert contents(queue) == before
        queue.load({"queues": {"more": {}}, "messages": [{"url": DEST}]})


def test_bad_data_loaded_by_a_handler_does_not_touch_its_delivery(queue: Queue) -> None:
    def handler(request: DeliveredRequest) -> int:
        with pytest.raises(QueueError):
            queue.load({"messages": [{"url": DEST}, {"url": "nowhere"}]})
        return 200

    queue.destinations.call(DEST, handler)
    message = queue.publish(DEST)
    assert queue.run_until_idle().only().status == 200
    assert (message.state, queue.messages()) == ("delivered", [message])


def test_labels_that_can_be_read_once(queue: Queue) -> None:
    queue.load({"messages": [{"url": DEST, "label": (one for one in ("red", "blue"))}]})
    assert queue.messages().only().labels == ("red", "blue")


def test_what_is_loaded_repeats_what_was_published(queue: Queue) -> None:
    settings = {"Upstash-Deduplication-Id": "once"}
    message = queue.publish(DEST, settings=settings)
    queue.load({"messages": [{"url": DEST, "settings": settings}]})
    assert queue.messages() == [message]
