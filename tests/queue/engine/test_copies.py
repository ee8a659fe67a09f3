"""Snapshots copy the engine's data: all of it, and no list, dict or queue is shared with the copy."""

from __future__ import annotations

from collections import deque
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest

from pytest_fakecloud.queue.engine import engine as engine_module
from pytest_fakecloud.queue.engine.schedules import MessageSchedule
from pytest_fakecloud.queue.engine.url_groups import UrlGroup
from pytest_fakecloud.queue.model import FlowKey, Message, OrderedQueue
from pytest_fakecloud.queue.workflow.model import WorkflowRun
from tests.notations import complete

from .bench import Bench

NOT_COPIED = {
    *(
        "BulkActions.timers",
        "Planning.timers",
        "Planning._planned",
        "FlowKeys.timers",
        "Schedules.timers",
    ),
    *("FlowKeys.slots", "History._to_forget", "QueueData.pending", "QueueData.under_way"),
    *("Interceptors.all", "Overtaking.delayed", "SigningKeys.former"),
}
"""Containers that a snapshot leaves out: timers, what follows from the messages, faults and keys."""


@pytest.mark.completeness
def test_snapshots_contain_the_data_of_the_engine_and_its_parts() -> None:
    engine = Bench().engine
    owners = [engine, *(part for part in vars(engine).values() if hasattr(part, "__dict__"))]
    containers = {
        (id(owner), attribute): f"{type(owner).__name__}.{attribute}"
        for owner in owners
        for attribute, value in vars(owner).items()
        if type(owner).__module__.startswith("pytest_fakecloud.queue.")
        and isinstance(value, list | dict | set | deque)
    }
    assert NOT_COPIED.issubset(containers.values())
    for owner, attribute, _ in engine._containers().values():
        del containers[id(owner), attribute]
    complete(
        Path(engine_module.__file__),
        (
            f"to QueueCopy and Engine._containers(): {name}, which otherwise is neither saved nor reset"
            for name in sorted({*containers.values()} - NOT_COPIED)
        ),
        "NOT_COPIED of tests/queue/engine/test_copies.py",
    )


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
