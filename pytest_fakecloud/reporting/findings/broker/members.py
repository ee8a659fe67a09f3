"""Findings about the instances of consumer groups."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...model import Finding
from ..look import Look, about_group
from .calls import Place, consume_calls, instance_of

if TYPE_CHECKING:
    from ....core.calls import Call


def shared_group(look: Look, handle: Any) -> Iterator[Finding]:
    """Find groups shared by instances with dissimilar names, for example the instances of two
    services.
    """
    received: dict[str, dict[str, set[Place]]] = {}
    last: dict[str, Call] = {}
    for call, group, places in consume_calls(look, handle):
        received.setdefault(group, {}).setdefault(instance_of(call), set()).update(places)
        last[group] = call
    assignments = [
        (event.data["group"], event.data["assignment"].keys())
        for event in look.events("rebalance")
        if event.handle == handle.name
    ]
    for group, by_instance in received.items():
        if not any(name == group and by_instance.keys() <= names for name, names in assignments):
            continue
        stems = {re.sub(r"[\W_\d]+", "", name) for name in by_instance}
        differ = len(stems) == len(by_instance) > 1 and all(len(stem) > 2 for stem in stems)
        records = list(by_instance.values())
        if differ and any(records) and not set.intersection(*records):
            yield about_group("shared_group", last[group], group, instances=list(by_instance))


def instances_used_once(look: Look, handle: Any) -> Iterator[Finding]:
    """Find groups whose similarly named instances each consumed once, although partitions of
    earlier instances have unread records.
    """
    calls: dict[str, dict[str, list[Call]]] = {}
    for call, group, _ in consume_calls(look, handle):
        calls.setdefault(group, {}).setdefault(instance_of(call), []).append(call)
    for group, by_instance in calls.items():
        *earlier, last = by_instance
        stems = {re.sub(r"\d+", "", name) for name in by_instance}
        once = all(len(made) == 1 for made in by_instance.values())
        unread = _unread_partitions(handle, group, earlier)
        if len(by_instance) > 2 and len(stems) == 1 and once and unread:
            values = {"instances": len(by_instance), "partitions": unread}
            yield about_group("instances_used_once", by_instance[last][0], group, **values)


def _unread_partitions(handle: Any, group: str, instances: list[str]) -> list[str]:
    """Return the partitions with unread records that are assigned to some of a group's instances."""
    return [
        f"{tp.topic}-{tp.partition}"
        for member in handle.group(group).members
        if member.name in instances
        for tp in member.assignment
        if (position := member.position.get(tp)) is not None
        and position < handle.topic(tp.topic).end_offsets[tp.partition]
    ]
