"""Consumer group commands: XGROUP, XREADGROUP, XACK, and those for pending entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from ... import errors
from ...engine.sessions import Session
from ...errors import CommandError, Template
from ...reply import NIL_ARRAY, OK, Reply
from ...syntax import parse_int, try_int
from ...table.registry import Args, command
from ...table.versions import EARLY_CONSUMERS, ENTRIES_READ_BELOW_ADDED, ESTIMATED_COUNTERS
from ...values.measures import PENDING
from ...values.stream import (
    ID_MAX,
    MOST_DELIVERIES,
    UNKNOWN_ENTRIES_READ,
    Consumer,
    Group,
    Pending,
    StreamValue,
    advance,
    format_id,
)
from ..arguments import existing, get_or_empty, parse_options, subcommand_error, try_or_wait
from .entries import (
    ReadWords,
    entries_reply,
    entry_reply,
    parse_extreme_id,
    parse_id,
    parse_interval,
    parse_start,
    read_words,
    streams_reply,
)


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
) -> tuple[StreamValue, Group]:
    """Return the stream of a key and one of its groups; raise ``error`` if either is missing."""
    stream = get_or_empty(session, key, StreamValue)
    group = stream.groups.get(name)
    if group is None:
        raise CommandError(error(key, name))
    return stream, group


def _group_words(session: Session, args: Args) -> tuple[bool, int]:
    """Return whether MKSTREAM is given, and the number of ENTRIESREAD."""
    mkstream, entries_read = False, UNKNOWN_ENTRIES_READ
    sizes = session.command.option_sizes
    for word, values in parse_options(args, 3, sizes, subcommand_error(session).text):
        if word == b"MKSTREAM":
            mkstream = True
        else:
            lowest = UNKNOWN_ENTRIES_READ
            entries_read = parse_int(values[0], lowest, outside=errors.XGROUP_ENTRIESREAD)
    return mkstream, entries_read


def _existing(session: Session, args: Args) -> StreamValue:
    return existing(session, args[0], StreamValue, errors.XGROUP_NO_KEY)


def _existing_group(session: Session, args: Args) -> tuple[StreamValue, Group]:
    stream = _existing(session, args)
    if args[1] not in stream.groups:
        raise CommandError(errors.no_group_for_key(args[1], args[0]))
    return stream, stream.groups[args[1]]


def _limited(session: Session, stream: StreamValue, entries_read: int) -> int:
    """Return the number of ENTRIESREAD, of which some versions accept at most the entries added."""
    if session.engine.table.knows[ENTRIES_READ_BELOW_ADDED]:
        return min(entries_read, stream.entries_added)
    return entries_read


@command("XGROUP CREATE")
def xgroup_create(session: Session, args: Args) -> Reply:
    """Create a consumer group that starts after an ID."""
    mkstream, entries_read = _group_words(session, args)
    stream = session.db.get(args[0], StreamValue) if mkstream else _existing(session, args)
    if len(args) > 6:
        raise subcommand_error(session)
    end = 0 if stream is None else stream.last_id
    last_id = end if args[2] == b"$" else parse_id(args[2])
    if stream is None:
        stream = session.db.get_or_create(args[0], StreamValue)
        session.db.touch(args[0], "")
    if args[1] in stream.groups:
        raise CommandError(errors.BUSYGROUP)
    stream.groups[args[1]] = Group(last_id, _limited(session, stream, entries_read))
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
    group.entries_read = _limited(session, stream, entries_read)
    session.db.touch_unwatched(args[0])
    return OK


@command("XGROUP DESTROY")
def xgroup_destroy(session: Session, args: Args) -> Reply:
    """Delete a consumer group and return whether it existed."""
    if _existing(session, args).groups.pop(args[1], None) is None:
        return 0
    session.db.signal(args[0], "stream")
    session.db.touch_unwatched(args[0])
    return 1


@command("XGROUP CREATECONSUMER")
def xgroup_createconsumer(session: Session, args: Args) -> Reply:
    """Create a consumer in a group and return whether it is new."""
    _, group = _existing_group(session, args)
    if args[2] in group.consumers:
        return 0
    find_consumer(session, args[0], group, args[2])
    return 1


@command("XGROUP DELCONSUMER")
def xgroup_delconsumer(session: Session, args: Args) -> Reply:
    """Delete a consumer of a group and return the number of its pending entries."""
    _, group = _existing_group(session, args)
    consumer = group.consumers.pop(args[2], None)
    if consumer is None:
        return 0
    for entry_id, _ in consumer.pending.between():
        group.pending.take(entry_id)
    session.db.touch_unwatched(args[0])
    return len(consumer.pending)


@command("XREADGROUP")
def xreadgroup(session: Session, args: Args) -> Reply:
    """Return new entries to a consumer of a group, or the consumer's pending entries.

    With CLAIM, an entry that was released was last delivered -1 milliseconds ago, as in XPENDING, and
    pending entries that the stream no longer has are acknowledged, as by XAUTOCLAIM (decided here).
    """
    words = read_words(session, args, grouped=True)
    starts: list[tuple[bytes, int | None]] = []
    """Each key with the ID after which to read pending entries, or None to read new entries."""
    for key, text in zip(words.keys, words.ids, strict=True):
        find_group(session, key, words.group, errors.no_group_to_read)
        if text == b"$":
            raise CommandError(errors.XREADGROUP_LAST)
        after = None if text == b">" else parse_id(text)
        starts.append((key, None if after == ID_MAX else after))
    has_waited = False

    def attempt(keys: list[bytes]) -> Reply:
        nonlocal has_waited
        streams: list[tuple[bytes, list[Reply]]] = []
        wanted = set(keys)
        for key, after in starts:
            if key not in wanted:
                continue
            stream, group = _find_to_read(session, key, words.group, has_waited)
            if after is not None:
                streams.append((key, _history(session, words, key, stream, group, after)))
                continue
            if words.claim_ms is None:
                entries = _new_entries(session, words, words.count, key, stream, group)
            else:
                entries = _claimed_and_new(session, words, words.claim_ms, key, stream, group)
            if entries is not None:
                streams.append((key, entries))
        has_waited = True
        return streams_reply(session, streams) if streams else None

    def next_claim_ms() -> int | None:
        """Return when the next pending entry can be claimed; None if there is none."""
        streams = [session.db.find(key) for key, after in starts if after is None]
        return min(
            (
                pending.delivered_ms + (words.claim_ms or 0)
                for stream in streams
                if isinstance(stream, StreamValue) and words.group in stream.groups
                for pending in stream.groups[words.group].pending.values()
            ),
            default=None,
        )

    # Match values of any type: if the key is replaced, the group no longer exists, which ends the
    # wait.
    retry_at_ms = None if words.claim_ms is None else next_claim_ms
    return try_or_wait(
        session, words.keys, words.block_ms, attempt, object, retry_at_ms=retry_at_ms
    )


def _find_to_read(
    session: Session, key: bytes, name: bytes, has_waited: bool
) -> tuple[StreamValue, Group]:
    """Return the stream and the group; some versions have errors of their own after waiting."""
    try:
        return find_group(session, key, name, errors.no_group_to_read)
    except CommandError:
        knows = session.engine.table.knows
        if not has_waited or knows["deleted groups are reported with the usual error"]:
            raise
        has_stream = isinstance(session.db.find(key), StreamValue)
        raise CommandError(errors.GROUP_GONE if has_stream else errors.STREAM_GONE) from None


def _history(
    session: Session, words: ReadWords, key: bytes, stream: StreamValue, group: Group, after: int
) -> list[Reply]:
    """Return the consumer's pending entries, in which a deleted entry has no fields."""
    now_ms = session.now_ms
    pending = find_consumer(session, key, group, words.consumer).pending
    entries: list[Reply] = []
    for entry_id, delivery in islice(pending.between(after + 1), words.count):
        fields = stream.get(entry_id)
        if fields is None:
            entries.append([format_id(entry_id), NIL_ARRAY])
        else:
            entries.append(entry_reply(entry_id, fields))
            delivery.delivered_ms = now_ms
            delivery.count_delivery()
    return entries


def _claimed_and_new(
    session: Session, words: ReadWords, claim_ms: int, key: bytes, stream: StreamValue, group: Group
) -> list[Reply] | None:
    """Give pending entries and then new ones to the consumer; return them, None if there are none.

    Each has the milliseconds since its last delivery, and the number of earlier deliveries.
    """
    now_ms = session.now_ms
    consumer = find_consumer(session, key, group, words.consumer)
    entries: list[Reply] = []
    for entry_id, pending in group.claimable(now_ms, claim_ms):
        if len(entries) == words.count:
            break
        fields = stream.get(entry_id)
        if fields is None:
            group.acknowledge(entry_id)
            continue
        deliveries = [group.idle_ms(pending, now_ms), pending.deliveries]
        group.give(entry_id, pending, consumer)
        pending.delivered_ms = consumer.active_ms = now_ms
        pending.count_delivery()
        entries.append([*entry_reply(entry_id, fields), *deliveries])
    if entries:
        session.db.touch_unwatched(key, "")
    room = None if words.count is None else words.count - len(entries)
    if room != 0:
        new = _new_entries(session, words, room, key, stream, group)
        entries += [[*entry, 0, 0] for entry in new or []]
    return entries or None


def _new_entries(
    session: Session,
    words: ReadWords,
    count: int | None,
    key: bytes,
    stream: StreamValue,
    group: Group,
) -> list[Any] | None:
    """Deliver up to ``count`` new entries to the consumer and return them; None without new entries."""
    knows, is_vendor = session.engine.table.knows, session.engine.dialect == "vendor"
    has_new = stream.length > 0 and stream.highest_id > group.last_id
    if not has_new and not knows[EARLY_CONSUMERS]:
        return None
    if words.noack and is_vendor and has_new:
        # The vendor creates no consumer for entries that do not become pending, as tests of its
        # client show. A read without entries creates the consumer, as on a real server.
        consumer = group.consumers.get(words.consumer) or Consumer(words.consumer, 0)
    else:
        consumer = find_consumer(session, key, group, words.consumer)
    if not has_new:
        return None
    entries = stream.range(group.last_id + 1, count=count)
    limit, held = session.engine.settings.max_pending_entries, len(consumer.pending)
    if is_vendor and not words.noack and limit is not None and held + len(entries) > limit:
        where = (key, words.group, consumer.name)
        raise CommandError(errors.pending_limit(limit, held, len(entries), *where))
    if not words.noack:
        session.engine.memory.reserve(session.interface, PENDING * len(entries))
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
    group = get_or_empty(session, args[0], StreamValue).groups.get(args[1])
    if group is None:
        return 0
    ids = [parse_id(text) for text in args[2:]]
    acknowledged = sum(map(group.acknowledge, ids))
    if acknowledged:
        session.db.touch_unwatched(args[0], "")
    return acknowledged


# -- pending entries -----------------------------------------------------------------------------


@command("XPENDING")
def xpending(session: Session, args: Args) -> Reply:
    """Return a summary of a group's pending entries, or the entries in a range of IDs."""
    if len(args) == 2:
        return _summary(find_group(session, args[0], args[1])[1])
    if not 5 <= len(args) <= 8:
        raise CommandError(errors.SYNTAX)
    min_idle, words = 0, args[2:]
    if words[0].upper() == b"IDLE":
        min_idle, words = parse_int(words[1]), words[2:]
        if len(words) < 3:
            raise CommandError(errors.SYNTAX)
    first, last, count_text, *names = words
    count = max(parse_int(count_text), 0)
    start, end = parse_interval(first, last)
    _, group = find_group(session, args[0], args[1])
    pending = group.pending
    if names:
        consumer = group.consumers.get(names[0])
        if consumer is None:
            return []
        pending = consumer.pending
    details: Iterator[Reply] = (
        [
            format_id(entry_id),
            delivery.consumer.name,
            group.idle_ms(delivery, session.now_ms),
            delivery.deliveries,
        ]
        for entry_id, delivery in pending.between(start, end)
        if group.may_claim(delivery, session.now_ms, min_idle)
    )
    return list(islice(details, count))


def _summary(group: Group) -> Reply:
    if not group.pending:
        return [0, None, None, NIL_ARRAY]
    lowest, highest = group.pending.ends()
    holders: list[Reply] = [
        [consumer.name, b"%d" % len(consumer.pending)]
        for consumer in group.sorted_consumers()
        if consumer.pending
    ]
    return [len(group.pending), format_id(lowest), format_id(highest), holders]


class _Claim:
    """The options of XCLAIM, or those of XAUTOCLAIM that concern a claimed entry."""

    force: bool = False
    justid: bool = False
    retrycount: int | None = None
    delivered_ms: int | None = None
    last_id: int = 0

    def give(
        self, group: Group, entry_id: int, pending: Pending, consumer: Consumer, now_ms: int
    ) -> None:
        group.give(entry_id, pending, consumer)
        delivered_ms = now_ms if self.delivered_ms is None else self.delivered_ms
        pending.delivered_ms = delivered_ms if 0 <= delivered_ms <= now_ms else now_ms
        if self.retrycount is not None and self.retrycount >= 0:
            pending.deliveries = self.retrycount
        elif not self.justid:
            pending.count_delivery()
        consumer.active_ms = now_ms

    def reply(self, entry_id: int, fields: list[bytes]) -> Reply:
        return format_id(entry_id) if self.justid else entry_reply(entry_id, fields)


def _claim_number(text: bytes, command_name: str, what: str) -> int:
    number = try_int(text)
    if number is None:
        raise CommandError(errors.bad_claim_argument(what, command_name))
    return number


def _parse_claim(session: Session, args: Args, at: int) -> _Claim:
    claim, sizes = _Claim(), session.command.option_sizes
    for word, values in parse_options(args, at, sizes, errors.unrecognized_claim_option):
        if word == b"FORCE":
            claim.force = True
        elif word == b"JUSTID":
            claim.justid = True
        elif word == b"LASTID":
            claim.last_id = parse_id(values[0])
        else:
            number = _claim_number(values[0], "XCLAIM", f"{word.decode()} option")
            if word == b"RETRYCOUNT":
                claim.retrycount = number
            else:
                claim.delivered_ms = session.now_ms - number if word == b"IDLE" else number
    return claim


@command("XCLAIM")
def xclaim(session: Session, args: Args) -> Reply:
    """Transfer pending entries to another consumer."""
    stream, group = find_group(session, args[0], args[1])
    min_idle = max(_claim_number(args[3], "XCLAIM", "min-idle-time"), 0)
    ids: list[int] = []
    with suppress(CommandError):  # The first argument that is not an ID is an option.
        for text in args[4:]:
            ids.append(parse_id(text))
    claim = _parse_claim(session, args, 4 + len(ids))
    changed = claim.last_id > group.last_id
    group.last_id = max(group.last_id, claim.last_id)
    now_ms = session.now_ms
    if session.engine.table.knows[EARLY_CONSUMERS]:
        find_consumer(session, args[0], group, args[2])
    claimed: list[Reply] = []
    for entry_id in ids:
        fields = stream.get(entry_id)
        if fields is None:
            changed |= group.acknowledge(entry_id)
            continue
        pending = group.pending.get(entry_id)
        if pending is None and not claim.force:
            continue
        if pending is not None and not group.may_claim(pending, now_ms, min_idle):
            continue
        consumer = find_consumer(session, args[0], group, args[2])
        if pending is None:
            pending = group.deliver(entry_id, consumer, now_ms)
        claim.give(group, entry_id, pending, consumer, now_ms)
        claimed.append(claim.reply(entry_id, fields))
    if claimed or changed:
        session.db.touch_unwatched(args[0], "")
    return claimed


_MAX_AUTOCLAIM_COUNT = (2**63 - 1) // 16
"""Maximum COUNT of XAUTOCLAIM in Redis, which allocates 16 bytes for each entry."""
_ATTEMPTS_PER_ENTRY = 10
"""Number of pending entries that XAUTOCLAIM examines for each entry of its COUNT."""


@command("XAUTOCLAIM")
def xautoclaim(session: Session, args: Args) -> Reply:
    """Transfer entries that have been pending for a minimum time to another consumer.

    Returns the ID to continue from, the entries, and the IDs of deleted entries.
    """
    # Like Redis, read the key once, before an invalid argument is reported. This counts as a read.
    session.count_reads()
    session.db.lookup(args[0])
    session.count_reads(False)
    min_idle = max(_claim_number(args[3], "XAUTOCLAIM", "min-idle-time"), 0)
    start = parse_start(args[4])
    count, claim = 100, _Claim()
    for word, values in parse_options(args, 5, session.command.option_sizes):
        if word == b"COUNT":
            count = parse_int(values[0], 1, _MAX_AUTOCLAIM_COUNT, errors.XAUTOCLAIM_COUNT)
        else:
            claim.justid = True
    stream, group = find_group(session, args[0], args[1])
    if session.engine.table.knows[EARLY_CONSUMERS]:
        find_consumer(session, args[0], group, args[2])
    now_ms = session.now_ms
    attempts = _ATTEMPTS_PER_ENTRY * count
    following = 0
    claimed: list[Reply] = []
    deleted: list[Reply] = []
    examined = list(islice(group.pending.between(start), attempts + 1))
    for at, (entry_id, pending) in enumerate(examined):
        if at == attempts or len(claimed) + len(deleted) == count:
            following = entry_id
            break
        fields = stream.get(entry_id)
        if fields is None:
            group.acknowledge(entry_id)
            deleted.append(format_id(entry_id))
        elif group.may_claim(pending, now_ms, min_idle):
            consumer = find_consumer(session, args[0], group, args[2])
            claim.give(group, entry_id, pending, consumer, now_ms)
            claimed.append(claim.reply(entry_id, fields))
    if claimed or deleted:
        session.db.touch_unwatched(args[0], "")
    return [format_id(following), claimed, deleted]


_RELEASED_DELIVERIES: dict[bytes, Callable[[int], int]] = {
    b"SILENT": lambda deliveries: max(deliveries - 1, 0),
    b"FAIL": lambda deliveries: deliveries,
    b"FATAL": lambda deliveries: MOST_DELIVERIES,
}
"""By the mode of XNACK, the number of deliveries of an entry, given what it was."""


@command("XNACK")
def xnack(session: Session, args: Args) -> Reply:
    """Release pending entries, so that other consumers can claim them; return their number."""
    key, name, mode, ids_word, numids, *words = args
    deliveries_of = _RELEASED_DELIVERIES.get(mode.upper())
    if deliveries_of is None or ids_word.upper() != b"IDS":
        raise CommandError(errors.SYNTAX)
    count = parse_int(numids, 1, error=errors.XDELEX_NUMIDS)
    if count > len(words):
        raise CommandError(errors.XDELEX_IDS)
    ids = [parse_id(text) for text in words[:count]]
    retrycount, force = None, False
    sizes = {b"RETRYCOUNT": 1, b"FORCE": 0}
    for word, values in parse_options(words, count, sizes):
        if word == b"FORCE":
            force = True
        else:
            retrycount = parse_int(values[0], 0)
    stream, group = find_group(session, key, name)
    released = 0
    for entry_id in ids:
        pending = group.pending.get(entry_id)
        if pending is None and force and stream.get(entry_id) is not None:
            pending = group.deliver(entry_id, group.released, 0, 0)
        if pending is not None:
            deliveries = deliveries_of(pending.deliveries) if retrycount is None else retrycount
            group.release(entry_id, pending, deliveries)
            released += 1
    if released:
        session.db.signal(key, "stream")
        session.db.touch_unwatched(key, "")
    return released
