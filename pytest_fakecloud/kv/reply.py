"""Replies of commands, and their encodings as JSON and in the Redis protocol.

A command returns plain Python values: ``int`` for an integer, ``bytes`` for a bulk string, ``None``
for a nil, ``list`` for an array, ``float`` for a double. The classes below represent all other
replies. The REST interface uses the types of RESP2; RESP3 also has types for maps, sets, doubles
and booleans.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from math import copysign
from typing import Any, TypeAlias

from .errors import CommandError, one_line
from .table.syntax import format_double


@dataclass(repr=False, unsafe_hash=True, slots=True)
class _Text:
    """A string with its own type in the protocol."""

    text: bytes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"


class Status(_Text):
    """A simple string such as ``OK``. Unlike a bulk string, ``OK`` is never base64-encoded."""

    __slots__ = ()


class Map(list[Any]):
    """A list of alternating keys and values: a map in RESP3, a flat array in RESP2 and JSON."""

    __slots__ = ()


class SetReply(list[Any]):
    """A set in RESP3, an array in RESP2 and JSON."""

    __slots__ = ()


class Push(list[Any]):
    """A message that is not the reply to a command: a push in RESP3, an array in RESP2."""

    __slots__ = ()


@dataclass(unsafe_hash=True, slots=True)
class Bool:
    """A boolean in RESP3, 1 or 0 in RESP2 and JSON."""

    value: bool


class Verbatim(_Text):
    """Text for readers: a verbatim string in RESP3, else a bulk string. ``format`` has 3 bytes."""

    __slots__ = ("format",)

    def __init__(self, text: bytes, format: bytes = b"txt") -> None:
        super().__init__(text)
        self.format = format.partition(b"\0")[0][:3].ljust(3)


class Attributed(bytes):
    """A string that is preceded by an attribute in RESP3; RESP2 and JSON omit the attribute."""

    attribute: Sequence[Any]

    def __new__(cls, text: bytes, attribute: Sequence[Any]) -> Attributed:
        made = super().__new__(cls, text)
        made.attribute = attribute
        return made


class Encoded(_Text):
    """A part of a reply that is already encoded."""

    __slots__ = ()


class BigNumber(_Text):
    """An integer of any size: a big number in RESP3, a bulk string of its digits in RESP2."""

    __slots__ = ()


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


@dataclass(eq=False, repr=False, slots=True)
class Blocked:
    """The result of a command that has to wait: a blocking one or, with ``is_delay``, a delayed one.

    ``keys`` are the keys whose change can end the wait, ``timeout_ms`` is the time limit (0 for
    none). ``attempt`` retries the command under the engine's lock, and returns None if the command
    still has to wait. ``on_timeout`` is the reply at the time limit. Commands return this only to
    sessions with ``may_block``.
    """

    keys: list[bytes]
    timeout_ms: int
    attempt: Callable[[], Reply]
    on_timeout: Reply = None
    is_delay: bool = False


NIL_ARRAY = _Marker.NIL_ARRAY
"""A nil in place of an array: ``*-1`` in RESP2, null in RESP3 and JSON."""
NO_REPLY = _Marker.NO_REPLY
"""The result of a command whose reply was pushed (SUBSCRIBE) or is suppressed (CLIENT REPLY)."""
OK = Status(b"OK")
QUEUED = Status(b"QUEUED")

Reply: TypeAlias = (
    int
    | bytes
    | float
    | list[Any]
    | Status
    | Bool
    | Verbatim
    | BigNumber
    | Encoded
    | _Marker
    | CommandError
    | Blocked
    | None
)


STREAMED = 16 * 2**20
"""REST replies with at least this many bytes of strings are sent in pieces."""
LARGEST = 2**29
"""Maximum size of a reply in bytes; equal to the maximum size of a string (decided here)."""
_LARGE_PART = 2**16


def double_text(value: float) -> bytes:
    """Format a double with the fewest digits, or return the text of a ``PrintedDouble``."""
    return value.text if isinstance(value, PrintedDouble) else format_double(value)


def to_json(reply: Reply, base64: bool = False) -> Any:
    """Convert a reply to a JSON value, with the types of RESP2. It is at most ``LEVELS`` deep.

    Bytes that are not UTF-8 become U+FFFD. ``base64`` encodes every string except the literal OK
    reply, numbers and error texts, as the vendor documents.
    """
    kind = type(reply)
    if kind is bytes:
        text: bytes = reply  # type: ignore[assignment]
        return b64encode(text).decode() if base64 else text.decode("utf-8", "replace")
    if kind is int or reply is None:
        return reply
    if isinstance(reply, list):
        return [to_json(item, base64) for item in reply]
    if isinstance(reply, Status):
        if base64 and reply.text != b"OK":
            return b64encode(reply.text).decode()
        return reply.text.decode("utf-8", "replace")
    if isinstance(reply, float):
        return to_json(double_text(reply), base64)
    if isinstance(reply, Bool):
        return int(reply.value)
    if isinstance(reply, Verbatim | BigNumber):
        return to_json(reply.text, base64)
    if isinstance(reply, CommandError):
        return str(reply)
    if isinstance(reply, bytes | bytearray):
        return to_json(bytes(reply), base64)
    if isinstance(reply, _Marker):
        return None
    raise TypeError(f"{reply!r} is not a reply")


def size_of(reply: Reply) -> int:
    """Return the total size in bytes of all strings in a reply."""
    if not isinstance(reply, list):
        return len(reply) if isinstance(reply, bytes | bytearray) else 0
    # Do not recurse: a script's reply may be nested deeper than Python's recursion limit.
    size, open_lists = 0, [reply]
    while open_lists:
        for item in open_lists.pop():
            if item.__class__ is bytes:
                size += len(item)
            elif isinstance(item, list):
                open_lists.append(item)
            elif isinstance(item, bytes | bytearray):
                size += len(item)
    return size


def to_resp(reply: Reply, version: int = 2) -> bytes:
    """Encode a reply in the Redis protocol, version 2 or 3."""
    return b"".join(resp_parts(reply, version))


def resp_parts(reply: Reply, version: int = 2) -> list[bytes]:
    """Encode a reply as a list of parts; large strings are separate parts, so they are not copied."""
    out: list[bytes] = []
    _write(out.append, reply, version >= 3)
    return out


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
    if isinstance(reply, bytes | bytearray):
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
