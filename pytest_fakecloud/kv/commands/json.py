"""JSON documents: RedisJSON's commands, replies for ``$`` paths and for legacy ones.

With a ``$`` path a reply has one item for every match, nil where the match is of another type; with
a legacy path it is the answer for the first match, and a path without any is an error. What a key
that is not there answers follows RedisJSON (decided here where the vendor's client tests are
silent): reads of legacy paths are nil, all else is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import errors
from ..dumping import register
from ..errors import CommandError, one_line, wrong_arity
from ..registry import Args, command
from ..reply import OK, Reply, Status
from ..syntax import parse_int
from ..values.json import (
    DEEPEST,
    JsonError,
    JsonValue,
    Layout,
    copy_json,
    depth,
    equal,
    merge,
    parse_json,
    type_word,
    write_json,
)
from .help import help_reply

if TYPE_CHECKING:
    from ..json_path import Location, Path
    from ..model import Session

__all__: list[str] = []

register(6, JsonValue)

NO_KEY = b"ERR could not perform this operation on a key that doesn't exist"
ROOT_ONLY = b"ERR new objects must be created at the root"
NOT_STATIC = b"ERR Err wrong static path"
OUT_OF_BOUNDS = b"ERR index out of bounds"
NOT_A_NUMBER = b"ERR result is not a number"
TOO_DEEP = b"ERR the document would be nested too deeply"

_MOST_LEVELS = 2 * DEEPEST
_DOT = b"."

_ABSENT = object()
"""What an operation answers for a match of a type it does not work on."""


# -- reading arguments ---------------------------------------------------------------------------


def _path(text: bytes) -> Path:
    from ..json_path import PathError, compile_path  # for those who use documents

    try:
        return compile_path(text)
    except PathError as error:
        raise CommandError(one_line(b"ERR invalid path: " + str(error).encode())) from None


def _find(path: Path, root: Any) -> list[Location]:
    from ..json_path import PathError

    try:
        return path.find(root)
    except PathError as error:
        raise CommandError(one_line(b"ERR invalid path: " + str(error).encode())) from None


def _value(text: bytes) -> Any:
    try:
        return parse_json(text)
    except JsonError as error:
        raise CommandError(one_line(b"ERR " + str(error).encode())) from None


def _document(session: Session, key: bytes) -> JsonValue | None:
    return session.db.get(key, JsonValue)


def _existing(session: Session, key: bytes) -> JsonValue:
    document = session.db.get(key, JsonValue)
    if document is None:
        raise CommandError(NO_KEY)
    return document


def _no_path(path: Path) -> CommandError:
    return CommandError(one_line(b"ERR Path '" + path.text.encode() + b"' does not exist"))


def _wrong_type(expected: str, value: Any) -> CommandError:
    text = f"WRONGTYPE wrong type of path value - expected {expected} but found {type_word(value)}"
    return CommandError(text.encode())


# -- one operation on every match ----------------------------------------------------------------

Operation = Callable[[Any], Any]


def _reply(path: Path, matches: list[Location], expected: str, operation: Operation) -> Reply:
    """The operation's answers for what the path found, in the shape the path asks for."""
    if not path.legacy:
        answers = [operation(match.value) for match in matches]
        return [None if answer is _ABSENT else answer for answer in answers]
    if not matches:
        raise _no_path(path)
    answer: Reply = None
    for number, match in enumerate(matches):
        found = operation(match.value)
        if found is _ABSENT:
            if number == 0:
                raise _wrong_type(expected, match.value)
            continue
        if number == 0:
            answer = found
    return answer


def _read(session: Session, key: bytes, path: Path, expected: str, operation: Operation) -> Reply:
    document = _document(session, key)
    if document is None:
        if path.legacy:
            return None
        raise CommandError(NO_KEY)
    return _reply(path, _find(path, document.root), expected, operation)


def _change(session: Session, key: bytes, path: Path, expected: str, operation: Operation) -> Reply:
    """As ``_read``, for an operation that changes arrays and objects in place."""
    document = _existing(session, key)
    reply = _reply(path, _find(path, document.root), expected, operation)
    session.db.touch(key)
    return reply


def _parent(document: JsonValue, match: Location) -> Any:
    """The array or object a match is in."""
    found = document.root
    for part in match.parts[:-1]:
        found = found[part]
    return found


def _outermost(matches: list[Location]) -> list[Location]:
    """The matches that are not inside another one."""
    places = {match.parts for match in matches}
    return [
        match for match in matches
        if not any(match.parts[:end] in places for end in range(len(match.parts)))
    ]  # fmt: skip


def _put(document: JsonValue, match: Location, value: Any) -> None:
    if not match.parts:
        document.root = value
        return
    _parent(document, match)[match.parts[-1]] = value


def _replace(
    session: Session, key: bytes, path: Path, expected: str, operation: Operation
) -> tuple[list[Any], Path]:
    """Put the operation's result in the place of every match; the results, ``_ABSENT`` left out."""
    document = _existing(session, key)
    matches = _find(path, document.root)
    if path.legacy and not matches:
        raise _no_path(path)
    results = [operation(match.value) for match in matches]
    if path.legacy and results[0] is _ABSENT:
        raise _wrong_type(expected, matches[0].value)
    for match, result in zip(matches, results, strict=True):
        if result is not _ABSENT:
            _put(document, match, result)
    session.db.touch(key)
    return results, path


# -- SET, GET and their relatives ----------------------------------------------------------------


def _check_depth(levels: int, value: Any) -> None:
    if levels + depth(value) > _MOST_LEVELS:
        raise CommandError(TOO_DEEP)


def _assign(document: JsonValue, path: Path, value: Any, condition: bytes = b"") -> bool:
    """Put a value wherever the path leads; whether anything was put.

    A last member that is missing is created in every object its parent path finds; a parent that
    is not there is an error.
    """
    matches = _outermost(_find(path, document.root))
    if matches:
        if condition == b"NX":
            return False
        for match in matches:
            _check_depth(len(match.parts), value)
        for match in matches:
            _put(document, match, copy_json(value))
        return True
    created = path.parent_and_name()
    if created is None:
        raise CommandError(NOT_STATIC)
    if condition == b"XX":
        return False
    parent_path, name = created
    found = _find(parent_path, document.root)
    parents = [match for match in found if match.value.__class__ is dict]
    if not parents:
        raise _no_path(path)
    for match in parents:
        _check_depth(len(match.parts) + 1, value)
    for match in parents:
        match.value[name] = copy_json(value)
    return True


@command("JSON.SET")
def json_set(session: Session, args: Args) -> Reply:
    """Set the value at a path, or create a document."""
    key, path = args[0], _path(args[1])
    condition = b""
    for word in args[3:]:
        if word.upper() not in (b"NX", b"XX") or condition:
            raise CommandError(errors.SYNTAX)
        condition = word.upper()
    value = _value(args[2])
    document = _document(session, key)
    if document is None:
        if not path.is_root:
            raise CommandError(ROOT_ONLY)
        if condition == b"XX":
            return None
        session.db.set(key, JsonValue(value))
        return OK
    if not _assign(document, path, value, condition):
        return None
    session.db.touch(key)
    return OK


@command("JSON.MSET")
def json_mset(session: Session, args: Args) -> Reply:
    """Set values in several documents: all of them or none."""
    if len(args) % 3:
        raise CommandError(wrong_arity("json.mset"))
    changed: dict[bytes, JsonValue] = {}
    for at in range(0, len(args), 3):
        key, path, value = args[at], _path(args[at + 1]), _value(args[at + 2])
        document = changed.get(key)
        if document is None:
            present = _document(session, key)
            document = None if present is None else present.copy()
        if path.is_root:
            changed[key] = JsonValue(value)
        elif document is None:
            raise CommandError(ROOT_ONLY)
        else:
            _assign(document, path, value)
            changed[key] = document
    for key, document in changed.items():
        present = _document(session, key)
        if present is None:
            session.db.set(key, document)
        else:
            present.root = document.root
            session.db.touch(key)
    return OK


@command("JSON.MERGE")
def json_merge(session: Session, args: Args) -> Reply:
    """Merge a value into what a path finds, as RFC 7396 has it: null removes."""
    key, path, patch = args[0], _path(args[1]), _value(args[2])
    document = _document(session, key)
    if document is None:
        if not path.is_root:
            raise CommandError(ROOT_ONLY)
        session.db.set(key, JsonValue(merge(None, patch)))
        return OK
    matches = _find(path, document.root)
    if patch is None:
        _remove(session, key, document, matches)
    elif matches:
        matches = _outermost(matches)
        for match in matches:
            _check_depth(len(match.parts), patch)
        for match in matches:
            _put(document, match, merge(match.value, patch))
        session.db.touch(key)
    else:
        _assign(document, path, merge(None, patch))
        session.db.touch(key)
    return OK


@command("JSON.GET")
def json_get(session: Session, args: Args) -> Reply:
    """The text of a document, or of what paths find in it."""
    words = {b"INDENT": b"", b"NEWLINE": b"", b"SPACE": b""}
    at = 1
    paths: list[Path] = []
    while at < len(args):
        word = args[at].upper()
        if word in words and at + 1 < len(args):
            words[word] = args[at + 1]
            at += 2
        elif word == b"NOESCAPE":  # accepted and without effect, as in RedisJSON 2
            at += 1
        else:
            paths.append(_path(args[at]))
            at += 1
    document = _document(session, args[0])
    if document is None:
        return None
    layout = Layout(words[b"INDENT"], words[b"NEWLINE"], words[b"SPACE"])
    if len(paths) <= 1:
        path = paths[0] if paths else _path(_DOT)
        return write_json(_picked(path, document.root, path.legacy), layout)
    legacy = all(path.legacy for path in paths)
    picked = {path.text: _picked(path, document.root, legacy) for path in paths}
    return write_json(picked, layout)


def _picked(path: Path, root: Any, legacy: bool) -> Any:
    matches = _find(path, root)
    if not legacy:
        return [match.value for match in matches]
    if not matches:
        raise _no_path(path)
    return matches[0].value


@command("JSON.MGET")
def json_mget(session: Session, args: Args) -> Reply:
    """The text of what one path finds in several documents; nil where there is none."""
    path = _path(args[-1])
    replies: list[Reply] = []
    for key in args[:-1]:
        document = session.db.lookup(key)
        if not isinstance(document, JsonValue):
            replies.append(None)
            continue
        matches = _find(path, document.root)
        if path.legacy:
            replies.append(write_json(matches[0].value) if matches else None)
        else:
            replies.append(write_json([match.value for match in matches]))
    return replies


# -- removing ------------------------------------------------------------------------------------


def _remove(session: Session, key: bytes, document: JsonValue, matches: list[Location]) -> int:
    """Remove what was found; how many, what goes with a removed parent not counted."""
    outer = _outermost(matches)
    if outer and not outer[0].parts:
        session.db.delete(key)
        return 1
    # The last of an array first: the places of the others stay right.
    indexes = [match for match in outer if isinstance(match.parts[-1], int)]
    names = [match for match in outer if isinstance(match.parts[-1], str)]
    holders = [(_parent(document, match), match.parts[-1]) for match in names]
    arrays = [(_parent(document, match), match.parts[-1]) for match in indexes]
    for parent, name in holders:
        del parent[name]
    for parent, index in sorted(arrays, key=lambda pair: -int(pair[1])):
        del parent[index]
    if outer:
        session.db.touch(key)
    return len(outer)


@command("JSON.DEL", "JSON.FORGET")
def json_del(session: Session, args: Args) -> Reply:
    """Delete what a path finds, or the whole document."""
    if len(args) > 2:
        raise CommandError(wrong_arity("json.del"))
    path = _path(args[1] if len(args) > 1 else _DOT)
    document = _document(session, args[0])
    if document is None:
        return 0
    return _remove(session, args[0], document, _find(path, document.root))


@command("JSON.CLEAR")
def json_clear(session: Session, args: Args) -> Reply:
    """Empty arrays and objects and set numbers to zero; how many values changed."""
    if len(args) > 2:
        raise CommandError(wrong_arity("json.clear"))
    path = _path(args[1] if len(args) > 1 else _DOT)
    document = _existing(session, args[0])
    changed = 0
    for match in reversed(_find(path, document.root)):  # children before their parents
        value = match.value
        if value.__class__ in (dict, list) and value:
            value.clear()
        elif value.__class__ in (int, float) and value:
            _put(document, match, 0)
        else:
            continue
        changed += 1
    if changed:
        session.db.touch(args[0])
    return changed


# -- about values --------------------------------------------------------------------------------


def _optional_path(args: Args, name: str) -> Path:
    if len(args) > 2:
        raise CommandError(wrong_arity(name))
    return _path(args[1] if len(args) > 1 else _DOT)


@command("JSON.TYPE")
def json_type(session: Session, args: Args) -> Reply:
    """The type of what a path finds."""
    path = _optional_path(args, "json.type")
    document = _document(session, args[0])
    if document is None:
        return None
    words = [type_word(match.value).encode() for match in _find(path, document.root)]
    if not path.legacy:
        return words
    return words[0] if words else None


def _of(kind: type, operation: Operation) -> Operation:
    return lambda value: operation(value) if value.__class__ is kind else _ABSENT


@command("JSON.STRLEN")
def json_strlen(session: Session, args: Args) -> Reply:
    """The length of strings, in bytes."""
    path = _optional_path(args, "json.strlen")
    return _read(session, args[0], path, "string", _of(str, lambda text: len(text.encode())))


@command("JSON.ARRLEN")
def json_arrlen(session: Session, args: Args) -> Reply:
    """The length of arrays."""
    return _read(session, args[0], _optional_path(args, "json.arrlen"), "array", _of(list, len))


@command("JSON.OBJLEN")
def json_objlen(session: Session, args: Args) -> Reply:
    """The number of members of objects."""
    return _read(session, args[0], _optional_path(args, "json.objlen"), "object", _of(dict, len))


@command("JSON.OBJKEYS")
def json_objkeys(session: Session, args: Args) -> Reply:
    """The names of the members of objects."""
    path = _optional_path(args, "json.objkeys")
    names = _of(dict, lambda value: [name.encode() for name in value])
    return _read(session, args[0], path, "object", names)


@command("JSON.RESP")
def json_resp(session: Session, args: Args) -> Reply:
    """What a path finds, as a nested reply."""
    path = _optional_path(args, "json.resp")
    document = _document(session, args[0])
    if document is None:
        return None
    matches = _find(path, document.root)
    if not path.legacy:
        return [_resp(match.value) for match in matches]
    if not matches:
        raise _no_path(path)
    return _resp(matches[0].value)


def _resp(value: Any) -> Reply:
    kind = value.__class__
    if kind is dict:
        nested: list[Reply] = [Status(b"{")]
        for name, item in value.items():
            nested += [name.encode(), _resp(item)]
        return nested
    if kind is list:
        return [Status(b"["), *map(_resp, value)]
    if kind is bool:
        return Status(b"true" if value else b"false")
    if kind is str:
        return bytes(value.encode())
    if kind is float or (kind is int and value >= 2**63):
        return write_json(value)
    return None if value is None else int(value)


@command("JSON.DEBUG MEMORY")
def json_debug_memory(session: Session, args: Args) -> Reply:
    """About how many bytes what a path finds takes (decided here: its text and 8 bytes a value)."""
    path = _optional_path(args, "json.debug|memory")
    document = _document(session, args[0])
    if document is None:
        return 0 if path.legacy else []
    sizes = [8 + len(write_json(match.value)) for match in _find(path, document.root)]
    if not path.legacy:
        return list(sizes)
    if not sizes:
        raise _no_path(path)
    return sizes[0]


@command("JSON.DEBUG HELP")
def json_debug_help(session: Session, args: Args) -> Reply:
    """The sub-commands of JSON.DEBUG."""
    return help_reply(session, "JSON.DEBUG")


# -- numbers, strings, booleans ------------------------------------------------------------------


def _number(text: bytes) -> int | float:
    value = _value(text)
    if value.__class__ not in (int, float):
        raise CommandError(b"ERR expected a number")
    number: int | float = value
    return number


def _arithmetic(session: Session, args: Args, compute: Callable[[Any, Any], int | float]) -> Reply:
    path, operand = _path(args[1]), _number(args[2])

    def operation(value: Any) -> Any:
        if value.__class__ not in (int, float):
            return _ABSENT
        try:
            result = compute(value, operand)
            if result.__class__ is int and not -(2**63) <= result < 2**63:
                result = float(result)
        except OverflowError:
            raise CommandError(NOT_A_NUMBER) from None
        if not math.isfinite(result):
            raise CommandError(NOT_A_NUMBER)
        return result

    results, path = _replace(session, args[0], path, "number", operation)
    if path.legacy:
        numbers = [result for result in results if result is not _ABSENT]
        return write_json(numbers[-1])
    return write_json([None if result is _ABSENT else result for result in results])


@command("JSON.NUMINCRBY")
def json_numincrby(session: Session, args: Args) -> Reply:
    """Add to numbers; the text of the results."""
    return _arithmetic(session, args, lambda value, operand: value + operand)


@command("JSON.NUMMULTBY")
def json_nummultby(session: Session, args: Args) -> Reply:
    """Multiply numbers; the text of the results."""
    return _arithmetic(session, args, lambda value, operand: value * operand)


@command("JSON.STRAPPEND")
def json_strappend(session: Session, args: Args) -> Reply:
    """Append to strings; their new lengths in bytes."""
    if len(args) > 3:
        raise CommandError(wrong_arity("json.strappend"))
    path = _path(args[1] if len(args) == 3 else _DOT)
    addition = _value(args[-1])
    if addition.__class__ is not str:
        raise _wrong_type("string", addition)
    joined = _of(str, lambda text: text + addition)
    results, path = _replace(session, args[0], path, "string", joined)
    lengths = [None if text is _ABSENT else len(text.encode()) for text in results]
    return lengths[0] if path.legacy else lengths


@command("JSON.TOGGLE")
def json_toggle(session: Session, args: Args) -> Reply:
    """Negate booleans."""
    toggled = _of(bool, lambda value: not value)
    results, path = _replace(session, args[0], _path(args[1]), "boolean", toggled)
    if path.legacy:
        return b"true" if results[0] else b"false"
    return [None if result is _ABSENT else int(result) for result in results]


# -- arrays --------------------------------------------------------------------------------------


def _growing(session: Session, key: bytes, path: Path, values: list[Any]) -> None:
    document = _existing(session, key)
    for match in _find(path, document.root):
        for value in values:
            _check_depth(len(match.parts) + 1, value)


@command("JSON.ARRAPPEND")
def json_arrappend(session: Session, args: Args) -> Reply:
    """Append values to arrays; their new lengths."""
    path, values = _path(args[1]), [_value(text) for text in args[2:]]
    _growing(session, args[0], path, values)

    def append(array: list[Any]) -> int:
        array.extend(map(copy_json, values))
        return len(array)

    return _change(session, args[0], path, "array", _of(list, append))


@command("JSON.ARRINSERT")
def json_arrinsert(session: Session, args: Args) -> Reply:
    """Insert values into arrays before an index; their new lengths."""
    path, index, values = _path(args[1]), parse_int(args[2]), [_value(text) for text in args[3:]]
    _growing(session, args[0], path, values)
    document = _existing(session, args[0])
    for match in _find(path, document.root):
        if match.value.__class__ is list and not -len(match.value) <= index <= len(match.value):
            raise CommandError(OUT_OF_BOUNDS)

    def insert(array: list[Any]) -> int:
        at = index + len(array) if index < 0 else index
        array[at:at] = map(copy_json, values)
        return len(array)

    return _change(session, args[0], path, "array", _of(list, insert))


@command("JSON.ARRINDEX")
def json_arrindex(session: Session, args: Args) -> Reply:
    """The first index of a value in arrays, -1 where it is not in them."""
    if len(args) > 5:
        raise CommandError(wrong_arity("json.arrindex"))
    path, wanted = _path(args[1]), _value(args[2])
    start = parse_int(args[3]) if len(args) > 3 else 0
    stop = parse_int(args[4]) if len(args) > 4 else 0

    def index(array: list[Any]) -> int:
        length = len(array)
        first = max(0, length + start) if start < 0 else min(start, max(length - 1, 0))
        end = length if stop == 0 else length + stop if stop < 0 else min(stop, length)
        for at in range(first, end):
            if equal(array[at], wanted):
                return at
        return -1

    return _read(session, args[0], path, "array", _of(list, index))


@command("JSON.ARRPOP")
def json_arrpop(session: Session, args: Args) -> Reply:
    """Remove an element of arrays, the last one unless told; its text."""
    if len(args) > 3:
        raise CommandError(wrong_arity("json.arrpop"))
    path = _path(args[1] if len(args) > 1 else _DOT)
    index = parse_int(args[2]) if len(args) > 2 else -1

    def pop(array: list[Any]) -> bytes | None:
        if not array:
            return None
        length = len(array)
        at = max(0, length + index) if index < 0 else min(index, length - 1)
        return write_json(array.pop(at))

    return _change(session, args[0], path, "array", _of(list, pop))


@command("JSON.ARRTRIM")
def json_arrtrim(session: Session, args: Args) -> Reply:
    """Keep only a range of arrays, both ends included; their new lengths."""
    path, start, stop = _path(args[1]), parse_int(args[2]), parse_int(args[3])

    def trim(array: list[Any]) -> int:
        length = len(array)
        first = max(0, length + start) if start < 0 else start
        last = length + stop if stop < 0 else min(stop, length - 1)
        array[:] = array[first : last + 1] if first <= last else []
        return len(array)

    return _change(session, args[0], path, "array", _of(list, trim))
