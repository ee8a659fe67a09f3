"""List commands."""

from __future__ import annotations

from functools import partial
from itertools import islice

from .. import errors
from ..engine.sessions import Session
from ..errors import CommandError
from ..reply import NIL_ARRAY, OK, Reply
from ..syntax import I64_MAX, I64_MIN, parse_int
from ..table.registry import Args, command, variant
from ..values.containers import QuickList
from .arguments import (
    arity_error,
    existing,
    get_or_empty,
    is_first,
    parse_bounds,
    parse_negatable,
    parse_options,
    parse_pop,
    parse_timeout,
    pop_first,
    pop_several,
    slice_bounds,
    try_or_wait,
)

_ENDS = (b"LEFT", b"RIGHT")


@variant(
    "LPUSH",
    "Prepend elements to a list one by one, and create the list if it does not exist.",
    left=True,
)
@variant("RPUSH", "Append elements to a list, and create the list if it does not exist.")
@variant("LPUSHX", "Prepend elements to a list only if the list exists.", left=True, create=False)
@variant("RPUSHX", "Append elements to a list only if the list exists.", create=False)
def push(session: Session, args: Args, *, left: bool = False, create: bool = True) -> Reply:
    if not create and not session.db.exists(args[0]):
        return 0
    items = session.db.get_or_create(args[0], QuickList)
    items.push(args[1:], left)
    session.db.touch(args[0], "lpush" if left else "rpush")
    return len(items)


@command("LINSERT")
def linsert(session: Session, args: Args) -> Reply:
    """Insert an element before or after the first element equal to the pivot."""
    key, where, pivot, item = args
    is_before = is_first(where, b"BEFORE", b"AFTER")
    items = session.db.get(key, QuickList)
    if items is None:
        return 0
    index = next(items.matches(pivot), None)
    if index is None:
        return -1
    items.insert(index if is_before else index + 1, item)
    session.db.touch(key)
    return len(items)


def _find_index(items: QuickList, text: bytes) -> int | None:
    """Parse an index, negative from the tail; return None if it is out of range."""
    index = parse_int(text)
    if index < 0:
        index += len(items)
    return index if 0 <= index < len(items) else None


@command("LSET")
def lset(session: Session, args: Args) -> Reply:
    """Set the element at an index of a list."""
    items = existing(session, args[0], QuickList)
    index = _find_index(items, args[1])
    if index is None:
        raise CommandError(errors.INDEX_OUT_OF_RANGE)
    items.replace(index, args[2])
    session.db.touch(args[0])
    return OK


@command("LLEN")
def llen(session: Session, args: Args) -> Reply:
    """Return the length of a list."""
    return len(get_or_empty(session, args[0], QuickList))


@command("LINDEX")
def lindex(session: Session, args: Args) -> Reply:
    """Return the element at an index of a list; a negative index counts from the tail."""
    items = session.db.get(args[0], QuickList)
    if items is None:
        return None
    index = _find_index(items, args[1])
    return None if index is None else items.at(index)


@command("LRANGE")
def lrange(session: Session, args: Args) -> Reply:
    """Return the elements of a list between two indexes, both inclusive."""
    first, last = parse_bounds(args[1], args[2])
    items = get_or_empty(session, args[0], QuickList)
    return items.slice(*slice_bounds(first, last, len(items)))


@command("LPOS")
def lpos(session: Session, args: Args) -> Reply:
    """Return the index of an element equal to a value, or the indexes of several such elements."""
    rank, count, maxlen = 1, None, 0
    for word, (value,) in parse_options(args, 2, session.command.option_sizes):
        if word == b"RANK":
            rejects_lowest = session.engine.table.knows["LPOS rejects the lowest rank"]
            rank = (parse_negatable if rejects_lowest else parse_int)(value)
            if rank == I64_MIN:
                rank = -1  # It cannot be negated, so Redis searches as if the rank were -1.
            if rank == 0:
                raise CommandError(errors.LPOS_RANK)
        elif word == b"COUNT":
            count = parse_int(value, 0, I64_MAX, errors.LPOS_COUNT)
        else:
            maxlen = parse_int(value, 0, I64_MAX, errors.LPOS_MAXLEN)
    items = get_or_empty(session, args[0], QuickList)
    matches = items.matches(args[1], reverse=rank < 0, maxlen=maxlen)
    wanted = islice(matches, abs(rank) - 1, None)
    if count is None:
        return next(wanted, None)
    return list(islice(wanted, count or None))


@command("LREM")
def lrem(session: Session, args: Args) -> Reply:
    """Remove elements equal to a value; a negative count removes from the tail."""
    count = parse_int(args[1])
    removed = get_or_empty(session, args[0], QuickList).remove(args[2], count)
    if removed:
        session.db.note_removal(args[0])
    return removed


@command("LTRIM")
def ltrim(session: Session, args: Args) -> Reply:
    """Trim a list to the elements between two indexes, both inclusive."""
    first, last = parse_bounds(args[1], args[2])
    items = session.db.get(args[0], QuickList)
    if items is not None:
        start, stop = slice_bounds(first, last, len(items))
        for _ in range(len(items) - stop):
            items.pop(left=False)
        for _ in range(start):
            items.pop(left=True)
        session.db.note_removal(args[0])
    return OK


def _take(
    session: Session, key: bytes, items: QuickList, left: bool, count: int = 1
) -> list[bytes]:
    """Remove elements from one end; return them in the order of removal."""
    taken = [items.pop(left) for _ in range(min(count, len(items)))]
    session.db.note_removal(key, "lpop" if left else "rpop")
    return taken


@variant("LPOP", "Remove and return one or more elements from the head of a list.", left=True)
@variant("RPOP", "Remove and return one or more elements from the tail of a list.", left=False)
def pop(session: Session, args: Args, *, left: bool) -> Reply:
    if len(args) > 2:
        raise arity_error(session)
    count = parse_pop(args)
    items = session.db.get(args[0], QuickList)
    if items is None:
        return None if count is None else NIL_ARRAY
    if count is None:
        return _take(session, args[0], items, left)[0]
    return list(_take(session, args[0], items, left, count)) if count else []


@variant("LMPOP", "Remove and return elements of the first non-empty list.")
@variant(
    "BLMPOP",
    "Remove and return elements of the first non-empty list, or block until a list has an element.",
)
def lmpop(session: Session, args: Args) -> Reply:
    return pop_several(session, args, _ENDS, QuickList, partial(_take, session))


@variant(
    "BLPOP",
    "Remove and return the head of the first non-empty list, or block until a list has an element.",
)
@variant(
    "BRPOP",
    "Remove and return the tail of the first non-empty list, or block until a list has an element.",
    left=False,
)
def blpop(session: Session, args: Args, *, left: bool = True) -> Reply:
    take = partial(_take, session, left=left)
    return pop_first(session, args[:-1], args[-1], QuickList, take)


def _move(
    session: Session, target: bytes, sources: list[bytes], *, from_left: bool, to_left: bool
) -> Reply:
    """Move an element between lists and return it, or None if the source is empty."""
    db, source = session.db, sources[0]
    items = db.get(source, QuickList)
    if items is None:
        return None
    db.get(target, QuickList)  # Raise WRONGTYPE before anything changes.
    item = items.pop(from_left)
    db.get_or_create(target, QuickList).push((item,), to_left)
    db.touch(target, "lpush" if to_left else "rpush")
    db.note_removal(source, "lpop" if from_left else "rpop")
    return item


def _move_or_wait(session: Session, args: Args, *, from_left: bool, to_left: bool) -> Reply:
    """Move an element from the first key to the second. A blocking command, whose last argument is a
    timeout, waits for an element.
    """
    is_blocking = "blocking" in session.command.flags
    timeout_ms = parse_timeout(session, args[-1]) if is_blocking else None
    move = partial(_move, session, args[1], from_left=from_left, to_left=to_left)
    return try_or_wait(session, args[:1], timeout_ms, move, QuickList, empty=None)


@variant("RPOPLPUSH", "Move the last element of a list to the head of another, and return it.")
@variant(
    "BRPOPLPUSH",
    "Move the last element of a list to the head of another; block while the list is empty.",
)
def rpoplpush(session: Session, args: Args) -> Reply:
    return _move_or_wait(session, args, from_left=False, to_left=True)


@variant(
    "LMOVE", "Move an element from either end of a list to either end of another, and return it."
)
@variant(
    "BLMOVE",
    "Move an element between the ends of two lists, or block until the source has an element.",
)
def lmove(session: Session, args: Args) -> Reply:
    from_left, to_left = (is_first(word, *_ENDS) for word in args[2:4])
    return _move_or_wait(session, args, from_left=from_left, to_left=to_left)
