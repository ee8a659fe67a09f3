"""Paths into JSON documents: ``$`` paths (RFC 9535, by python-jsonpath) and legacy paths.

A legacy path of RedisJSON does not start with ``$`` (``.a.b``, ``a[0]``, ``.``) and refers to its
first match. A name after a dot ends at the next dot or bracket. Each visited node takes steps from
the command's budget, so ``$..*..*..*`` fails instead of running for hours. Regular expressions in
filters run in linear time. ``..`` visits the descendants of a node before the node's own members,
as the vendor does: ``$..a`` of ``{"a": 2, "n": {"a": 4}}`` finds 4, then 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from jsonpath import JSONPath, JSONPathEnvironment, JSONPathMatch
from jsonpath.exceptions import JSONPathError, JSONPathRecursionError
from jsonpath.function_extensions import ExpressionType, FilterFunction
from jsonpath.match import NodeList
from jsonpath.segments import JSONPathChildSegment, JSONPathRecursiveDescentSegment, JSONPathSegment
from jsonpath.selectors import Filter, NameSelector

from ...core.budget import spend
from ..algorithms.linear_regex import LinearRegex, RegexError
from .json import PathError

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
    """The ``..`` segment, which visits siblings in document order."""

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


@dataclass(slots=True)
class Path:
    """A compiled path; ``legacy`` if its replies have the form for legacy paths."""

    text: str
    legacy: bool
    _query: _Query

    @property
    def is_root(self) -> bool:
        return not self._query.segments

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
        elif match := _DOTTED.match(path, at):
            at = match.end()
            descent = ".." if match[1] == ".." else ""
            name = match[2].strip()
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
