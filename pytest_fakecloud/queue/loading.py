"""Load URL groups, queues, schedules and messages from a mapping.

The data is loaded into a copy of the queue first, so that invalid data changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..core.ids import Ids
from ..core.settings import SWITCH, whole
from ..core.timekeeper import Timekeeper
from .actions import QueueActions
from .arguments import (
    keywords,
    known_keys,
    section,
    text,
)
from .engine.engine import Engine
from .workflow.runs import WorkflowRuns

_Step = Callable[[QueueActions], object]


def load(queue: QueueActions, data: Mapping[str, Any]) -> None:
    """Load data into a queue; see ``Queue.load()``."""
    steps = list(_steps(data))
    with queue._engine.lock:
        for place in (_Trial(queue._engine), queue):
            for step in steps:
                step(place)


class _Trial(QueueActions):
    """A copy of a queue with the same rules, on its own frozen clock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.twin(Timekeeper(now=engine.clock.now()), Ids(0))
        self._engine.workflow = WorkflowRuns(self._engine)
        self._engine.restore(engine.snapshot())

    def _check_open(self) -> None:
        """Do nothing, because this copy is never closed."""


def _steps(data: Mapping[str, Any]) -> Iterator[_Step]:
    known_keys("the data", data, ("url_groups", "queues", "schedules", "messages"))
    for name, endpoints in section(data, "url_groups", dict).items():
        yield _group(name, endpoints)
    for name, settings in section(data, "queues", dict).items():
        yield _queue(name, settings)
    for schedule in section(data, "schedules", list):
        yield _schedule(keywords("a schedule", schedule, QueueActions.schedule))
    for message in section(data, "messages", list):
        yield _message(keywords("a message", message, QueueActions.publish))


def _group(name: str, endpoints: object) -> _Step:
    text("url_groups name", name)
    listed = [_endpoint(name, one) for one in section({name: endpoints}, name, list)]

    def step(place: QueueActions) -> None:
        engine = place._engine
        engine.url_groups.add_all(name, listed, engine.clock.now_us())

    return step


def _endpoint(group: str, given: object) -> tuple[str, str | None]:
    one: dict[str, Any] = {"url": given}
    if isinstance(given, Mapping):
        one = known_keys(f"an endpoint of {group}", given, ("url", "name"))
    name = one.get("name")
    if name is not None:
        text("name", name)
    return text("url", one.get("url")), name


def _queue(name: str, settings: object) -> _Step:
    text("queues name", name)
    given = known_keys(
        f"queue {name}", {} if settings is None else settings, ("parallelism", "paused")
    )
    whole(1).read("parallelism", given.setdefault("parallelism", 1))
    SWITCH.read("paused", given.setdefault("paused", False))
    given["paused"] = bool(given["paused"])
    return lambda place: place._engine.queue_admission.upsert(name, **given)


def _schedule(given: dict[str, Any]) -> _Step:
    return lambda place: place.schedule(**given)


def _message(given: dict[str, Any]) -> _Step:
    if isinstance(given.get("label"), Iterator):
        # Copy an iterator, because the message is published twice, in the copy and in the queue.
        given["label"] = [*given["label"]]
    return lambda place: place.publish(**given)
