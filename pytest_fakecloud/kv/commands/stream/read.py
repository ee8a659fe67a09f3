"""XLEN, XRANGE, XREAD, what XREADGROUP shares with XREAD, and XINFO."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from ....core.budget import spend
from ... import errors
from ...engine.sessions import Session
from ...errors import CommandError
from ...reply import NIL_ARRAY, Map, Reply
from ...table.registry import Args, command, variant
from ...table.syntax import parse_int
from ...table.versions import ESTIMATED_COUNTERS
from ...values.stream import UNKNOWN_ENTRIES_READ, Consumer, Group, Stream, format_id, lag, make_id
from ..arguments import REST, existing, options, parse_milliseconds, subcommand_error, try_or_wait
from . import entry_reply, parse_id, parse_interval

_STEPS_AN_ENTRY = 10


def entries_reply(entries: list[tuple[int, list[bytes]]]) -> list[Reply]:
    return [entry_reply(entry_id, fields) for entry_id, fields in entries]


@command("XLEN")
def xlen(session: Session, args: Args) -> Reply:
    """Return the number of entries in a stream."""
    stream = session.db.get(args[0], Stream)
    return 0 if stream is None else stream.length


@variant("XRANGE", "Return the entries in a range of IDs.", reverse=False)
@variant(
    "XREVRANGE",
    "Return the entries in a range of IDs in reverse order; the end of the range comes first.",
    reverse=True,
)
def xrange(session: Session, args: Args, *, reverse: bool) -> Reply:
    low, high = parse_interval(args[2], args[1]) if reverse else parse_interval(args[1], args[2])
    count: int | None = None
    for _, (value,) in options(args, 3, {b"COUNT": 1}):
        count = max(parse_int(value), 0)
    stream = session.db.get(args[0], Stream)
    if stream is None:
        return []
    if count == 0:
        return NIL_ARRAY
    return entries_reply(stream.range(low, high, count, reverse=reverse))


@dataclass(slots=True)
class ReadWords:
    """The arguments of XREAD or XREADGROUP."""

    keys: list[bytes]
    ids: list[bytes]
    count: int | None = None
    block_ms: int | None = None
    group: bytes = b""
    consumer: bytes = b""
    noack: bool = False


def read_words(session: Session, args: Args, *, grouped: bool) -> ReadWords:
    """Parse the arguments of XREAD or, with ``grouped``, of XREADGROUP."""
    words, has_group = ReadWords([], []), False
    sizes = {b"BLOCK": 1, b"COUNT": 1, b"STREAMS": REST, b"GROUP": 2, b"NOACK": 0}
    for word, values in options(args, 0, sizes):
        if word == b"BLOCK":
            words.block_ms = parse_milliseconds(session, values[0])
        elif word == b"COUNT":
            words.count = max(parse_int(values[0]), 0) or None
        elif word == b"STREAMS":
            half, odd = divmod(len(values), 2)
            if odd:
                raise CommandError(errors.XREAD_UNBALANCED)
            words.keys, words.ids = values[:half], values[half:]
        elif word == b"GROUP":
            if not grouped:
                raise CommandError(errors.XREAD_GROUP)
            words.group, words.consumer = values
            has_group = True
        else:
            if not grouped:
                raise CommandError(errors.XREAD_NOACK)
            words.noack = True
    if not words.keys:
        raise CommandError(errors.SYNTAX)
    if grouped and not has_group:
        raise CommandError(errors.XREADGROUP_NO_GROUP)
    return words


def streams_reply(session: Session, found: list[tuple[bytes, list[Reply]]]) -> Reply:
    """Return entries by key: as a list of pairs, or as a map in RESP3."""
    if session.resp > 2:
        return Map(each for key, entries in found for each in (key, entries))
    return [[key, entries] for key, entries in found]


def answer_read(
    session: Session, words: ReadWords, attempt: Callable[[list[bytes]], Reply], kind: type = Stream
) -> Reply:
    """Return the reply of a read. With BLOCK, wait for entries if the session may block."""
    if words.block_ms is None:
        reply = attempt(words.keys)
        return NIL_ARRAY if reply is None else reply
    return try_or_wait(session, words.keys, words.block_ms, attempt, kind)


@command("XREAD")
def xread(session: Session, args: Args) -> Reply:
    """Return entries of several streams with IDs greater than the given IDs."""
    words = read_words(session, args, grouped=False)
    starts = [
        _start(session, session.db.get(key, Stream), text)
        for key, text in zip(words.keys, words.ids, strict=True)
    ]

    def attempt(keys: list[bytes]) -> Reply:
        found: list[tuple[bytes, list[Reply]]] = []
        wanted = set(keys)
        for key, start in zip(words.keys, starts, strict=True):
            stream = session.db.get(key, Stream) if key in wanted else None
            if stream is not None and stream.length and stream.highest_id >= start:
                entries = stream.range(start, count=words.count)
                # Charge the budget, because one command may name the same large stream a thousand
                # times.
                spend(_STEPS_AN_ENTRY * (2 + len(entries)))
                found.append((key, entries_reply(entries)))
        return streams_reply(session, found) if found else None

    return answer_read(session, words, attempt)


def _start(session: Session, stream: Stream | None, text: bytes) -> int:
    """Return the first ID to read, given an ID, ``$`` (new entries only) or ``+`` (the last entry)."""
    if text == b"$":
        return (stream.last_id if stream is not None else 0) + 1
    if text == b">":
        raise CommandError(errors.XREAD_NEW)
    if text == b"+" and session.engine.table.knows["XREAD +"]:
        return stream.highest_id if stream is not None and stream.length else make_id(0, 1)
    return parse_id(text) + 1


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
