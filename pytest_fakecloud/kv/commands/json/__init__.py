"""JSON commands, and the functions that they share: parsers, and operations on every match.

With a ``$`` path, a reply has one item per match; the item is nil if the match has the wrong type.
With a legacy path, the reply is the result for the first match, and a path without a match is an
error. If the key is missing, a read with a legacy path returns nil, and every other command raises
an error. This is the behaviour of RedisJSON (decided here where the tests of the vendor's clients
do not show it). The dialects differ in one point: if an array command changes several matches of a
legacy path, RedisJSON returns the result for the last match.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ... import errors
from ...engine.sessions import Session
from ...errors import CommandError, one_line
from ...reply import Reply
from ...table.registry import Args
from ...values.json import DEEPEST, TYPE_WORDS, JsonError, JsonValue, depth, parse_json
from ..arguments import arity_error, existing

if TYPE_CHECKING:
    from ...values.json_path import Location, Path


_MAX_LEVELS = 2 * DEEPEST
"""Maximum depth of a document into which clients have inserted values, each of ``DEEPEST`` levels."""
LEGACY_ROOT = b"."


# -- arguments -------------------------------------------------------------------------------------


def read_path(session: Session, text: bytes) -> Path:
    """Parse a path that a client sent; raise ``CommandError`` if it is invalid."""
    from ...values.json_path import compile_path  # slow to import and rarely needed

    return compile_path(text, outer_first=session.engine.dialect == "redis")


def optional_path(session: Session, args: Args) -> Path:
    """Return the path argument of a command that takes only a key and a path; by default the root."""
    if len(args) > 2:
        raise arity_error(session)
    return read_path(session, args[1] if len(args) > 1 else LEGACY_ROOT)


def read_value(text: bytes) -> Any:
    """Parse a JSON value that a client sent; raise ``CommandError`` if it is invalid."""
    try:
        return parse_json(text)
    except JsonError as error:
        raise CommandError(one_line(b"ERR " + str(error).encode())) from None


# -- matches --------------------------------------------------------------------------------------


def existing_document(session: Session, key: bytes) -> JsonValue:
    return existing(session, key, JsonValue, errors.JSON_NO_KEY)


def outermost(matches: list[Location]) -> list[Location]:
    """Return the matches that are not inside another match."""
    found = {match.parts for match in matches}
    return [
        match for match in matches
        if not any(match.parts[:end] in found for end in range(len(match.parts)))
    ]  # fmt: skip


def no_path(path: Path) -> CommandError:
    return CommandError(errors.missing_json_path(path.text))


def wrong_type(expected: str, value: Any) -> CommandError:
    return CommandError(errors.wrong_json_type(expected, TYPE_WORDS[value.__class__]))


Operation = Callable[[Any], Any]


def _results(
    path: Path,
    matches: list[Location],
    operation: Operation,
    *kinds: type,
    needs_first: bool = True,
) -> list[Any]:
    """Return the result of an operation for each match; None for a match not of these types.

    With a legacy path, raise an error unless the first match, or with ``needs_first=False`` any
    match, is of these types. The error names the last of them.
    """
    # Types are compared with `in`, because a boolean is also an instance of `int`.
    fits = [match.value.__class__ in kinds for match in matches]
    if path.legacy:
        if not matches:
            raise no_path(path)
        if not (fits[0] if needs_first else any(fits)):
            raise wrong_type(TYPE_WORDS[kinds[-1]], matches[0].value)
    return [
        operation(match.value) if fit else None for match, fit in zip(matches, fits, strict=True)
    ]


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
    session: Session,
    key: bytes,
    path: Path,
    operation: Operation,
    check: Callable[[Location], None] | None = None,
) -> Reply:
    """Return the reply of an operation that adds or removes elements of the matched arrays.

    ``check`` raises ``CommandError`` for an array that the operation must not change.
    """
    document = existing_document(session, key)
    matches = path.find(document.root)
    arrays = [match for match in matches if match.value.__class__ is list]
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


def parent_of(document: JsonValue, match: Location) -> Any:
    """Return the array or object that contains a match, which must not be the root."""
    found = document.root
    for part in match.parts[:-1]:
        found = found[part]
    return found


def put(document: JsonValue, match: Location, value: Any) -> None:
    """Replace the value of a match, which may be the root."""
    if match.parts:
        parent_of(document, match)[match.parts[-1]] = value
    else:
        document.root = value


def replace(
    session: Session, key: bytes, path: Path, operation: Operation, *kinds: type
) -> list[Any]:
    """Replace the matches of some types with the results of an operation.

    Returns the result for each match; None for a match of another type.
    """
    document = existing_document(session, key)
    matches = path.find(document.root)
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
    document: JsonValue, matches: list[Location], value: Any, make: Callable[[Any], Any]
) -> None:
    """Replace each match with what ``make`` returns for it; first check the depth of ``value``."""
    for match in matches:
        check_depth(len(match.parts), value)
    for match in matches:
        put(document, match, make(match.value))
