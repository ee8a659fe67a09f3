"""JSON commands that change numbers, strings, booleans, and arrays in place."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ... import errors
from ...engine.sessions import Session
from ...errors import CommandError
from ...reply import Reply
from ...table.registry import Args, command, variant
from ...table.syntax import parse_int
from ...values.json import copy_json, equal, write_json
from ..arguments import arity_error
from . import (
    LEGACY_ROOT,
    change_arrays,
    check_depth,
    read,
    read_path,
    read_value,
    replace,
    wrong_type,
)

if TYPE_CHECKING:
    from ...values.json_path import Location


@variant(
    "JSON.NUMINCRBY",
    "Increment the numbers at a path and return the new values as JSON.",
    compute=operator.add,
)
@variant(
    "JSON.NUMMULTBY",
    "Multiply the numbers at a path and return the new values as JSON.",
    compute=operator.mul,
)
def json_numincrby(session: Session, args: Args, *, compute: Callable[[Any, Any], Any]) -> Reply:
    path, operand = read_path(session, args[1]), read_value(args[2])
    if operand.__class__ not in (int, float):
        raise CommandError(errors.JSON_OPERAND)

    def operation(value: Any) -> Any:
        try:
            result = compute(value, operand)
            if result.__class__ is int and not -(2**63) <= result < 2**63:
                result = float(result)
        except OverflowError:
            raise CommandError(errors.JSON_NOT_FINITE) from None
        if not math.isfinite(result):
            raise CommandError(errors.JSON_NOT_FINITE)
        return result

    results = replace(session, args[0], path, operation, int, float)
    if path.legacy:
        results = [result for result in results if result is not None][-1:]
    if session.resp > 2 and session.engine.dialect == "redis":
        return results  # In RESP3, RedisJSON returns an array of numbers even for a legacy path.
    return write_json(results[0] if path.legacy else results)


@command("JSON.STRAPPEND")
def json_strappend(session: Session, args: Args) -> Reply:
    """Append to the strings at a path and return their new lengths in bytes."""
    if len(args) > 3:
        raise arity_error(session)
    path = read_path(session, args[1] if len(args) == 3 else LEGACY_ROOT)
    addition = read_value(args[-1])
    if addition.__class__ is not str:
        raise wrong_type("string", addition)
    results = replace(session, args[0], path, lambda text: text + addition, str)
    lengths = [None if text is None else len(text.encode()) for text in results]
    return lengths[0] if path.legacy else lengths


@command("JSON.TOGGLE")
def json_toggle(session: Session, args: Args) -> Reply:
    """Negate the booleans at a path and return their new values."""
    path = read_path(session, args[1])
    results = replace(session, args[0], path, lambda value: not value, bool)
    if path.legacy:
        return b"true" if results[0] else b"false"
    return [None if result is None else int(result) for result in results]


@command("JSON.ARRAPPEND")
def json_arrappend(session: Session, args: Args) -> Reply:
    """Append values to the arrays at a path and return the new lengths."""
    path, values = read_path(session, args[1]), [read_value(text) for text in args[2:]]

    def append(array: list[Any]) -> int:
        array.extend(map(copy_json, values))
        return len(array)

    return change_arrays(
        session, args[0], path, append, lambda match: check_depth(len(match.parts) + 1, *values)
    )


@command("JSON.ARRINSERT")
def json_arrinsert(session: Session, args: Args) -> Reply:
    """Insert values before an index of the arrays at a path and return the new lengths."""
    path, index = read_path(session, args[1]), parse_int(args[2])
    values = [read_value(text) for text in args[3:]]

    def check(match: Location) -> None:
        check_depth(len(match.parts) + 1, *values)
        if not -len(match.value) <= index <= len(match.value):
            raise CommandError(errors.JSON_OUT_OF_BOUNDS)

    def insert(array: list[Any]) -> int:
        at = index + len(array) if index < 0 else index
        array[at:at] = map(copy_json, values)
        return len(array)

    return change_arrays(session, args[0], path, insert, check)


def _at_least_first(index: int, length: int) -> int:
    """Return an index counted from the start; one before the first element means the first."""
    return max(0, length + index) if index < 0 else index


@command("JSON.ARRINDEX")
def json_arrindex(session: Session, args: Args) -> Reply:
    """Return the first index of a value in each array at a path, or -1 for an array without it."""
    if len(args) > 5:
        raise arity_error(session)
    path, wanted = read_path(session, args[1]), read_value(args[2])
    start = parse_int(args[3]) if len(args) > 3 else 0
    stop = parse_int(args[4]) if len(args) > 4 else 0

    def index(array: list[Any]) -> int:
        length = len(array)
        first = min(_at_least_first(start, length), max(length - 1, 0))
        end = min(stop, length) if stop > 0 else length + stop
        for at in range(first, end):
            if equal(array[at], wanted):
                return at
        return -1

    return read(session, args[0], path, list, index)


@command("JSON.ARRPOP")
def json_arrpop(session: Session, args: Args) -> Reply:
    """Remove and return an element of each array at a path, by default the last one."""
    if len(args) > 3:
        raise arity_error(session)
    path = read_path(session, args[1] if len(args) > 1 else LEGACY_ROOT)
    index = parse_int(args[2]) if len(args) > 2 else -1

    def pop(array: list[Any]) -> bytes | None:
        if not array:
            return None
        length = len(array)
        return write_json(array.pop(min(_at_least_first(index, length), length - 1)))

    return change_arrays(session, args[0], path, pop)


@command("JSON.ARRTRIM")
def json_arrtrim(session: Session, args: Args) -> Reply:
    """Trim the arrays at a path to an inclusive range of indexes and return the new lengths."""
    path, start, stop = read_path(session, args[1]), parse_int(args[2]), parse_int(args[3])

    def trim(array: list[Any]) -> int:
        length = len(array)
        last = length + stop if stop < 0 else min(stop, length - 1)
        array[:] = array[_at_least_first(start, length) : max(last + 1, 0)]
        return len(array)

    return change_arrays(session, args[0], path, trim)
