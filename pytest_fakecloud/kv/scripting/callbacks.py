"""Python functions that the host's Lua code calls: packing of numbers, bit operations, reply
objects, and changes of compiled code.

Arguments and results are plain values. No function may raise an exception for a value that the Lua
code passes, because scripts would receive the exception as a Python object.
"""

from __future__ import annotations

import hashlib
import math
import struct
from array import array
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..errors import CommandError, CountedError, one_line
from ..reply import BigNumber, Bool, Map, SetReply, Status, Verbatim

Number = int | float


class Boxed:
    """A double in a reply, boxed because Lua would convert a float to a number of its own."""

    __slots__ = ("value",)

    def __init__(self, value: Number | bytes) -> None:
        self.value = float(value)


_BITS_LOW = 2.0**52 + 2.0**51
"""A double plus this number has the lowest bits of its integral part at the end."""


def _bits(number: Number) -> int:
    """Return the low 32 bits of a number, rounded as Lua's BitOp library does."""
    low: int = struct.unpack_from("<I", struct.pack("<d", number + _BITS_LOW))[0]
    return low


def _signed(bits: int) -> int:
    bits &= 0xFFFFFFFF
    return bits - 0x100000000 if bits & 0x80000000 else bits


def _fold(operation: Callable[[int, int], int]) -> Callable[..., int]:
    def fold(first: Number, *others: Number) -> int:
        result = _bits(first)
        for other in others:
            result = operation(result, _bits(other))
        return _signed(result)

    return fold


def _rotate(number: Number, places: int) -> int:
    bits = _bits(number)
    places &= 31
    return _signed(bits << places | bits >> (32 - places))


def _tohex(number: Number, digits: Number) -> bytes:
    count = _signed(_bits(digits))
    text = b"%08x" % _bits(number)
    if count < 0:
        count, text = -count, text.upper()
    return text[-min(count, 8) :] if count else b""


def _pack_float(number: Number) -> bytes:
    """Encode a number as a MessagePack float, with 32 bits if that loses no precision."""
    value = float(number)
    with suppress(OverflowError):
        short = struct.pack(">f", value)
        if struct.unpack(">f", short)[0] == value:
            return b"\xca" + short
    return b"\xcb" + struct.pack(">d", value)


def _to_c_integer(number: Number) -> int:
    if number >= 2**64:
        return 0
    if number != number or number < -(2**63):
        return -(2**63)
    return math.trunc(number)


def _pack_struct(number: Number, size: int, little: bool) -> bytes:
    value = _to_c_integer(number) & 0xFFFFFFFFFFFFFFFF
    data = value.to_bytes(8, "little")
    data = data[:size] if size <= 8 else data + bytes(size - 8)
    return data if little else data[::-1]


def _unpack_struct(data: bytes, little: bool, signed: bool) -> float:
    ordered = data if little else data[::-1]
    return float(int.from_bytes(ordered[:8], "little", signed=signed))


def _pack_real(number: Number, kind: bytes, little: bool) -> bytes:
    value = float(number)
    order = "<" if little else ">"
    try:
        return struct.pack(order + kind.decode(), value)
    except OverflowError:
        return struct.pack(order + "f", math.copysign(math.inf, value))


def _hexadecimal(text: bytes) -> float:
    try:
        return float.fromhex(text.decode())
    except OverflowError:
        return -math.inf if text.startswith(b"-") else math.inf


def _failure(text: bytes, counted: bool = False) -> CommandError:
    return (CountedError if counted else CommandError)(one_line(text))


def callbacks() -> dict[bytes, Callable[..., Any]]:
    """Return the functions, keyed by the names that the Lua code uses."""
    table: dict[str, Callable[..., Any]] = {
        "keep_frames": keep_frames,
        "find": lambda text, wanted, start: text.find(wanted, int(start)),
        "sha1hex": lambda text: hashlib.sha1(text, usedforsecurity=False).hexdigest().encode(),
        "hexadecimal": _hexadecimal,
        "pack_integer": lambda number: (_to_c_integer(number) & (2**64 - 1)).to_bytes(8, "big"),
        "unpack_integer": lambda data: float(int.from_bytes(data, "big", signed=True)),
        "pack_float": _pack_float,
        "unpack_float": lambda data: struct.unpack(">f" if len(data) == 4 else ">d", data)[0],
        "pack_struct": _pack_struct,
        "unpack_struct": _unpack_struct,
        "pack_real": _pack_real,
        "unpack_real": lambda data, kind, little: struct.unpack(
            ("<" if little else ">") + kind.decode(), data
        )[0],
        "list": lambda *items: list(items),
        "extend": lambda items, *more: items.extend(more),
        "failure": _failure,
        "status": lambda text: Status(one_line(text)),
        "double": Boxed,
        "map": Map,
        "set": SetReply,
        "boolean": Bool,
        "big_number": lambda text: BigNumber(one_line(text)),
        "verbatim": Verbatim,
        "bit_tobit": lambda number: _signed(_bits(number)),
        "bit_bnot": lambda number: _signed(~_bits(number)),
        "bit_bswap": lambda number: _signed(int.from_bytes(_bits(number).to_bytes(4)[::-1])),
        "bit_lshift": lambda number, places: _signed(_bits(number) << (_bits(places) & 31)),
        "bit_rshift": lambda number, places: _signed(_bits(number) >> (_bits(places) & 31)),
        "bit_arshift": lambda number, places: _signed(_bits(number)) >> (_bits(places) & 31),
        "bit_rol": lambda number, places: _rotate(number, _bits(places)),
        "bit_ror": lambda number, places: _rotate(number, -_bits(places)),
        "bit_band": _fold(int.__and__),
        "bit_bor": _fold(int.__or__),
        "bit_bxor": _fold(int.__xor__),
        "bit_tohex": _tohex,
    }
    return {name.encode(): function for name, function in table.items()}


# -- tail calls in compiled Lua 5.1 code ---------------------------------------------------------

_HEADER = 12
"""Size in bytes of a chunk's header, which also contains the format and the sizes of types."""
_CALL, _TAIL_CALL = 28, 29
_BOOLEAN, _NUMBER, _STRING = 1, 3, 4
_INT, _SIZE = struct.Struct("i"), struct.Struct("N")
"""The native formats of ``int`` and ``size_t``, because this machine compiles the chunks."""


def keep_frames(chunk: bytes) -> bytes:
    """Return the output of ``string.dump`` with ordinary calls instead of tail calls.

    A tail call drops the caller's stack frame, and with it the line number in error messages. Lua
    keeps the frame if the called function is written in C, as on real servers, but the functions of
    this host are written in Lua. Therefore ``return redis.call(…)`` is changed to an ordinary call
    whose results are then returned. Only the operation code of the instruction changes.

    Otherwise the errors of the most common form of script would differ from the server's. The error
    of ``return redis.call('INCR', 'text')`` would lack `` script: <sha>, on @user_script:1.`` at its
    end.
    """
    if chunk[:5] != b"\x1bLuaQ" or chunk[7:11] != bytes((_INT.size, _SIZE.size, 4, 8)):
        return chunk  # Another Lua build: the code stays unchanged, and only line numbers are lost.
    patched = _Chunk(chunk)
    patched.patch_function()
    return bytes(patched.data)


class _Chunk:
    def __init__(self, chunk: bytes) -> None:
        self.data = bytearray(chunk)
        self._at = _HEADER

    def _integer(self) -> int:
        found: int = _INT.unpack_from(self.data, self._at)[0]
        self._at += 4
        return found

    def _skip_string(self) -> None:
        length: int = _SIZE.unpack_from(self.data, self._at)[0]
        self._at += _SIZE.size + length

    def patch_function(self) -> None:
        self._skip_string()
        self._at += 12  # Skip the first and last line numbers and four one-byte counts.
        self._patch_code()
        for _ in range(self._integer()):
            self._skip_constant()
        for _ in range(self._integer()):
            self.patch_function()
        lines = self._integer()
        self._at += 4 * lines
        for _ in range(self._integer()):  # Skip the local variables.
            self._skip_string()
            self._at += 8
        for _ in range(self._integer()):  # Skip the upvalues.
            self._skip_string()

    def _patch_code(self) -> None:
        count = self._integer()
        end = self._at + 4 * count
        code = array("I", self.data[self._at : end])
        for place, word in enumerate(code):
            if word & 0x3F == _TAIL_CALL:
                code[place] += _CALL - _TAIL_CALL
        self.data[self._at : end] = code.tobytes()
        self._at = end

    def _skip_constant(self) -> None:
        kind = self.data[self._at]
        self._at += 1
        if kind == _BOOLEAN:
            self._at += 1
        elif kind == _NUMBER:
            self._at += 8
        elif kind == _STRING:
            self._skip_string()
