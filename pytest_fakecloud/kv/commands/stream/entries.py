"""Stream commands that append, trim, delete, and read entries, without consumer groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....core.budget import spend
from ... import errors
from ...engine.engine import Session
from ...errors import CommandError, wrong_arity
from ...reply import NIL_ARRAY, OK, Map, Reply
from ...table.registry import Args, command
from ...table.syntax import parse_int
from ...values.consumer_group import SEQUENCE_MAX
from ...values.stream import Stream, format_id, make_id
from ..arguments import REST, options
from ..blocking import parse_block, try_or_wait
from .ids import entry_reply, parse_id, parse_ids, parse_interval, parse_new_id

_STEPS_AN_ENTRY = 10


_POLICIES = (b"KEEPREF", b"DELREF", b"ACKED")
"""Policies for deleting an entry that is pending in groups.

KEEPREF keeps the entry's ID in the groups, DELREF removes it from them, and ACKED deletes the entry
only if all groups have acknowledged it.
"""

# -- adding and trimming -------------------------------------------------------------------------

_ROUGHLY = 100
"""Minimum number of surplus entries at which the vendor trims with ``~``.

Derived from tests of the official clients: ``MAXLEN ~ 30`` leaves about 30 of 1,000 entries, but
(nearly) all of 111 and of 120.
"""


@dataclass(slots=True)
class _Trim:
    """The trimming options of XADD and XTRIM."""

    max_length: int | None = None
    min_id: int = 0
    wanted: bool = False
    approximate: bool = False
    limit: int | None = None
    no_mkstream: bool = False
    policy: bytes = b""

    def apply(self, session: Session, stream: Stream) -> int:
        """Trim a stream and return the number of removed entries.

        With ``~``, the vendor trims to the exact threshold or not at all. Redis removes whole
        nodes, and by default at most as many entries as a hundred nodes can contain.
        """
        stock = session.engine.dialect == "redis"
        limit = self.limit or 0
        if self.approximate and not stock:
            if stream.surplus(self.max_length, self.min_id) < _ROUGHLY:
                return 0
        elif self.approximate and self.limit is None:
            node = session.engine.config.number("stream-node-max-entries")
            limit = 100 * node if node > 0 else 10000
        cut = stream.trim_acknowledged if self.policy == b"ACKED" else stream.trim
        removed = cut(
            max_length=self.max_length,
            min_id=self.min_id,
            whole_nodes=self.approximate and stock,
            limit=limit,
        )
        if self.policy == b"DELREF":
            for entry_id in removed:
                _forget(stream, entry_id)
        return len(removed)


def _parse_trim(session: Session, args: Args, *, adding: bool) -> tuple[_Trim, int]:
    """Parse the options of XTRIM, or of XADD before the ID; return also the next position."""
    trim = _Trim()
    at = 1
    while at < len(args):
        word = args[at].upper()
        more = len(args) - at - 1
        if adding and word == b"*":
            break
        if word in (b"MAXLEN", b"MINID") and more:
            at = _parse_strategy(trim, word, args, at)
        elif word == b"LIMIT" and more:
            trim.limit = parse_int(args[at + 1])
            if trim.limit < 0:
                raise CommandError(errors.TRIM_LIMIT_NEGATIVE)
            at += 1
        elif adding and word == b"NOMKSTREAM":
            trim.no_mkstream = True
        elif word in _POLICIES and session.engine.table.knows["XADD KEEPREF"]:
            if trim.policy:
                raise CommandError(errors.SYNTAX)
            trim.policy = word
        elif adding:
            parse_new_id(args[at])
            break
        else:
            raise CommandError(errors.SYNTAX)
        at += 1
    if trim.limit and not trim.wanted:
        raise CommandError(errors.TRIM_LIMIT_ALONE)
    if not adding and not trim.wanted:
        raise CommandError(errors.XTRIM_NO_STRATEGY)
    if trim.limit is not None and not trim.approximate:
        raise CommandError(errors.TRIM_LIMIT_EXACT)
    return trim, at


def _parse_strategy(trim: _Trim, word: bytes, args: Args, at: int) -> int:
    if trim.wanted:
        raise CommandError(errors.TRIM_TWO_STRATEGIES)
    trim.approximate = False
    if len(args) - at - 1 >= 2 and args[at + 1] in (b"~", b"="):
        trim.approximate = args[at + 1] == b"~"
        at += 1
    if word == b"MAXLEN":
        trim.max_length = parse_int(args[at + 1])
        if trim.max_length < 0:
            raise CommandError(errors.TRIM_MAXLEN_NEGATIVE)
    else:
        trim.min_id = parse_id(args[at + 1])
    trim.wanted = True
    return at + 1


@command("XADD")
def xadd(session: Session, args: Args) -> Reply:
    """Append an entry to a stream, optionally trim the stream, and return the ID of the entry."""
    trim, at = _parse_trim(session, args, adding=True)
    fields = args[at + 1 :]
    if not fields or len(fields) % 2:
        raise CommandError(wrong_arity("xadd"))
    given = None if args[at] == b"*" else parse_new_id(args[at])
    if given == (0, True):
        raise CommandError(errors.XADD_ID_ZERO)
    db = session.db
    stream = db.get(args[0], Stream)
    if stream is None:
        if trim.no_mkstream:
            return None
        stream = db.get_or_create(args[0], Stream)
    entry_id = stream.next_id(session.now_ms)
    if entry_id is None:
        raise CommandError(errors.XADD_EXHAUSTED)
    if given is not None:
        entry_id = _given_id(stream, *given)
    config = session.engine.config
    stream.append(
        entry_id,
        fields,
        config.number("stream-node-max-bytes"),
        config.number("stream-node-max-entries"),
    )
    removed = trim.apply(session, stream) if trim.wanted else 0
    db.touch(args[0])
    if removed:
        db.touch(args[0], "xtrim")
    return format_id(entry_id)


def _given_id(stream: Stream, entry_id: int, sequence_given: bool) -> int:
    if not sequence_given and entry_id >> 64 == stream.last_id >> 64:
        if stream.last_id & SEQUENCE_MAX == SEQUENCE_MAX:
            raise CommandError(errors.XADD_ID_SMALL)
        return stream.last_id + 1
    if entry_id <= stream.last_id:
        raise CommandError(errors.XADD_ID_SMALL)
    return entry_id


@command("XTRIM")
def xtrim(session: Session, args: Args) -> Reply:
    """Trim a stream and return the number of removed entries."""
    trim, _ = _parse_trim(session, args, adding=False)
    stream = session.db.get(args[0], Stream)
    if stream is None:
        return 0
    removed = trim.apply(session, stream)
    if removed:
        session.db.touch(args[0])
    return removed


@command("XDEL")
def xdel(session: Session, args: Args) -> Reply:
    """Delete entries by ID and return the number that existed."""
    stream = session.db.get(args[0], Stream)
    if stream is None:
        return 0
    deleted = sum([stream.delete(entry_id) for entry_id in parse_ids(args[1:])])
    if deleted:
        session.db.touch(args[0])
    return deleted


@command("XSETID")
def xsetid(session: Session, args: Args) -> Reply:
    """Set the last ID, the number of added entries and the highest deleted ID of a stream."""
    last_id = parse_id(args[1])
    entries_added, max_deleted_id = None, 0
    for word, (value,) in options(args, 2, {b"ENTRIESADDED": 1, b"MAXDELETEDID": 1}):
        if word == b"ENTRIESADDED":
            entries_added = parse_int(value)
            if entries_added < 0:
                raise CommandError(errors.XSETID_ENTRIES_NEGATIVE)
        else:
            max_deleted_id = parse_id(value)
            if last_id < max_deleted_id:
                raise CommandError(errors.XSETID_BELOW_GIVEN)
    stream = session.db.get(args[0], Stream)
    if stream is None:
        raise CommandError(errors.NO_SUCH_KEY)
    looks = session.engine.table.knows["XSETID checks the highest deleted id"]
    if looks and last_id < stream.max_deleted_id:
        raise CommandError(errors.XSETID_BELOW_DELETED)
    if stream.length:
        if last_id < stream.highest_id:
            raise CommandError(errors.XSETID_SMALL)
        if entries_added is not None and entries_added < stream.length:
            raise CommandError(errors.XSETID_ENTRIES_SMALL)
    stream.last_id = last_id
    if entries_added is not None:
        stream.entries_added = entries_added
    stream.max_deleted_id = max_deleted_id or stream.max_deleted_id
    session.db.touch_unwatched(args[0])
    return OK


# -- reading -------------------------------------------------------------------------------------


def entries_reply(entries: list[tuple[int, list[bytes]]]) -> list[Reply]:
    return [entry_reply(entry_id, fields) for entry_id, fields in entries]


@command("XLEN")
def xlen(session: Session, args: Args) -> Reply:
    """Return the number of entries in a stream."""
    stream = session.db.get(args[0], Stream)
    return 0 if stream is None else stream.length


def _xrange(session: Session, args: Args, start: bytes, end: bytes, *, reverse: bool) -> Reply:
    low, high = parse_interval(start, end)
    count = -1
    for _, (value,) in options(args, 3, {b"COUNT": 1}):
        count = max(parse_int(value), 0)
    stream = session.db.get(args[0], Stream)
    if stream is None:
        return []
    if count == 0:
        return NIL_ARRAY
    return entries_reply(stream.range(low, high, count, reverse=reverse))


@command("XRANGE")
def xrange(session: Session, args: Args) -> Reply:
    """Return the entries in a range of IDs."""
    return _xrange(session, args, args[1], args[2], reverse=False)


@command("XREVRANGE")
def xrevrange(session: Session, args: Args) -> Reply:
    """Return the entries in a range of IDs in reverse order; the end of the range comes first."""
    return _xrange(session, args, args[2], args[1], reverse=True)


@dataclass(slots=True)
class ReadWords:
    """The arguments of XREAD or XREADGROUP. A ``count`` of 0 means no limit."""

    keys: list[bytes]
    ids: list[bytes]
    count: int = 0
    block_ms: int | None = None
    group: bytes | None = None
    consumer: bytes = b""
    noack: bool = False


def read_words(session: Session, args: Args, *, grouped: bool) -> ReadWords:
    words = ReadWords([], [])
    sizes = {b"BLOCK": 1, b"COUNT": 1, b"STREAMS": REST, b"GROUP": 2, b"NOACK": 0}
    for word, values in options(args, 0, sizes):
        if word == b"BLOCK":
            words.block_ms = parse_block(session, values[0])
        elif word == b"COUNT":
            words.count = max(parse_int(values[0]), 0)
        elif word == b"STREAMS":
            half, odd = divmod(len(values), 2)
            if odd:
                raise CommandError(errors.XREAD_UNBALANCED)
            words.keys, words.ids = values[:half], values[half:]
        elif word == b"GROUP":
            if not grouped:
                raise CommandError(errors.XREAD_GROUP)
            words.group, words.consumer = values
        else:
            if not grouped:
                raise CommandError(errors.XREAD_NOACK)
            words.noack = True
    if not words.keys:
        raise CommandError(errors.SYNTAX)
    if grouped and words.group is None:
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
        for key, start in zip(words.keys, starts, strict=True):
            stream = session.db.get(key, Stream) if key in keys else None
            if stream is not None and stream.length and stream.highest_id >= start:
                entries = stream.range(start, count=words.count or -1)
                # Charge the budget, because one command may name the same large stream a thousand
                # times.
                spend(_STEPS_AN_ENTRY * len(entries))
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


# -- deleting with a policy for references -------------------------------------------------------

DELETED, ABSENT, KEPT = 1, -1, 2


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
    return policy, parse_ids(args[at + 2 :])


def _delete_with_policy(stream: Stream, entry_id: int, policy: bytes) -> int:
    """Delete an entry as far as the policy allows; return DELETED, ABSENT or KEPT (still awaited)."""
    if policy == b"ACKED" and entry_id in stream and stream.awaited(entry_id):
        return KEPT
    if policy == b"DELREF":
        _forget(stream, entry_id)
    return DELETED if stream.delete(entry_id) else ABSENT


def _forget(stream: Stream, entry_id: int) -> None:
    for group in stream.groups.values():
        group.acknowledge(entry_id)


@command("XDELEX")
def xdelex(session: Session, args: Args) -> Reply:
    """Delete entries, with a policy for groups that refer to them; return the result for each ID."""
    policy, ids = _parse_ids_with_policy(args, 1)
    stream = session.db.get(args[0], Stream)
    if stream is None:
        return [ABSENT] * len(ids)
    outcomes = [_delete_with_policy(stream, entry_id, policy) for entry_id in ids]
    if DELETED in outcomes:
        session.db.touch(args[0])
    return list(outcomes)


@command("XACKDEL")
def xackdel(session: Session, args: Args) -> Reply:
    """Acknowledge entries in a group and delete them as XDELEX does.

    An entry is deleted even if it is not pending in the group, as tests of the official clients
    show.
    """
    policy, ids = _parse_ids_with_policy(args, 2)
    stream = session.db.get(args[0], Stream)
    group = None if stream is None else stream.groups.get(args[1])
    if stream is None or group is None:
        return [ABSENT] * len(ids)
    acknowledged = [group.acknowledge(entry_id) for entry_id in ids]
    outcomes = [_delete_with_policy(stream, entry_id, policy) for entry_id in ids]
    if any(acknowledged) or DELETED in outcomes:
        session.db.touch(args[0])
    return list(outcomes)
