"""Options and pages of the scan commands: SCAN, HSCAN, SSCAN and ZSCAN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from .. import errors
from ..algorithms.glob import matcher
from ..engine.session import Session
from ..errors import CommandError
from ..reply import Reply
from ..table.registry import Args
from ..table.syntax import parse_int, parse_unsigned
from ..values.collections import HashValue, SetValue
from ..values.zset import SortedSet
from .arguments import options, running

C = TypeVar("C", HashValue, SetValue, SortedSet)

DEFAULT_PAGE = {"vendor": 100, "redis": 10}
"""Default COUNT of a scan in each dialect. The vendor returns a small collection in a single page."""


def parse_cursor(text: bytes) -> int:
    return parse_unsigned(text, errors.INVALID_CURSOR)


def _fits_a_page(session: Session, value: C, cursor: int, count: int) -> bool:
    """Return whether a scan has one page: by COUNT for the vendor, by the encoding for Redis."""
    if session.engine.dialect == "vendor":
        return not cursor and len(value) <= count
    return value.encoding(session.engine.config) in ("intset", "listpack")


class ScanOptions(NamedTuple):
    """The options of a scan command."""

    page_size: int
    """The argument of COUNT."""
    matches: Callable[[bytes], bool] | None
    """The test of MATCH, or None."""
    others: dict[bytes, Args]
    """The command's own options with their values."""


_SIZES = {b"COUNT": 1, b"MATCH": 1, b"TYPE": 1, b"NOVALUES": 0, b"WITHTYPE": 0}


def parse_scan(session: Session, args: Args) -> ScanOptions:
    """Parse the options of the running command, all of which can have COUNT and MATCH."""
    count, matches = DEFAULT_PAGE[session.engine.dialect], None
    given: dict[bytes, Args] = {}
    for word, values in options(args, 0, _SIZES, of=running(session)):
        if word == b"COUNT":
            count = parse_int(values[0])
            if count < 1:
                raise CommandError(errors.SYNTAX)
        elif word == b"MATCH":
            matches = matcher(values[0])
        else:
            given[word] = values
    return ScanOptions(count, matches, given)


def scan_collection(
    session: Session,
    args: Args,
    kind: type[C],
    name: Callable[[Any], bytes] = lambda item: item,
    show: Callable[[C, list[Any], ScanOptions], list[Any]] = lambda value, items, given: items,
) -> Reply:
    """Return a page of the collection at a key.

    ``name`` returns the name of an item, and ``show`` the reply for the items whose names match. As
    in Redis, the options are not checked if the key is missing.
    """
    cursor = parse_cursor(args[1])
    value = session.db.get(args[0], kind)
    if value is None:
        return [b"0", []]
    given = parse_scan(session, args[2:])
    if _fits_a_page(session, value, cursor, given.page_size):
        following, items = 0, list(value)
    else:
        following, items = value.scan(cursor, given.page_size)
    if given.matches is not None:
        items = [item for item in items if given.matches(name(item))]
    return [b"%d" % following, show(value, items, given)]
