"""Replaces tail calls with ordinary calls in compiled Lua 5.1 code.

A tail call drops the caller's stack frame, and with it the line number in error messages. Lua keeps
the frame if the called function is written in C, as on real servers, but the functions of this host
are written in Lua. Therefore ``return redis.call(…)`` is changed to an ordinary call whose results
are then returned. Only the operation code of the instruction changes.

Otherwise the errors of the most common form of script would differ from the server's. The error of
``return redis.call('INCR', 'text')`` would lack `` script: <sha>, on @user_script:1.`` at its end.
"""

from __future__ import annotations

import struct
import sys
from array import array

_HEADER = 12
_CALL, _TAIL_CALL = 28, 29
_NIL, _BOOLEAN, _NUMBER, _STRING = 0, 1, 3, 4


def keep_frames(chunk: bytes) -> bytes:
    """Return the output of ``string.dump`` with ordinary calls instead of tail calls."""
    if chunk[:5] != b"\x1bLuaQ" or chunk[9] != 4 or chunk[10] != 8:
        return chunk  # Another Lua build: the code stays unchanged, and only line numbers are lost.
    return bytes(_Chunk(chunk).without_tail_calls())


class _Chunk:
    def __init__(self, chunk: bytes) -> None:
        self._chunk = bytearray(chunk)
        order = "<" if chunk[6] else ">"
        self._int = struct.Struct(order + "i")
        self._size = struct.Struct(order + ("Q" if chunk[8] == 8 else "I"))
        self._swapped = bool(chunk[6]) != (sys.byteorder == "little")
        self._at = _HEADER

    def without_tail_calls(self) -> bytearray:
        self._patch_function()
        return self._chunk

    def _integer(self) -> int:
        found: int = self._int.unpack_from(self._chunk, self._at)[0]
        self._at += 4
        return found

    def _skip_string(self) -> None:
        length: int = self._size.unpack_from(self._chunk, self._at)[0]
        self._at += self._size.size + length

    def _patch_function(self) -> None:
        self._skip_string()
        self._at += 12  # Skip the first and last line numbers and four one-byte counts.
        self._patch_code()
        for _ in range(self._integer()):
            self._skip_constant()
        for _ in range(self._integer()):
            self._patch_function()
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
        code = array("I", self._chunk[self._at : end])
        if self._swapped:
            code.byteswap()
        tails = [place for place, word in enumerate(code) if word & 0x3F == _TAIL_CALL]
        for place in tails:
            code[place] += _CALL - _TAIL_CALL
        if tails:
            if self._swapped:
                code.byteswap()
            self._chunk[self._at : end] = code.tobytes()
        self._at = end

    def _skip_constant(self) -> None:
        kind = self._chunk[self._at]
        self._at += 1
        if kind == _BOOLEAN:
            self._at += 1
        elif kind == _NUMBER:
            self._at += 8
        elif kind == _STRING:
            self._skip_string()
        elif kind != _NIL:
            raise ValueError(f"unknown constant type {kind}")
