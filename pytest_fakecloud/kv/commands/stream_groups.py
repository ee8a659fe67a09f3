"""Consumer groups: reading as one, acknowledging, claiming what others left pending."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from .. import errors
from ..errors import CommandError, bad_subcommand_arguments
from ..model import Session
from ..registry import Args, command
from ..reply import NIL_ARRAY, OK, Reply, Status
from ..syntax import parse_int, try_int
from ..values.stream import (
    ID_MAX,
    UNKNOWN_ENTRIES_READ,
    Consumer,
    Entry,
    Group,
    PendingList,
    Stream,
    format_id,
)
from .stream import answer_read, entries_reply, read_words, streams_reply
from .stream_ids import (
    entry_reply,
    parse_extreme_id,
    parse_id,
    parse_ids,
    parse_interval,
    parse_start,
)

PENDING_LIMIT = 1000
"""Pending entries a consumer may hold in the vendor's dialect (the vendor's documentation)."""

_XGROUP_HELP = """\
XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
CREATE <key> <groupname> <id|$> [option]
    Create a new consumer group. Options are:
    * MKSTREAM
      Create the empty stream if it does not exist.
    * ENTRIESREAD entries_read
      Set the group's entries_read counter (internal use).
CREATECONSUMER <key> <groupname> <consumer>
    Create a new consumer in the specified group.
DELCONSUMER <key> <groupname> <consumer>
    Remove the specified consumer.
DESTROY <key> <groupname>
    Remove the specified group.
SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]
    Set the current group ID and entries_read counter.
HELP
    Print this help."""


def _consumer(session: Session, key: bytes, group: Group, name: bytes) -> Consumer:
    """The consumer of that name, made if it is new, seen now."""
    consumer = group.consumers.get(name)
    if consumer is None:
        consumer = group.consumers[name] = Consumer(name, session.now_ms)
        session.db.touch(key)
    consumer.seen_ms = session.now_ms
    return consumer


def _group(
    session: Session, key: bytes, name: bytes, *, reading: bool = False
) -> tuple[Stream, Group]:
    stream = session.db.get(key, Stream)
    group = None if stream is None else stream.groups.get(name)
    if stream is None or group is None:
        raise CommandError(errors.no_group(key, name, reading=reading))
    return stream, group


# -- XGROUP --------------------------------------------------------------------------------------


def _group_words(args: Args, sub: bytes) -> tuple[bool, int]:
    """MKSTREAM (of CREATE) and ENTRIESREAD."""
    mkstream, entries_read = False, UNKNOWN_ENTRIES_READ
    at = 3
    while at < len(args):
        word = args[at].upper()
        if word == b"MKSTREAM" and sub == b"CREATE":
            mkstream = True
        elif word == b"ENTRIESREAD" and at + 1 < len(args):
            at += 1
            entries_read = parse_int(args[at])
            if entries_read < 0 and entries_read != UNKNOWN_ENTRIES_READ:
                raise CommandError(errors.XGROUP_ENTRIESREAD)
        else:
            raise CommandError(bad_subcommand_arguments("XGROUP", sub))
        at += 1
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
        raise CommandError(errors.no_group_for_key(args[0], args[1]))
    return stream, group


@command("XGROUP CREATE")
def xgroup_create(session: Session, args: Args) -> Reply:
    """Create a group that begins behind an id."""
    mkstream, entries_read = _group_words(args, b"CREATE")
    stream = session.db.get(args[0], Stream) if mkstream else _existing(session, args[0])
    if len(args) > 6:
        raise CommandError(bad_subcommand_arguments("XGROUP", b"CREATE"))
    end = 0 if stream is None else stream.last_id
    last_id = end if args[2] == b"$" else parse_id(args[2])
    if stream is None:
        stream = session.db.get_or_create(args[0], Stream)
        session.db.touch(args[0])
    if args[1] in stream.groups:
        raise CommandError(errors.BUSYGROUP)
    stream.groups[args[1]] = Group(last_id, entries_read)
    session.db.touch(args[0])
    return OK


@command("XGROUP SETID")
def xgroup_setid(session: Session, args: Args) -> Reply:
    """Move a group to another id."""
    _, entries_read = _group_words(args, b"SETID")
    stream, group = _existing_group(session, args)
    if len(args) not in (3, 5):
        raise CommandError(bad_subcommand_arguments("XGROUP", b"SETID"))
    group.last_id = stream.last_id if args[2] == b"$" else parse_extreme_id(args[2])
    group.entries_read = entries_read
    session.db.touch(args[0])
    return OK


@command("XGROUP DESTROY")
def xgroup_destroy(session: Session, args: Args) -> Reply:
    """Remove a group; whether it was there."""
    if _existing(session, args[0]).groups.pop(args[1], None) is None:
        return 0
    session.db.touch(args[0])
    return 1


@command("XGROUP CREATECONSUMER")
def xgroup_createconsumer(session: Session, args: Args) -> Reply:
    """Create a consumer; whether it is new."""
    _, group = _existing_group(session, args)
    if args[2] in group.consumers:
        return 0
    group.consumers[args[2]] = Consumer(args[2], session.now_ms)
    session.db.touch(args[0])
    return 1


@command("XGROUP DELCONSUMER")
def xgroup_delconsumer(session: Session, args: Args) -> Reply:
    """Remove a consumer; how many pending entries it had."""
    _, group = _existing_group(session, args)
    pending = group.remove_consumer(args[2])
    if pending is None:
        return 0
    session.db.touch(args[0])
    return pending


@command("XGROUP HELP")
def xgroup_help(session: Session, args: Args) -> Reply:
    """What the sub-commands do."""
    return [Status(line.encode()) for line in _XGROUP_HELP.splitlines()]


# -- reading as a consumer -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One stream of an XREADGROUP: `after` is None for `>`, else where the history begins."""

    key: bytes
    after: int | None


def _read_id(text: bytes) -> int | None:
    if text == b"$":
        raise CommandError(errors.XREADGROUP_LAST)
    if text == b">":
        return None
    after = parse_id(text)
    return None if after == ID_MAX else after


@command("XREADGROUP")
def xreadgroup(session: Session, args: Args) -> Reply:
    """New entries for a consumer, or those it has not acknowledged."""
    words = read_words(session, args, grouped=True)
    group_name = words.group or b""
    wanted = []
    for key, text in zip(words.keys, words.ids, strict=True):
        _group(session, key, group_name, reading=True)
        wanted.append(_Wanted(key, _read_id(text)))

    def attempt() -> Reply:
        found: list[tuple[bytes, list[Reply]]] = []
        for each in wanted:
            stream, group = _group(session, each.key, group_name, reading=True)
            if words.noack and session.engine.dialect == "vendor" and each.after is None:
                # Nothing will be pending, so the vendor keeps no consumer.
                consumer = group.consumers.get(words.consumer) or Consumer(words.consumer, 0)
            else:
                consumer = _consumer(session, each.key, group, words.consumer)
            if each.after is not None:
                history = _history(session, stream, consumer, each.after, words.count)
                found.append((each.key, history))
            elif stream.length and stream.highest_id > group.last_id:
                entries = stream.range(group.last_id + 1, count=words.count or -1)
                if not words.noack:
                    where = (each.key, group_name, words.consumer)
                    _check_pending_limit(session, consumer, len(entries), where)
                _deliver(session, stream, group, consumer, entries, pending=not words.noack)
                found.append((each.key, entries_reply(entries)))
                session.db.touch(each.key)
        return streams_reply(session, found) if found else None

    return answer_read(session, words, attempt)


def _check_pending_limit(
    session: Session, consumer: Consumer, more: int, where: tuple[bytes, bytes, bytes]
) -> None:
    held = len(consumer.pending)
    if session.engine.dialect == "vendor" and held + more > PENDING_LIMIT:
        raise CommandError(errors.pending_limit(PENDING_LIMIT, held, more, where))


def _deliver(
    session: Session,
    stream: Stream,
    group: Group,
    consumer: Consumer,
    entries: list[Entry],
    *,
    pending: bool,
) -> None:
    for entry_id, _ in entries:
        stream.advance(group, entry_id)
        if pending:
            group.deliver(entry_id, consumer, session.now_ms)
            consumer.active_ms = session.now_ms


def _history(
    session: Session, stream: Stream, consumer: Consumer, after: int, count: int
) -> list[Reply]:
    """A consumer's own pending entries; deleted ones have no fields any more."""
    entries: list[Reply] = []
    for entry_id, pending in consumer.pending.items(after + 1):
        fields = stream.get(entry_id)
        if fields is None:
            entries.append([format_id(entry_id), NIL_ARRAY])
        else:
            entries.append(entry_reply(entry_id, fields))
            pending.delivered_ms = session.now_ms
            pending.deliveries += 1
        if len(entries) == count:
            break
    return entries


# -- acknowledging and claiming ------------------------------------------------------------------


@command("XACK")
def xack(session: Session, args: Args) -> Reply:
    """Drop entries from the pending ones of a group; how many were pending."""
    stream = session.db.get(args[0], Stream)
    group = None if stream is None else stream.groups.get(args[1])
    if group is None:
        return 0
    acknowledged = sum([group.acknowledge(entry_id) for entry_id in parse_ids(args[2:])])
    if acknowledged:
        session.db.touch(args[0])
    return acknowledged


@command("XPENDING")
def xpending(session: Session, args: Args) -> Reply:
    """What a group has pending: a summary, or the entries of an interval."""
    if len(args) == 2:
        _, group = _group(session, args[0], args[1])
        return _summary(group)
    if not 5 <= len(args) <= 8:
        raise CommandError(errors.SYNTAX)
    min_idle, at = 0, 2
    if args[2].upper() == b"IDLE":
        min_idle = parse_int(args[3])
        if len(args) < 7:
            raise CommandError(errors.SYNTAX)
        at = 4
    count = max(parse_int(args[at + 2]), 0)
    start, end = parse_interval(args[at], args[at + 1])
    _, group = _group(session, args[0], args[1])
    pending: PendingList | None = group.pending
    if len(args) > at + 3:
        consumer = group.consumers.get(args[at + 3])
        pending = None if consumer is None else consumer.pending
    return [] if pending is None else _details(session, pending, start, end, count, min_idle)


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


def _details(
    session: Session, pending: PendingList, start: int, end: int, count: int, min_idle: int
) -> Reply:
    found: list[Reply] = []
    if count == 0:
        return found
    for entry_id, each in pending.items(start, end):
        idle = session.now_ms - each.delivered_ms
        if min_idle and idle < min_idle:
            continue
        found.append([format_id(entry_id), each.consumer.name, max(idle, 0), each.deliveries])
        if len(found) == count:
            break
    return found


@dataclass(slots=True)
class _Claim:
    """The options of XCLAIM."""

    force: bool = False
    justid: bool = False
    retrycount: int | None = None
    delivered_ms: int | None = None
    last_id: int = 0


def _claim_number(text: bytes, command_name: str, what: str) -> int:
    number = try_int(text)
    if number is None:
        raise CommandError(errors.bad_claim_argument(command_name, what))
    return number


def _claim_words(session: Session, args: Args, at: int) -> _Claim:
    words = _Claim()
    while at < len(args):
        word = args[at].upper()
        more = at + 1 < len(args)
        if word == b"FORCE":
            words.force = True
        elif word == b"JUSTID":
            words.justid = True
        elif word in (b"IDLE", b"TIME", b"RETRYCOUNT") and more:
            at += 1
            number = _claim_number(args[at], "XCLAIM", f"{word.decode()} option")
            if word == b"RETRYCOUNT":
                words.retrycount = number
            else:
                words.delivered_ms = session.now_ms - number if word == b"IDLE" else number
        elif word == b"LASTID" and more:
            at += 1
            words.last_id = parse_id(args[at])
        else:
            raise CommandError(errors.unrecognized_claim_option(args[at]))
        at += 1
    return words


@command("XCLAIM")
def xclaim(session: Session, args: Args) -> Reply:
    """Make pending entries those of another consumer."""
    stream, group = _group(session, args[0], args[1])
    min_idle = max(_claim_number(args[3], "XCLAIM", "min-idle-time"), 0)
    ids: list[int] = []
    at = 4
    while at < len(args):
        try:
            ids.append(parse_id(args[at]))
        except CommandError:
            break
        at += 1
    words = _claim_words(session, args, at)
    group.last_id = max(group.last_id, words.last_id)
    now_ms = session.now_ms
    delivered_ms = now_ms if words.delivered_ms is None else words.delivered_ms
    if not 0 <= delivered_ms <= now_ms:
        delivered_ms = now_ms
    consumer = _consumer(session, args[0], group, args[2])
    claimed: list[Reply] = []
    for entry_id in ids:
        fields = stream.get(entry_id)
        if fields is None:
            group.acknowledge(entry_id)
            continue
        pending = group.pending.get(entry_id)
        if pending is None:
            if not words.force:
                continue
            group.deliver(entry_id, consumer, now_ms)
            pending = group.pending.get(entry_id)
            assert pending is not None
        elif min_idle and now_ms - pending.delivered_ms < min_idle:
            continue
        group.give(entry_id, pending, consumer)
        pending.delivered_ms = delivered_ms
        if words.retrycount is not None and words.retrycount >= 0:
            pending.deliveries = words.retrycount
        elif not words.justid:
            pending.deliveries += 1
        consumer.active_ms = now_ms
        claimed.append(format_id(entry_id) if words.justid else entry_reply(entry_id, fields))
    if claimed:
        session.db.touch(args[0])
    return claimed


@command("XAUTOCLAIM")
def xautoclaim(session: Session, args: Args) -> Reply:
    """Claim what has long been pending: the next start, the entries, the ids deleted meanwhile."""
    min_idle = max(_claim_number(args[3], "XAUTOCLAIM", "min-idle-time"), 0)
    start = parse_start(args[4])
    count, justid = 100, False
    at = 5
    while at < len(args):
        word = args[at].upper()
        if word == b"COUNT" and at + 1 < len(args):
            at += 1
            count = parse_int(args[at], 1, (2**63 - 1) // 16, errors.XAUTOCLAIM_COUNT)
        elif word == b"JUSTID":
            justid = True
        else:
            raise CommandError(errors.SYNTAX)
        at += 1
    stream, group = _group(session, args[0], args[1])
    consumer = _consumer(session, args[0], group, args[2])
    now_ms = session.now_ms
    attempts = 10 * count
    following = 0
    claimed: list[Reply] = []
    deleted: list[Reply] = []
    for entry_id, pending in list(islice(group.pending.items(start), attempts + 1)):
        if not attempts or len(claimed) + len(deleted) == count:
            following = entry_id
            break
        attempts -= 1
        fields = stream.get(entry_id)
        if fields is None:
            group.acknowledge(entry_id)
            deleted.append(format_id(entry_id))
            continue
        if min_idle and now_ms - pending.delivered_ms < min_idle:
            continue
        group.give(entry_id, pending, consumer)
        pending.delivered_ms = now_ms
        if not justid:
            pending.deliveries += 1
        consumer.active_ms = now_ms
        claimed.append(format_id(entry_id) if justid else entry_reply(entry_id, fields))
    if claimed or deleted:
        session.db.touch(args[0])
    return [format_id(following), claimed, deleted]
