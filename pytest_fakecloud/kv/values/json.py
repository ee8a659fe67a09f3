"""Parses, formats and compares JSON documents, in which integers differ from floats.

A document is plain Python data: ``dict``, ``list``, ``str``, ``int``, ``float``, ``bool`` and
``None``. Integers outside 64 bits become floats. As in RedisJSON, input is rejected if it contains
numbers too large for a double, NaN, lone surrogates, or more than 127 levels of nesting. Output is
compact unless it is indented.
"""

from __future__ import annotations

import json
import math
import re
from itertools import accumulate
from typing import Any, NamedTuple

import orjson

from ..config import Config
from ..errors import MAX_REQUEST_SIZE, CommandError, invalid_json_path
from ..reply import LARGEST

DEEPEST = 127
"""Maximum nesting depth of a JSON value sent by a client."""

Json = Any


class JsonError(ValueError):
    """Raised for an invalid JSON value. The message says what is wrong and where."""


class PathError(CommandError):
    """Raised for a path that is invalid or cannot be followed. The reason may be another error."""

    def __init__(self, reason: object) -> None:
        super().__init__(invalid_json_path(reason))


_LARGE = 2**24
"""Size in bytes from which a document is measured in parts."""


class JsonValue:
    """The JSON document stored in a key."""

    type_name = "ReJSON-RL"
    __slots__ = ("root",)

    def __init__(self, root: Json = None) -> None:
        self.root = root

    def encoding(self, config: Config) -> str:
        return "raw"

    def copy(self) -> JsonValue:
        return JsonValue(self.to_python())

    def to_python(self) -> Json:
        """Return a copy of the document as Python data."""
        return copy_json(self.root)

    def __len__(self) -> int:
        return 1  # A key with an empty document must not be removed.

    @property
    def size(self) -> int:
        """The length in bytes of the document as compact JSON."""
        if len(orjson.dumps(self.root)) < _LARGE:
            return len(write_json(self.root))
        return json_size(self.root)


_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"?'
_STRINGS = re.compile(_STRING, re.DOTALL)
_NESTING = re.compile(_STRING + rb"|[\[{]|[\]}]", re.DOTALL)
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def _check_nesting(text: bytes, deepest: int) -> None:
    if text.count(b"[") + text.count(b"{") <= deepest:
        return
    brackets = _STRINGS.sub(b"", text).translate(None, _NO_BRACKETS)
    if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) <= deepest:
        return
    level = 0
    for match in _NESTING.finditer(text):
        level += _STEPS.get(match[0][0], 0)
        if level > deepest:
            raise JsonError(f"recursion limit exceeded at line 1 column {match.start() + 1}")


def _integer(text: str) -> int | float:
    if text != "-0" and len(text) < 21:
        value = int(text)
        if -(2**63) <= value < 2**64:
            return value
    return _float(text)


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise JsonError("number out of range at line 1 column 1")
    return value


def _constant(text: str) -> Json:
    raise JsonError("expected value at line 1 column 1")


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=_constant)


def parse_json(text: bytes, deepest: int = DEEPEST) -> Json:
    """Parse a JSON value with at most ``deepest`` levels; raise `JsonError` if it is invalid."""
    _check_nesting(text, deepest)
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        raise JsonError(f"invalid unicode code point at line 1 column {error.start + 1}") from None
    try:
        value, end = _DECODER.raw_decode(decoded, len(decoded) - len(decoded.lstrip(" \t\n\r")))
        if decoded[end:].strip(" \t\n\r"):
            raise JsonError(f"trailing characters at line 1 column {end + 1}")
    except json.JSONDecodeError as error:
        raise JsonError(_complaint(error)) from None
    if "\\u" in decoded:
        try:
            write_json(value)
        except UnicodeEncodeError:
            raise JsonError("lone leading surrogate in hex escape") from None
    return value


def _complaint(error: json.JSONDecodeError) -> str:
    where = f"line {error.lineno} column {error.colno}"
    if error.pos >= len(error.doc.rstrip()):
        return f"EOF while parsing a value at {where}"
    if error.msg == "Expecting value":
        return f"expected value at {where}"
    return f"{error.msg[0].lower()}{error.msg[1:]} at {where}"


class Layout(NamedTuple):
    """The formatting options INDENT, NEWLINE, and SPACE of JSON.GET."""

    indent: str = ""
    newline: str = ""
    space: str = ""


_COMPACT = Layout()


_COMPACT_ENCODER, _SPREAD_ENCODER = (
    json.JSONEncoder(
        ensure_ascii=False, check_circular=False, indent=indent, separators=(",", colon)
    )
    for indent, colon in ((None, ":"), ("\t", ":\r"))
)
"""The second encoder marks where line breaks, indentation (tabs) and spaces (carriage returns) belong.

JSON text contains none of these characters itself.
"""
_EXPONENTS = re.compile(_STRING + rb"|(-?)([\d.]+)e([+-]\d+)", re.DOTALL)


def write_json(value: Json, layout: Layout = _COMPACT) -> bytes:
    """Format a value as JSON: compact by default, or with the options of JSON.GET.

    Numbers from 1e-5 to below 1e16 are written with a decimal point. Others are written with an
    exponent that has no plus sign and no leading zeros, as in RedisJSON.
    """
    encoder = _COMPACT_ENCODER if layout == _COMPACT else _SPREAD_ENCODER
    text = encoder.encode(value).encode()
    if b"e-" in text or b"e+" in text:
        text = _EXPONENTS.sub(_exponent, text)
    if layout != _COMPACT:
        marks = {"\n": layout.newline, "\t": layout.indent, "\r": layout.space}
        size = sum(text.count(mark.encode()) * len(word) for mark, word in marks.items())
        if len(text) + size > LARGEST:
            raise CommandError(MAX_REQUEST_SIZE)
        text = text.decode().translate({ord(mark): word for mark, word in marks.items()}).encode()
    return text


def json_size(value: Json) -> int:
    """Return ``len(write_json(value))`` without a copy of the whole value in memory."""
    kind = value.__class__
    if kind is str:
        return len(orjson.dumps(value))  # the same text, several times as fast
    if kind is list:
        # Two brackets, and a comma between two items.
        return max(2, len(value) + 1) + sum(map(json_size, value))
    if kind is dict:
        # Also a colon in each item.
        punctuation = max(2, 2 * len(value) + 1)
        return punctuation + sum(map(json_size, value)) + sum(map(json_size, value.values()))
    return len(write_json(value))


def _exponent(match: re.Match[bytes]) -> bytes:
    sign, digits, power = match.groups()
    if digits is None:
        return match[0]  # a string
    if power == b"-05":
        return sign + b"0.0000" + digits.replace(b".", b"")
    return b"%b%be%d" % (sign, digits, int(power))


TYPE_WORDS = {
    dict: "object", list: "array", str: "string", bool: "boolean", int: "integer",
    float: "number", type(None): "null",
}  # fmt: skip
"""The names of types that JSON.TYPE reports."""


class FloatType(NamedTuple):
    """A binary floating-point format for the numbers of an array."""

    precision: int
    """The number of significant bits."""
    least_exponent: int
    """The exponent of the smallest normal number, whose significand is between 0.5 and 1."""
    largest: float

    def rounded(self, number: float) -> float:
        """Return the nearest number of the type; raise ``OverflowError`` if it does not fit."""
        exponent = max(math.frexp(number)[1], self.least_exponent)
        last_bit = math.ldexp(1.0, max(exponent - self.precision, -1074))
        nearest = round(number / last_bit, 0) * last_bit
        if abs(nearest) > self.largest:
            raise OverflowError(number)
        return nearest


FLOAT_TYPES = {
    b"FP16": FloatType(11, -13, 65504.0),
    b"BF16": FloatType(8, -125, (2 - 2.0**-7) * 2.0**127),
    b"FP32": FloatType(24, -125, (2 - 2.0**-23) * 2.0**127),
    b"FP64": FloatType(53, -1021, math.ldexp(1 - 2.0**-53, 1024)),
}
"""The types that the option FPHA of JSON.SET names."""


def with_float_arrays(value: Json, float_type: FloatType) -> Json:
    """Return a value whose arrays of floating-point numbers have numbers of a type.

    Such an array consists of numbers, of which at least one is no integer. All others stay as they
    are, as do numbers outside of arrays. Raise ``OverflowError`` for a number that does not fit.
    """
    kind = value.__class__
    if kind is dict:
        return {name: with_float_arrays(item, float_type) for name, item in value.items()}
    if kind is not list:
        return value
    kinds = {item.__class__ for item in value}
    if float in kinds and kinds <= {int, float}:
        return [float_type.rounded(float(item)) for item in value]
    return [with_float_arrays(item, float_type) for item in value]


def copy_json(value: Json) -> Json:
    kind = value.__class__
    if kind is dict:
        return {key: copy_json(item) for key, item in value.items()}
    if kind is list:
        return [copy_json(item) for item in value]
    return value


def depth(value: Json) -> int:
    """Return the nesting depth of a value: 0 for a scalar."""
    if value.__class__ not in (dict, list):
        return 0
    items = value.values() if value.__class__ is dict else value
    return 1 + max(map(depth, items), default=0)


def equal(left: Json, right: Json) -> bool:
    """Return whether two values are equal; 1, 1.0, and true differ from each other."""
    if left.__class__ is not right.__class__:
        return False
    if left.__class__ is dict:
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    if left.__class__ is list:
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


def merge(target: Json, patch: Json) -> Json:
    """Apply a merge patch (RFC 7396), where null removes members, and return the new target.

    The target itself may change.
    """
    if patch.__class__ is not dict:
        return copy_json(patch)
    merged = target if target.__class__ is dict else {}
    for key, item in patch.items():
        if item is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), item)
    return merged
