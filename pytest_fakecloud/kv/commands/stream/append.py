"""XADD, XTRIM and XSETID: adding entries to a stream, and trimming it."""

from __future__ import annotations

from dataclasses import dataclass

from ... import errors
from ...engine.engine import Session
from ...errors import CommandError, wrong_arity
from ...reply import OK, Reply
from ...table.registry import Args, command
from ...table.syntax import parse_int
from ...values.consumer_group import SEQUENCE_MAX
from ...values.stream import Stream, format_id
from ..arguments import options
from .delete import POLICIES, forget_entry
from .ids import parse_id, parse_new_id

# -- trimming ------------------------------------------------------------------------------------

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
                forget_entry(stream, entry_id)
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
        elif word in POLICIES and session.engine.table.knows["XADD KEEPREF"]:
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


# -- commands ------------------------------------------------------------------------------------


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
