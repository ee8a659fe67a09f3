"""Findings about committed offsets, and about groups that commit none."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ....broker.model import CONSUMER_HEADERS
from ...model import Finding
from ..look import Look, about_group
from .calls import (
    Place,
    calls_of,
    committed_places,
    consume_calls,
    group_of,
    groups_without_commits,
    received_records,
)  # fmt: skip

if TYPE_CHECKING:
    from ....core.calls import Call, Event


def commit_too_high(look: Look, handle: Any) -> Iterator[Finding]:
    """Find commits of an offset beyond the end, or beyond the last record that was received."""
    last_offset: dict[tuple[str, str, int], int] = {}
    for call in calls_of(look, handle):
        group = group_of(call)
        for record in received_records(call):
            partition = group, record["topic"], record["partition"]
            last_offset[partition] = max(record["offset"], last_offset.get(partition, -1))
        for place in committed_places(call):
            ends = look.scene.end_offsets.get((handle.name, place.topic), ())
            if place.partition >= len(ends):
                continue
            last, end = last_offset.get((group, *place[:2])), ends[place.partition]
            values = {"partition": place.of_partition, "offset": place.offset, "last": last}
            if place.offset > end:
                yield about_group("commit_beyond_end", call, group, end=end, **values)
            elif last is not None and place.offset > last + 1:
                yield about_group("commit_beyond_received", call, group, **values)


def unknown_header(look: Look, handle: Any) -> Iterator[Finding]:
    """Find headers that the broker ignored and whose name is similar to one that it reads."""
    reported: set[str] = set()
    for call in calls_of(look, handle):
        for name, value in call.headers.items():
            setting = _intended_setting(name)
            if not setting or name in reported:
                continue
            reported.add(name)
            disables = setting == "enable-auto-commit" and value.lower() == "false"
            commits = _auto_commits_after(look, call) if disables else []
            # Keep the spelling of the prefix "Kafka-".
            values = {
                "header": name, "known": f"{name[: len('kafka-')]}{setting.title()}", "value": value,
                "committed": [f"{topic}-{partition}={offset}" for event in commits
                              for topic, partition, offset in event.data["offsets"]],
            }  # fmt: skip
            rows = call.number, *(event.number for event in commits)
            yield Finding("unknown_header", handle.name, rows, values=values)


def _intended_setting(header: str) -> str:
    """Return the setting with a name similar to an unknown header's; empty for other headers."""
    prefix, _, setting = header.lower().partition("-")
    if prefix != "kafka" or setting in CONSUMER_HEADERS:
        return ""
    return next(iter(difflib.get_close_matches(setting, CONSUMER_HEADERS, 1)), "")


def _auto_commits_after(look: Look, call: Call) -> list[Event]:
    """Return the automatic commits of a call's consumer after the call."""
    consumer = call.facts.get("group"), call.facts.get("instance")
    return [
        event
        for event in look.events("auto commit")
        if event.handle == call.handle
        and event.number > call.number
        and (event.data["group"], event.data["instance"]) == consumer
    ]


def committed_before_failure(look: Look, handle: Any) -> Iterator[Finding]:
    """Find records that a group committed before a call to another fake failed, and that were not
    redelivered.
    """
    commits: dict[str, tuple[Call, int]] = {}
    uncommitted: dict[str, int] = {}
    known = {call.number for call in calls_of(look, handle)}
    for call in look.calls:
        group = group_of(call)
        if call.handle != handle.name:
            if call.status is None or call.status >= 500:
                for name, (commit, count) in commits.items():
                    yield about_group("committed_before_failure", commit, name, records=count)
                commits.clear()
        elif call.number not in known:
            continue
        elif call.route == "consume":
            commits.pop(group, None)
            uncommitted[group] = len(received_records(call))
        elif call.route == "commit" and call.status == 200 and uncommitted.get(group):
            commits[group] = call, uncommitted.pop(group)


def never_committed(look: Look, handle: Any) -> Iterator[Finding]:
    """Find groups with automatic commits off that received records and committed nothing."""
    received: dict[str, list[Place]] = {}
    last: dict[str, Call] = {}
    for call, group, places in consume_calls(look, handle):
        if places:
            received.setdefault(group, []).extend(places)
            last[group] = call
    without_commits = groups_without_commits(handle)
    for group, places in received.items():
        if group in without_commits:
            values = {"records": len(set(places)), "deliveries": len(places)}
            yield about_group("never_committed", last[group], group, **values)
