"""The Lua runtime of one engine, created when the first script runs.

The sandbox, the libraries and the limits are implemented in Lua (``lua/*.lua``). This module loads
these files and converts commands and replies. It also checks that values fit into the runtime's
memory, because Lua cannot recover if an allocation fails while Python passes a value.
"""

from __future__ import annotations

import math
import struct
import weakref
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import lupa.lua51 as lupa

from ...core.assets import asset
from ..errors import CommandError, CountedError, one_line
from ..reply import (
    BigNumber,
    Bool,
    Map,
    Reply,
    SetReply,
    Status,
    Verbatim,
    double_text,
    with_17_digits,
)
from ..syntax import format_double
from ..table.versions import SHORTEST_DOUBLES, as_numbers
from .errors import LEVELS, HostLost, ScriptFailure
from .libraries import LibraryFunction, allowed_flags, digest
from .locales import c_locale

if TYPE_CHECKING:
    from ..engine.engine import KVEngine
    from .scripts import CjsonSettings, Scripting

# -- functions that the Lua code calls -------------------------------------------------------------

Number = int | float


class Boxed:
    """A double or boolean in a reply, in an object of its own.

    Lua would convert a bare float to a number. A `Bool` exists once for all scripts, and the runtime
    confuses an object that Lua receives again while it frees an earlier reference to it.
    """

    __slots__ = ("value",)

    def __init__(self, value: float | Bool) -> None:
        self.value = value


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
    data = value.to_bytes(max(size, 8), "little")[:size]
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
    table: dict[str, Callable[..., Any]] = {
        "keep_frames": keep_frames,
        "find": lambda text, wanted, start: text.find(wanted, int(start)),
        "sha1hex": digest,
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
        "double": lambda number: Boxed(float(number)),
        "map": Map,
        "set": SetReply,
        "boolean": lambda value: Boxed(Bool(value)),
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
        number: int = _INT.unpack_from(self.data, self._at)[0]
        self._at += 4
        return number

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


STATUS, FAILED, REFUSED, BUG = 1, 2, 3, 4
"""Kinds of results for ``redis.lua``: a status, an error, an error before the command, a bug."""

_NO_ARGUMENTS = b"ERR Please specify at least one argument for this redis lib call"
_BAD_ARGUMENTS = b"ERR Lua redis lib command arguments must be strings or integers"


_STRING_BYTES, _TABLE_BYTES, _SLOT_BYTES = 24, 64, 16
"""Approximate sizes in Lua of an empty string, an empty table, and a slot of a table."""


def number_text(number: int | float, *, short: bool = True) -> bytes:
    """Format a Lua number as an argument: with as few digits as possible, or with 17 digits."""
    if isinstance(number, int) and abs(number) < 2**53:
        return b"%d" % number
    value = float(number)
    # Also with few digits, servers write the sign of "not a number" here.
    return format_double(value) if short and value == value else with_17_digits(value).text


def lua_size(value: Any) -> int:
    """Return the approximate size in bytes that a value has in Lua's memory."""
    if isinstance(value, bytes | bytearray):
        return len(value) + _STRING_BYTES
    if isinstance(value, list):
        return _TABLE_BYTES + sum(_SLOT_BYTES + lua_size(item) for item in value)
    return _TABLE_BYTES + 96  # Every other reply becomes at most a table with one or two fields.


def words_size(words: list[bytes]) -> int:
    """Return the approximate size in bytes that a list of words has in Lua's memory."""
    return _TABLE_BYTES + (_SLOT_BYTES + _STRING_BYTES) * len(words) + sum(map(len, words))


_FILES = ("host", "patterns", "sandbox", "bit", "cjson", "cmsgpack", "struct", "redis")

_CALL_WIDTH = 500
"""Maximum number of keys and arguments that are passed directly; more are passed in tables."""


class LuaHost:
    """Compiles and runs scripts."""

    def __init__(self, scripting: Scripting) -> None:
        # The Lua runtime keeps the functions that it calls, so these refer weakly to their owners.
        me: LuaHost = weakref.proxy(self)
        self._scripting = owner = weakref.proxy(scripting)
        self.limits = limits = scripting.limits
        self._resp = 2
        self.levels = LEVELS
        """Maximum nesting depth of the next reply."""
        self._bug: BaseException | None = None
        self._runtime = lupa.LuaRuntime(
            encoding=None,
            register_eval=False,
            register_builtins=False,
            unpack_returned_tuples=True,
            attribute_handlers=(_no_attribute, _no_attribute),
            max_memory=2 * limits.memory + 32 * 2**20,
        )
        self._short_numbers = short = scripting.engine.table.knows[SHORTEST_DOUBLES]
        self._double: Callable[[float], float] = float if short else with_17_digits
        self._too_long = (
            b"ERR Script stopped: it ran more than %d instructions" % limits.instructions,
            b"ERR Script stopped: it ran for more than %g seconds" % limits.seconds,
        )
        self._table = table = self._runtime.table_from
        functions = table({
            **callbacks(),
            b"call": LuaHost._guarded(me, LuaHost._command),
            b"call_widely": LuaHost._guarded(me, LuaHost._command, in_table=True),
            b"may_call": LuaHost._guarded(me, LuaHost._permission),
            b"may_call_widely": LuaHost._guarded(me, LuaHost._permission, in_table=True),
            b"note_cut": lambda number, integer: owner.note_cut(number, integer),
            b"setresp": partial(setattr, me, "_resp"),
            b"clock": lambda: (owner.engine.execution.now_us - owner.engine.started_us) / 1_000_000,
            b"levels": lambda: me.levels,
            b"keep_exception": lambda error: me._keep(error),
            b"start_timing": lambda seconds: owner.start_timing(seconds),
            b"must_stop": lambda: owner.must_stop(),
        })  # fmt: skip
        settings = table(self._settings(scripting.vendor, scripting.engine), recursive=True)
        sources = table({name.encode(): _chunk(name) for name in _FILES})
        with c_locale():
            api = self._runtime.execute(_chunk("bootstrap"), functions, settings, sources)
        self._api = dict(api.items())
        self._cjson_tables = self._api[b"eval_settings"], self._api[b"function_settings"]
        self._cjson_defaults = dict(self._cjson_tables[0].items())

    def _settings(self, vendor: bool, engine: KVEngine) -> dict[bytes, Any]:
        limits, version, knows = self.limits, engine.version, engine.table.knows
        return {
            b"instructions": limits.instructions,
            b"seconds": limits.seconds,
            b"seconds_to_load": limits.seconds_to_load,
            b"kilobytes": limits.memory // 1024,
            b"memory_text": b"ERR Script stopped: it used more than %d bytes of memory"
            % limits.memory,
            b"instructions_text": self._too_long[0],
            b"seconds_text": self._too_long[1],
            b"short_numbers": knows[SHORTEST_DOUBLES],
            b"version": version.encode(),
            b"version_number": int.from_bytes(as_numbers(version)),
            b"has_os": knows["`os.clock` in scripts"],
            b"has_server": knows["the API of scripts as `server`"],
            # The vendor documents that setresp() does not affect what a script returns.
            b"returns_booleans": not vendor,
            b"flags": dict.fromkeys(allowed_flags(vendor), True),
        }

    def cjson_settings(self) -> CjsonSettings:
        """Return a copy of the settings that scripts and functions have now."""
        of_scripts, of_functions = self._cjson_tables
        return dict(of_scripts.items()), dict(of_functions.items())

    def set_cjson_settings(self, settings: CjsonSettings) -> None:
        """Replace the settings; those that are left out get their initial values."""
        for table, values in zip(self._cjson_tables, settings, strict=True):
            for name, value in (self._cjson_defaults | values).items():
                table[name] = value

    def compile(self, source: bytes) -> Any:
        self._make_room(len(source) * 8)
        function, message = self._protected(b"compile", source)
        if function is None:
            raise SyntaxError(message.decode("utf-8", "surrogateescape"))
        return function

    def evaluate(self, script: Any, keys: list[bytes], arguments: list[bytes]) -> Reply:
        """Run a compiled script with KEYS and ARGV, and return its reply; raise ``ScriptFailure``."""
        count = len(keys) + len(arguments)
        self._make_room(words_size(keys) + words_size(arguments))
        if count <= _CALL_WIDTH:
            outcome = self._protected(b"evaluate", script, len(keys), *keys, *arguments)
        else:
            tables = map(self._runtime.table_from, (keys, arguments))
            outcome = self._protected(b"evaluate_tables", script, *tables)
        return self._finish(outcome)

    def call_function(self, function: Any, keys: list[bytes], arguments: list[bytes]) -> Reply:
        self._make_room(words_size(keys) + words_size(arguments))
        tables = map(self._runtime.table_from, (keys, arguments))
        return self._finish(self._protected(b"call_function", function, *tables))

    def load_library(self, source: bytes) -> list[LibraryFunction]:
        """Run a library's source; return the functions that it registered."""
        self._make_room(len(source) * 8)
        outcome = self._protected(b"load_library", source)
        if outcome[0] is None:
            raise SyntaxError(outcome[1].decode("utf-8", "surrogateescape"))
        registrations: Any = self._finish(outcome)
        every_flag = allowed_flags(vendor=True)
        functions = [
            LibraryFunction(
                name, callback, description, tuple(filter(set(flags).__contains__, every_flag))
            )
            for name, callback, description, flags in registrations
        ]
        for items in (*registrations, registrations):
            # Lua refers to these lists until it frees its memory, and they refer to Lua's functions.
            items.clear()
        return functions

    def _finish(self, outcome: Any) -> Reply:
        self._resp = 2
        if self._bug is not None:
            bug, self._bug = self._bug, None
            raise bug
        if outcome[0]:
            reply: Reply = _unbox(outcome[1], self._double)
            return reply
        text, counted, source, line = outcome[1:]
        raise ScriptFailure(text, source, line, counted=counted, too_long=text in self._too_long)

    def _keep(self, error: BaseException) -> None:
        """Keep what a signal's handler raised in a function that Lua called; see ``_guarded()``."""
        if not isinstance(error, Exception):
            self._bug = error

    def _protected(self, name: bytes, *args: Any) -> Any:
        try:
            with c_locale():
                return self._api[name](*args)
        except lupa.LuaError as error:
            raise HostLost(str(error)) from None

    def _make_room(self, size: int) -> None:
        """Raise ``ScriptFailure`` if values of ``size`` bytes would not fit into Lua's memory."""
        if size > 2**18:
            self._runtime.gccollect()
        if size > self.limits.memory // 2:
            raise ScriptFailure(b"ERR not enough memory for the script's arguments")

    def _guarded(
        self, function: Callable[[LuaHost, list[bytes]], Any], *, in_table: bool = False
    ) -> Callable[..., Any]:
        """Return a function that Lua calls with a command line, which it passes to ``function``.

        With ``in_table=True``, Lua passes a table of the words and their number, because a call can
        have only a limited number of arguments. An exception is kept and raised after the script:
        a script could catch it and obtain a Python object.
        """

        def guarded(*arguments: Any) -> Any:
            try:
                words: Sequence[Any] = arguments
                if in_table:
                    table, count = arguments
                    words = [table[at] for at in range(1, count + 1)]
                line = self._arguments(words)
                return function(self, line) if isinstance(line, list) else (line, REFUSED)
            except BaseException as bug:
                self._bug = bug
                return b"ERR internal error", BUG

        return guarded

    def _command(self, line: list[bytes]) -> Any:
        reply = self._scripting.command(line, self._resp)
        if reply.__class__ is bytes and len(reply) < 65536:
            return reply
        if lua_size(reply) > self.limits.memory // 2:
            return b"ERR not enough memory for the reply", FAILED
        return self._to_lua(reply)

    def _permission(self, line: list[bytes]) -> Any:
        allowed = self._scripting.may_call(line)
        return allowed if isinstance(allowed, bool) else (allowed, FAILED)

    def _arguments(self, args: Sequence[Any]) -> list[bytes] | bytes:
        if not args:
            return _NO_ARGUMENTS
        line: list[bytes] = []
        for arg in args:
            kind = arg.__class__
            if kind is bytes:
                line.append(arg)
            elif kind is int or kind is float:
                line.append(number_text(arg, short=self._short_numbers))
            else:
                return _BAD_ARGUMENTS
        return line

    def _to_lua(self, reply: Any) -> Any:
        """Convert a reply to the result of ``redis.call``: a plain value, or a value and its kind."""
        kind = reply.__class__
        if kind is int or reply is None or kind is bytes:
            return reply
        if kind is Status:
            return reply.text, STATUS
        if isinstance(reply, CommandError):
            return reply.text, FAILED
        return self._nested(reply)

    def _nested(self, reply: Any) -> Any:
        kind = reply.__class__
        if kind is bytes or kind is int:
            return reply
        if isinstance(reply, list):
            return self._aggregate(reply)
        if kind is Status:
            return self._table({b"ok": reply.text})
        if isinstance(reply, float):
            return double_text(reply) if self._resp == 2 else self._table({b"double": float(reply)})
        if isinstance(reply, bytes | bytearray):
            return bytes(reply)  # Scripts do not receive the RESP3 attribute of a value.
        if isinstance(reply, Verbatim):
            if self._resp == 2:
                return reply.text
            text = self._table({b"string": reply.text, b"format": reply.format})
            return self._table({b"verbatim_string": text})
        if isinstance(reply, Bool):
            return int(reply.value) if self._resp == 2 else reply.value
        if isinstance(reply, BigNumber):
            return reply.text if self._resp == 2 else self._table({b"big_number": reply.text})
        return False if self._resp == 2 else None  # The remaining type is nil, also of an array.

    def _aggregate(self, reply: list[Any]) -> Any:
        items = [self._nested(item) for item in reply]
        if self._resp == 3 and isinstance(reply, Map):
            pairs = dict(zip(items[::2], items[1::2], strict=True))
            return self._table({b"map": self._table(pairs)})
        if self._resp == 3 and isinstance(reply, SetReply):
            return self._table({b"set": self._table(dict.fromkeys(items, True))})
        return self._table(items)


@cache
def _chunk(name: str) -> bytes:
    """Return a compiled Lua file. Compiling it for each runtime would take four times as long."""
    source = asset(__file__, f"lua/{name}.lua").encode()
    runtime = lupa.LuaRuntime(encoding=None, register_eval=False, register_builtins=False)
    compiled: bytes = runtime.execute(
        b"local source = ... return string.dump(assert(loadstring(source, '=host')))", source
    )
    return compiled


def _no_attribute(*_: object) -> None:
    raise AttributeError("scripts cannot access Python objects")


def _unboxed(boxed: Boxed, double: Callable[[float], float]) -> float | Bool:
    return boxed.value if isinstance(boxed.value, Bool) else double(boxed.value)


def _unbox(reply: Any, double: Callable[[float], float]) -> Any:
    if reply.__class__ is Boxed:
        return _unboxed(reply, double)
    if not isinstance(reply, list):
        return reply
    # Avoid recursion, because replies may be nested deeper than Python's recursion limit.
    lists = [reply]
    while lists:
        items = lists.pop()
        for index, item in enumerate(items):
            if item.__class__ is Boxed:
                items[index] = _unboxed(item, double)
            elif isinstance(item, list):
                lists.append(item)
    return reply
