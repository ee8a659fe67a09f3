"""Paths into JSON documents: ``$`` paths (RFC 9535, by python-jsonpath) and legacy paths.

A legacy path of RedisJSON does not start with ``$`` (``.a.b``, ``a[0]``, ``.``) and refers to its
first match. A name after a dot ends at the next dot or bracket, and strings may contain unescaped
control characters. Each visited node takes steps from the command's budget, so ``$..*..*..*`` fails
instead of running for hours. Regular expressions in filters run in linear time. ``..`` visits the
descendants of a node before the node's own members, as the vendor does: ``$..a`` of
``{"a": 2, "n": {"a": 4}}`` finds 4, then 2. Unlike in RFC 9535, a filter may compare a path that
finds several values: the comparison is true if one of the values matches, as in RedisJSON from 8.8 on
(decided here for the vendor's dialect).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

from jsonpath import JSONPath, JSONPathEnvironment, JSONPathMatch
from jsonpath.exceptions import JSONPathError, JSONPathRecursionError
from jsonpath.filter import BaseExpression, FilterQuery
from jsonpath.function_extensions import ExpressionType, FilterFunction
from jsonpath.match import NodeList
from jsonpath.parse import Parser
from jsonpath.segments import JSONPathChildSegment, JSONPathRecursiveDescentSegment, JSONPathSegment
from jsonpath.selectors import Filter, NameSelector
from jsonpath.token import Token

from ...core.budget import spend
from ..algorithms.linear_regex import LinearRegex, RegexError
from .json import PathError

_STEPS_PER_NODE = 64
_STEPS_PER_COMPARISON = 32
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
    """The ``..`` segment, which visits siblings in document order."""

    env: _Environment

    def __init__(self, segment: JSONPathRecursiveDescentSegment) -> None:
        super().__init__(env=segment.env, token=segment.token, selectors=segment.selectors)

    def _visit(self, node: JSONPathMatch, depth: int = 1) -> Iterable[JSONPathMatch]:
        if depth > self.env.max_recursion_depth:
            raise JSONPathRecursionError("recursion limit exceeded", token=self.token)
        if self.env.outer_first:
            yield node
        inside: Iterable[tuple[str | int, object]] = ()
        if isinstance(node.obj, Mapping):
            inside = node.obj.items()
        elif isinstance(node.obj, Sequence) and not isinstance(node.obj, str):
            inside = enumerate(node.obj)
        for key, value in inside:
            if isinstance(value, Mapping | Sequence) and not isinstance(value, str):
                yield from self._visit(node.new_child(value, key), depth + 1)
        if not self.env.outer_first:
            yield node


class _Query(JSONPath):
    """A compiled path whose matches take steps from the command's budget, even within filters."""

    def __init__(self, env: JSONPathEnvironment, segments: Iterable[JSONPathSegment]) -> None:
        ordered = [
            _Descent(segment) if isinstance(segment, JSONPathRecursiveDescentSegment) else segment
            for segment in segments
        ]
        super().__init__(env=env, segments=ordered)
        for segment in self.segments:
            for selector in segment.selectors:
                if isinstance(selector, Filter):
                    self._budget_paths(selector.expression)

    def _budget_paths(self, expression: Any) -> None:
        """Replace the paths within a filter by queries that take steps from the budget, too."""
        path = getattr(expression, "path", None)
        if isinstance(path, JSONPath) and not isinstance(path, _Query):
            expression.path = _Query(self.env, path.segments)
        for child in expression.children():
            self._budget_paths(child)

    def finditer(
        self, data: Any, *, filter_context: Mapping[str, Any] | None = None
    ) -> Iterable[JSONPathMatch]:
        nodes: Iterable[JSONPathMatch] = [_Node(data, (), data)]
        for segment in self.segments:
            nodes = segment.resolve(nodes)
        return nodes


class _Parser(Parser):
    def _raise_for_non_comparable_function(self, expr: BaseExpression, token: Token) -> None:
        """Reject operands that cannot be compared. Unlike in RFC 9535, every path can be."""
        if not isinstance(expr, FilterQuery):
            super()._raise_for_non_comparable_function(expr, token)


class _Environment(JSONPathEnvironment):
    parser_class = _Parser
    max_recursion_depth = 600
    filter_caching = False

    def __init__(self, *, outer_first: bool, any_value: bool) -> None:
        super().__init__()
        self.outer_first = outer_first
        self._any_value = any_value

    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        self.function_extensions["match"] = _RegexFunction(whole=True)
        self.function_extensions["search"] = _RegexFunction(whole=False)

    def compare(self, left: object, operator: str, right: object) -> bool:
        if operator not in ("&&", "||") and (_is_several(left) or _is_several(right)):
            if not self._any_value:
                return operator == "!="  # Several values are equal to nothing.
            return any(self.compare(*pair) for pair in _pairs(left, operator, right))
        if operator == "=~":
            left, right = _single(left), _single(right)
            pattern = getattr(right, "pattern", right)
            if isinstance(left, str) and isinstance(pattern, str):
                return _regex(pattern).search(left)
            return False
        return super().compare(left, operator, right)


def _is_several(value: object) -> bool:
    return isinstance(value, NodeList) and len(value) > 1


def _pairs(left: object, operator: str, right: object) -> Iterable[tuple[object, str, object]]:
    """Return each pair of values of two operands, after spending the steps to compare all pairs."""
    lefts, rights = _values(left), _values(right)
    left_size, right_size = sum(map(_size, lefts)), sum(map(_size, rights))
    spend(_STEPS_PER_COMPARISON * len(lefts) * len(rights) + left_size + right_size)
    spend(min(left_size * len(rights), right_size * len(lefts)))
    return product(lefts, [operator], rights)


def _values(operand: object) -> list[object]:
    """Return the values that a path found, or the only value of another operand."""
    return operand.values() if isinstance(operand, NodeList) and operand else [operand]


def _size(value: object) -> int:
    """Return the number of arrays, objects and scalars in a value."""
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1


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


_ENVIRONMENTS = {
    rules: _Environment(outer_first=rules[0], any_value=rules[1])
    for rules in product((False, True), repeat=2)
}


@dataclass(slots=True)
class Path:
    """A compiled path; ``legacy`` if its replies have the form for legacy paths."""

    text: str
    legacy: bool
    _query: _Query

    @property
    def is_root(self) -> bool:
        return not self._query.segments

    @property
    def is_static(self) -> bool:
        """Whether the path consists of single names and indexes, so that it has at most one match."""
        return self._query.singular_query()

    def find(self, root: Any) -> list[Location]:
        """Return each match once, in order; raise `PathError` if the document is nested too deeply."""
        matches: dict[Parts, Any] = {}
        try:
            for node in self._query.finditer(root):
                matches.setdefault(tuple(node.parts), node.obj)
        except (JSONPathError, RecursionError) as error:
            raise PathError(f"cannot evaluate the path: {_reason(error)}") from None
        return [Location(*match) for match in matches.items()]

    def parent_and_name(self) -> tuple[Path, str] | None:
        """Return the parent path and the last name, or None if the path does not end with a name."""
        segments = self._query.segments
        if not segments or not isinstance(segments[-1], JSONPathChildSegment):
            return None
        selectors = segments[-1].selectors
        if len(selectors) != 1 or not isinstance(selectors[0], NameSelector):
            return None
        query = _Query(self._query.env, segments[:-1])
        return Path(self.text, self.legacy, query), selectors[0].name


@lru_cache(maxsize=512)
def compile_path(text: bytes, *, redis_json: bool = False, any_value: bool = True) -> Path:
    """Parse a path; raise `PathError` if it is invalid.

    With ``redis_json``, parse the path like RedisJSON: ``..`` visits a node before its descendants,
    a dot may precede a bracket, ``$a`` is the legacy path of the member ``$a``, and an empty path is
    invalid. Otherwise descendants come first, as the tests of the vendor's clients expect.

    Without ``any_value``, a path in a filter that finds several values differs from every value, as
    in releases of RedisJSON before 8.8.
    """
    if len(text) > _MAX_PATH_BYTES:
        raise PathError(f"the path is longer than {_MAX_PATH_BYTES} bytes")
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        raise PathError("the path is not UTF-8") from None
    if redis_json and not decoded:
        raise PathError("the path is empty; use `$` or `.` for the whole document")
    legacy = not decoded.startswith("$")
    if redis_json and decoded != "$":
        legacy = not decoded.startswith(("$.", "$["))
    if not legacy:
        standard = decoded
    elif decoded in ("", "."):
        standard = "$"
    elif decoded[0] in ".[":
        standard = "$" + decoded
    else:
        standard = "$." + decoded
    try:
        env = _ENVIRONMENTS[redis_json, any_value]
        compiled = env.compile(_quote_names(standard, spare_dots=redis_json))
        if not isinstance(compiled, JSONPath) or len(compiled.segments) > _MAX_SEGMENTS:
            raise PathError(f"the path has more than {_MAX_SEGMENTS} parts")
        query = _Query(env, compiled.segments)
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
    r"""[\[\]]|"(?:[^"\\]|\\[^\0-\x1f])*"|'(?:[^'\\]|\\[^\0-\x1f])*'|["']"""
)
"""A bracket, a string, which can contain brackets, or the quote of a string without an end."""
_CONTROLS = str.maketrans({chr(code): f"\\u{code:04x}" for code in range(32)})
"""Escapes of the control characters, which a path may contain, but not a string of python-jsonpath."""


def _escape_controls(match: re.Match[str]) -> str:
    return match[0].translate(_CONTROLS)


def _quote_names(path: str, *, spare_dots: bool) -> str:
    """Return the path, with each name after a dot rewritten as a quoted name in brackets."""
    out = ["$"]
    at = 1
    while at < len(path):
        if path[at] == "[":
            end = _bracket_end(path, at)
            out.append(_BRACKETS_AND_STRINGS.sub(_escape_controls, path[at:end]))
            at = end
        elif match := _DOTTED.match(path, at):
            at = match.end()
            descent = ".." if match[1] == ".." else ""
            name = match[2].strip()
            if name == "*":
                out.append(f"{descent}[*]")
            elif "]" in name:
                raise PathError(f"unexpected ']' in the name {name!r}")
            elif name:
                quoted = name.replace("\\", "\\\\").replace('"', '\\"').translate(_CONTROLS)
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
