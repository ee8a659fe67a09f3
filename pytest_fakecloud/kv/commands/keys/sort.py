"""SORT and SORT_RO, which return the sorted elements of a list, set or sorted set."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ....core.budget import spend
from ... import errors
from ...engine.session import Session
from ...errors import CommandError
from ...reply import Reply
from ...table.registry import Args, variant
from ...table.syntax import parse_float, parse_int
from ...values.collections import HashValue, QuickList, SetValue
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


def _elements(value: Any) -> Iterable[bytes]:
    if value is None:
        return []
    if isinstance(value, SortedSet):
        return (member for _, member in value)
    if isinstance(value, QuickList | SetValue):
        return value
    raise CommandError(errors.WRONGTYPE)


def _unsorted_page(value: Any, given: _Options) -> list[bytes]:
    """Return the elements within LIMIT in stored order, without copying the others."""
    in_order = _elements(value)
    start, stop = _page(given, 0 if value is None else len(value))
    if not isinstance(value, SortedSet | QuickList):
        return list(islice(in_order, start, stop))
    if given.descending:
        start, stop = len(value) - stop, len(value) - start
    if isinstance(value, SortedSet):
        elements = [member for _, member in value.slice(start, stop)]
    else:
        elements = value.slice(start, stop)
    return elements[::-1] if given.descending else elements


def _page(given: _Options, size: int) -> tuple[int, int]:
    """Return the start and the stop of the elements within LIMIT."""
    start = min(max(given.offset, 0), size)
    return start, size if given.count < 0 else min(start + given.count, size)


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


def _sorted_page(session: Session, value: Any, given: _Options) -> list[bytes]:
    """Return the elements within LIMIT, after sorting all elements by their weights."""
    elements = list(_elements(value))
    spend(_STEPS_PER_ELEMENT * len(elements))
    weights: list[bytes | None] = [*elements]
    if given.by is not None:
        weights = [_referenced(session, given.by, element) for element in elements]
    if given.alpha:
        # A missing weight sorts before any other. Elements with equal weights keep their order,
        # also in descending order. Unless it stores the result, Redis ignores what follows a NUL.
        if given.store is None:
            weights = [weight and weight.partition(b"\0")[0] for weight in weights]
        in_order: Iterable[tuple[Any, bytes]] = sorted(
            zip(weights, elements, strict=True),
            key=lambda pair: (pair[0] is not None, pair[0]),
            reverse=given.descending,
        )
    else:
        numbers = [0.0 if weight is None else _number(weight) for weight in weights]
        in_order = sorted(zip(numbers, elements, strict=True), reverse=given.descending)
    return [element for _, element in islice(in_order, *_page(given, len(elements)))]


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
    if isinstance(value, SortedSet):
        value.to_skiplist()  # Redis converts a sorted set that it sorts.
    if (
        given.keeps_order
        and isinstance(value, SetValue)
        and (given.store is not None or session.in_script)
    ):
        # A set is unordered. If the elements are stored or returned to a script, sort them by their
        # bytes, because the result must be deterministic.
        given.by, given.keeps_order, given.alpha = None, False, True
    elements = (
        _unsorted_page(value, given) if given.keeps_order else _sorted_page(session, value, given)
    )
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
