"""Replies of commands: their encodings as JSON and in the Redis protocol, and plain Python values.

A command returns plain Python values: ``int`` for an integer, ``bytes`` for a bulk string, ``None``
for a nil, ``list`` for an array, ``float`` for a double. The classes below represent all other
replies. The REST interface uses the types of RESP2; RESP3 also has types for maps, sets, doubles
and booleans.
"""

from __future__ import annotations

import codecs
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from math import copysign
from typing import Any, Literal, NamedTuple, TypeAlias

from ..core.errors import ContractError, brief
from .errors import CommandError, one_line
from .syntax import format_double, parse_int
from .values.types import String, type_name


class _Text:
    """A string with its own type in the protocol."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"


class Status(_Text):
    """A simple string such as ``OK``. Unlike a bulk string, ``OK`` is never base64-encoded."""


class Map(list[Any]):
    """A list of alternating keys and values: a map in RESP3, a flat array in RESP2 and JSON."""

    __slots__ = ()


class SetReply(list[Any]):
    """A set in RESP3, an array in RESP2 and JSON."""

    __slots__ = ()


PushKind: TypeAlias = Literal["reply", "message", "invalidation", "eviction"]
"""What a push is: it stands instead of the reply to a command, as the confirmation of SUBSCRIBE does; a
message of pub/sub; or it tells of a changed key, or one evicted to make room (CLIENT TRACKING).
"""


class Push(list[Any]):
    """A message that is not the reply to a command: a push in RESP3, an array in RESP2."""

    __slots__ = ("kind",)

    def __init__(self, kind: PushKind, items: Iterable[Any]) -> None:
        super().__init__(items)
        self.kind = kind


class Bool(Enum):
    """A boolean in RESP3, 1 or 0 in RESP2 and JSON."""

    FALSE = False
    TRUE = True


class Verbatim(_Text):
    """Text for readers: a verbatim string in RESP3, else a bulk string. ``format`` has 3 bytes."""

    def __init__(self, text: bytes, format: bytes = b"txt") -> None:
        super().__init__(text)
        self.format = format.partition(b"\0")[0][:3].ljust(3)


class Attributed(bytes):
    """A string that is preceded by an attribute in RESP3; RESP2 and JSON omit the attribute."""

    attribute: Sequence[Any]

    def __new__(cls, text: bytes, attribute: Sequence[Any]) -> Attributed:
        string = super().__new__(cls, text)
        string.attribute = attribute
        return string


class Encoded(_Text):
    """A part of a reply that is already encoded."""


class BigNumber(_Text):
    """An integer of any size: a big number in RESP3, a bulk string of its digits in RESP2."""


class PrintedDouble(float):
    """A double that is written as ``text`` instead of in its shortest form."""

    __slots__ = ("text",)
    text: bytes

    def __new__(cls, value: float, text: bytes) -> PrintedDouble:
        printed = super().__new__(cls, value)
        printed.text = text
        return printed


def with_17_digits(value: float) -> PrintedDouble:
    """Return a double that is written with 17 significant digits, as servers before 7.2 did."""
    text = b"%.17g" % value
    # C writes the sign of "not a number", Python does not.
    return PrintedDouble(value, b"-nan" if text == b"nan" and copysign(1, value) < 0 else text)


class _Marker(Enum):
    """A reply without content."""

    NIL_ARRAY = auto()
    NO_REPLY = auto()


class Blocked:
    """The result of a command that has to wait: a blocking one or, with ``is_delay``, a delayed one.

    ``keys`` are the keys whose change can end the wait, ``timeout_ms`` is the time limit (0 for
    none). ``attempt`` takes the keys that are ready, retries the command under the engine's lock,
    and returns None if the command still has to wait. ``awaits`` is what has to happen to a key: the
    creation of a value of a type, or ``"gone"`` for the end of a stream. ``on_timeout`` is the reply
    at the time limit. ``retry_at_ms`` returns the time at which the command can be retried without a
    change of its keys, or None. Commands return this only to sessions with ``may_block``.
    """

    def __init__(
        self,
        keys: list[bytes],
        timeout_ms: int,
        attempt: Callable[[list[bytes]], Reply],
        on_timeout: Reply = None,
        is_delay: bool = False,
        awaits: tuple[str, ...] = (),
        retry_at_ms: Callable[[], int | None] | None = None,
    ) -> None:
        self.keys = keys
        self.timeout_ms = timeout_ms
        self.attempt = attempt
        self.on_timeout = on_timeout
        self.is_delay = is_delay
        self.awaits = awaits
        self.retry_at_ms = retry_at_ms


NIL_ARRAY = _Marker.NIL_ARRAY
"""A nil in place of an array: ``*-1`` in RESP2, null in RESP3 and JSON."""
NO_REPLY = _Marker.NO_REPLY
"""The result of a command whose reply was pushed (SUBSCRIBE) or is suppressed (CLIENT REPLY)."""
OK = Status(b"OK")
QUEUED = Status(b"QUEUED")

Reply: TypeAlias = (
    int | bytes | float | list[Any] | _Text | Bool | _Marker | CommandError | Blocked | None
)


LARGEST = 2**29
"""Maximum size of a reply in bytes; equal to the maximum size of a string (decided here)."""
_LARGE_PART = 2**16
"""Size in bytes above which a string is joined to the others without being copied before."""
EACH_BYTE = "pytest_fakecloud.each_byte"
"""The error handler for decoding that replaces each invalid byte by U+FFFD, as the vendor does.

Python's own handler ``"replace"`` replaces the beginning of a longer character as a whole.
"""
codecs.register_error(
    EACH_BYTE,
    lambda error: ("\ufffd" * (error.end - error.start), error.end),  # type: ignore[attr-defined]
)


def double_text(value: float) -> bytes:
    """Format a double with the fewest digits, or return the text of a ``PrintedDouble``."""
    return value.text if isinstance(value, PrintedDouble) else format_double(value)


def to_json(reply: Reply, base64: bool = False) -> Any:
    """Convert a reply to a JSON value, with the types of RESP2. It is at most ``LEVELS`` deep.

    Each byte that is not UTF-8 becomes one U+FFFD. ``base64`` encodes every string except the literal OK
    reply, numbers and error texts, as the vendor documents.
    """
    if isinstance(reply, String):
        return (
            b2a_base64(reply, newline=False).decode()
            if base64
            else reply.decode("utf-8", EACH_BYTE)
        )
    if reply is None or isinstance(reply, int):
        return reply
    if isinstance(reply, list):
        return [to_json(item, base64) for item in reply]
    if isinstance(reply, Status):
        return "OK" if reply.text == b"OK" else to_json(reply.text, base64)
    if isinstance(reply, float):
        return to_json(double_text(reply), base64)
    if isinstance(reply, Bool):
        return int(reply.value)
    if isinstance(reply, Verbatim | BigNumber):
        return to_json(reply.text, base64)
    if isinstance(reply, CommandError):
        return str(reply)
    if isinstance(reply, _Marker):
        return None
    raise TypeError(f"{reply!r} is not a reply")


def size_of(reply: Reply) -> int:
    """Return the total size in bytes of all strings in a reply."""
    # Do not recurse: a script's reply may be nested deeper than Python's recursion limit.
    size, items = 0, [reply]
    while items:
        item = items.pop()
        if isinstance(item, String):
            size += len(item)
        elif isinstance(item, list):
            items += item
    return size


def to_resp(reply: Reply, version: int = 2) -> bytes:
    """Encode a reply in the Redis protocol, version 2 or 3."""
    parts: list[bytes] = []
    if isinstance(reply, list):
        _write(parts.append, reply, version >= 3)
    else:
        _write_one(parts.append, reply, version >= 3)
    return b"".join(parts)


def _write(put: Callable[[bytes], None], reply: Reply, resp3: bool) -> None:
    if not isinstance(reply, list):
        _write_one(put, reply, resp3)
        return
    # Do not recurse: a script's reply may be nested deeper than Python's recursion limit.
    _write_header(put, reply, resp3)
    open_lists = [iter(reply)]
    while open_lists:
        for item in open_lists[-1]:
            if isinstance(item, list):
                _write_header(put, item, resp3)
                open_lists.append(iter(item))
                break
            _write_one(put, item, resp3)
        else:
            open_lists.pop()


def _write_one(put: Callable[[bytes], None], reply: Reply, resp3: bool) -> None:
    if isinstance(reply, String):
        if resp3 and isinstance(reply, Attributed):
            put(b"|%d\r\n" % (len(reply.attribute) // 2))
            for item in reply.attribute:
                _write(put, item, resp3)
        if len(reply) > _LARGE_PART:
            put(b"$%d\r\n" % len(reply))
            put(reply)
            put(b"\r\n")
        else:
            put(b"$%d\r\n%b\r\n" % (len(reply), reply))
    elif isinstance(reply, int):
        put(b":%d\r\n" % reply)
    elif reply is None:
        put(b"_\r\n" if resp3 else b"$-1\r\n")
    elif isinstance(reply, Status):
        put(b"+%b\r\n" % reply.text)
    elif isinstance(reply, CommandError):
        put(b"-%b\r\n" % one_line(reply.text))
    elif isinstance(reply, float):
        text = double_text(reply)
        put(b",%b\r\n" % text if resp3 else b"$%d\r\n%b\r\n" % (len(text), text))
    elif isinstance(reply, Bool):
        put((b"#t\r\n" if reply.value else b"#f\r\n") if resp3 else b":%d\r\n" % reply.value)
    elif isinstance(reply, Verbatim) and resp3:
        put(b"=%d\r\n%b:%b\r\n" % (len(reply.text) + 4, reply.format, reply.text))
    elif isinstance(reply, BigNumber) and resp3:
        put(b"(%b\r\n" % reply.text)
    elif isinstance(reply, Verbatim | BigNumber):
        put(b"$%d\r\n%b\r\n" % (len(reply.text), reply.text))
    elif reply is NIL_ARRAY:
        put(b"_\r\n" if resp3 else b"*-1\r\n")
    elif isinstance(reply, Encoded):
        put(reply.text)
    elif reply is not NO_REPLY:
        raise TypeError(f"{reply!r} is not a reply")


def _write_header(put: Callable[[bytes], None], items: list[Any], resp3: bool) -> None:
    count = len(items)
    if resp3 and isinstance(items, Map):
        put(b"%%%d\r\n" % (count // 2))
    elif resp3 and isinstance(items, SetReply):
        put(b"~%d\r\n" % count)
    elif resp3 and isinstance(items, Push):
        put(b">%d\r\n" % count)
    else:
        put(b"*%d\r\n" % count)


# -- plain Python values ---------------------------------------------------------------------------

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
    | dict[Any, str | bytes]  # With int, type checkers would require it of the fields of a hash.
    | JsonDocument
)
"""The value of a key in plain Python; None for a missing key.

Strings are ``str`` (``bytes`` if they are not UTF-8); lists, sets and hashes are ``list``, ``set``
and ``dict``. A sorted set is a list of ``(member, score)``, a stream is a list of ``(id, fields)``,
an array is a ``dict`` by index, and JSON is the parsed document.
"""


class Converted(NamedTuple):
    """A value that an engine returns in plain Python, with the reply of TYPE for its key."""

    type_name: str
    python: KVValue


def encode(word: Scalar) -> bytes:
    """Return an argument as bytes; raise ``ContractError`` for other types."""
    if isinstance(word, str):
        try:
            return word.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise ContractError(
                f"{word!r} cannot be encoded as UTF-8 ({error.reason} at {error.start}): pass bytes"
            ) from None
    if isinstance(word, bytes):
        return word
    if isinstance(word, bool):
        return b"true" if word else b"false"
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
    if isinstance(reply, list):
        return [plain(item) for item in reply]
    if isinstance(reply, String):
        return word(reply)
    shown: KVReply = to_json(reply)
    return shown


def python_value(value: Any) -> KVValue:
    """Convert a stored value to plain Python; None stays None."""
    if value is None:
        return None
    if isinstance(value, String):
        return word(value)
    if isinstance(value, Converted):
        return value.python
    convert = _CONVERTERS.get(value.type_name)
    held: KVValue = value.to_python() if convert is None else convert(value)
    return held


_CONVERTERS: dict[str, Callable[[Any], KVValue]] = {
    "array": lambda value: {index: word(item) for index, item in value},
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
    "zset": "scores()", "stream": "entries()", "array": "array()",
}  # fmt: skip
"""The ``KVServer`` method that reads each type. Error messages suggest it."""


def value_of_type(key: str | bytes, value: Any, wanted: str) -> KVValue:
    actual = type_name(value)
    if actual != wanted:
        raise ContractError(
            f"the key {key!r} is of type {actual}, not {wanted}: read it with "
            f"{_READERS.get(actual, 'value()')}"
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
            name = b"ARMSET" if all(type(index) is int for index in value) else b"HSET"
            yield [name, key, *(encode(item) for pair in value.items() for item in pair)]
    elif isinstance(value, set | frozenset):
        if value:
            yield [b"SADD", key, *sorted(map(encode, value))]
    elif not isinstance(value, list | tuple):
        yield [b"SET", key, encode(value)]
    elif value and isinstance(value[0], tuple):
        for item in value:
            if not isinstance(item, tuple) or len(item) != 2:
                raise ContractError(
                    f"{item!r} under {key!r} is not a pair: pass (member, score) pairs for a sorted "
                    "set, or (id, fields) pairs for a stream"
                )
            first, second = item
            if isinstance(second, Mapping):
                fields = [encode(part) for pair in second.items() for part in pair]
                yield [b"XADD", key, encode(first), *fields]
            else:
                yield [b"ZADD", key, encode(second), encode(first)]
    elif value:
        yield [b"RPUSH", key, *map(encode, value)]
