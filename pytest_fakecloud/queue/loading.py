"""Putting data into a queue by hand, checked in the tester's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .arguments import keywords, known_keys, number, one_of, section, text

if TYPE_CHECKING:
    from .handle import Queue


def load(queue: Queue, data: Mapping[str, Any]) -> None:
    """Put URL groups, queues, schedules and messages into a queue; see `Queue.load`."""
    known_keys("the data", data, ("url_groups", "queues", "schedules", "messages"))
    for name, endpoints in section(data, "url_groups", dict).items():
        _load_group(queue, name, endpoints)
    for name, settings in section(data, "queues", dict).items():
        text("queues name", name)
        given = known_keys(
            f"queue {name}", {} if settings is None else settings, ("parallelism", "paused")
        )
        number("parallelism", given.setdefault("parallelism", 1), least=1)
        one_of("paused", given.setdefault("paused", False), (True, False))
        given["paused"] = bool(given["paused"])
        queue.engine.gates.upsert_queue(name, **given)
    for schedule in section(data, "schedules", list):
        queue.schedule(**keywords("a schedule", schedule, queue.schedule))
    for message in section(data, "messages", list):
        queue.publish(**keywords("a message", message, queue.publish))


def _load_group(queue: Queue, name: str, endpoints: object) -> None:
    text("url_groups name", name)
    listed = [_endpoint(name, one) for one in section({name: endpoints}, name, list)]
    engine = queue.engine
    with engine.lock:
        now = engine.clock.now_us()
        group = engine.groups.create(name, now)
        for url, endpoint_name in listed:
            engine.groups.add(group, url, endpoint_name, now)


def _endpoint(group: str, given: object) -> tuple[str, str | None]:
    one: dict[str, Any] = {"url": given}
    if isinstance(given, Mapping):
        one = known_keys(f"an endpoint of {group}", given, ("url", "name"))
    name = one.get("name")
    if name is not None:
        text("name", name)
    return text("url", one.get("url")), name
