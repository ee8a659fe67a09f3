"""Consumer group commands: XGROUP, XREADGROUP and XACK."""

from __future__ import annotations

from itertools import islice

from ... import errors
from ...engine.session import Session
from ...errors import CommandError, Template
from ...reply import NIL_ARRAY, OK, Reply
from ...table.registry import Args, command
from ...table.syntax import parse_int
from ...table.versions import EARLY_CONSUMERS, ESTIMATED_COUNTERS
from ...values.stream import (
    ID_MAX,
    UNKNOWN_ENTRIES_READ,
    Consumer,
    Group,
    Stream,
    advance,
    format_id,
)
from ..arguments import existing, options, subcommand_error
from .ids import entry_reply, parse_extreme_id, parse_id
from .read import ReadWords, answer_read, entries_reply, read_words, streams_reply


def find_consumer(session: Session, key: bytes, group: Group, name: bytes) -> Consumer:
    """Return a consumer, seen now, of a group. Creating it publishes a keyspace event."""
    consumer = group.consumers.get(name)
    if consumer is None:
        consumer = group.consumers[name] = Consumer(name, session.now_ms)
        session.db.touch_unwatched(key, "xgroup-createconsumer")
    consumer.seen_ms = session.now_ms
    return consumer


def find_group(
    session: Session, key: bytes, name: bytes, error: Template = errors.no_group
) -> tuple[Stream, Group]:
    """Return the stream of a key and one of its groups; raise ``error`` if either is missing."""
    stream = session.db.get(key, Stream)
    group = None if stream is None else stream.groups.get(name)
    if stream is None or group is None:
        raise CommandError(error(key, name))
    return stream, group


def _group_words(session: Session, args: Args, *flags: bytes) -> tuple[bool, int]:
    """Parse the options ENTRIESREAD and ``flags``; return whether MKSTREAM is given, and the number."""
    mkstream, entries_read = False, UNKNOWN_ENTRIES_READ
    sizes = {b"ENTRIESREAD": 1, **dict.fromkeys(flags, 0)}
    for word, values in options(args, 3, sizes, subcommand_error(session).text):
        if word == b"MKSTREAM":
            mkstream = True
        else:
            entries_read = parse_int(values[0])
            if entries_read < 0 and entries_read != UNKNOWN_ENTRIES_READ:
                raise CommandError(errors.XGROUP_ENTRIESREAD)
    return mkstream, entries_read


def _existing(session: Session, key: bytes) -> Stream:
    return existing(session, key, Stream, errors.XGROUP_NO_KEY)


def _existing_group(session: Session, args: Args) -> tuple[Stream, Group]:
    stream = _existing(session, args[0])
    group = stream.groups.get(args[1])
    if group is None:
        raise CommandError(errors.no_group_for_key(args[1], args[0]))
    return stream, group


@command("XGROUP CREATE")
def xgroup_create(session: Session, args: Args) -> Reply:
    """Create a consumer group that starts after an ID."""
    mkstream, entries_read = _group_words(session, args, b"MKSTREAM")
    stream = session.db.get(args[0], Stream) if mkstream else _existing(session, args[0])
    if len(args) > 6:
        raise subcommand_error(session)
    end = 0 if stream is None else stream.last_id
    last_id = end if args[2] == b"$" else parse_id(args[2])
    if stream is None:
        stream = session.db.get_or_create(args[0], Stream)
        session.db.touch(args[0], "")
    if args[1] in stream.groups:
        raise CommandError(errors.BUSYGROUP)
    stream.groups[args[1]] = Group(last_id, entries_read)
    session.db.touch_unwatched(args[0])
    return OK


@command("XGROUP SETID")
def xgroup_setid(session: Session, args: Args) -> Reply:
    """Set the last delivered ID of a consumer group."""
    _, entries_read = _group_words(session, args)
    stream, group = _existing_group(session, args)
    if len(args) not in (3, 5):
        raise subcommand_error(session)
    group.last_id = stream.last_id if args[2] == b"$" else parse_extreme_id(args[2])
    group.entries_read = entries_read
    session.db.touch_unwatched(args[0])
    return OK


@command("XGROUP DESTROY")
def xgroup_destroy(session: Session, args: Args) -> Reply:
    """Delete a consumer group and return whether it existed."""
    if _existing(session, args[0]).groups.pop(args[1], None) is None:
        return 0
    session.db.touch_unwatched(args[0])
    return 1


@command("XGROUP CREATECONSUMER")
def xgroup_createconsumer(session: Session, args: Args) -> Reply:
    """Create a consumer in a group and return whether it is new."""
    _, group = _existing_group(session, args)
    if args[2] in group.consumers:
        return 0
    group.consumers[args[2]] = Consumer(args[2], session.now_ms)
    session.db.touch_unwatched(args[0])
    return 1


@command("XGROUP DELCONSUMER")
def xgroup_delconsumer(session: Session, args: Args) -> Reply:
    """Delete a consumer of a group and return the number of its pending entries."""
    _, group = _existing_group(session, args)
    pending = group.remove_consumer(args[2])
    if pending is None:
        return 0
    session.db.touch_unwatched(args[0])
    return pending


def _read_id(text: bytes) -> int | None:
    """Return the ID after which to read pending entries, or None to read new entries."""
    if text == b"$":
        raise CommandError(errors.XREADGROUP_LAST)
    if text == b">":
        return None
    after = parse_id(text)
    return None if after == ID_MAX else after


@command("XREADGROUP")
def xreadgroup(session: Session, args: Args) -> Reply:
    """Return new entries to a consumer of a group, or the consumer's pending entries."""
    words = read_words(session, args, grouped=True)
    starts: list[tuple[bytes, int | None]] = []
    for key, text in zip(words.keys, words.ids, strict=True):
        find_group(session, key, words.group, errors.no_group_to_read)
        starts.append((key, _read_id(text)))
    has_waited = False

    def attempt(keys: list[bytes]) -> Reply:
        # Read all keys of the command, because a group that has disappeared ends the wait.
        nonlocal has_waited
        found: list[tuple[bytes, list[Reply]]] = []
        for key, after in starts:
            stream, group = _find_to_read(session, key, words.group, has_waited)
            if after is not None:
                found.append((key, _history(session, words, key, stream, group, after)))
            elif (entries := _new_entries(session, words, key, stream, group)) is not None:
                found.append((key, entries))
        has_waited = True
        return streams_reply(session, found) if found else None

    # Match values of any type: if the key is replaced, the group no longer exists, which ends the
    # wait.
    return answer_read(session, words, attempt, object)


def _find_to_read(
    session: Session, key: bytes, name: bytes, has_waited: bool
) -> tuple[Stream, Group]:
    """Return the stream and the group; some versions have errors of their own after waiting."""
    try:
        return find_group(session, key, name, errors.no_group_to_read)
    except CommandError:
        knows = session.engine.table.knows
        if not has_waited or knows["deleted groups are reported with the usual error"]:
            raise
        has_stream = isinstance(session.db.find(key), Stream)
        raise CommandError(errors.GROUP_GONE if has_stream else errors.STREAM_GONE) from None


def _history(
    session: Session, words: ReadWords, key: bytes, stream: Stream, group: Group, after: int
) -> list[Reply]:
    """Return the consumer's pending entries, in which a deleted entry has no fields."""
    now_ms = session.now_ms
    pending = find_consumer(session, key, group, words.consumer).pending
    entries: list[Reply] = []
    for entry_id, each in islice(pending.items(after + 1), words.count):
        fields = stream.get(entry_id)
        if fields is None:
            entries.append([format_id(entry_id), NIL_ARRAY])
        else:
            entries.append(entry_reply(entry_id, fields))
            each.delivered_ms = now_ms
            each.deliveries += 1
    return entries


def _new_entries(
    session: Session, words: ReadWords, key: bytes, stream: Stream, group: Group
) -> list[Reply] | None:
    """Deliver new entries to the consumer and return them; None without new entries."""
    knows, is_vendor = session.engine.table.knows, session.engine.dialect == "vendor"
    has_new = stream.length > 0 and stream.highest_id > group.last_id
    if not has_new and not knows[EARLY_CONSUMERS]:
        return None
    if words.noack and is_vendor:
        # With NOACK, no entry becomes pending, so the vendor does not create the consumer.
        consumer = group.consumers.get(words.consumer) or Consumer(words.consumer, 0)
    else:
        consumer = find_consumer(session, key, group, words.consumer)
    if not has_new:
        return None
    entries = stream.range(group.last_id + 1, count=words.count)
    limit, held = session.engine.settings.max_pending_entries, len(consumer.pending)
    if is_vendor and not words.noack and limit is not None and held + len(entries) > limit:
        where = (key, words.group, consumer.name)
        raise CommandError(errors.pending_limit(limit, held, len(entries), *where))
    for entry_id, _ in entries:
        advance(stream, group, entry_id, estimate=knows[ESTIMATED_COUNTERS])
        if not words.noack:
            group.deliver(entry_id, consumer, session.now_ms)
            consumer.active_ms = session.now_ms
    session.db.touch_unwatched(key, "")
    return entries_reply(entries)


@command("XACK")
def xack(session: Session, args: Args) -> Reply:
    """Acknowledge entries in a group and return the number of entries that were pending."""
    stream = session.db.get(args[0], Stream)
    group = None if stream is None else stream.groups.get(args[1])
    if group is None:
        return 0
    ids = [parse_id(text) for text in args[2:]]
    acknowledged = sum(map(group.acknowledge, ids))
    if acknowledged:
        session.db.touch_unwatched(args[0])
    return acknowledged
