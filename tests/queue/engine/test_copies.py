"""Snapshots copy the engine's data: no list, dict or queue is shared with the copy."""

from __future__ import annotations

from collections import deque
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

import pytest

from pytest_fakecloud.queue.engine.schedules import MessageSchedule
from pytest_fakecloud.queue.engine.url_groups import UrlGroup
from pytest_fakecloud.queue.model import FlowKey, Message, OrderedQueue
from pytest_fakecloud.queue.workflow.model import WorkflowRun


@pytest.mark.parametrize(
    "kind", [FlowKey, OrderedQueue, MessageSchedule, UrlGroup, Message, WorkflowRun]
)
def test_a_copy_shares_no_container(kind: type[Any]) -> None:
    @dataclass(eq=False, repr=False, kw_only=True)
    class Extended(kind):  # type: ignore[misc]
        """The class with a field that it does not have yet."""

        notes: list[str] = field(default_factory=list)

    required = [
        item.name for item in fields(Extended) if MISSING is item.default is item.default_factory
    ]
    item = Extended(**dict.fromkeys(required))
    same = item.copy()
    containers = {
        name for name, value in vars(item).items() if isinstance(value, list | dict | deque)
    }
    assert "notes" in containers
    for name in containers:
        assert vars(same)[name] is not vars(item)[name], name
        assert vars(same)[name] == vars(item)[name]
