"""XADD, XTRIM, XSETID, XDEL and their variants, which add, trim and delete entries of a stream."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ... import errors
from ...engine.sessions import Session
from ...errors import CommandError
from ...reply import OK, Reply
from ...table.registry import Args, CommandSpec, command
from ...table.syntax import parse_int
from ...values.stream import SEQUENCE_MAX, Stream, format_id
from ..arguments import arity_error, existing, get_or_empty, options, running
from . import parse_id, parse_new_id

_POLICIES = (b"KEEPREF", b"DELREF", b"ACKED")
"""Policies for deleting an entry that is pending in groups.

KEEPREF keeps the entry's ID in the groups, DELREF removes it from them, and ACKED deletes the entry
only if all groups have acknowledged it.
"""
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
    end: int = 1
    """Index of the first argument after the options."""


_NO_OPTIONS = _Options()


@cache
def _sizes(spec: CommandSpec) -> dict[bytes, int]:
    """Return the numbers of values of the options of XADD or XTRIM, without the signs of thresholds."""
    with_value = ("MAXLEN", "MINID", "LIMIT")
    return {word.encode(): int(word in with_value) for word in spec.options if word.isalpha()}


def _parse_options(session: Session, args: Args, *, adding: bool) -> _Options:
    """Parse the options of XTRIM or, with ``adding``, those of XADD before the ID."""
    if adding and args[1] == b"*":
        return _NO_OPTIONS
    sizes = _sizes(running(session))
    given = _Options()
    at = 1
    while at < len(args) and not (adding and args[at] == b"*"):
        word = args[at].upper()
        size = sizes.get(word)
        if word in (b"MAXLEN", b"MINID") and at + 2 < len(args) and args[at + 1] in (b"~", b"="):
            size = 2
        if size is None or at + size >= len(args):
            if not adding:
                raise CommandError(errors.SYNTAX)
            # Redis reports an invalid ID before a contradiction between options.
            parse_new_id(args[at])
            break
        _take_option(given, word, args[at + 1 : at + 1 + size])
        at += 1 + size
    given.end = at
    if given.limit and not given.has_strategy:
        raise CommandError(errors.TRIM_LIMIT_ALONE)
    if not adding and not given.has_strategy:
        raise CommandError(errors.XTRIM_NO_STRATEGY)
    if given.limit is not None and not given.approximate:
        raise CommandError(errors.TRIM_LIMIT_EXACT)
    return given


def _take_option(given: _Options, word: bytes, values: Args) -> None:
    if word == b"NOMKSTREAM":
        given.no_mkstream = True
    elif word == b"LIMIT":
        given.limit = parse_int(values[0])
        if given.limit < 0:
            raise CommandError(errors.TRIM_LIMIT_NEGATIVE)
    elif word in _POLICIES:
        if given.policy:
            raise CommandError(errors.SYNTAX)
        given.policy = word
    else:
        if given.has_strategy:
            raise CommandError(errors.TRIM_TWO_STRATEGIES)
        given.has_strategy = True
        given.approximate = values[0] == b"~" and len(values) == 2
        if word == b"MINID":
            given.min_id = parse_id(values[-1])
            return
        given.max_length = parse_int(values[-1])
        if given.max_length < 0:
            raise CommandError(errors.TRIM_MAXLEN_NEGATIVE)


def _trim(session: Session, stream: Stream, given: _Options) -> int:
    """Trim a stream and return the number of removed entries.

    With ``~``, the vendor trims to the exact threshold or not at all. Redis removes whole nodes,
    and by default at most as many entries as a hundred nodes can contain.
    """
    is_redis = session.engine.dialect == "redis"
    limit = given.limit or 0
    if given.approximate and not is_redis:
        if stream.surplus(given.max_length, given.min_id) < _VENDOR_MIN_SURPLUS:
            return 0
    elif given.approximate and given.limit is None:
        node = session.engine.config.number("stream-node-max-entries")
        limit = 100 * node if node > 0 else 10000
    removed = stream.trim(
        max_length=given.max_length,
        min_id=given.min_id,
        whole_nodes=given.approximate and is_redis,
        limit=limit,
        only_acknowledged=given.policy == b"ACKED",
    )
    if given.policy == b"DELREF":
        for entry_id in removed:
            stream.forget(entry_id)
    return len(removed)


@command("XADD")
def xadd(session: Session, args: Args) -> Reply:
    """Append an entry to a stream, optionally trim the stream, and return the ID of the entry."""
    given = _parse_options(session, args, adding=True)
    fields = args[given.end + 1 :]
    if not fields or len(fields) % 2:
        raise arity_error(session)
    new_id = None if args[given.end] == b"*" else parse_new_id(args[given.end])
    if new_id == (0, True):
        raise CommandError(errors.XADD_ID_ZERO)
    db = session.db
    stream = db.get(args[0], Stream)
    if stream is None:
        if given.no_mkstream:
            return None
        stream = db.get_or_create(args[0], Stream)
    entry_id = stream.next_id(session.now_ms)
    if entry_id is None:
        raise CommandError(errors.XADD_EXHAUSTED)
    if new_id is not None:
        entry_id = _given_id(stream, *new_id)
    number = session.engine.config.number
    limits = number("stream-node-max-bytes"), number("stream-node-max-entries")
    stream.append(entry_id, fields, *limits)
    removed = _trim(session, stream, given) if given.has_strategy else 0
    db.touch(args[0])
    if removed:
        db.touch(args[0], "xtrim")
    return format_id(entry_id)


def _given_id(stream: Stream, entry_id: int, has_sequence: bool) -> int:
    """Return the ID of a new entry from the result of ``parse_new_id()``."""
    if not has_sequence and entry_id >> 64 == stream.last_id >> 64:
        if stream.last_id & SEQUENCE_MAX == SEQUENCE_MAX:
            raise CommandError(errors.XADD_ID_SMALL)
        return stream.last_id + 1
    if entry_id <= stream.last_id:
        raise CommandError(errors.XADD_ID_SMALL)
    return entry_id


@command("XTRIM")
def xtrim(session: Session, args: Args) -> Reply:
    """Trim a stream and return the number of removed entries."""
    given = _parse_options(session, args, adding=False)
    stream = get_or_empty(session, args[0], Stream)
    removed = _trim(session, stream, given)
    if removed:
        session.db.touch(args[0])
    return removed


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
    stream = existing(session, args[0], Stream)
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
    stream = session.db.get(args[0], Stream)
    if stream is None:
        return 0
    ids = [parse_id(text) for text in args[1:]]
    deleted = sum(map(stream.delete, ids))
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


def _delete_with_policy(stream: Stream, entry_id: int, policy: bytes) -> int:
    """Delete an entry as far as the policy allows; return DELETED, ABSENT or KEPT."""
    if policy == b"ACKED" and entry_id in stream and stream.awaited(entry_id):
        return KEPT
    if policy == b"DELREF":
        stream.forget(entry_id)
    return DELETED if stream.delete(entry_id) else ABSENT


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
