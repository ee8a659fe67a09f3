"""Conversions between plain Python values and values of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ..core.errors import ContractError, brief
from .engine.keyspace import type_name
from .errors import CommandError
from .reply import Reply, to_json
from .table.syntax import format_double, parse_int

Scalar = str | bytes | int | float
"""The types that a command's argument can have."""

Word: TypeAlias = "str | Any"
"""A string in plain Python: ``str``, or ``bytes`` if it is not UTF-8.

The alias includes ``Any`` so that tests can sort keys, and use a string that they know to exist,
without type errors; nearly every key is a ``str``.
"""

KVReply: TypeAlias = str | bytes | int | list["KVReply"] | None
"""The reply of a command in plain Python; None for nil.

Strings are ``str`` (``bytes`` if they are not UTF-8). Doubles are strings, as in RESP2, and so are
errors inside a list.
"""

JsonDocument: TypeAlias = (
    str | int | float | list["JsonDocument"] | dict[str, "JsonDocument"] | None
)
"""A parsed JSON document. Type checkers treat its booleans as integers."""

KVValue: TypeAlias = (
    str
    | bytes
    | list[str | bytes]
    | set[str | bytes]
    | dict[str | bytes, str | bytes]
    | list[tuple[str | bytes, float]]
    | list[tuple[str, dict[str | bytes, str | bytes]]]
    | JsonDocument
)
"""The value of a key in plain Python; None for a missing key.

Strings are ``str`` (``bytes`` if they are not UTF-8); lists, sets and hashes are ``list``, ``set``
and ``dict``. A sorted set is a list of ``(member, score)``, a stream is a list of ``(id, fields)``,
and JSON is the parsed document.
"""


class Converted(NamedTuple):
    """A value that an engine returns in plain Python, with the reply of TYPE for its key."""

    type_name: str
    python: KVValue


def encode(word: Scalar) -> bytes:
    """Return an argument as bytes; raise ``ContractError`` for other types."""
    if isinstance(word, bytes):
        return word
    if isinstance(word, bool):
        return b"true" if word else b"false"
    if isinstance(word, str):
        try:
            return word.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise ContractError(
                f"{word!r} cannot be encoded as UTF-8 ({error.reason} at {error.start}): pass bytes"
            ) from None
    if isinstance(word, int):
        return b"%d" % word
    if isinstance(word, float):
        return format_double(word)
    raise ContractError(
        f"{word!r} is not a valid argument of a command: pass a string, bytes or a number "
        "(convert a nested value to JSON)"
    )


def word(data: bytes | bytearray) -> Word:
    """Return bytes as a ``str`` if they are valid UTF-8, otherwise unchanged."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return bytes(data)


def word_pairs(flat: list[bytes]) -> list[tuple[Word, Word]]:
    """Return the pairs in a flat list such as the reply of HGETALL."""
    return [(word(flat[at]), word(flat[at + 1])) for at in range(0, len(flat), 2)]


def plain(reply: Reply) -> KVReply:
    """Convert a reply to plain Python."""
    if isinstance(reply, list):
        return [plain(item) for item in reply]
    if isinstance(reply, bytes | bytearray):
        return word(reply)
    shown: KVReply = to_json(reply)
    return shown


def python_value(value: Any) -> KVValue:
    """Convert a stored value to plain Python; None stays None."""
    if value is None:
        return None
    if isinstance(value, bytes | bytearray):
        return word(value)
    if isinstance(value, Converted):
        return value.python
    convert = _CONVERTERS.get(value.type_name)
    held: KVValue = value.to_python() if convert is None else convert(value)
    return held


_CONVERTERS: dict[str, Callable[[Any], KVValue]] = {
    "hash": lambda value: {word(field): word(text) for field, text in value.fields.items()},
    "list": lambda value: [word(item) for item in value],
    "set": lambda value: {word(member) for member in value},
    "zset": lambda value: [(word(member), score) for score, member in value],
    "stream": lambda value: [
        (word(name), dict(word_pairs(fields))) for name, fields in value.written()
    ],
}
_READERS = {
    "string": "string()", "hash": "hash()", "list": "elements()", "set": "members()",
    "zset": "scores()", "stream": "entries()",
}  # fmt: skip
"""The ``KVServer`` method that reads each type. Error messages suggest it."""


def value_of_type(key: str | bytes, value: Any, wanted: str) -> KVValue:
    """Convert a stored value of one type; raise ``ContractError`` for another type."""
    found = type_name(value)
    if found != wanted:
        raise ContractError(
            f"the key {key!r} holds a {found}, not a {wanted}: read it with "
            f"{_READERS.get(found, 'value()')}"
        )
    return python_value(value)


def integer_of(key: str | bytes, text: Word) -> int:
    """Return the integer that a string contains; raise ``ContractError`` for any other string."""
    try:
        return parse_int(encode(text))
    except CommandError:
        raise ContractError(
            f"the key {key!r} holds {brief(text)}, which is not an integer: read it with string()"
        ) from None


def commands_for(data: Mapping[Any, Any] | Iterable[Sequence[Scalar]]) -> Iterator[list[bytes]]:
    """Yield the commands that load data; raise ``ContractError`` for unsupported data."""
    if not isinstance(data, Mapping):
        if isinstance(data, str | bytes) or not isinstance(data, Iterable):
            raise ContractError(
                f"load() cannot load {data!r}: pass a mapping of keys to values such as {{'k': 'v'}}, "
                "or commands such as [['SET', 'k', 'v']]"
            )
        for line in data:
            if not isinstance(line, list | tuple) or not line:
                raise ContractError(
                    f"{line!r} is not a command: pass a list such as ['SET', 'k', 'v']"
                )
            yield list(map(encode, line))
        return
    for key, value in data.items():
        name = encode(key)
        yield [b"DEL", name]
        try:
            yield from _fill(name, value)
        except ContractError as error:
            raise ContractError(f"the value of {key!r}: {error}") from None


def _fill(key: bytes, value: Any) -> Iterator[list[bytes]]:
    if isinstance(value, Mapping):
        if value:
            yield [b"HSET", key, *(encode(item) for pair in value.items() for item in pair)]
    elif isinstance(value, set | frozenset):
        if value:
            yield [b"SADD", key, *sorted(map(encode, value))]
    elif not isinstance(value, list | tuple):
        yield [b"SET", key, encode(value)]
    elif value and isinstance(value[0], tuple):
        yield from _fill_from_pairs(key, value)
    elif value:
        yield [b"RPUSH", key, *map(encode, value)]


def _fill_from_pairs(key: bytes, items: Sequence[Any]) -> Iterator[list[bytes]]:
    for item in items:
        if not isinstance(item, tuple) or len(item) != 2:
            raise ContractError(
                f"{item!r} under {key!r} is not a pair: pass (member, score) pairs for a sorted set, "
                "or (id, fields) pairs for a stream"
            )
        first, second = item
        if isinstance(second, Mapping):
            fields = [encode(part) for pair in second.items() for part in pair]
            yield [b"XADD", key, encode(first), *fields]
        else:
            yield [b"ZADD", key, encode(second), encode(first)]
