"""Consumer group commands: XGROUP, XREADGROUP and XACK."""

from __future__ import annotations

from itertools import islice

from ... import errors
from ...engine.engine import Session
from ...errors import CommandError, bad_subcommand_arguments
from ...reply import NIL_ARRAY, OK, Reply
from ...table.registry import Args, command
from ...table.syntax import parse_int
from ...values.consumer_group import ID_MAX, UNKNOWN_ENTRIES_READ, Consumer, Group, advance
from ...values.stream import Stream, format_id
from ..arguments import options
from .ids import entry_reply, parse_extreme_id, parse_id, parse_ids
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
    session: Session, key: bytes, name: bytes, *, reading: bool = False
) -> tuple[Stream, Group]:
    stream = session.db.get(key, Stream)
    group = None if stream is None else stream.groups.get(name)
    if stream is None or group is None:
        text = errors.no_group_to_read if reading else errors.no_group
        raise CommandError(text(key, name))
    return stream, group


def _group_words(args: Args, sub: bytes) -> tuple[bool, int]:
    """Parse the options MKSTREAM (allowed only with CREATE) and ENTRIESREAD."""
    mkstream, entries_read = False, UNKNOWN_ENTRIES_READ
    sizes = {b"ENTRIESREAD": 1, b"MKSTREAM": 0} if sub == b"CREATE" else {b"ENTRIESREAD": 1}
    for word, values in options(args, 3, sizes, bad_subcommand_arguments(sub, "XGROUP")):
        if word == b"MKSTREAM":
            mkstream = True
        else:
            entries_read = parse_int(values[0])
            if entries_read < 0 and entries_read != UNKNOWN_ENTRIES_READ:
                raise CommandError(errors.XGROUP_ENTRIESREAD)
    return mkstream, entries_read


def _existing(session: Session, key: bytes) -> Stream:
    stream = session.db.get(key, Stream)
    if stream is None:
        raise CommandError(errors.XGROUP_NO_KEY)
    return stream


def _existing_group(session: Session, args: Args) -> tuple[Stream, Group]:
    stream = _existing(session, args[0])
    group = stream.groups.get(args[1])
    if group is None:
        raise CommandError(errors.no_group_for_key(args[1], args[0]))
    return stream, group


@command("XGROUP CREATE")
def xgroup_create(session: Session, args: Args) -> Reply:
    """Create a consumer group that starts after an ID."""
    mkstream, entries_read = _group_words(args, b"CREATE")
    stream = session.db.get(args[0], Stream) if mkstream else _existing(session, args[0])
    if len(args) > 6:
        raise CommandError(bad_subcommand_arguments(b"CREATE", "XGROUP"))
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
    _, entries_read = _group_words(args, b"SETID")
    stream, group = _existing_group(session, args)
    if len(args) not in (3, 5):
        raise CommandError(bad_subcommand_arguments(b"SETID", "XGROUP"))
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


class _GroupRead:
    """An XREADGROUP command, which may wait for entries."""

    def __init__(self, session: Session, words: ReadWords) -> None:
        self._session = session
        self._words = words
        self._group_name = words.group or b""
        self._starts = []
        for key, text in zip(words.keys, words.ids, strict=True):
            find_group(session, key, self._group_name, reading=True)
            self._starts.append((key, _read_id(text)))
        self._has_waited = False
        self._is_vendor = session.engine.dialect == "vendor"
        knows = session.engine.table.knows
        self._makes_consumers = knows["consumers are created before they receive an entry"]
        self._estimates = knows["the counter of groups before the first entry is estimated"]

    def attempt(self, keys: list[bytes]) -> Reply:
        """Return the reply, or None if no key has entries for the consumer yet."""
        has_waited, self._has_waited = self._has_waited, True
        found: list[tuple[bytes, list[Reply]]] = []
        for key, after in self._starts:
            stream, group = _group_of(self._session, key, self._group_name, waited=has_waited)
            if after is not None:
                consumer = find_consumer(self._session, key, group, self._words.consumer)
                count = self._words.count
                found.append((key, _history(self._session, stream, consumer, after, count)))
                continue
            has_new = stream.length > 0 and stream.highest_id > group.last_id
            if has_new or self._makes_consumers:
                consumer = self._consumer(key, group)
                if has_new:
                    found.append((key, self._deliver(key, stream, group, consumer)))
        return streams_reply(self._session, found) if found else None

    def _consumer(self, key: bytes, group: Group) -> Consumer:
        name = self._words.consumer
        if self._words.noack and self._is_vendor:
            # With NOACK, no entry becomes pending, so the vendor does not create the consumer.
            return group.consumers.get(name) or Consumer(name, 0)
        return find_consumer(self._session, key, group, name)

    def _deliver(self, key: bytes, stream: Stream, group: Group, consumer: Consumer) -> list[Reply]:
        """Deliver the new entries to the consumer, and return them as a reply."""
        session = self._session
        entries = stream.range(group.last_id + 1, count=self._words.count or -1)
        if self._is_vendor and not self._words.noack:
            self._check_pending_limit(key, consumer, len(entries))
        for entry_id, _ in entries:
            advance(stream, group, entry_id, estimate=self._estimates)
            if not self._words.noack:
                group.deliver(entry_id, consumer, session.now_ms)
                consumer.active_ms = session.now_ms
        session.db.touch_unwatched(key, "")
        return entries_reply(entries)

    def _check_pending_limit(self, key: bytes, consumer: Consumer, more: int) -> None:
        limit, held = self._session.engine.limits.max_pending_entries, len(consumer.pending)
        if limit is not None and held + more > limit:
            where = (key, self._group_name, consumer.name)
            raise CommandError(errors.pending_limit(limit, held, more, *where))


@command("XREADGROUP")
def xreadgroup(session: Session, args: Args) -> Reply:
    """Return new entries to a consumer of a group, or the consumer's pending entries."""
    words = read_words(session, args, grouped=True)
    read = _GroupRead(session, words)
    # Match values of any type: if the key is replaced, the group no longer exists, which ends the
    # wait.
    return answer_read(session, words, read.attempt, object)


def _group_of(session: Session, key: bytes, name: bytes, *, waited: bool) -> tuple[Stream, Group]:
    """Return the stream and the group; some versions have an error of their own after waiting."""
    try:
        return find_group(session, key, name, reading=True)
    except CommandError:
        usual = session.engine.table.knows["deleted groups are reported with the usual error"]
        if waited and not usual:
            there = isinstance(session.db.find(key), Stream)
            text = errors.GROUP_GONE if there else errors.STREAM_GONE
            raise CommandError(text) from None
        raise


def _history(
    session: Session, stream: Stream, consumer: Consumer, after: int, count: int
) -> list[Reply]:
    """Return a consumer's pending entries as a reply, in which a deleted entry has no fields."""
    entries: list[Reply] = []
    for entry_id, pending in islice(consumer.pending.items(after + 1), count or None):
        fields = stream.get(entry_id)
        if fields is None:
            entries.append([format_id(entry_id), NIL_ARRAY])
        else:
            entries.append(entry_reply(entry_id, fields))
            pending.delivered_ms = session.now_ms
            pending.deliveries += 1
    return entries


@command("XACK")
def xack(session: Session, args: Args) -> Reply:
    """Acknowledge entries in a group and return the number of entries that were pending."""
    stream = session.db.get(args[0], Stream)
    group = None if stream is None else stream.groups.get(args[1])
    if group is None:
        return 0
    acknowledged = sum(map(group.acknowledge, parse_ids(args[2:])))
    if acknowledged:
        session.db.touch_unwatched(args[0])
    return acknowledged
