"""JSON documents, in which integers differ from floats, and paths into them.

A document is plain Python data: ``dict``, ``list``, ``str``, ``int``, ``float``, ``bool`` and
``None``. Integers outside 64 bits become floats. As in RedisJSON, input is rejected if it contains
numbers too large for a double, NaN, lone surrogates, or more than 128 levels of nesting. Output is
compact unless it is indented.

A path is a ``$`` path (RFC 9535, by python-jsonpath) or a legacy path. A legacy path of RedisJSON
does not start with ``$`` (``.a.b``, ``a[0]``, ``.``) and refers to its first match. A name after a
dot ends at the next dot or bracket. Each visited node takes steps from the command's
budget, so ``$..*..*..*`` fails instead of running for hours. Regular expressions in filters run in
linear time. ``..`` visits the descendants of a node before the node's own members, as the vendor
does: ``$..a`` of ``{"a": 2, "n": {"a": 4}}`` finds 4, then 2.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from jsonpath import JSONPath, JSONPathEnvironment, JSONPathMatch
from jsonpath.exceptions import JSONPathError, JSONPathRecursionError
from jsonpath.function_extensions import ExpressionType, FilterFunction
from jsonpath.match import NodeList
from jsonpath.segments import JSONPathChildSegment, JSONPathRecursiveDescentSegment, JSONPathSegment
from jsonpath.selectors import Filter, NameSelector

from ...core.budget import spend
from ..algorithms.linear_regex import LinearRegex, RegexError
from ..table.config import Config

DEEPEST = 128
"""Maximum nesting depth of a JSON value sent by a client."""

Json = Any


class JsonError(ValueError):
    """Raised for an invalid JSON value. The message says what is wrong and where."""


class PathError(ValueError):
    """Raised for a path that is invalid or cannot be followed."""


class JsonValue:
    """The JSON document stored in a key."""

    type_name = "ReJSON-RL"
    __slots__ = ("root",)

    def __init__(self, root: Json = None) -> None:
        self.root = root

    def encoding(self, config: Config) -> str:
        """Return the encoding that OBJECT ENCODING reports for values of modules."""
        return "raw"

    def copy(self) -> JsonValue:
        return JsonValue(copy_json(self.root))

    def to_python(self) -> Json:
        """Return a copy of the document as Python data."""
        return copy_json(self.root)

    def __len__(self) -> int:
        return 1  # A key with an empty document must not be removed.

    @property
    def size(self) -> int:
        """The length in bytes of the document as compact JSON."""
        return len(write_json(self.root))


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
    for found in _NESTING.finditer(text):
        level += _STEPS.get(found[0][0], 0)
        if level > deepest:
            raise JsonError(f"recursion limit exceeded at line 1 column {found.start() + 1}")


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


def write_json(value: Json, layout: Layout = _COMPACT) -> bytes:
    """Format a value as JSON: compact by default, or with the options of JSON.GET."""
    out: list[str] = []
    _write(value, out, layout, 0)
    return "".join(out).encode()


def _write(value: Json, out: list[str], layout: Layout, level: int) -> None:
    kind = value.__class__
    if kind is str:
        out.append(encode_basestring(value))
    elif kind is int:
        out.append(str(value))
    elif kind is float:
        out.append(format_float(value))
    elif value is None:
        out.append("null")
    elif kind is bool:
        out.append("true" if value else "false")
    elif kind is dict:
        _write_items(value, out, layout, level, "{", "}")
    else:
        _write_items(value, out, layout, level, "[", "]")


def _write_items(
    value: Any, out: list[str], layout: Layout, level: int, opening: str, closing: str
) -> None:
    if not value:
        out.append(opening + closing)
        return
    line = layout.newline + layout.indent * (level + 1)
    separator = opening + line
    if opening == "{":
        colon = ":" + layout.space
        for key, item in value.items():
            out.append(separator + encode_basestring(key) + colon)
            _write(item, out, layout, level + 1)
            separator = "," + line
    else:
        for item in value:
            out.append(separator)
            _write(item, out, layout, level + 1)
            separator = "," + line
    out.append(layout.newline + layout.indent * level + closing)


def format_float(value: float) -> str:
    """Return the shortest string that parses as the same double, with a point or an exponent.

    Numbers from 1e-5 to below 1e16 are written with a decimal point. Others are written with an
    exponent that has no plus sign and no leading zeros, as in RedisJSON.
    """
    text = repr(value)
    if "e" not in text:
        return text
    mantissa, _, exponent = text.partition("e")
    power = int(exponent)
    if power == -5:
        sign, digits = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
        return f"{sign}0.0000{digits.replace('.', '')}"
    return f"{mantissa}e{power}"


TYPE_WORDS = {
    dict: "object", list: "array", str: "string", bool: "boolean", int: "integer",
    float: "number", type(None): "null",
}  # fmt: skip
"""The names of types that JSON.TYPE reports."""


def copy_json(value: Json) -> Json:
    kind = value.__class__
    if kind is dict:
        return {key: copy_json(item) for key, item in value.items()}
    if kind is list:
        return [copy_json(item) for item in value]
    return value


def depth(value: Json) -> int:
    """Return the nesting depth of a value: 0 for a scalar."""
    if value.__class__ is dict:
        return 1 + max(map(depth, value.values()), default=0)
    if value.__class__ is list:
        return 1 + max(map(depth, value), default=0)
    return 0


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


_STEPS_PER_NODE = 64
_MAX_PATH_BYTES = 4096
"""Maximum length of a path in bytes."""
_MAX_SEGMENTS = 300
"""Maximum number of segments of a path, which exceeds the nesting depth of a document."""

Parts = tuple[str | int, ...]


class Location(NamedTuple):
    """A match of a path: the names and indexes that lead to it from the root, and its value."""

    parts: Parts
    value: Any


class _Node(JSONPathMatch):
    """A match that takes steps from the command's budget and keeps no list of children."""

    __slots__ = ()

    def __init__(self, obj: object, parts: Parts, root: Any) -> None:
        # A deep match costs more, because it passes through more generators and is longer.
        spend(_STEPS_PER_NODE * (1 + len(parts) // 4))
        self._filter_context = {}
        self.children = []
        self.obj = obj
        self.parent = None
        self.parts = parts
        self.path = ""
        self.root = root

    def add_child(self, *children: JSONPathMatch) -> None:
        pass

    def new_child(self, obj: object, key: int | str) -> _Node:
        return _Node(obj, (*self.parts, key), self.root)


class _Descent(JSONPathRecursiveDescentSegment):
    """The ``..`` segment, which visits siblings in document order.

    ``outer_first`` visits a node before its descendants, otherwise the descendants come first.
    """

    def __init__(self, segment: JSONPathRecursiveDescentSegment, outer_first: bool) -> None:
        super().__init__(env=segment.env, token=segment.token, selectors=segment.selectors)
        self._outer_first = outer_first

    def _visit(self, node: JSONPathMatch, depth: int = 1) -> Iterable[JSONPathMatch]:
        if depth > self.env.max_recursion_depth:
            raise JSONPathRecursionError("recursion limit exceeded", token=self.token)
        if self._outer_first:
            yield node
        inside: Iterable[tuple[str | int, object]] = ()
        if isinstance(node.obj, Mapping):
            inside = node.obj.items()
        elif isinstance(node.obj, Sequence) and not isinstance(node.obj, str):
            inside = enumerate(node.obj)
        for key, value in inside:
            if isinstance(value, Mapping | Sequence) and not isinstance(value, str):
                yield from self._visit(node.new_child(value, key), depth + 1)
        if not self._outer_first:
            yield node


class _Query(JSONPath):
    """A compiled path whose matches take steps from the command's budget, even within filters."""

    def __init__(self, segments: Iterable[JSONPathSegment], outer_first: bool) -> None:
        self.outer_first = outer_first
        ordered = [
            _Descent(segment, outer_first)
            if isinstance(segment, JSONPathRecursiveDescentSegment)
            else segment
            for segment in segments
        ]
        super().__init__(env=_ENVIRONMENT, segments=ordered)
        for segment in self.segments:
            for selector in segment.selectors:
                if isinstance(selector, Filter):
                    self._budget_paths(selector.expression)

    def _budget_paths(self, expression: Any) -> None:
        """Replace the paths within a filter by queries that take steps from the budget, too."""
        path = getattr(expression, "path", None)
        if isinstance(path, JSONPath) and not isinstance(path, _Query):
            expression.path = _Query(path.segments, self.outer_first)
        for child in expression.children():
            self._budget_paths(child)

    def finditer(
        self, data: Any, *, filter_context: Mapping[str, Any] | None = None
    ) -> Iterable[JSONPathMatch]:
        nodes: Iterable[JSONPathMatch] = [_Node(data, (), data)]
        for segment in self.segments:
            nodes = segment.resolve(nodes)
        return nodes


class _Environment(JSONPathEnvironment):
    max_recursion_depth = 600
    filter_caching = False

    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        self.function_extensions["match"] = _RegexFunction(whole=True)
        self.function_extensions["search"] = _RegexFunction(whole=False)

    def compare(self, left: object, operator: str, right: object) -> bool:
        if operator == "=~":
            left, right = _single(left), _single(right)
            pattern = getattr(right, "pattern", right)
            if isinstance(left, str) and isinstance(pattern, str):
                return _regex(pattern).search(left)
            return False
        return super().compare(left, operator, right)


def _single(value: Any) -> Any:
    if isinstance(value, NodeList):
        return value[0].obj if len(value) == 1 else None
    return value


class _RegexFunction(FilterFunction):
    """The filter functions ``match`` and ``search``, which run in linear time."""

    arg_types = [ExpressionType.VALUE, ExpressionType.VALUE]  # noqa: RUF012 - as the base has it
    return_type = ExpressionType.LOGICAL

    def __init__(self, whole: bool) -> None:
        self._whole = whole

    def __call__(self, value: object, pattern: object) -> bool:
        if not isinstance(value, str) or not isinstance(pattern, str):
            return False
        try:
            regex = _regex(pattern)
        except PathError:
            return False  # RFC 9535: an invalid regular expression does not match.
        return regex.fullmatch(value) if self._whole else regex.search(value)


@lru_cache(maxsize=64)
def _regex(pattern: str) -> LinearRegex:
    try:
        return LinearRegex(pattern)
    except RegexError as error:
        raise PathError(f"the regular expression {pattern!r} {error}") from None


_ENVIRONMENT = _Environment()


class Path:
    """A compiled path; ``legacy`` if its replies have the form for legacy paths."""

    __slots__ = ("_query", "legacy", "text")

    def __init__(self, text: str, legacy: bool, query: _Query) -> None:
        self.text = text
        self.legacy = legacy
        self._query = query

    @property
    def is_root(self) -> bool:
        return not self._query.segments

    def find(self, root: Any) -> list[Location]:
        """Return each match once, in order; raise `PathError` if the document is nested too deeply."""
        found: dict[Parts, Any] = {}
        try:
            for node in self._query.finditer(root):
                found.setdefault(tuple(node.parts), node.obj)
        except (JSONPathError, RecursionError) as error:
            raise PathError(f"cannot evaluate the path: {_reason(error)}") from None
        return [Location(*match) for match in found.items()]

    def parent_and_name(self) -> tuple[Path, str] | None:
        """Return the parent path and the last name, or None if the path does not end with a name."""
        segments = self._query.segments
        if not segments or not isinstance(segments[-1], JSONPathChildSegment):
            return None
        selectors = segments[-1].selectors
        if len(selectors) != 1 or not isinstance(selectors[0], NameSelector):
            return None
        query = _Query(segments[:-1], self._query.outer_first)
        return Path(self.text, self.legacy, query), selectors[0].name


@lru_cache(maxsize=512)
def compile_path(text: bytes, *, outer_first: bool = False) -> Path:
    """Parse a path; raise `PathError` if it is invalid.

    With ``outer_first``, parse the path like RedisJSON: ``..`` visits a node before its
    descendants, and a dot may precede a bracket. Otherwise descendants come first, as the tests of
    the vendor's clients expect.
    """
    if len(text) > _MAX_PATH_BYTES:
        raise PathError(f"the path is longer than {_MAX_PATH_BYTES} bytes")
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        raise PathError("the path is not UTF-8") from None
    legacy = not decoded.startswith("$")
    if not legacy:
        standard = decoded
    elif decoded in ("", "."):
        standard = "$"
    elif decoded[0] in ".[":
        standard = "$" + decoded
    else:
        standard = "$." + decoded
    try:
        compiled = _ENVIRONMENT.compile(_quote_names(standard, spare_dots=outer_first))
        if not isinstance(compiled, JSONPath) or len(compiled.segments) > _MAX_SEGMENTS:
            raise PathError(f"the path has more than {_MAX_SEGMENTS} parts")
        query = _Query(compiled.segments, outer_first)
    except PathError:
        raise
    except (JSONPathError, RecursionError, ValueError) as error:
        raise PathError(_reason(error)) from None
    return Path(decoded, legacy, query)


def _reason(error: BaseException) -> str:
    # In older versions of python-jsonpath, its error is not a subclass of RecursionError.
    if isinstance(error, RecursionError | JSONPathRecursionError):
        return "the path or the document is nested too deeply"
    return str(error).split("\n")[0]


_DOTTED = re.compile(r"(\.\.?)([^.\[]*)")
"""A name after one or two dots."""
_BRACKETS_AND_STRINGS = re.compile(
    r"""[\[\]]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|["']""", re.DOTALL
)
"""A bracket, a string, which can contain brackets, or the quote of a string without an end."""


def _quote_names(path: str, *, spare_dots: bool) -> str:
    """Return the path, with each name after a dot rewritten as a quoted name in brackets."""
    out = ["$"]
    at = 1
    while at < len(path):
        if path[at] == "[":
            end = _bracket_end(path, at)
            out.append(path[at:end])
            at = end
        elif found := _DOTTED.match(path, at):
            at = found.end()
            descent = ".." if found[1] == ".." else ""
            name = found[2].strip()
            if name == "*":
                out.append(f"{descent}[*]")
            elif "]" in name:
                raise PathError(f"unexpected ']' in the name {name!r}")
            elif name:
                quoted = name.replace("\\", "\\\\").replace('"', '\\"')
                out.append(f'{descent}["{quoted}"]')
            elif path[at : at + 1] == "[" and (spare_dots or descent):
                out.append(descent)
            else:
                raise PathError(f"a name is missing at character {at + 1} of the path")
        elif path[at].isspace():
            at += 1
        else:
            raise PathError(f"unexpected {path[at]!r} at character {at + 1} of the path")
    return "".join(out)


def _bracket_end(path: str, start: int) -> int:
    """Return the position after the bracket that closes the one at ``start``."""
    level = 0
    for token in _BRACKETS_AND_STRINGS.finditer(path, start):
        if token[0] in "\"'":
            break
        level += {"[": 1, "]": -1}.get(token[0], 0)
        if level == 0:
            return token.end()
    raise PathError("the path has an unclosed bracket")
