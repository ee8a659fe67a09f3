"""The failed statements of a test, each with the lines of code that tell what it compared.

These are the lines of the statement itself, those of the functions that it calls, and those of the
statements that assigned the names in it. Source: the traceback and the syntax trees of its files.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any, NamedTuple

from ...core.errors import chain_of
from ...core.frames import CodePlace, is_own, stack_of
from ...core.functions import assignment_of, changes_any, codes_called, statements_changing
from ...core.libraries import is_library
from ...core.recorder import Look
from ...core.statements import FUNCTIONS, Span, expressions_of, span_of, statements_around, tree_of
from ..model import Place

_LEVELS = 4
"""Maximum number of assignments from a name in the statement to the line that looked at a fake."""


class UnequalValues(NamedTuple):
    """The two values that an assertion in a function's ``code`` found unequal."""

    code: CodeType
    left: Any
    right: Any

    @classmethod
    def by_caller(cls, left: Any, right: Any) -> UnequalValues | None:
        """Return a comparison by the innermost function on the stack that belongs to no library."""
        codes = (frame.f_code for frame in stack_of(sys._getframe(1)) if not is_own(frame))
        code = next((code for code in codes if not is_library(code.co_filename)), None)
        return None if code is None else cls(code, left, right)


@dataclass(frozen=True)
class CodeGroup:
    """Lines that are equally close to a failing statement, and the functions that it calls."""

    spans: tuple[Span, ...]
    codes: frozenset[CodeType] = frozenset()

    def has(self, place: CodePlace) -> bool:
        return place[0] in self.codes or self.spans_have(place)

    def spans_have(self, place: CodePlace) -> bool:
        return any(span.has(place) for span in self.spans)


@dataclass(frozen=True)
class FailedStatement:
    """A statement that was running when the test failed, with its ``groups`` of lines, closest first."""

    place: Place
    groups: tuple[CodeGroup, ...]
    code: CodeType
    names: frozenset[str]
    """The names and attributes in its lines."""
    repeats: bool
    """Whether it may look at the same data several times, in a comprehension."""

    def assigned_at(self, read_at: Iterable[CodePlace]) -> int:
        """Return the first line of the only statement of its groups that called from these places; 0 if
        this is itself.
        """
        spans = {span for place in read_at for group in self.groups for span in group.spans
                 if span.has(place)}  # fmt: skip
        is_other = len(spans) == 1 and spans.isdisjoint(self.groups[0].spans)
        return spans.pop().first if is_other else 0


def failed_statements(raised: BaseException | None) -> Iterator[FailedStatement]:
    """Yield the statements of the test and the application that failed, the innermost first."""
    for error in chain_of(raised):
        inner: set[CodeType] = set()
        for frame, line in reversed(_frames_outside_libraries(error)):
            statement = _failed_statement(frame, line, inner)
            if statement is not None:
                yield statement
            # A statement around it calls this function, whose other lines are no closer.
            inner.add(frame.f_code)


def has_failed_statement(raised: BaseException | None) -> bool:
    """Return whether a statement of the test or the application failed, also one without source."""
    return any(map(_frames_outside_libraries, chain_of(raised)))


def _frames_outside_libraries(error: BaseException) -> list[tuple[FrameType, int]]:
    """Return the frames of a traceback that belong to no library, with their lines."""
    frames = walk_tb(error.__traceback__)
    return [
        own for own in frames if not is_library(own[0].f_code.co_filename) and not is_own(own[0])
    ]


def promise_looks(raised: BaseException | None) -> list[Look]:
    """Return the looks at data of a broken promise of an exploration that made its assertion itself."""
    return [look for error in chain_of(raised) for look in getattr(error, "_fakecloud_looks", ())]


def _failed_statement(frame: FrameType, line: int, inner: Set[CodeType]) -> FailedStatement | None:
    """Return the statement on a line of a frame; None without source. ``inner`` are the functions in
    which the exception had been raised before it came to this frame.
    """
    file = frame.f_code.co_filename
    path = statements_around(file, line)
    if not path:
        return None
    statement = path[-1]
    function = next((node for node in reversed(path) if isinstance(node, FUNCTIONS)), tree_of(file))
    assert function is not None
    groups: list[CodeGroup] = []
    names = set[str]()
    for level in _levels(statement, function, file):
        called = set[CodeType]().union(
            *(codes_called(frame, expressions_of(n)) for n in level.values())
        )
        groups.append(CodeGroup(tuple(level), frozenset(called - inner)))
        names.update(*map(_names, level.values()))
        nodes = (node for own in level.values() for node in expressions_of(own))
        names.update(node.attr for node in nodes if isinstance(node, ast.Attribute))
    repeats = any(isinstance(node, _REPEATING) for node in ast.walk(statement))
    place = Place(file, line, frame.f_code.co_name)
    return FailedStatement(place, tuple(groups), frame.f_code, frozenset(names), repeats)


def _levels(statement: ast.stmt, function: ast.AST, file: str) -> Iterator[dict[Span, ast.stmt]]:
    """Yield a statement, then the statements that assigned the names in it, and so on::

    redis = shop.client()  # the third
    stock = redis.get("stock")  # the second
    assert stock == "9"  # the first
    """
    first = span_of(file, statement).first
    earlier = set[Span]()
    statements = [statement]
    for _ in range(1 + _LEVELS):
        level = {span: node for node in statements if (span := span_of(file, node)) not in earlier}
        if not level:
            return
        yield level
        earlier.update(level)
        names = set[str]().union(*map(_names, level.values()))
        assignments = (assignment_of(function, name, first) for name in sorted(names))
        statements = [node for node in assignments if node is not None]


_REPEATING = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _names(statement: ast.stmt) -> set[str]:
    names = (node for node in expressions_of(statement) if isinstance(node, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Load)}


def changing(
    statement: FailedStatement, codes: Iterable[CodeType], handlers: Iterable[CodeType] = ()
) -> CodeGroup:
    """Return the functions among ``codes`` that change what a failed statement compares, such as a
    list of the application, and the lines of the statement's own function that do. ``handlers`` may
    also change it by a function of the same file that they call.
    """
    functions: set[CodeType] = set()
    spans: list[Span] = []
    handlers = set(handlers)
    for code in {*codes, *handlers}:
        if code is statement.code:
            changes = statements_changing(code, statement.names)
            spans += [span_of(code.co_filename, change) for change in changes]
        elif changes_any(code, statement.names, codes, also_called=code in handlers):
            functions.add(code)
    return CodeGroup(tuple(spans), frozenset(functions))
