"""Test ``Queue.load()``: data is loaded completely or not at all."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.queue.delivery.routes import DeliveredRequest
from pytest_fakecloud.queue.errors import QueueError
from pytest_fakecloud.queue.fake import Queue

from .scene import DEST, NOW

GOOD: dict[str, Any] = {
    "url_groups": {"news": [DEST]},
    "queues": {"orders": {"parallelism": 2, "paused": True}},
    "schedules": [{"url": "news", "cron": "@daily", "id": "daily"}],
    "messages": [{"url": "news"}, {"url": DEST, "queue": "orders"}],
}


def contents(queue: Queue) -> object:
    engine = queue._engine
    return (
        {
            name: [endpoint.url for endpoint in group.endpoints]
            for name, group in engine.url_groups.by_name.items()
        },
        {
            name: (queue_state.parallelism, queue_state.paused, list(queue_state.waiting))
            for name, queue_state in engine.queues.by_name.items()
        },
        {schedule.id: (schedule.cron, schedule._record.body) for schedule in queue.schedules()},
        [(message.id, message.state, message.due) for message in queue.messages()],
        queue.clock.next_due(),
    )


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (5, "load(): the data must be a dict, got 5"),
        ({"topics": {}}, "'topics' is not a key of the data. Known keys: url_groups"),
        ({"messages": {"url": DEST}}, "messages must be a list"),
        ({"messages": [DEST]}, "a message must be a dict"),
        (
            {"messages": [{"uri": DEST}]},
            r"'uri' is not a key of a message; did you mean 'url'? Known",
        ),
        ({"messages": [{"label": "a"}]}, "a message needs url"),
        ({"messages": [*GOOD["messages"], {"url": "nowhere"}]}, "topic nowhere not found"),
        ({"messages": [*GOOD["messages"], {"url": DEST, "json": {1, 2}}]}, "not JSON-serializable"),
        (
            {"messages": [*GOOD["messages"], {"url": DEST, "retries": 99}]},
            "quota maxRetries exceeded",
        ),
        ({"messages": [*GOOD["messages"], {"url": DEST, "delay": "soon"}]}, "'soon'"),
        (
            {"messages": [*GOOD["messages"], {"url": DEST, "nothing": 5}]},
            "'nothing' is not a key of ",
        ),
        ({"schedules": [{"url": DEST}]}, "a schedule needs cron"),
        (
            {"schedules": [{"url": DEST, "cron": "@hourly", "id": "daily"}, {"cron": "@daily"}]},
            "a schedule needs url",
        ),
        ({"schedules": [*GOOD["schedules"], {"url": DEST, "cron": "every day"}]}, "cron"),
        ({"queues": ["q"]}, "queues must be a dict"),
        ({"queues": [("more", {})]}, "queues must be a dict"),
        ({"queues": {"more": {}, "bad name": {}}}, "bad name"),
        ({"queues": {b"x": {}}}, "queues name=b'x' is not a string"),
        ({"queues": {"x": []}}, "load(): queue x must be a dict, got []"),
        ({"queues": {"q": {"par": 2}}}, r"'par' is not a key of queue q. Known keys: parallelism"),
        ({"queues": {"x": {"paused": "no"}}}, "paused='no' must be True or False"),
        (
            {"queues": {"more": {}, "bad": {"parallelism": 0}}},
            "parallelism=0 must be a whole number of at least 1",
        ),
        ({"url_groups": {"g": DEST}}, "g must be a list"),
        ({"url_groups": {**GOOD["url_groups"], "bad": 5}}, "bad must be a list"),
        ({"url_groups": {**GOOD["url_groups"], "bad": ["nowhere"]}}, "add http:// or https://"),
        ({"url_groups": {**GOOD["url_groups"], "bad name": [DEST]}}, "bad name"),
        ({"url_groups": {5: [DEST]}}, "url_groups name=5 is not a string"),
        ({"url_groups": {None: []}}, "url_groups name=None is not a string"),
        (
            {"url_groups": {"g": [{"url": DEST, "nam": "a"}]}},
            "'nam' is not a key of an endpoint of g",
        ),
        ({"url_groups": {"g": [{"url": DEST, "name": 5}]}}, "name=5 is not a string"),
        ({"url_groups": {"g": [{"name": "a"}]}}, "url=None is not a string"),
        ({"url_groups": {"g": [5]}}, "url=5 is not a string"),
    ],
)
def test_bad_data_changes_nothing(queue: Queue, data: Any, text: str) -> None:
    for loaded in ({}, GOOD):
        queue.load(loaded)
        before = contents(queue)
        with pytest.raises((ContractError, QueueError), match=re.escape(text)):
            queue.load({**GOOD, **data} if isinstance(data, dict) else data)
        assert contents(queue) == before


def test_data_beyond_the_plan_changes_nothing() -> None:
    limits = {"daily_messages": 3, "groups": 1, "queues": 2, "schedules": 1}
    with Queue(Context.alone(now=NOW), limits=limits) as queue:
        queue.load(GOOD)
        before = contents(queue)
        for data in (
            {"messages": [{"url": DEST}, {"url": DEST}]},
            {"queues": {"more": {}}, "messages": [{"url": DEST, "queue": "another"}]},
            {"queues": {"more": {}}, "url_groups": {"other": [DEST]}},
            {"schedules": [{"url": DEST, "cron": "@daily"}]},
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
    published = lambda: {"url": DEST, "label": (name for name in ("red", "blue"))}  # noqa: E731
    queue.load({"messages": [published()], "schedules": [{"cron": "0 9 * * *", **published()}]})
    queue.schedules().only().fire()
    assert [message.labels for message in queue.messages()] == [("red", "blue")] * 2


def test_loaded_messages_are_deduplicated(queue: Queue) -> None:
    settings = {"Upstash-Deduplication-Id": "once"}
    message = queue.publish(DEST, settings=settings)
    queue.load({"messages": [{"url": DEST, "settings": settings}]})
    assert queue.messages() == [message]
