"""Converts the arguments of commands from Lua to bytes, and replies to Lua values."""

from __future__ import annotations

from typing import Any

from ..errors import CommandError
from ..reply import Map, SetReply, Status, Verbatim, double_text
from ..table.syntax import format_double

STATUS, FAILED, REFUSED, BUG = 1, 2, 3, 4
"""Kinds of results for ``redis.lua``: a status, an error, an error before the command, a bug."""

NO_ARGUMENTS = b"ERR Please specify at least one argument for this redis lib call"
BAD_ARGUMENTS = b"ERR Lua redis lib command arguments must be strings or integers"


def number_text(number: int | float, *, short: bool = True) -> bytes:
    """Format a Lua number as an argument: with as few digits as possible, or with 17 digits."""
    if isinstance(number, int) and abs(number) < 2**53:
        return b"%d" % number
    return format_double(float(number)) if short else b"%.17g" % number


def lua_size(value: Any) -> int:
    """Return the approximate size in bytes that a value has in Lua's memory."""
    if isinstance(value, bytes | bytearray):
        return len(value) + 24
    if isinstance(value, list):
        return 64 + sum(16 + lua_size(item) for item in value)
    return 160


def words_size(words: list[bytes]) -> int:
    """Return the approximate size in bytes that a list of words has in Lua's memory."""
    return 64 + 40 * len(words) + sum(map(len, words))


class Converter:
    """Converts arguments and replies between Python and one Lua runtime."""

    def __init__(self, runtime: Any, *, short_numbers: bool = True) -> None:
        self._table = runtime.table_from
        self._short = short_numbers

    def arguments(self, args: tuple[Any, ...]) -> tuple[int | None, Any]:
        """Return None and the command line of a script's call, or ``REFUSED`` and the error."""
        if not args:
            return REFUSED, NO_ARGUMENTS
        argv: list[bytes] = []
        for arg in args:
            kind = arg.__class__
            if kind is bytes:
                argv.append(arg)
            elif kind is int or kind is float:
                argv.append(number_text(arg, short=self._short))
            else:
                return REFUSED, BAD_ARGUMENTS
        return None, argv

    def to_lua(self, reply: Any, resp: int) -> Any:
        """Convert a reply to the result of ``redis.call``: a plain value, or a value and its kind."""
        kind = reply.__class__
        if kind is int or reply is None or kind is bytes:
            return reply
        if kind is Status:
            return reply.text, STATUS
        if isinstance(reply, CommandError):
            return reply.text, FAILED
        return self._nested(reply, resp)

    def _nested(self, reply: Any, resp: int) -> Any:
        kind = reply.__class__
        if kind is bytes or kind is int:
            return reply
        if reply is None:
            return False if resp == 2 else None
        if isinstance(reply, list):
            return self._aggregate(reply, resp)
        if kind is Status:
            return self._table({b"ok": reply.text})
        if isinstance(reply, float):
            return double_text(reply) if resp == 2 else self._table({b"double": float(reply)})
        if isinstance(reply, bytes | bytearray):
            return bytes(reply)  # Scripts do not receive the RESP3 attribute of a value.
        return self._text(reply, resp)

    def _aggregate(self, reply: list[Any], resp: int) -> Any:
        items = [self._nested(item, resp) for item in reply]
        if resp == 3 and isinstance(reply, Map):
            pairs = dict(zip(items[::2], items[1::2], strict=True))
            return self._table({b"map": self._table(pairs)})
        if resp == 3 and isinstance(reply, SetReply):
            return self._table({b"set": self._table(dict.fromkeys(items, True))})
        return self._table(items)

    def _text(self, reply: Any, resp: int) -> Any:
        if isinstance(reply, Verbatim):
            if resp == 2:
                return reply.text
            text = self._table({b"string": reply.text, b"format": reply.format})
            return self._table({b"verbatim_string": text})
        # Only DEBUG returns the other types, and scripts cannot call it; so this is a nil array.
        return False if resp == 2 else None
