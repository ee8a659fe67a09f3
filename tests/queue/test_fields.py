"""The fields of queues, URL groups, flow-control keys and schedules where they are listed by name."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from pytest_fakecloud.queue import actions
from pytest_fakecloud.queue.engine.schedules import MessageSchedule
from pytest_fakecloud.queue.engine.url_groups import UrlGroup
from pytest_fakecloud.queue.fake import Queue
from pytest_fakecloud.queue.inspect import data
from pytest_fakecloud.queue.model import FlowKey, OrderedQueue
from tests.notations import complete

from .scene import DEST

ITEMS: dict[str, type[UrlGroup | OrderedQueue | FlowKey | MessageSchedule]] = {
    "queues": OrderedQueue, "URL groups": UrlGroup, "flow control": FlowKey,
    "schedules": MessageSchedule,
}  # fmt: skip
"""The dataclass of the items of each list."""
NOT_SHOWN = {
    # The name of an item, and what has another name in it.
    *("OrderedQueue.name", "OrderedQueue.parked", "UrlGroup.name", "UrlGroup.by_id", "FlowKey.key"),
    *("FlowKey.period_us", "FlowKey.pinned_parallelism", "FlowKey.pinned_rate"),
    *("MessageSchedule.id", "MessageSchedule.planned_us", "MessageSchedule.last_us"),
    # What messages and responses of the API show, and counters of the fake itself.
    *("OrderedQueue.created_us", "OrderedQueue.updated_us", "OrderedQueue.active", "UrlGroup.id"),
    *("UrlGroup.created_us", "UrlGroup.updated_us", "FlowKey.period_start_us", "FlowKey.period"),
    *("FlowKey.messages", "FlowKey.started", "MessageSchedule.settings", "MessageSchedule.sent"),
    *("MessageSchedule.created_us", "MessageSchedule.caller_ip", "MessageSchedule.api"),
    *("MessageSchedule.last_ids",),
}
"""Fields that the lists of `queue/inspect/data.py` do not show under their names."""
NOT_LOADED = {"name", "created_us", "updated_us", "active", "parked", "waiting"}
"""Fields of a queue that data to load cannot have: its name, and what requests and deliveries change."""


@pytest.mark.completeness
def test_reports_show_the_fields_of_items(queue: Queue) -> None:
    queue.load({"queues": {"orders": {}}, "url_groups": {"news": [DEST]}})
    queue.schedule(DEST, cron="@daily")
    queue.publish(DEST, flow_control={"key": "narrow", "parallelism": 1})
    state = data.state(queue)
    hidden = {}
    for title, kind in ITEMS.items():
        (item,) = state[title].values()
        hidden |= {
            f"{kind.__name__}.{field.name}": title
            for field in fields(kind)
            if field.name not in item
        }
    complete(
        Path(data.__file__),
        (f"to the items of {hidden[name]}: {name}" for name in sorted(hidden.keys() - NOT_SHOWN)),
        "NOT_SHOWN of tests/queue/test_fields.py",
    )
    assert hidden.keys() >= NOT_SHOWN


@pytest.mark.completeness
def test_data_to_load_can_have_the_fields_of_queues(queue: Queue) -> None:
    defaults = {field.name: field.default for field in fields(OrderedQueue)}
    settings = {*actions.QUEUE_SETTINGS}
    complete(
        Path(actions.__file__),
        (f"to QUEUE_SETTINGS: {name}" for name in sorted(defaults.keys() - settings - NOT_LOADED)),
        "NOT_LOADED of tests/queue/test_fields.py",
    )
    assert defaults.keys() >= NOT_LOADED
    assert not settings & NOT_LOADED
    queue.load({"queues": {"orders": {name: defaults[name] for name in actions.QUEUE_SETTINGS}}})
