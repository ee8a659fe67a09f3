"""SORT and SORT_RO, which return the sorted elements of a list, set or sorted set."""

from __future__ import annotations

from typing import Any

from ....core.budget import spend
from ... import errors
from ...engine.engine import Session
from ...errors import CommandError
from ...reply import Reply
from ...table.registry import Args, command
from ...table.syntax import parse_float, parse_int
from ...values.hashes import HashValue
from ...values.lists import QuickList
from ...values.sets import SetValue
from ...values.zset import SortedSet
from ..arguments import options

_STEPS_PER_ELEMENT = 8
_SIZES = {b"ASC": 0, b"DESC": 0, b"ALPHA": 0, b"LIMIT": 2, b"BY": 1, b"GET": 1}


class _Options:
    """The options of SORT, or those of SORT_RO unless ``may_store``."""

    def __init__(self, args: Args, may_store: bool) -> None:
        self.by: bytes | None = None
        self.keeps_order = False
        self.get: list[bytes] = []
        self.offset = 0
        self.count = -1
        self.descending = False
        self.alpha = False
        self.store: bytes | None = None
        for word, values in options(args, 1, {**_SIZES, b"STORE": 1} if may_store else _SIZES):
            if word in (b"ASC", b"DESC"):
                self.descending = word == b"DESC"
            elif word == b"ALPHA":
                self.alpha = True
            elif word == b"LIMIT":
                self.offset, self.count = map(parse_int, values)
            elif word == b"STORE":
                self.store = values[0]
            elif word == b"BY":
                self.by = values[0]
                # A pattern without a star turns sorting off. As in Redis, a later BY option does
                # not turn sorting on again.
                self.keeps_order = self.keeps_order or b"*" not in self.by
            else:
                self.get += values


def _elements(value: Any) -> list[bytes]:
    if value is None:
        return []
    if isinstance(value, SortedSet):
        value.to_skiplist()  # Redis converts a sorted set that it sorts.
        return [member for _, member in value]
    if isinstance(value, QuickList | SetValue):
        return list(value)
    raise CommandError(errors.WRONGTYPE)


def _referenced(session: Session, pattern: bytes, element: bytes) -> bytes | None:
    if pattern == b"#":
        return element
    before, star, after = pattern.partition(b"*")
    if not star:
        return None
    name, arrow, field = after.partition(b"->")
    if arrow and field:
        value = session.db.lookup(before + element + name)
        return value.fields.get(field) if isinstance(value, HashValue) else None
    value = session.db.lookup(before + element + after)
    return bytes(value) if isinstance(value, bytes | bytearray) else None


def _number(text: bytes) -> float:
    text = text.split(b"\0")[0].lstrip(b" \t\n\v\f\r")
    return parse_float(text, errors.SORT_SCORES) if text else 0.0


def _in_order(session: Session, elements: list[bytes], options: _Options) -> list[bytes]:
    spend(_STEPS_PER_ELEMENT * len(elements))
    weights: list[bytes | None] = [*elements]
    if options.by is not None:
        weights = [_referenced(session, options.by, element) for element in elements]
    pairs = zip(weights, elements, strict=True)
    if options.alpha:
        # A missing weight sorts before any other.
        by_text = sorted(pairs, key=lambda pair: (pair[0] is not None, pair[0]))
        in_order = [element for _, element in by_text]
        return in_order[::-1] if options.descending else in_order
    numbers = [(0.0 if weight is None else _number(weight), element) for weight, element in pairs]
    return [element for _, element in sorted(numbers, reverse=options.descending)]


def _check_permission(session: Session, options: _Options, may_store: bool) -> None:
    spec = session.engine.table.commands["SORT" if may_store else "SORT_RO"]
    # It is not known in advance which keys the BY and GET patterns will read, so require access to
    # all keys.
    if session.user.reads_all_keys(spec):
        return
    if options.by is not None and b"*" in options.by:
        raise CommandError(errors.SORT_BY_DENIED)
    if options.get:
        raise CommandError(errors.SORT_GET_DENIED)


def _sort(session: Session, args: Args, may_store: bool) -> Reply:
    options = _Options(args, may_store)
    if not session.user.unrestricted:
        _check_permission(session, options, may_store)
    value = session.db.lookup(args[0])
    elements = _elements(value)
    if options.keeps_order:
        if isinstance(value, SetValue) and (options.store is not None or session.in_script):
            # A set is unordered. If the elements are stored or returned to a script, sort them,
            # because the result must be deterministic.
            elements.sort()
        elif options.descending and isinstance(value, SortedSet):
            elements.reverse()
    else:
        elements = _in_order(session, elements, options)
    start = max(options.offset, 0)
    elements = elements[start : None if options.count < 0 else start + options.count]
    result: list[bytes | None] = list(elements)
    if options.get:
        spend(_STEPS_PER_ELEMENT * len(elements) * len(options.get))
        result = [
            _referenced(session, pattern, element)
            for element in elements
            for pattern in options.get
        ]
    if options.store is None:
        return list(result)
    if result:
        session.db.set(options.store, QuickList([item or b"" for item in result]))
    else:
        session.db.delete(options.store)
    return len(result)


@command("SORT")
def sort(session: Session, args: Args) -> Reply:
    """Return or store the sorted elements of a list, set, or sorted set."""
    return _sort(session, args, may_store=True)


@command("SORT_RO")
def sort_ro(session: Session, args: Args) -> Reply:
    """Return the sorted elements of a list, set, or sorted set."""
    return _sort(session, args, may_store=False)
