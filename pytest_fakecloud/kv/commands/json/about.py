"""JSON commands that return types, lengths, member names, sizes, and nested replies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...reply import Reply, Status
from ...table.registry import Args, command
from ...values.json import type_word, write_json
from .matches import document_of, find, no_path, of_kind, optional_path, read

if TYPE_CHECKING:
    from ...engine.engine import Session


@command("JSON.TYPE")
def json_type(session: Session, args: Args) -> Reply:
    """Return the types of the values at a path."""
    path = optional_path(session, args, "json.type")
    document = document_of(session, args[0])
    found: Reply = None
    if document is not None:
        words = [type_word(match.value).encode() for match in find(path, document.root)]
        found = words if not path.legacy else words[0] if words else None
    # In RESP3, RedisJSON wraps the reply in another array.
    return [found] if session.resp > 2 and session.engine.dialect == "redis" else found


@command("JSON.STRLEN")
def json_strlen(session: Session, args: Args) -> Reply:
    """Return the lengths in bytes of the strings at a path."""
    path = optional_path(session, args, "json.strlen")
    return read(session, args[0], path, "string", of_kind(str, lambda text: len(text.encode())))


@command("JSON.ARRLEN")
def json_arrlen(session: Session, args: Args) -> Reply:
    """Return the lengths of the arrays at a path."""
    return read(
        session, args[0], optional_path(session, args, "json.arrlen"), "array", of_kind(list, len)
    )


@command("JSON.OBJLEN")
def json_objlen(session: Session, args: Args) -> Reply:
    """Return the number of members of each object at a path.

    In RedisJSON, a legacy path without a match is not an error.
    """
    path = optional_path(session, args, "json.objlen")
    document = document_of(session, args[0])
    excused = session.engine.dialect == "redis" and path.legacy
    if excused and (document is None or not find(path, document.root)):
        return None
    return read(session, args[0], path, "object", of_kind(dict, len))


@command("JSON.OBJKEYS")
def json_objkeys(session: Session, args: Args) -> Reply:
    """Return the member names of the objects at a path."""
    path = optional_path(session, args, "json.objkeys")
    names = of_kind(dict, lambda value: [name.encode() for name in value])
    return read(session, args[0], path, "object", names)


@command("JSON.RESP")
def json_resp(session: Session, args: Args) -> Reply:
    """Return the values at a path as nested RESP replies.

    In RESP3, RedisJSON returns fractional numbers as doubles.
    """
    path = optional_path(session, args, "json.resp")
    doubles = session.resp > 2 and session.engine.dialect == "redis"
    document = document_of(session, args[0])
    if document is None:
        return None
    matches = find(path, document.root)
    if not path.legacy:
        return [_resp(match.value, doubles) for match in matches]
    if not matches:
        raise no_path(path)
    return _resp(matches[0].value, doubles)


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
    path = optional_path(session, args, "json.debug|memory")
    document = document_of(session, args[0])
    if document is None:
        return 0 if path.legacy else []
    sizes = [8 + len(write_json(match.value)) for match in find(path, document.root)]
    if not path.legacy:
        return list(sizes)
    if not sizes:
        raise no_path(path)
    return sizes[0]
