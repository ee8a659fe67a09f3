"""Commands that add, trim, delete and read entries of a stream, and parsers for entry IDs."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice

from ... import errors
from ...engine.sessions import Session
from ...errors import CommandError
from ...reply import NIL_ARRAY, OK, Map, Reply
from ...syntax import parse_int
from ...table.registry import Args, command, variant
from ...table.versions import (
    ENTRIES_READ_BELOW_ADDED,
    ESTIMATED_COUNTERS,
    IDEMPOTENT_PRODUCERS,
    RELEASED_ENTRIES,
)
from ...values.stream import (
    ID_MAX,
    SEQUENCE_MAX,
    UNKNOWN_ENTRIES_READ,
    Consumer,
    Group,
    Producers,
    StreamValue,
    format_id,
    lag,
    make_id,
)
from ..arguments import (
    arity_error,
    existing,
    get_or_empty,
    parse_milliseconds,
    parse_options,
    subcommand_error,
    try_or_wait,
)

_UNSIGNED = re.compile(rb"[ \t\n\v\f\r]*\+?[0-9]+\Z")


def entry_reply(entry_id: int, fields: list[bytes]) -> list[bytes | list[bytes]]:
    """Return an entry as a reply: its ID, and a list of its fields and values."""
    return [format_id(entry_id), list(fields)]


def _part(text: bytes) -> int:
    """Parse the milliseconds or the sequence number of an ID."""
    if not _UNSIGNED.match(text) or int(text) > SEQUENCE_MAX:
        raise CommandError(errors.STREAM_ID)
    return int(text)


def _split_id(text: bytes) -> tuple[int, bytes | None]:
    """Return the milliseconds of an ID and its unparsed sequence number, if it has one."""
    # Redis copies an ID into a buffer of 128 bytes, which ends at the first NUL.
    if len(text) > 127:
        raise CommandError(errors.STREAM_ID)
    milliseconds, dash, sequence = text.split(b"\0")[0].partition(b"-")
    return _part(milliseconds), sequence if dash else None


def parse_id(text: bytes, sequence: int = 0) -> int:
    """Parse an ID; ``sequence`` is the default for a missing sequence number."""
    milliseconds, sequence_text = _split_id(text)
    return make_id(milliseconds, sequence if sequence_text is None else _part(sequence_text))


def parse_new_id(text: bytes) -> tuple[int, bool]:
    """Parse an ID for XADD; return it and whether its sequence number is fixed (unlike ``5-*``)."""
    milliseconds, sequence_text = _split_id(text)
    if sequence_text == b"*":
        return make_id(milliseconds, 0), False
    return make_id(milliseconds, 0 if sequence_text is None else _part(sequence_text)), True


def parse_extreme_id(text: bytes, sequence: int = 0) -> int:
    """Parse an ID, or ``-`` or ``+`` for the lowest or highest ID."""
    extremes = {b"-": 0, b"+": ID_MAX}
    return extremes[text] if text in extremes else parse_id(text, sequence)


def parse_start(text: bytes) -> int:
    """Parse the start of a range: an ID, ``-``, ``+``, or ``(id`` to start after the ID."""
    if len(text) > 1 and text.startswith(b"("):
        start = parse_id(text[1:])
        if start == ID_MAX:
            raise CommandError(errors.INTERVAL_START)
        return start + 1
    return parse_extreme_id(text)


def parse_interval(start: bytes, end: bytes) -> tuple[int, int]:
    """Parse both bounds of a range; if both are invalid, the error is about the start."""
    low = parse_start(start)
    if len(end) == 1 or not end.startswith(b"("):
        return low, parse_extreme_id(end, SEQUENCE_MAX)
    high = parse_id(end[1:], SEQUENCE_MAX) - 1
    if high < 0:
        raise CommandError(errors.INTERVAL_END)
    return low, high


# -- adding, trimming and deleting ---------------------------------------------------------------

_POLICIES = (b"KEEPREF", b"DELREF", b"ACKED")
"""Policies for deleting an entry that is pending in groups.

KEEPREF keeps the entry's ID in the groups, DELREF removes it from them, and ACKED deletes the entry
only if all groups have acknowledged it.
"""
_OPERATORS = (b"~", b"=")
"""The words between MAXLEN or MINID and its threshold, which are not options elsewhere."""
DELETED, ABSENT, KEPT = 1, -1, 2
"""Results for an entry that was to be deleted. It was KEPT if a group still awaits it."""
_VENDOR_MIN_SURPLUS = 100
"""Minimum number of surplus entries at which the vendor trims with ``~``.

Derived from tests of the official clients: ``MAXLEN ~ 30`` leaves about 30 of 1,000 entries, but
(nearly) all of 111 and of 120.
"""


@dataclass(slots=True)
class _Options:
    """The options of XTRIM, or those of XADD before the ID."""

    has_strategy: bool = False
    """Whether MAXLEN or MINID was given, so the stream is trimmed."""
    max_length: int | None = None
    min_id: int = 0
    approximate: bool = False
    limit: int | None = None
    policy: bytes = b""
    no_mkstream: bool = False
    producer: bytes | None = None
    """The producer that adds the entry idempotently."""
    iid: bytes | None = None
    """Its name for the entry; None if that is computed."""
    end: int = 1
    """Index of the first argument after the options."""


_NO_OPTIONS = _Options()


def _parse_options(session: Session, args: Args, *, adding: bool) -> _Options:
    """Parse the options of XTRIM or, with ``adding``, those of XADD before the ID."""
    if adding and args[1] == b"*":
        return _NO_OPTIONS
    sizes = {b"MAXLEN": 1, b"MINID": 1, **session.command.option_sizes}
    stream_options = _Options()
    at = 1
    while at < len(args) and not (adding and args[at] == b"*"):
        word = args[at].upper()
        size = None if word in _OPERATORS else sizes.get(word)
        if word in (b"MAXLEN", b"MINID") and at + 2 < len(args) and args[at + 1] in _OPERATORS:
            size = 2
        if size is None or at + size >= len(args):
            if not adding:
                raise CommandError(errors.SYNTAX)
            # Redis reports an invalid ID before a contradiction between options.
            parse_new_id(args[at])
            break
        _take_option(stream_options, word, args[at + 1 : at + 1 + size])
        at += 1 + size
    stream_options.end = at
    if stream_options.limit and not stream_options.has_strategy:
        raise CommandError(errors.TRIM_LIMIT_ALONE)
    if not adding and not stream_options.has_strategy:
        raise CommandError(errors.XTRIM_NO_STRATEGY)
    if stream_options.limit is not None and not stream_options.approximate:
        raise CommandError(errors.TRIM_LIMIT_EXACT)
    return stream_options


def _take_option(stream_options: _Options, word: bytes, values: Args) -> None:
    if word == b"NOMKSTREAM":
        stream_options.no_mkstream = True
    elif word == b"LIMIT":
        stream_options.limit = parse_int(values[0], 0, outside=errors.TRIM_LIMIT_NEGATIVE)
    elif word in (b"IDMP", b"IDMPAUTO"):
        if stream_options.producer is not None:
            raise CommandError(errors.SYNTAX)
        if b"" in values:
            raise CommandError(errors.IDMP_EMPTY)
        stream_options.producer = values[0]
        stream_options.iid = values[1] if len(values) > 1 else None
    elif word in _POLICIES:
        if stream_options.policy:
            raise CommandError(errors.SYNTAX)
        stream_options.policy = word
    else:
        if stream_options.has_strategy:
            raise CommandError(errors.TRIM_TWO_STRATEGIES)
        stream_options.has_strategy = True
        stream_options.approximate = values[0] == b"~" and len(values) == 2
        if word == b"MINID":
            stream_options.min_id = parse_id(values[-1])
            return
        stream_options.max_length = parse_int(values[-1], 0, outside=errors.TRIM_MAXLEN_NEGATIVE)


def _trim(session: Session, stream: StreamValue, stream_options: _Options) -> int:
    """Trim a stream and return the number of removed entries.

    With ``~``, the vendor trims to the exact threshold or not at all. Redis removes whole nodes,
    and by default at most as many entries as a hundred nodes can contain.
    """
    is_redis = session.engine.dialect == "redis"
    limit = stream_options.limit or 0
    if stream_options.approximate and not is_redis:
        if stream.surplus(stream_options.max_length, stream_options.min_id) < _VENDOR_MIN_SURPLUS:
            return 0
    elif stream_options.approximate and stream_options.limit is None:
        node = session.engine.config.number("stream-node-max-entries")
        limit = 100 * node if node > 0 else 10000
    removed = stream.trim(
        max_length=stream_options.max_length,
        min_id=stream_options.min_id,
        whole_nodes=stream_options.approximate and is_redis,
        limit=limit,
        only_acknowledged=stream_options.policy == b"ACKED",
    )
    if stream_options.policy == b"DELREF":
        for entry_id in removed:
            stream.forget(entry_id)
    return len(removed)


@command("XADD")
def xadd(session: Session, args: Args) -> Reply:
    """Append an entry to a stream, optionally trim the stream, and return the ID of the entry.

    A producer's name for an entry is forgotten when another entry is added idempotently after the
    duration that XCFGSET sets, counted from the time in the ID of the first one (decided here).
    """
    stream_options = _parse_options(session, args, adding=True)
    at = stream_options.end
    fields = args[at + 1 :]
    if not fields or len(fields) % 2:
        raise arity_error(session)
    new_id = None if args[at] == b"*" else parse_new_id(args[at])
    if new_id is not None and new_id == (0, True):
        raise CommandError(errors.XADD_ID_ZERO)
    producer, iid = stream_options.producer, b""
    if producer is not None:
        if new_id is not None:
            raise CommandError(errors.IDMP_NEEDS_NEW_ID)
        iid = stream_options.iid or _computed_iid(fields)
    db = session.db
    stream = db.get(args[0], StreamValue)
    if stream is None:
        if stream_options.no_mkstream:
            return None
        stream = db.get_or_create(args[0], StreamValue)
    if producer is not None:
        producers = stream.producers = stream.producers or Producers()
        producers.forget(session.now_ms)
        known_id = producers.find(producer, iid)
        if known_id is not None:
            producers.duplicates += 1
            return format_id(known_id)
    entry_id = stream.next_id(session.now_ms)
    if entry_id is None:
        raise CommandError(errors.XADD_EXHAUSTED)
    if new_id is not None:
        entry_id, has_sequence = new_id
        if not has_sequence and entry_id >> 64 == stream.last_id + 1 >> 64:
            entry_id = stream.last_id + 1
        elif entry_id <= stream.last_id:
            raise CommandError(errors.XADD_ID_SMALL)
    config = session.engine.config
    most = config.number("stream-node-max-entries")
    stream.append(entry_id, fields, config.number("stream-node-max-bytes"), most)
    if producer is not None:
        producers.record(producer, iid, entry_id)
    removed = _trim(session, stream, stream_options) if stream_options.has_strategy else 0
    db.signal(args[0], "stream")
    db.touch(args[0])
    if removed:
        db.touch(args[0], "xtrim")
    return format_id(entry_id)


def _computed_iid(fields: Args) -> bytes:
    """Return the name of an entry with these fields and values, in this order."""
    digest = sha256()
    for word in fields:
        digest.update(b"%d:%b" % (len(word), word))
    return digest.hexdigest().encode()


@command("XCFGSET")
def xcfgset(session: Session, args: Args) -> Reply:
    """Set how long, and for how many entries, a stream knows what a producer has added.

    If one of the two changes, the stream forgets all that producers have added. Redis has two pages
    about it, and the other one says that this happens in any case.
    """
    limits: dict[bytes, int] = {}
    for word, (text,) in parse_options(args, 1, session.command.option_sizes):
        most, error = _LIMITS_OF_PRODUCERS[word]
        limits[word] = parse_int(text, 1, most, error)
    if not limits:
        raise CommandError(errors.SYNTAX)
    stream = existing(session, args[0], StreamValue)
    old = stream.producers or Producers()
    duration_s = limits.get(b"IDMP-DURATION", old.duration_s)
    most = limits.get(b"IDMP-MAXSIZE", old.most)
    if (duration_s, most) != (old.duration_s, old.most):
        stream.producers = replace(old, duration_s=duration_s, most=most, ids={})
        session.db.touch_unwatched(args[0], "")
    return OK


_LIMITS_OF_PRODUCERS = {
    b"IDMP-DURATION": (86_400, errors.IDMP_DURATION),
    b"IDMP-MAXSIZE": (10_000, errors.IDMP_MAXSIZE),
}


@command("XIDMPRECORD")
def xidmprecord(session: Session, args: Args) -> Reply:
    """Record that a producer has added an entry of a stream; servers write it to files."""
    key, producer, iid, id_text = args
    if not (producer and iid):
        raise CommandError(errors.IDMP_EMPTY)
    entry_id = parse_id(id_text)
    stream = existing(session, key, StreamValue)
    if stream.get(entry_id) is None:
        raise CommandError(errors.IDMP_NO_ENTRY)
    producers = stream.producers = stream.producers or Producers()
    known_id = producers.find(producer, iid)
    if known_id is None:
        producers.record(producer, iid, entry_id)
        session.db.touch_unwatched(key, "")
    elif known_id != entry_id:
        raise CommandError(errors.IDMP_OTHER_ENTRY)
    return OK


@command("XTRIM")
def xtrim(session: Session, args: Args) -> Reply:
    """Trim a stream and return the number of removed entries."""
    stream_options = _parse_options(session, args, adding=False)
    removed = _trim(session, get_or_empty(session, args[0], StreamValue), stream_options)
    if removed:
        session.db.touch(args[0])
    return removed


@command("XSETID")
def xsetid(session: Session, args: Args) -> Reply:
    """Set the last ID, the number of added entries and the highest deleted ID of a stream."""
    last_id = parse_id(args[1])
    entries_added, max_deleted_id = None, 0
    for word, (value,) in parse_options(args, 2, session.command.option_sizes):
        if word == b"ENTRIESADDED":
            entries_added = parse_int(value, 0, outside=errors.XSETID_ENTRIES_NEGATIVE)
        else:
            max_deleted_id = parse_id(value)
            if last_id < max_deleted_id:
                raise CommandError(errors.XSETID_BELOW_GIVEN)
    stream = existing(session, args[0], StreamValue)
    checks_deleted = session.engine.table.knows["XSETID checks the highest deleted id"]
    if checks_deleted and last_id < stream.max_deleted_id:
        raise CommandError(errors.XSETID_BELOW_DELETED)
    if stream.length and last_id < stream.highest_id:
        raise CommandError(errors.XSETID_SMALL)
    if entries_added is not None:
        if entries_added < stream.length:
            raise CommandError(errors.XSETID_ENTRIES_SMALL)
        stream.entries_added = entries_added
    stream.last_id = last_id
    stream.max_deleted_id = max_deleted_id or stream.max_deleted_id
    session.db.touch_unwatched(args[0])
    return OK


@command("XDEL")
def xdel(session: Session, args: Args) -> Reply:
    """Delete entries by ID and return the number that existed."""
    stream = session.db.get(args[0], StreamValue)
    if stream is None:
        return 0
    deleted = sum(map(stream.delete, [parse_id(text) for text in args[1:]]))
    if deleted:
        session.db.touch(args[0])
    return deleted


def _parse_ids_with_policy(args: Args, at: int) -> tuple[bytes, list[int]]:
    """Parse ``[KEEPREF|DELREF|ACKED] IDS numids id [id ...]``."""
    policy = b"KEEPREF"
    if args[at].upper() in _POLICIES:
        policy = args[at].upper()
        at += 1
    if len(args) - at < 3 or args[at].upper() != b"IDS":
        raise CommandError(errors.SYNTAX)
    count = parse_int(args[at + 1], 1, error=errors.XDELEX_NUMIDS)
    if count != len(args) - at - 2:
        raise CommandError(errors.XDELEX_IDS)
    return policy, [parse_id(text) for text in args[at + 2 :]]


def _delete_with_policy(stream: StreamValue, ids: list[int], policy: bytes) -> list[Reply]:
    """Delete entries as far as the policy allows; return DELETED, ABSENT or KEPT for each ID.

    An ID that is repeated has the same result everywhere, as the vendor documents for XDELEX.
    """

    def delete(entry_id: int) -> int:
        if policy == b"ACKED" and stream.get(entry_id) is not None and stream.awaited(entry_id):
            return KEPT
        if policy == b"DELREF":
            stream.forget(entry_id)
        return DELETED if stream.delete(entry_id) else ABSENT

    outcomes = {entry_id: delete(entry_id) for entry_id in dict.fromkeys(ids)}
    return [outcomes[entry_id] for entry_id in ids]


@command("XDELEX")
def xdelex(session: Session, args: Args) -> Reply:
    """Delete entries, with a policy for groups that refer to them; return the result for each ID."""
    policy, ids = _parse_ids_with_policy(args, 1)
    stream = get_or_empty(session, args[0], StreamValue)
    outcomes = _delete_with_policy(stream, ids, policy)
    if DELETED in outcomes:
        session.db.touch(args[0], "xdel")
    elif policy == b"DELREF":
        session.db.touch_unwatched(args[0], "")
    return outcomes


@command("XACKDEL")
def xackdel(session: Session, args: Args) -> Reply:
    """Acknowledge entries in a group and delete them as XDELEX does.

    An entry is deleted even if it is not pending in the group, as tests of the official clients
    show. That a repeated ID has the same result everywhere is decided here, as for XDELEX.
    """
    policy, ids = _parse_ids_with_policy(args, 2)
    stream = get_or_empty(session, args[0], StreamValue)
    group = stream.groups.get(args[1])
    if group is None:
        return [ABSENT] * len(ids)
    acknowledged = [group.acknowledge(entry_id) for entry_id in ids]
    outcomes = _delete_with_policy(stream, ids, policy)
    if any(acknowledged) or DELETED in outcomes:
        session.db.touch(args[0], "xdel")
    elif policy == b"DELREF":
        session.db.touch_unwatched(args[0], "")
    return outcomes


# -- reading ---------------------------------------------------------------------------------------


def entries_reply(entries: list[tuple[int, list[bytes]]]) -> list[Reply]:
    return [entry_reply(entry_id, fields) for entry_id, fields in entries]


@command("XLEN")
def xlen(session: Session, args: Args) -> Reply:
    """Return the number of entries in a stream."""
    return len(get_or_empty(session, args[0], StreamValue))


@variant("XRANGE", "Return the entries in a range of IDs.", reverse=False)
@variant(
    "XREVRANGE",
    "Return the entries in a range of IDs in reverse order; the end of the range comes first.",
    reverse=True,
)
def xrange(session: Session, args: Args, *, reverse: bool) -> Reply:
    low, high = parse_interval(args[2], args[1]) if reverse else parse_interval(args[1], args[2])
    count: int | None = None
    for _, (value,) in parse_options(args, 3, session.command.option_sizes):
        count = max(parse_int(value), 0)
    stream = session.db.get(args[0], StreamValue)
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
    claim_ms: int | None = None
    """The minimum time since their delivery after which pending entries are claimed."""
    group: bytes = b""
    consumer: bytes = b""
    noack: bool = False


def read_words(session: Session, args: Args, *, grouped: bool) -> ReadWords:
    """Parse the arguments of XREAD or, with ``grouped``, of XREADGROUP."""
    words, has_group = ReadWords([], []), False
    sizes = session.engine.table.commands["XREADGROUP"].option_sizes
    # XREAD knows the options of XREADGROUP, too: it rejects them with errors of their own.
    for word, values in parse_options(args, 0, sizes):
        if word == b"BLOCK":
            words.block_ms = parse_milliseconds(session, values[0])
        elif word == b"COUNT":
            words.count = max(parse_int(values[0]), 0) or None
        elif word == b"STREAMS":
            half, odd = divmod(len(values), 2)
            if odd:
                raise CommandError(errors.XREAD_UNBALANCED)
            words.keys, words.ids = values[:half], values[half:]
        elif word == b"CLAIM":
            if not grouped:
                raise CommandError(errors.SYNTAX)
            words.claim_ms = parse_int(values[0], 0)
        elif not grouped:
            raise CommandError(errors.XREAD_GROUP if word == b"GROUP" else errors.XREAD_NOACK)
        elif word == b"GROUP":
            words.group, words.consumer = values
            has_group = True
        else:
            words.noack = True
    if not words.keys:
        raise CommandError(errors.SYNTAX)
    if grouped and not has_group:
        raise CommandError(errors.XREADGROUP_NO_GROUP)
    return words


def streams_reply(session: Session, streams: list[tuple[bytes, list[Reply]]]) -> Reply:
    """Return entries by key: as a list of pairs, or as a map in RESP3."""
    if session.resp > 2:
        return Map(part for key, entries in streams for part in (key, entries))
    return [[key, entries] for key, entries in streams]


@command("XREAD")
def xread(session: Session, args: Args) -> Reply:
    """Return entries of several streams with IDs greater than the given IDs."""
    words = read_words(session, args, grouped=False)
    starts = [
        _start(session, session.db.get(key, StreamValue), text)
        for key, text in zip(words.keys, words.ids, strict=True)
    ]

    def attempt(keys: list[bytes]) -> Reply:
        streams: list[tuple[bytes, list[Reply]]] = []
        wanted = set(keys)
        for key, start in zip(words.keys, starts, strict=True):
            stream = session.db.get(key, StreamValue) if key in wanted else None
            if stream is not None and stream.length and stream.highest_id >= start:
                entries = stream.range(start, count=words.count)
                streams.append((key, entries_reply(entries)))
        return streams_reply(session, streams) if streams else None

    return try_or_wait(session, words.keys, words.block_ms, attempt, StreamValue)


def _start(session: Session, stream: StreamValue | None, text: bytes) -> int:
    """Return the first ID to read, given an ID, ``$`` (new entries only) or ``+`` (the last entry)."""
    if text == b"$":
        return (stream.last_id if stream is not None else 0) + 1
    if text == b">":
        raise CommandError(errors.XREAD_NEW)
    if text == b"+" and session.engine.table.knows["XREAD +"]:
        return stream.highest_id if stream is not None and stream.length else make_id(0, 1)
    return parse_id(text) + 1


def _progress(session: Session, stream: StreamValue, group: Group) -> list[Reply]:
    read = None if group.entries_read == UNKNOWN_ENTRIES_READ else group.entries_read
    knows = session.engine.table.knows
    behind = lag(stream, group, estimate=knows[ESTIMATED_COUNTERS])
    if knows[ENTRIES_READ_BELOW_ADDED] and group.last_id < stream.first_id:
        behind = stream.length
    return [
        b"last-delivered-id", format_id(group.last_id), b"entries-read", read, b"lag", behind,
    ]  # fmt: skip


@command("XINFO GROUPS")
def xinfo_groups(session: Session, args: Args) -> Reply:
    """Return the consumer groups of a stream."""
    stream = existing(session, args[0], StreamValue)
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
    group = existing(session, args[0], StreamValue).groups.get(args[1])
    if group is None:
        if session.engine.dialect == "vendor":
            return []
        raise CommandError(errors.no_group_for_key(args[1], args[0]))
    now_ms = session.now_ms
    consumers: list[Reply] = []
    for consumer in group.sorted_consumers():
        shown = Map([
            b"name", consumer.name,
            b"pending", len(consumer.pending),
            b"idle", max(now_ms - consumer.seen_ms, 0),
        ])  # fmt: skip
        if session.engine.table.knows["XINFO CONSUMERS inactive"]:
            active_ms = consumer.active_ms
            shown += [b"inactive", -1 if active_ms < 0 else max(now_ms - active_ms, 0)]
        consumers.append(shown)
    return consumers


@command("XINFO STREAM")
def xinfo_stream(session: Session, args: Args) -> Reply:
    """Return information about a stream; with FULL, include its entries and groups."""
    stream = existing(session, args[0], StreamValue)
    is_full = len(args) > 1 and args[1].upper() == b"FULL"
    count: int | None = 10
    if is_full and len(args) == 4 and args[2].upper() == b"COUNT":
        limit = parse_int(args[3])
        count = (limit or None) if limit >= 0 else 10
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
    if session.engine.table.knows[IDEMPOTENT_PRODUCERS]:
        producers = stream.producers or Producers()
        head += [
            b"idmp-duration", producers.duration_s,
            b"idmp-maxsize", producers.most,
            b"pids-tracked", len(producers.ids),
            b"iids-tracked", sum(map(len, producers.ids.values())),
            b"iids-added", producers.added,
            b"iids-duplicates", producers.duplicates,
        ]  # fmt: skip
    if not is_full:
        ends = [stream.range(count=1), stream.range(count=1, reverse=True)]
        first, last = (entry_reply(*end[0]) if end else None for end in ends)
        head += [b"groups", len(stream.groups), b"first-entry", first, b"last-entry", last]
        return head
    groups = sorted(stream.groups.items())
    shown = [_full_group(session, stream, name, group, count) for name, group in groups]
    head += [b"entries", entries_reply(stream.range(count=count)), b"groups", shown]
    return head


def _full_group(
    session: Session, stream: StreamValue, name: bytes, group: Group, limit: int | None
) -> Map:
    """Return a group with its consumers, each with up to ``limit`` pending entries."""
    pending = [
        [format_id(entry_id), delivery.consumer.name, delivery.delivered_ms, delivery.deliveries]
        for entry_id, delivery in islice(group.pending.between(), limit)
    ]
    released: list[Reply] = []
    if session.engine.table.knows[RELEASED_ENTRIES]:
        released = [b"nacked-count", len(group.released.pending)]
    return Map([
        b"name", name,
        *_progress(session, stream, group),
        b"pel-count", len(group.pending),
        *released,
        b"pending", pending,
        b"consumers",
        [_full_consumer(session, consumer, limit) for consumer in group.sorted_consumers()],
    ])  # fmt: skip


def _full_consumer(session: Session, consumer: Consumer, limit: int | None) -> Map:
    pending = [
        [format_id(entry_id), delivery.delivered_ms, delivery.deliveries]
        for entry_id, delivery in islice(consumer.pending.between(), limit)
    ]
    shown = Map([b"name", consumer.name, b"seen-time", consumer.seen_ms])
    if session.engine.table.knows["XINFO CONSUMERS inactive"]:
        shown += [b"active-time", consumer.active_ms]
    shown += [b"pel-count", len(consumer.pending), b"pending", pending]
    return shown
