"""Values of declared classes as plain JSON, and JSON as such values, for files that keep a state.

A dataclass or a named tuple is an object with its fields, without those that have their default. A
mapping whose keys are not strings is a list of pairs. Bytes are text, or ``{"base64": …}`` if they
are not UTF-8. An exception is its type's name and its text. Reading follows the types of the
fields alone: what a file contains is never looked up by name. Decided here.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from .calls import Headers
from .errors import ContractError, brief, unknown_name


def to_plain(value: Any) -> Any:
    """Return a value as JSON; raise ``TypeError`` for one of a class that is not declared."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, bytes):
        return bytes_to_plain(value)
    if isinstance(value, Headers):
        return to_plain(value.pairs)
    if isinstance(value, BaseException):
        return {"type": type(value).__name__, "text": _encodable(str(value))}
    kind: Any = type(value)
    fields = _fields_of(kind)
    if fields is not None:
        shown = {}
        for name, field in fields.items():
            plain = to_plain(getattr(value, name))
            if field.default is dataclasses.MISSING or plain != to_plain(field.default()):
                shown[name] = plain
        return shown
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {_encodable(key): to_plain(part) for key, part in value.items()}
        return [[to_plain(key), to_plain(part)] for key, part in value.items()]
    if isinstance(value, set | frozenset):
        return sorted(map(to_plain, value))
    if isinstance(value, list | tuple | deque):
        return list(map(to_plain, value))
    raise TypeError(f"{kind.__name__} has no plain form")


def bytes_to_plain(data: bytes) -> str | dict[str, str]:
    """Return bytes as JSON: text, or Base64 if they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def bytes_from_plain(data: Any, where: str) -> bytes:
    """Return the bytes of ``bytes_to_plain()``; raise ``ContractError`` for other JSON."""
    if isinstance(data, str):
        return data.encode("utf-8", "surrogatepass")
    if isinstance(data, dict) and data.keys() == {"base64"} and isinstance(data["base64"], str):
        try:
            return b64decode(data["base64"], validate=True)
        except Base64Error as error:
            raise ContractError(f"{where}: {error}") from None
    raise _mismatch(where, data, 'a string, or {"base64": "…"}')


def from_plain(kind: Any, data: Any, where: str) -> Any:
    """Return JSON as a value of a type; raise ``ContractError``, which begins with the place."""
    if kind in (Any, object):
        return data
    origin = get_origin(kind)
    if origin is Literal:
        if data not in get_args(kind):
            raise _mismatch(where, data, f"one of {', '.join(map(repr, get_args(kind)))}")
        return data
    if origin in (Union, types.UnionType):
        others = [other for other in get_args(kind) if other is not types.NoneType]
        return None if data is None else from_plain(others[0], data, where)
    if kind in (None, types.NoneType):
        if data is not None:
            raise _mismatch(where, data, "null")
        return None
    if origin is not None:
        return _collection(origin, get_args(kind), data, where)
    if kind is bytes:
        return bytes_from_plain(data, where)
    if kind is Headers:
        return Headers(from_plain(tuple[tuple[str, str], ...], data, where))
    if kind is BaseException:
        return _exception(data, where)
    fields = _fields_of(kind)
    if fields is not None:
        return _instance(kind, fields, data, where)
    is_kind = type(data) is kind or (kind is float and type(data) is int)
    if not is_kind:
        raise _mismatch(where, data, _NAMES[kind])
    return data


_NAMES = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def _collection(origin: Any, arguments: tuple[Any, ...], data: Any, where: str) -> Any:
    if issubclass(origin, Mapping):
        return _mapping(origin, arguments, data, where)
    if not isinstance(data, list):
        raise _mismatch(where, data, "a list")
    if origin is tuple and arguments[-1] is not Ellipsis:
        if len(data) != len(arguments):
            raise _mismatch(where, data, f"a list of {len(arguments)} items")
        kinds: Sequence[Any] = arguments
    else:
        kinds = [arguments[0]] * len(data)
    items = (
        from_plain(kind, item, f"{where}[{number}]")
        for number, (kind, item) in enumerate(zip(kinds, data, strict=True))
    )
    make: Callable[[Any], Any] = origin if origin in (list, set, frozenset, deque) else tuple
    return make(items)


def _mapping(origin: Any, arguments: tuple[Any, ...], data: Any, where: str) -> Any:
    key_kind, part_kind = arguments
    make: Callable[[Any], Any] = OrderedDict if origin is OrderedDict else dict
    if key_kind is str:
        if not isinstance(data, dict):
            raise _mismatch(where, data, "an object")
        return make(
            (key, from_plain(part_kind, part, f"{where}.{brief(key)}"))
            for key, part in data.items()
        )
    if data == {}:  # ``to_plain()`` does not see the type of the keys that it might have had.
        return make([])
    pair: Any = tuple.__class_getitem__((key_kind, part_kind))
    return make(_collection(list, (pair,), data, where))


def _instance(kind: Any, fields: Mapping[str, PlainField], data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise _mismatch(where, data, "an object")
    for name in data:
        if name not in fields:
            raise ContractError(
                f"{where}: {unknown_name(f'field of {kind.__name__}', name, fields)}"
            )
    values = {}
    for name, field in fields.items():
        if name in data:
            values[name] = from_plain(field.kind, data[name], f"{where}.{name}")
        elif field.default is dataclasses.MISSING:
            raise ContractError(f"{where}: {name} is missing")
    return kind(**values)


class SavedException(Exception):
    """An exception whose object a file cannot keep: its subclass has the name of its type."""


def _exception(data: Any, where: str) -> BaseException:
    parts = from_plain(dict[str, str], data, where)
    if parts.keys() != {"type", "text"}:
        raise _mismatch(where, data, "an object with type and text")
    text = [parts["text"]] if parts["text"] else []
    error: BaseException = type(parts["type"], (SavedException,), {})(*text)
    return error


# -- declared classes ------------------------------------------------------------------------------


class PlainField(typing.NamedTuple):
    """A field of a declared class: its type, and a function that returns its default, or ``MISSING``."""

    kind: Any
    default: Any


@cache
def _fields_of(kind: Any) -> Mapping[str, PlainField] | None:
    """Return the fields of a dataclass or a named tuple by name; None for another class."""
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return {
            field.name: PlainField(hints[field.name], _default(field))
            for field in dataclasses.fields(kind)
        }
    if issubclass(kind, tuple) and hasattr(kind, "_field_defaults"):
        defaults: Mapping[str, Any] = kind._field_defaults
        return {
            name: PlainField(
                hint, _constant(defaults[name]) if name in defaults else dataclasses.MISSING
            )
            for name, hint in get_type_hints(kind).items()
        }
    return None


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return _constant(field.default)
    return field.default_factory


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def _encodable(text: str) -> str:
    """Return a text without lone surrogates, which JSON files cannot contain."""
    return text.encode("utf-8", "replace").decode()


def _mismatch(where: str, data: Any, expected: str) -> ContractError:
    return ContractError(f"{where} is {brief(data)}; pass {expected}")
