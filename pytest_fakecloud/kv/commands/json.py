"""JSON commands, which set, get, merge, delete, describe and change parts of documents.

With a ``$`` path, a reply has one item per match; the item is nil if the match has the wrong type.
With a legacy path, the reply is the result for the first match, and a path without a match is an
error. If the key is missing, a read with a legacy path returns nil, and every other command raises
an error. This is the behaviour of RedisJSON (decided here where the tests of the vendor's clients
do not show it). RedisJSON, and the stock dialect, differ from the vendor's dialect as follows:

- A command that changes several matches of a legacy path returns the result for the last, and other
  matches may have other types.
- JSON.SET and JSON.MERGE return nil, not an error, if the parent of a new member does not exist.
  They add a member only at a path of single names and indexes.
- JSON.MSET finds the matches of all paths before it writes, and then skips those that an earlier
  write has removed or created. The vendor documents that it writes all values or none.
- From Redis 8.0 on, JSON.DEL removes a key whose document loses its last member.
- Errors about keys of another type, and about legacy paths without a value of the right type, have
  other texts.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sized
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import errors
from ..engine.sessions import Session
from ..errors import CommandError, one_line
from ..reply import OK, Reply, Status
from ..syntax import parse_int
from ..table.registry import Args, command, variant
from ..table.versions import ANY_OF_SEVERAL, NO_EMPTY_DOCUMENTS
from ..values.json import (
    DEEPEST,
    FLOAT_TYPES,
    TYPE_WORDS,
    FloatType,
    JsonError,
    JsonValue,
    Layout,
    copy_json,
    depth,
    equal,
    merge,
    parse_json,
    with_float_arrays,
    write_json,
)
from .arguments import arity_error, choice, parse_options

if TYPE_CHECKING:
    from ..values.json_path import Location, Parts, Path


_NOT_AN_ARRAY = "not an array"
_MAX_LEVELS = 2 * DEEPEST
"""Maximum depth of a document into which clients have inserted values, each of ``DEEPEST`` levels."""
LEGACY_ROOT = b"."


def read_path(session: Session, text: bytes) -> Path:
    """Parse a path that a client sent; raise ``CommandError`` if it is invalid."""
    from ..values.json_path import compile_path  # slow to import and rarely needed

    engine = session.engine
    return compile_path(
        text, redis_json=engine.dialect == "redis", any_value=engine.table.knows[ANY_OF_SEVERAL]
    )


def optional_path(session: Session, args: Args, most: int = 2) -> Path:
    """Return the path after the key, by default the root, of a command with up to ``most`` arguments."""
    if len(args) > most:
        raise arity_error(session)
    return read_path(session, args[1] if len(args) > 1 else LEGACY_ROOT)


def find_document(session: Session, key: bytes) -> JsonValue | None:
    """Return the document under a key, or None; raise an error for a value of another type."""
    value = session.db.lookup(key)
    if value is None or value.__class__ is JsonValue:
        document: JsonValue | None = value
        return document
    is_redis = session.engine.dialect == "redis"
    raise CommandError(errors.JSON_OTHER_TYPE if is_redis else errors.WRONGTYPE)


def existing_document(session: Session, key: bytes) -> JsonValue:
    """Return the document under a key; raise an error if there is none."""
    document = find_document(session, key)
    if document is None:
        raise CommandError(errors.JSON_NO_KEY)
    return document


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
    session: Session,
    path: Path,
    matches: list[Location],
    compute: Operation,
    *kinds: type,
    reason: str = "",
    needs_first: bool = True,
) -> list[Any]:
    """Return the result of an operation for each match; None for a match not of these types.

    With a legacy path, raise an error unless the first match, or with ``needs_first=False`` any
    match, is of these types. The error names the last of them. If RedisJSON has the same error for
    a missing and for a wrong value, its text ends with ``reason``.
    """
    # Types are compared with `in`, because a boolean is also an instance of `int`.
    fits = [match.value.__class__ in kinds for match in matches]
    if path.legacy and not any(fits[:1] if needs_first else fits):
        if reason and session.engine.dialect == "redis":
            raise CommandError(errors.unusable_json_path(path.text, reason))
        if not matches:
            raise CommandError(errors.missing_json_path(path.text))
        raise wrong_type(TYPE_WORDS[kinds[-1]], matches[0].value)
    return [compute(match.value) if fit else None for match, fit in zip(matches, fits, strict=True)]


def read(
    session: Session, key: bytes, path: Path, kind: type, operation: Operation, reason: str = ""
) -> Reply:
    """Return the reply of a reading operation; without the key, nil or an error for a ``$`` path."""
    document = find_document(session, key)
    if document is None:
        if path.legacy:
            return None
        raise CommandError(errors.JSON_NO_KEY)
    matches = path.find(document.root)
    results = _results(session, path, matches, operation, kind, reason=reason)
    return results[0] if path.legacy else results


def change_arrays(
    session: Session, key: bytes, path: Path, operation: Operation, check: _Check | None = None
) -> Reply:
    """Return the reply of an operation that adds or removes elements of the matched arrays."""
    document = existing_document(session, key)
    matches = path.find(document.root)
    arrays = [match for match in matches if match.value.__class__ is list]
    reserve(session, arrays)
    if check is not None:
        for match in arrays:
            check(match)
    lengths = [len(match.value) for match in arrays]
    is_redis = session.engine.dialect == "redis"
    results = _results(
        session, path, matches, operation, list, reason=_NOT_AN_ARRAY, needs_first=not is_redis
    )
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
    session: Session, key: bytes, path: Path, operation: Operation, *kinds: type, reason: str
) -> list[Any]:
    """Replace the matches of some types with the results of an operation, and return these."""
    is_redis = session.engine.dialect == "redis"
    document = existing_document(session, key)
    matches = path.find(document.root)
    reserve(session, matches)
    results = _results(
        session, path, matches, operation, *kinds, reason=reason, needs_first=not is_redis
    )
    for match, result in zip(matches, results, strict=True):
        if result is not None:
            put(document, match, result)
    if any(result is not None for result in results):
        session.db.touch(key)
    return results


def legacy_result(session: Session, results: list[Any]) -> Any:
    """Return the result of ``replace()`` for the first match; in RedisJSON, for the last one changed."""
    if session.engine.dialect == "redis":
        return next(result for result in reversed(results) if result is not None)
    return results[0]


def check_depth(levels: int, *values: Any) -> None:
    """Raise an error if ``values``, placed ``levels`` deep, would nest the document too deeply."""
    if levels + max(map(depth, values)) > _MAX_LEVELS:
        raise CommandError(errors.JSON_TOO_DEEP)


def check_room(session: Session, matches: list[Location], value: Any) -> None:
    """Raise an error if a value is too large or too deep to be stored at every match."""
    reserve(session, matches)
    for match in matches:
        check_depth(len(match.parts), value)


def exists(value: Any, parts: Parts) -> bool:
    """Return whether names and indexes lead to a part of a value."""
    for part in parts:
        if value.__class__ is dict:
            if part not in value:
                return False
        elif value.__class__ is not list or part.__class__ is not int or part >= len(value):
            return False
        value = value[part]
    return True


# -- commands --------------------------------------------------------------------------------------


class _Write(NamedTuple):
    """A value to set at some locations, which either all exist or are new members of objects."""

    locations: list[Location]
    is_new: bool
    value: Any


def _prepare(
    session: Session, document: JsonValue, path: Path, value: Any, condition: bytes = b""
) -> _Write:
    """Return what JSON.SET has to write, which has no locations if a condition is not met.

    If only the last member is missing, it is added to every object that matches the rest.
    """
    locations = outermost(path.find(document.root))
    is_new = not locations
    if is_new:
        locations = [] if condition == b"XX" else _new_members(session, document, path)
    elif condition == b"NX":
        locations = []
    check_room(session, locations, value)
    return _Write(locations, is_new, value)


def _new_members(session: Session, document: JsonValue, path: Path) -> list[Location]:
    """Return the locations of the members that JSON.SET adds at a path without a match."""
    is_redis = session.engine.dialect == "redis"
    created = path.parent_and_name()
    if created is None or (is_redis and not path.is_static):
        raise CommandError(errors.JSON_NOT_STATIC)
    parent_path, name = created
    parents = parent_path.find(document.root)
    objects = [parent for parent in parents if parent.value.__class__ is dict]
    if not objects and not is_redis:
        raise CommandError(errors.missing_json_path(path.text))
    return [parent._replace(parts=(*parent.parts, name)) for parent in objects]


def _set(document: JsonValue, write: _Write) -> bool:
    """Set a value at its locations; return whether there are any."""
    for location in write.locations:
        put(document, location, copy_json(write.value))
    return bool(write.locations)


def _without_lost_locations(document: JsonValue, write: _Write) -> _Write:
    """Return a write without matches that no longer exist, and new members that cannot be added."""

    def is_possible(location: Location) -> bool:
        if not write.is_new:
            return exists(document.root, location.parts)
        if not exists(document.root, location.parts[:-1]):
            return False
        parent = parent_of(document, location)
        return parent.__class__ is dict and location.parts[-1] not in parent

    return write._replace(locations=list(filter(is_possible, write.locations)))


def _set_options(session: Session, args: Args) -> tuple[bytes, FloatType | None]:
    """Return the condition of JSON.SET, which may be empty, and the type that FPHA names."""
    condition, float_type = b"", None
    for word, values in parse_options(args, 0, session.command.option_sizes):
        if word == b"FPHA" and float_type is None:
            float_type = FLOAT_TYPES[choice(values, FLOAT_TYPES)]
        elif word != b"FPHA" and not condition:
            condition = word
        else:
            raise CommandError(errors.SYNTAX)
    return condition, float_type


@command("JSON.SET")
def json_set(session: Session, args: Args) -> Reply:
    """Set the value at a path of a document, or create the document.

    FPHA is the type of floating-point numbers in arrays of numbers. Decided here: the arrays concerned
    contain at least one number with a fraction or an exponent, a number is rounded to the nearest one
    of the type and shown as a double, and later commands that change an array do not round.
    """
    key, path = args[0], read_path(session, args[1])
    condition, float_type = _set_options(session, args[3:]) if len(args) > 3 else (b"", None)
    value = read_value(args[2])
    if float_type is not None:
        try:
            value = with_float_arrays(value, float_type)
        except OverflowError:
            raise CommandError(errors.JSON_OUT_OF_RANGE) from None
    document = find_document(session, key)
    if document is None:
        if not path.is_root:
            raise CommandError(errors.JSON_NOT_AT_ROOT)
        if condition == b"XX":
            return None
        session.db.set(key, JsonValue(value))
        return OK
    if not _set(document, _prepare(session, document, path, value, condition)):
        return None
    session.db.touch(key)
    return OK


@command("JSON.MSET")
def json_mset(session: Session, args: Args) -> Reply:
    """Set values in several documents atomically.

    RedisJSON sets those that can be set.
    """
    if len(args) % 3:
        raise arity_error(session)
    values = [
        (args[at], read_path(session, args[at + 1]), read_value(args[at + 2]))
        for at in range(0, len(args), 3)
    ]
    if session.engine.dialect == "redis":
        _set_possible(session, values)
    else:
        _set_all(session, values)
    return OK


_Values = list[tuple[bytes, "Path", Any]]
"""Keys, each with a path and the value to set there."""


def _set_possible(session: Session, values: _Values) -> None:
    """Set values as RedisJSON does: find the matches of all paths first."""
    writes: list[tuple[bytes, _Write]] = []
    for key, path, value in values:
        document = find_document(session, key)
        if document is not None:
            writes.append((key, _prepare(session, document, path, value)))
        elif path.is_root:
            writes.append((key, _Write(path.find(None), False, value)))
        else:
            raise CommandError(errors.JSON_NOT_AT_ROOT)
    for key, write in writes:
        document = find_document(session, key)
        if document is None:
            session.db.set(key, JsonValue(write.value))
        elif _set(document, _without_lost_locations(document, write)):
            session.db.touch(key)


def _set_all(session: Session, values: _Values) -> None:
    """Set values one after the other, or change nothing if one of them cannot be set."""
    changed: dict[bytes, JsonValue] = {}
    for key, path, value in values:
        document = changed.get(key) or find_document(session, key)
        if path.is_root:
            changed[key] = JsonValue(value)
        elif document is None:
            raise CommandError(errors.JSON_NOT_AT_ROOT)
        else:
            if key not in changed:
                changed[key] = document.copy()
            _set(changed[key], _prepare(session, changed[key], path, value))
    for key, document in changed.items():
        present = find_document(session, key)
        if present is None:
            session.db.set(key, document)
        else:
            present.root = document.root
            session.db.touch(key)


@command("JSON.MERGE")
def json_merge(session: Session, args: Args) -> Reply:
    """Merge a JSON value into the values at a path as in RFC 7396, where null deletes.

    It is merged into every match, also into one inside another match, which comes later.
    """
    key, path, patch = args[0], read_path(session, args[1]), read_value(args[2])
    document = find_document(session, key)
    if document is None:
        if not path.is_root:
            raise CommandError(errors.JSON_NOT_AT_ROOT)
        session.db.set(key, JsonValue(merge(None, patch)))
        return OK
    matches = path.find(document.root)
    if patch is None:
        _remove(session, key, document, matches, "json.merge")
    elif matches:
        check_room(session, matches, patch)
        for match in sorted(matches, key=lambda match: len(match.parts)):
            if exists(document.root, match.parts):
                target = reduce(operator.getitem, match.parts, document.root)
                put(document, match, merge(target, patch))
        session.db.touch(key)
    elif _set(document, _prepare(session, document, path, merge(None, patch))):
        session.db.touch(key)
    else:
        return None
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
    document = find_document(session, args[0])
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
    document = find_document(session, args[0])
    if document is None:
        return 0
    removed = _remove(session, args[0], document, path.find(document.root), "json.del")
    if removed and not document.root and _removes_empty_documents(session):
        session.db.delete(args[0])
    return removed


def _removes_empty_documents(session: Session) -> bool:
    engine = session.engine
    return engine.dialect == "redis" and engine.table.knows[NO_EMPTY_DOCUMENTS]


@command("JSON.CLEAR")
def json_clear(session: Session, args: Args) -> Reply:
    """Empty the arrays and objects at a path, set numbers to 0, and return the number of changes."""
    path = optional_path(session, args)
    document = existing_document(session, args[0])
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
    document = find_document(session, args[0])
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
@variant(
    "JSON.ARRLEN",
    "Return the lengths of the arrays at a path.",
    kind=list,
    operation=len,
    reason=_NOT_AN_ARRAY,
)
@variant(
    "JSON.OBJKEYS",
    "Return the member names of the objects at a path.",
    kind=dict,
    operation=lambda value: [name.encode() for name in value],
)
def json_strlen(
    session: Session, args: Args, *, kind: type, operation: Operation, reason: str = ""
) -> Reply:
    return read(session, args[0], optional_path(session, args), kind, operation, reason)


@command("JSON.OBJLEN")
def json_objlen(session: Session, args: Args) -> Reply:
    """Return the number of members of each object at a path.

    In RedisJSON, a legacy path without a match is not an error.
    """
    path = optional_path(session, args)
    document = find_document(session, args[0])
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
    document = find_document(session, args[0])
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
    document = find_document(session, args[0])
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

    # RedisJSON's own words.
    reason = "does not contains a number"
    results = replace(session, args[0], path, operation, int, float, reason=reason)
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
    results = replace(
        session, args[0], path, lambda text: text + addition, str, reason="not a string"
    )
    lengths = [None if text is None else len(text.encode()) for text in results]
    return legacy_result(session, lengths) if path.legacy else lengths


@command("JSON.TOGGLE")
def json_toggle(session: Session, args: Args) -> Reply:
    """Negate the booleans at a path and return their new values."""
    path = read_path(session, args[1])
    results = replace(session, args[0], path, lambda value: not value, bool, reason="not a bool")
    if path.legacy:
        return b"true" if legacy_result(session, results) else b"false"
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
