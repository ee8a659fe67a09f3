"""What has not come to an end, and why: messages, vectors that are not indexed, consumers behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..core.clock import timekeeper_of
from ..core.errors import telling
from ..queue.unfinished import given_up, pending, schedules
from .bodies import compact
from .summaries import Scene
from .summaries.summary import listed

if TYPE_CHECKING:
    from ..any_cloud import AnyCloud

__all__ = ["MOST", "waiting"]

MOST = 8
"""The most lines; the rest is counted."""


def waiting(cloud: AnyCloud, scene: Scene) -> list[str]:
    """A line for each thing that has not come to an end; empty when nothing waits."""
    lines: list[str] = []
    looks = {"queue": _messages, "vector": _vectors, "broker": _consumers}
    for handle in cloud.handles:
        look = looks.get(handle.service)
        if look is not None:
            with telling(f"what waits in {handle.name} cannot be told", lines.append):
                lines += look(handle, scene)
    more = len(lines) - MOST
    return lines[:MOST] + ([f"and {more} more"] if more > 0 else [])


def _messages(queue: Any, scene: Scene) -> Iterator[str]:
    timekeeper_of(queue.clock).settle()
    yield from pending(queue._engine, scene.short)
    yield from given_up(queue._engine, scene.short)
    yield from schedules(queue._engine)


def _vectors(index: Any, scene: Scene) -> Iterator[str]:
    for namespace, count in _pending(index):
        where = f"namespace {compact(namespace)}" if namespace else "the default namespace"
        yield (
            f"{index.name}: {count} vector{'s' * (count > 1)} of {where} pending: no query sees "
            "them before they are indexed"
        )


def _pending(index: Any) -> Iterator[tuple[str, int]]:
    for name, space in index._engine.info().namespaces.items():
        if space.pending_vector_count:
            yield name, space.pending_vector_count


def _read_to_the_end(broker: Any, group: Any) -> set[Any]:
    """The partitions whose reader has all records and commits by itself, a little later."""
    found = set()
    for member in group.members:
        for tp, position in member.position.items() if member.config.auto_commit else ():
            if (
                position is not None
                and position >= broker.topic(tp.topic).end_offsets[tp.partition]
            ):
                found.add(tp)
    return found


def _consumers(broker: Any, scene: Scene) -> Iterator[str]:
    for name in broker.groups():
        group = broker.group(name)
        read = _read_to_the_end(broker, group)
        behind: dict[str, list[str]] = {}
        for tp, lag in group.lag.items():
            if lag and tp not in read:
                committed = group.committed.get(tp)
                at = "nothing committed" if committed is None else f"committed {committed}"
                told = f"{lag} record{'s' * (lag > 1)} behind in {tp.topic}-{tp.partition}"
                behind.setdefault(at, []).append(told)
        for at, parts in behind.items():
            yield f"{broker.name}: group {name} is {listed(parts)} ({at})"
