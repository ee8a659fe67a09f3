"""Unfinished work and its reason: messages, pending vectors, consumer groups that lag behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...core.errors import report_failure
from ...queue.timeline import dead_letter_lines, schedule_lines, unfinished_lines
from ..model import SEVERITIES, Finding, Subject
from ..scene import Scene

if TYPE_CHECKING:
    from ...any_cloud import AnyCloud

MOST = 8
"""Maximum number of findings; further ones are only counted."""


def unfinished(cloud: AnyCloud, scene: Scene) -> list[Finding]:
    """Return a finding for each piece of unfinished work."""
    found: list[Finding] = []
    looks = {"queue": _messages, "vector": _vectors, "broker": _consumers}
    for handle in cloud.handles:
        look = looks.get(handle.service)
        failures: list[str] = []
        with report_failure("what waits cannot be shown", failures.append):
            found += look(handle, scene) if look is not None else ()
        found += [Finding("failed", handle.name, values={"text": text}) for text in failures]
    more = len(found) - MOST
    return found[:MOST] + ([Finding("more", values={"count": more})] if more > 0 else [])


def _messages(queue: Any, scene: Scene) -> Iterator[Finding]:
    queue._time.settle()
    for kind, lines in (
        ("message_waits", unfinished_lines(queue._engine, scene.short)),
        ("dead_letter", dead_letter_lines(queue._engine, scene.short)),
        ("schedule_waits", schedule_lines(queue._engine, scene.short)),
    ):
        for line in lines:
            yield Finding(kind, values={"line": line}, severity=SEVERITIES[kind])


def _vectors(index: Any, scene: Scene) -> Iterator[Finding]:
    for name, space in index._engine.info().namespaces.items():
        if count := space.pending_vector_count:
            subject = Subject("namespace", name, index.name)
            values = {"namespace": name, "count": count}
            yield Finding("vectors_pending", index.name, (), (subject,), values)


def _consumers(broker: Any, scene: Scene) -> Iterator[Finding]:
    for name in broker.groups():
        group = broker.group(name)
        read = _read_to_the_end(broker, group)
        behind: dict[int | None, dict[str, int]] = {}
        for tp, lag in group.lag.items():
            if lag and tp not in read:
                at = behind.setdefault(group.committed.get(tp), {})
                at[f"{tp.topic}-{tp.partition}"] = lag
        for committed, lag in behind.items():
            values = {"group": name, "lag": lag, "committed": committed}
            subject = Subject("group", name, broker.name)
            yield Finding("group_behind", broker.name, (), (subject,), values)


def _read_to_the_end(broker: Any, group: Any) -> set[Any]:
    """Return the partitions whose consumer has received all records and commits automatically."""
    found = set()
    for member in group.members:
        for tp, position in member.position.items() if member.config.auto_commit else ():
            end = broker.topic(tp.topic).end_offsets[tp.partition]
            if position is not None and position >= end:
                found.add(tp)
    return found
