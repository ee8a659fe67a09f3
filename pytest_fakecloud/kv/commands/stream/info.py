"""XINFO commands, which describe streams, groups and consumers."""

from __future__ import annotations

from itertools import islice

from ... import errors
from ...engine.session import Session
from ...errors import CommandError
from ...reply import Map, Reply
from ...table.registry import Args, command
from ...table.syntax import parse_int
from ...table.versions import ESTIMATED_COUNTERS
from ...values.stream import UNKNOWN_ENTRIES_READ, Consumer, Group, Stream, format_id, lag
from ..arguments import existing, subcommand_error
from .ids import entry_reply
from .read import entries_reply


def _progress(session: Session, stream: Stream, group: Group) -> list[Reply]:
    read = None if group.entries_read == UNKNOWN_ENTRIES_READ else group.entries_read
    behind = lag(stream, group, estimate=session.engine.table.knows[ESTIMATED_COUNTERS])
    return [
        b"last-delivered-id", format_id(group.last_id), b"entries-read", read, b"lag", behind,
    ]  # fmt: skip


@command("XINFO GROUPS")
def xinfo_groups(session: Session, args: Args) -> Reply:
    """Return the consumer groups of a stream."""
    stream = existing(session, args[0], Stream)
    return [
        Map([
            b"name", name,
            b"consumers", len(group.consumers),
            b"pending", len(group.pending),
            *_progress(session, stream, group),
        ])
        for name, group in sorted(stream.groups.items())
    ]  # fmt: skip


@command("XINFO CONSUMERS")
def xinfo_consumers(session: Session, args: Args) -> Reply:
    """Return the consumers of a group.

    ``inactive`` is -1 for a consumer that never received an entry. If the group does not exist, the
    vendor returns an empty list, while Redis raises NOGROUP.
    """
    group = existing(session, args[0], Stream).groups.get(args[1])
    if group is None:
        if session.engine.dialect == "vendor":
            return []
        raise CommandError(errors.no_group_for_key(args[1], args[0]))
    now_ms = session.now_ms
    found: list[Reply] = []
    for consumer in group.sorted_consumers():
        shown = Map([
            b"name", consumer.name,
            b"pending", len(consumer.pending),
            b"idle", max(now_ms - consumer.seen_ms, 0),
        ])  # fmt: skip
        if session.engine.table.knows["XINFO CONSUMERS inactive"]:
            active_ms = consumer.active_ms
            shown += [b"inactive", -1 if active_ms < 0 else max(now_ms - active_ms, 0)]
        found.append(shown)
    return found


@command("XINFO STREAM")
def xinfo_stream(session: Session, args: Args) -> Reply:
    """Return information about a stream; with FULL, include its entries and groups."""
    stream = existing(session, args[0], Stream)
    is_full = len(args) > 1 and args[1].upper() == b"FULL"
    count: int | None = 10
    if is_full and len(args) == 4 and args[2].upper() == b"COUNT":
        given = parse_int(args[3])
        count = (given or None) if given >= 0 else 10
    elif len(args) != (2 if is_full else 1):
        raise subcommand_error(session)
    head = Map([
        b"length", stream.length,
        b"radix-tree-keys", len(stream.nodes),
        b"radix-tree-nodes", stream.radix_tree_nodes,
        b"last-generated-id", format_id(stream.last_id),
        b"max-deleted-entry-id", format_id(stream.max_deleted_id),
        b"entries-added", stream.entries_added,
        b"recorded-first-entry-id", format_id(stream.first_id),
    ])  # fmt: skip
    if not is_full:
        ends = [stream.range(count=1), stream.range(count=1, reverse=True)]
        first, last = (entry_reply(*end[0]) if end else None for end in ends)
        head += [b"groups", len(stream.groups), b"first-entry", first, b"last-entry", last]
        return head
    groups = [
        _full_group(session, stream, name, group, count)
        for name, group in sorted(stream.groups.items())
    ]
    entries = entries_reply(stream.range(count=count))
    head += [b"entries", entries, b"groups", groups]
    return head


def _full_group(
    session: Session, stream: Stream, name: bytes, group: Group, limit: int | None
) -> Map:
    """Return a group with its consumers, each with up to ``limit`` pending entries."""
    pending = [
        [format_id(entry_id), each.consumer.name, each.delivered_ms, each.deliveries]
        for entry_id, each in islice(group.pending.items(), limit)
    ]
    return Map([
        b"name", name,
        *_progress(session, stream, group),
        b"pel-count", len(group.pending),
        b"pending", pending,
        b"consumers", [_full_consumer(session, each, limit) for each in group.sorted_consumers()],
    ])  # fmt: skip


def _full_consumer(session: Session, consumer: Consumer, limit: int | None) -> Map:
    pending = [
        [format_id(entry_id), each.delivered_ms, each.deliveries]
        for entry_id, each in islice(consumer.pending.items(), limit)
    ]
    shown = Map([b"name", consumer.name, b"seen-time", consumer.seen_ms])
    if session.engine.table.knows["XINFO CONSUMERS inactive"]:
        shown += [b"active-time", consumer.active_ms]
    shown += [b"pel-count", len(consumer.pending), b"pending", pending]
    return shown
