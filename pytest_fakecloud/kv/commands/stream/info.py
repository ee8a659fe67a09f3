"""XINFO commands, which describe streams, groups and consumers."""

from __future__ import annotations

from ... import errors
from ...engine.engine import Session
from ...errors import CommandError, bad_subcommand_arguments
from ...reply import Map, Reply
from ...table.registry import Args, command
from ...table.syntax import parse_int
from ...values.consumer_group import UNKNOWN_ENTRIES_READ, Consumer, Group, lag
from ...values.stream import Stream, format_id
from .ids import entry_reply
from .read import entries_reply


def _stream(session: Session, key: bytes) -> Stream:
    stream = session.db.get(key, Stream)
    if stream is None:
        raise CommandError(errors.NO_SUCH_KEY)
    return stream


def _entries_read(group: Group) -> int | None:
    return None if group.entries_read == UNKNOWN_ENTRIES_READ else group.entries_read


def _sorted_groups(stream: Stream) -> list[tuple[bytes, Group]]:
    return [(name, stream.groups[name]) for name in sorted(stream.groups)]


@command("XINFO GROUPS")
def xinfo_groups(session: Session, args: Args) -> Reply:
    """Return the consumer groups of a stream."""
    stream = _stream(session, args[0])
    estimate = session.engine.table.knows[
        "the counter of groups before the first entry is estimated"
    ]
    return [
        Map([
            b"name", name,
            b"consumers", len(group.consumers),
            b"pending", len(group.pending),
            b"last-delivered-id", format_id(group.last_id),
            b"entries-read", _entries_read(group),
            b"lag", lag(stream, group, estimate=estimate),
        ])
        for name, group in _sorted_groups(stream)
    ]  # fmt: skip


@command("XINFO CONSUMERS")
def xinfo_consumers(session: Session, args: Args) -> Reply:
    """Return the consumers of a group.

    ``inactive`` is -1 for a consumer that never received an entry. If the group does not exist, the
    vendor returns an empty list, while Redis raises NOGROUP.
    """
    group = _stream(session, args[0]).groups.get(args[1])
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
        if _tells_activity(session):
            active_ms = consumer.active_ms
            shown += [b"inactive", -1 if active_ms < 0 else max(now_ms - active_ms, 0)]
        found.append(shown)
    return found


def _tells_activity(session: Session) -> bool:
    """Return whether this server version reports when a consumer last received an entry."""
    return session.engine.table.knows["XINFO CONSUMERS inactive"]


@command("XINFO STREAM")
def xinfo_stream(session: Session, args: Args) -> Reply:
    """Return information about a stream; with FULL, include its entries and groups."""
    stream = _stream(session, args[0])
    words = [word.upper() for word in args[1:]]
    count = 10
    if words:
        shape = (words[0], len(words), words[1] if len(words) == 3 else b"COUNT")
        if shape not in ((b"FULL", 1, b"COUNT"), (b"FULL", 3, b"COUNT")):
            raise CommandError(bad_subcommand_arguments(b"STREAM", "XINFO"))
        if len(words) == 3:
            count = parse_int(args[3])
            count = 10 if count < 0 else count
    head = Map([
        b"length", stream.length,
        b"radix-tree-keys", len(stream.nodes),
        b"radix-tree-nodes", stream.radix_tree_nodes,
        b"last-generated-id", format_id(stream.last_id),
        b"max-deleted-entry-id", format_id(stream.max_deleted_id),
        b"entries-added", stream.entries_added,
        b"recorded-first-entry-id", format_id(stream.first_id),
    ])  # fmt: skip
    if not words:
        ends = [stream.range(count=1), stream.range(count=1, reverse=True)]
        first, last = (entry_reply(*end[0]) if end else None for end in ends)
        head += [b"groups", len(stream.groups), b"first-entry", first, b"last-entry", last]
        return head
    active = _tells_activity(session)
    groups = [
        _full_group(session, stream, name, group, count, active=active)
        for name, group in _sorted_groups(stream)
    ]
    entries = entries_reply(stream.range(count=count or -1))
    head += [b"entries", entries, b"groups", groups]
    return head


def _full_group(
    session: Session, stream: Stream, name: bytes, group: Group, count: int, *, active: bool
) -> Map:
    estimate = session.engine.table.knows[
        "the counter of groups before the first entry is estimated"
    ]
    pending: list[Reply] = []
    for entry_id, each in group.pending.items():
        pending.append(
            [format_id(entry_id), each.consumer.name, each.delivered_ms, each.deliveries]
        )
        if len(pending) == count:
            break
    return Map([
        b"name", name,
        b"last-delivered-id", format_id(group.last_id),
        b"entries-read", _entries_read(group),
        b"lag", lag(stream, group, estimate=estimate),
        b"pel-count", len(group.pending),
        b"pending", pending,
        b"consumers", [
            _full_consumer(each, count, active=active) for each in group.sorted_consumers()
        ],
    ])  # fmt: skip


def _full_consumer(consumer: Consumer, count: int, *, active: bool) -> Map:
    pending: list[Reply] = []
    for entry_id, each in consumer.pending.items():
        pending.append([format_id(entry_id), each.delivered_ms, each.deliveries])
        if len(pending) == count:
            break
    shown = Map([b"name", consumer.name, b"seen-time", consumer.seen_ms])
    if active:
        shown += [b"active-time", consumer.active_ms]
    shown += [b"pel-count", len(consumer.pending), b"pending", pending]
    return shown
