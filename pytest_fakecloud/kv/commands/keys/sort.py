"""SORT and SORT_RO, which return the sorted elements of a list, set or sorted set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ....core.budget import spend
from ... import errors
from ...engine.session import Session
from ...errors import CommandError
from ...reply import Reply
from ...table.registry import Args, variant
from ...table.syntax import parse_float, parse_int
from ...values.hashes import HashValue
from ...values.lists import QuickList
from ...values.sets import SetValue
from ...values.zset import SortedSet
from ..arguments import options, running

_STEPS_PER_ELEMENT = 8
_SIZES = {b"ASC": 0, b"DESC": 0, b"ALPHA": 0, b"LIMIT": 2, b"BY": 1, b"GET": 1, b"STORE": 1}


@dataclass(slots=True)
class _Options:
    """The options of SORT or SORT_RO. A negative ``count`` means no limit."""

    by: bytes | None = None
    keeps_order: bool = False
    get: list[bytes] = field(default_factory=list)
    offset: int = 0
    count: int = -1
    descending: bool = False
    alpha: bool = False
    store: bytes | None = None


def _parse_options(session: Session, args: Args) -> _Options:
    given = _Options()
    for word, values in options(args, 1, _SIZES, of=running(session)):
        if word in (b"ASC", b"DESC"):
            given.descending = word == b"DESC"
        elif word == b"ALPHA":
            given.alpha = True
        elif word == b"LIMIT":
            given.offset, given.count = map(parse_int, values)
        elif word == b"STORE":
            given.store = values[0]
        elif word == b"GET":
            given.get += values
        else:
            given.by = values[0]
            # A pattern without a star turns sorting off. As in Redis, a later BY option does not
            # turn sorting on again.
            given.keeps_order = given.keeps_order or b"*" not in given.by
    return given


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


def _in_order(session: Session, elements: list[bytes], given: _Options) -> list[bytes]:
    spend(_STEPS_PER_ELEMENT * len(elements))
    weights: list[bytes | None] = [*elements]
    if given.by is not None:
        weights = [_referenced(session, given.by, element) for element in elements]
    pairs = zip(weights, elements, strict=True)
    if given.alpha:
        # A missing weight sorts before any other.
        by_text = sorted(pairs, key=lambda pair: (pair[0] is not None, pair[0]))
        in_order = [element for _, element in by_text]
        return in_order[::-1] if given.descending else in_order
    numbers = [(0.0 if weight is None else _number(weight), element) for weight, element in pairs]
    return [element for _, element in sorted(numbers, reverse=given.descending)]


def _check_permission(session: Session, given: _Options) -> None:
    # It is not known in advance which keys the BY and GET patterns will read, so require access to
    # all keys.
    if session.user.reads_all_keys(running(session)):
        return
    if given.by is not None and b"*" in given.by:
        raise CommandError(errors.SORT_BY_DENIED)
    if given.get:
        raise CommandError(errors.SORT_GET_DENIED)


@variant("SORT", "Return or store the sorted elements of a list, set, or sorted set.")
@variant("SORT_RO", "Return the sorted elements of a list, set, or sorted set.")
def sort(session: Session, args: Args) -> Reply:
    given = _parse_options(session, args)
    if not session.user.unrestricted:
        _check_permission(session, given)
    value = session.db.lookup(args[0])
    elements = _elements(value)
    if not given.keeps_order:
        elements = _in_order(session, elements, given)
    elif isinstance(value, SetValue) and (given.store is not None or session.in_script):
        # A set is unordered. If the elements are stored or returned to a script, sort them, because
        # the result must be deterministic.
        elements.sort()
    elif isinstance(value, SortedSet) and given.descending:
        elements.reverse()
    start = max(given.offset, 0)
    elements = elements[start : None if given.count < 0 else start + given.count]
    result: list[bytes | None] = list(elements)
    if given.get:
        spend(_STEPS_PER_ELEMENT * len(elements) * len(given.get))
        result = [
            _referenced(session, pattern, element) for element in elements for pattern in given.get
        ]
    if given.store is None:
        return list(result)
    if result:
        session.db.set(given.store, QuickList([item or b"" for item in result]))
    else:
        session.db.delete(given.store)
    return len(result)
