"""JSON commands, which set, get, merge, delete, describe and change parts of documents.

With a ``$`` path, a reply has one item per match; the item is nil if the match has the wrong type.
With a legacy path, the reply is the result for the first match, and a path without a match is an
error. If the key is missing, a read with a legacy path returns nil, and every other command raises
an error. This is the behaviour of RedisJSON (decided here where the tests of the vendor's clients
do not show it). The dialects differ in one point: if an array command changes several matches of a
legacy path, RedisJSON returns the result for the last match.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sized
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING, Any

from .. import errors
from ..engine.sessions import Session
from ..errors import CommandError, one_line
from ..reply import OK, Reply, Status
from ..syntax import parse_int
from ..table.registry import Args, command, variant
from ..values.json import (
    DEEPEST,
    TYPE_WORDS,
    JsonError,
    JsonValue,
    Layout,
    copy_json,
    depth,
    equal,
    merge,
    parse_json,
    write_json,
)
from .arguments import arity_error, existing, only_option

if TYPE_CHECKING:
    from ..values.json_path import Location, Path


_MAX_LEVELS = 2 * DEEPEST
"""Maximum depth of a document into which clients have inserted values, each of ``DEEPEST`` levels."""
LEGACY_ROOT = b"."


def read_path(session: Session, text: bytes) -> Path:
    """Parse a path that a client sent; raise ``CommandError`` if it is invalid."""
    from ..values.json_path import compile_path  # slow to import and rarely needed

    return compile_path(text, outer_first=session.engine.dialect == "redis")


def optional_path(session: Session, args: Args, most: int = 2) -> Path:
    """Return the path after the key, by default the root, of a command with up to ``most`` arguments."""
    if len(args) > most:
        raise arity_error(session)
    return read_path(session, args[1] if len(args) > 1 else LEGACY_ROOT)


def read_value(text: bytes) -> Any:
    """Parse a JSON value that a client sent; raise ``CommandError`` if it is invalid."""
    try:
        return parse_json(text)
    except JsonError as error:
        raise CommandError(one_line(b"ERR " + str(error).encode())) from None


def outermost(matches: list[Location]) -> list[Location]:
    """Return the matches that are not inside another match."""
    places = {match.parts for match in matches}
    return [
        match for match in matches
        if not any(match.parts[:end] in places for end in range(len(match.parts)))
    ]  # fmt: skip


def wrong_type(expected: str, value: Any) -> CommandError:
    return CommandError(errors.wrong_json_type(expected, TYPE_WORDS[value.__class__]))


Operation = Callable[[Any], Any]
_Check = Callable[["Location"], None]
"""Raises ``CommandError`` for an array that a command must not change."""


def _results(
    path: Path, matches: list[Location], compute: Operation, *kinds: type, needs_first: bool = True
) -> list[Any]:
    """Return the result of an operation for each match; None for a match not of these types.

    With a legacy path, raise an error unless the first match, or with ``needs_first=False`` any
    match, is of these types. The error names the last of them.
    """
    # Types are compared with `in`, because a boolean is also an instance of `int`.
    fits = [match.value.__class__ in kinds for match in matches]
    if path.legacy:
        if not matches:
            raise CommandError(errors.missing_json_path(path.text))
        if not (fits[0] if needs_first else any(fits)):
            raise wrong_type(TYPE_WORDS[kinds[-1]], matches[0].value)
    return [compute(match.value) if fit else None for match, fit in zip(matches, fits, strict=True)]


def read(session: Session, key: bytes, path: Path, kind: type, operation: Operation) -> Reply:
    """Return the reply of a reading operation; without the key, nil or an error for a ``$`` path."""
    document = session.db.get(key, JsonValue)
    if document is None:
        if path.legacy:
            return None
        raise CommandError(errors.JSON_NO_KEY)
    results = _results(path, path.find(document.root), operation, kind)
    return results[0] if path.legacy else results


def change_arrays(
    session: Session, key: bytes, path: Path, operation: Operation, check: _Check | None = None
) -> Reply:
    """Return the reply of an operation that adds or removes elements of the matched arrays."""
    document = existing(session, key, JsonValue, errors.JSON_NO_KEY)
    matches = path.find(document.root)
    arrays = [match for match in matches if match.value.__class__ is list]
    reserve(session, arrays)
    if check is not None:
        for match in arrays:
            check(match)
    lengths = [len(match.value) for match in arrays]
    is_redis = session.engine.dialect == "redis"
    results = _results(path, matches, operation, list, needs_first=not is_redis)
    if lengths != [len(match.value) for match in arrays]:
        session.db.touch(key)
    shown = 0
    if path.legacy and is_redis:
        shown = max(at for at, match in enumerate(matches) if match.value.__class__ is list)
    return results[shown] if path.legacy else results


# -- changes to documents --------------------------------------------------------------------------


def reserve(session: Session, matches: Sized) -> None:
    """Raise OOM if a command would exceed the memory limit by storing its arguments at every match."""
    if len(matches) > 1:
        engine = session.engine
        engine.memory.reserve(session.interface, (len(matches) - 1) * sum(map(len, session.line)))


def parent_of(document: JsonValue, match: Location) -> Any:
    """Return the array or object that contains a match, which must not be the root."""
    return reduce(operator.getitem, match.parts[:-1], document.root)


def put(document: JsonValue, match: Location, value: Any) -> None:
    """Replace the value of a match, which may be the root."""
    if match.parts:
        parent_of(document, match)[match.parts[-1]] = value
    else:
        document.root = value


def replace(
    session: Session, key: bytes, path: Path, operation: Operation, *kinds: type
) -> list[Any]:
    """Replace the matches of some types with the results of an operation, and return these."""
    document = existing(session, key, JsonValue, errors.JSON_NO_KEY)
    matches = path.find(document.root)
    reserve(session, matches)
    results = _results(path, matches, operation, *kinds)
    for match, result in zip(matches, results, strict=True):
        if result is not None:
            put(document, match, result)
    if any(result is not None for result in results):
        session.db.touch(key)
    return results


def check_depth(levels: int, *values: Any) -> None:
    """Raise an error if ``values``, placed ``levels`` deep, would nest the document too deeply."""
    if levels + max(map(depth, values)) > _MAX_LEVELS:
        raise CommandError(errors.JSON_TOO_DEEP)


def put_all(
    session: Session,
    document: JsonValue,
    matches: list[Location],
    value: Any,
    make: Callable[[Any], Any],
) -> None:
    """Replace each match with what ``make`` returns for it; first check the depth of ``value``."""
    reserve(session, matches)
    for match in matches:
        check_depth(len(match.parts), value)
    for match in matches:
        put(document, match, make(match.value))


# -- commands --------------------------------------------------------------------------------------


def _assign(
    session: Session, document: JsonValue, path: Path, value: Any, condition: bytes = b""
) -> bool:
    """Set the value at a path; return whether anything was set.

    If only the last member is missing, it is added to every object that matches the rest.
    """
    matches = outermost(path.find(document.root))
    if matches and condition == b"NX":
        return False
    if not matches:
        created = path.parent_and_name()
        if created is None:
            raise CommandError(errors.JSON_NOT_STATIC)
        if condition == b"XX":
            return False
        parent_path, name = created
        parent_matches = parent_path.find(document.root)
        parents = [match for match in parent_matches if match.value.__class__ is dict]
        if not parents:
            raise CommandError(errors.missing_json_path(path.text))
        matches = [match._replace(parts=(*match.parts, name)) for match in parents]
    put_all(session, document, matches, value, lambda _: copy_json(value))
    return True


@command("JSON.SET")
def json_set(session: Session, args: Args) -> Reply:
    """Set the value at a path of a document, or create the document."""
    key, path = args[0], read_path(session, args[1])
    condition = only_option(session, args[3:])
    value = read_value(args[2])
    document = session.db.get(key, JsonValue)
    if document is None:
        if not path.is_root:
            raise CommandError(errors.JSON_NOT_AT_ROOT)
        if condition == b"XX":
            return None
        session.db.set(key, JsonValue(value))
        return OK
    if not _assign(session, document, path, value, condition):
        return None
    session.db.touch(key)
    return OK


@command("JSON.MSET")
def json_mset(session: Session, args: Args) -> Reply:
    """Set values in several documents atomically."""
    if len(args) % 3:
        raise arity_error(session)
    changed: dict[bytes, JsonValue] = {}
    for at in range(0, len(args), 3):
        key, path, value = args[at], read_path(session, args[at + 1]), read_value(args[at + 2])
        document = changed.get(key) or session.db.get(key, JsonValue)
        if path.is_root:
            changed[key] = JsonValue(value)
        elif document is None:
            raise CommandError(errors.JSON_NOT_AT_ROOT)
        else:
            if key not in changed:
                changed[key] = document.copy()
            _assign(session, changed[key], path, value)
    for key, document in changed.items():
        present = session.db.get(key, JsonValue)
        if present is None:
            session.db.set(key, document)
        else:
            present.root = document.root
            session.db.touch(key)
    return OK


@command("JSON.MERGE")
def json_merge(session: Session, args: Args) -> Reply:
    """Merge a JSON value into the values at a path as in RFC 7396, where null deletes."""
    key, path, patch = args[0], read_path(session, args[1]), read_value(args[2])
    document = session.db.get(key, JsonValue)
    if document is None:
        if not path.is_root:
            raise CommandError(errors.JSON_NOT_AT_ROOT)
        session.db.set(key, JsonValue(merge(None, patch)))
        return OK
    matches = path.find(document.root)
    if patch is None:
        _remove(session, key, document, matches, "json.merge")
    elif matches:
        outer = outermost(matches)
        put_all(session, document, outer, patch, lambda target: merge(target, patch))
        session.db.touch(key)
    else:
        _assign(session, document, path, merge(None, patch))
        session.db.touch(key)
    return OK


@command("JSON.GET")
def json_get(session: Session, args: Args) -> Reply:
    """Return the values at one or more paths of a document as JSON."""
    layout: dict[str, str] = {}
    paths: list[Path] = []
    words = iter(args[1:])
    for text in words:
        word = text.lower().decode("latin-1")
        if word in Layout._fields and (value := next(words, None)) is not None:
            layout[word] = value.decode("utf-8", "replace")
        elif word != "noescape":  # accepted without effect, as in RedisJSON 2
            paths.append(read_path(session, text))
    document = session.db.get(args[0], JsonValue)
    if document is None:
        return None
    paths = paths or [read_path(session, LEGACY_ROOT)]
    legacy = all(path.legacy for path in paths)
    results = {path.text: _all_or_first(path, _values(path, document), legacy) for path in paths}
    return write_json(results if len(paths) > 1 else results[paths[0].text], Layout(**layout))


def _values(path: Path, document: JsonValue) -> list[Any]:
    return [match.value for match in path.find(document.root)]


def _all_or_first(path: Path, results: list[Any], legacy: bool) -> Reply:
    """Return the results for all matches or, if ``legacy``, for the first match."""
    if legacy and not results:
        raise CommandError(errors.missing_json_path(path.text))
    shown: Reply = results[0] if legacy else results
    return shown


@command("JSON.MGET")
def json_mget(session: Session, args: Args) -> Reply:
    """Return the values at a path in several documents as JSON; nil for each missing document.

    The vendor documents nil also for a path without a match, for which RedisJSON returns ``[]``.
    """
    lacks_empty = session.engine.dialect == "vendor"
    path = read_path(session, args[-1])
    replies: list[Reply] = []
    for key in args[:-1]:
        document = session.db.lookup(key)
        values = _values(path, document) if isinstance(document, JsonValue) else None
        if values is None or (not values and (path.legacy or lacks_empty)):
            replies.append(None)
            continue
        text = write_json(_all_or_first(path, values, path.legacy))
        replies.append(text)
    return replies


def _remove(
    session: Session, key: bytes, document: JsonValue, matches: list[Location], event: str
) -> int:
    """Remove the matches; return their number, not counting matches inside another match."""
    outer = outermost(matches)
    if outer and not outer[0].parts:
        session.db.delete(key)
        return 1
    targets = [(parent_of(document, match), match.parts[-1]) for match in outer]
    # Remove the last elements of an array first, so that the other indexes stay valid.
    targets.sort(key=lambda target: -target[1] if isinstance(target[1], int) else 0)
    for parent, part in targets:
        del parent[part]
    if outer:
        session.db.touch(key, event)
    return len(outer)


@command("JSON.DEL", "JSON.FORGET")
def json_del(session: Session, args: Args) -> Reply:
    """Delete the values at a path, or the whole document, and return the number of deleted values."""
    path = optional_path(session, args)
    document = session.db.get(args[0], JsonValue)
    if document is None:
        return 0
    return _remove(session, args[0], document, path.find(document.root), "json.del")


@command("JSON.CLEAR")
def json_clear(session: Session, args: Args) -> Reply:
    """Empty the arrays and objects at a path, set numbers to 0, and return the number of changes."""
    path = optional_path(session, args)
    document = existing(session, args[0], JsonValue, errors.JSON_NO_KEY)
    changed = 0
    deepest_first = sorted(path.find(document.root), key=lambda match: -len(match.parts))
    # Clearing a parent before its children would remove them without counting them.
    for match in deepest_first:
        value = match.value
        if value.__class__ in (dict, list) and value:
            value.clear()
        elif value.__class__ in (int, float) and value:
            put(document, match, 0)
        else:
            continue
        changed += 1
    if changed:
        session.db.touch(args[0])
    return changed


@command("JSON.TYPE")
def json_type(session: Session, args: Args) -> Reply:
    """Return the types of the values at a path."""
    path = optional_path(session, args)
    document = session.db.get(args[0], JsonValue)
    word: Reply = None
    if document is not None:
        words = [TYPE_WORDS[value.__class__].encode() for value in _values(path, document)]
        word = next(iter(words), None) if path.legacy else words
    # In RESP3, RedisJSON wraps the reply in another array.
    return [word] if session.resp > 2 and session.engine.dialect == "redis" else word


@variant(
    "JSON.STRLEN",
    "Return the lengths in bytes of the strings at a path.",
    kind=str,
    operation=lambda text: len(text.encode()),
)
@variant("JSON.ARRLEN", "Return the lengths of the arrays at a path.", kind=list, operation=len)
@variant(
    "JSON.OBJKEYS",
    "Return the member names of the objects at a path.",
    kind=dict,
    operation=lambda value: [name.encode() for name in value],
)
def json_strlen(session: Session, args: Args, *, kind: type, operation: Operation) -> Reply:
    return read(session, args[0], optional_path(session, args), kind, operation)


@command("JSON.OBJLEN")
def json_objlen(session: Session, args: Args) -> Reply:
    """Return the number of members of each object at a path.

    In RedisJSON, a legacy path without a match is not an error.
    """
    path = optional_path(session, args)
    document = session.db.get(args[0], JsonValue)
    excused = session.engine.dialect == "redis" and path.legacy
    if excused and (document is None or not path.find(document.root)):
        return None
    return read(session, args[0], path, dict, len)


@command("JSON.RESP")
def json_resp(session: Session, args: Args) -> Reply:
    """Return the values at a path as nested RESP replies.

    In RESP3, RedisJSON returns fractional numbers as doubles.
    """
    path = optional_path(session, args)
    doubles = session.resp > 2 and session.engine.dialect == "redis"
    document = session.db.get(args[0], JsonValue)
    if document is None:
        return None
    replies = [_resp(value, doubles) for value in _values(path, document)]
    return _all_or_first(path, replies, path.legacy)


def _resp(value: Any, doubles: bool) -> Reply:
    """Convert a value to nested arrays, with fractional numbers as doubles or as strings."""
    kind = value.__class__
    if kind is dict:
        nested: list[Reply] = [Status(b"{")]
        for name, item in value.items():
            nested += [name.encode(), _resp(item, doubles)]
        return nested
    if kind is list:
        return [Status(b"["), *(_resp(item, doubles) for item in value)]
    if kind is bool:
        return Status(b"true" if value else b"false")
    if kind is str:
        return bytes(value.encode())
    if kind is float or (kind is int and value >= 2**63):
        return float(value) if doubles else write_json(value)
    return None if value is None else int(value)


@command("JSON.DEBUG MEMORY")
def json_debug_memory(session: Session, args: Args) -> Reply:
    """Return the approximate size in bytes of each value at a path.

    The size is the length of the value as JSON, plus 8 bytes (decided here).
    """
    path = optional_path(session, args)
    document = session.db.get(args[0], JsonValue)
    if document is None:
        return 0 if path.legacy else []
    sizes = [8 + len(write_json(value)) for value in _values(path, document)]
    return _all_or_first(path, sizes, path.legacy)


@variant("JSON.NUMINCRBY", "Increment the numbers at a path and return the new values as JSON.")
@variant(
    "JSON.NUMMULTBY",
    "Multiply the numbers at a path and return the new values as JSON.",
    compute=operator.mul,
)
def json_numincrby(
    session: Session, args: Args, *, compute: Callable[[Any, Any], Any] = operator.add
) -> Reply:
    path, operand = read_path(session, args[1]), read_value(args[2])
    if operand.__class__ not in (int, float):
        raise CommandError(errors.JSON_OPERAND)

    def operation(value: Any) -> Any:
        with suppress(OverflowError):
            result = compute(value, operand)
            if result.__class__ is int and not -(2**63) <= result < 2**63:
                result = float(result)
            if math.isfinite(result):
                return result
        raise CommandError(errors.JSON_NOT_FINITE)

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


@variant("JSON.ARRAPPEND", "Append values to the arrays at a path and return the new lengths.")
@variant(
    "JSON.ARRINSERT",
    "Insert values before an index of the arrays at a path and return the new lengths.",
    has_index=True,
)
def json_arrinsert(session: Session, args: Args, *, has_index: bool = False) -> Reply:
    path = read_path(session, args[1])
    index = parse_int(args[2]) if has_index else None
    values = [read_value(text) for text in args[2 + has_index :]]

    def check(match: Location) -> None:
        check_depth(len(match.parts) + 1, *values)
        if index is not None and not -len(match.value) <= index <= len(match.value):
            raise CommandError(errors.JSON_OUT_OF_BOUNDS)

    def insert(array: list[Any]) -> int:
        at = len(array) if index is None else _at_least_first(index, len(array))
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
        return next((at for at in range(first, end) if equal(array[at], wanted)), -1)

    return read(session, args[0], path, list, index)


@command("JSON.ARRPOP")
def json_arrpop(session: Session, args: Args) -> Reply:
    """Remove and return an element of each array at a path, by default the last one."""
    path = optional_path(session, args, most=3)
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
