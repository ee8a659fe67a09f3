"""The lines of a failed test that tell what its failing statement compared.

These are the lines of the statement itself, those of the functions that it calls, and those of the
statements that assigned the names in it. Source: the traceback and the syntax trees of its files.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from inspect import getattr_static
from itertools import takewhile
from traceback import walk_tb
from types import CellType, CodeType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

from ..core.errors import chain_of
from ..core.frames import CodePlace, is_own, stack_of
from ..core.libraries import is_library
from ..core.recorder import Look
from ..core.statements import FUNCTIONS, Span, expressions_of, span_of, statements_around, tree_of
from .model import Place

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
class LineGroup:
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
    groups: tuple[LineGroup, ...]
    code: CodeType
    names: frozenset[str]
    """The names and attributes in its lines."""
    repeats: bool
    """Whether it may look at the same data several times, in a comprehension."""


def application_places(places: Iterable[CodePlace]) -> tuple[CodePlace, ...]:
    return tuple(place for place in places if not is_library(place[0].co_filename))


def failed_statements(raised: BaseException | None) -> Iterator[FailedStatement]:
    """Yield the statements of the test and the application that failed, the innermost first."""
    for error in chain_of(raised):
        inner: set[CodeType] = set()
        for frame, line in reversed(_application_frames(error)):
            statement = _failed_statement(frame, line, inner)
            if statement is not None:
                yield statement
            # A statement around it calls this function, whose other lines are no closer.
            inner.add(frame.f_code)


def has_failed_statement(raised: BaseException | None) -> bool:
    """Return whether a statement of the test or the application failed, also one without source."""
    return any(map(_application_frames, chain_of(raised)))


def _application_frames(error: BaseException) -> list[tuple[FrameType, int]]:
    """Return the frames of a traceback that belong to no library, with their lines."""
    return [(frame, line) for frame, line in walk_tb(error.__traceback__)
            if not is_library(frame.f_code.co_filename) and not is_own(frame)]  # fmt: skip


def promise_looks(raised: BaseException | None) -> list[Look]:
    """Return the looks at data of a broken promise of an exploration that made its assertion itself."""
    return [look for error in chain_of(raised) for look in getattr(error, "_fakecloud_looks", ())]


def _failed_statement(frame: FrameType, line: int, inner: Set[CodeType]) -> FailedStatement | None:
    file = frame.f_code.co_filename
    path = statements_around(file, line)
    if not path:
        return None
    statement = path[-1]
    function = next((node for node in reversed(path) if isinstance(node, FUNCTIONS)), tree_of(file))
    assert function is not None
    span = span_of(file, statement)
    groups = [LineGroup((span,), _called(frame, expressions_of(statement)) - inner)]
    names, seen = _names(statement), {span}
    compared = _compared(statement)
    for _ in range(_LEVELS):
        assignments = [node for name in sorted(names)
                       if (node := _assignment(function, name, span.first)) is not None]  # fmt: skip
        spans = {span_of(file, node): node for node in assignments}
        new_spans = [node_span for node_span in spans if node_span not in seen]
        if not new_spans:
            break
        seen.update(new_spans)
        nodes = [spans[node_span] for node_span in new_spans]
        compared |= frozenset[str]().union(*map(_compared, nodes))
        called = frozenset[CodeType]().union(*(_called(frame, expressions_of(n)) for n in nodes))
        groups.append(LineGroup(tuple(new_spans), called - inner))
        names = set[str]().union(*map(_names, nodes))
    repeats = any(isinstance(node, _REPEATING) for node in ast.walk(statement))
    place = Place(file, line, frame.f_code.co_name)
    return FailedStatement(place, tuple(groups), frame.f_code, compared, repeats)


_REPEATING = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _names(statement: ast.stmt) -> set[str]:
    return {node.id for node in expressions_of(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}  # fmt: skip


def _compared(statement: ast.stmt) -> frozenset[str]:
    attributes = {
        node.attr for node in expressions_of(statement) if isinstance(node, ast.Attribute)
    }
    return frozenset(attributes | _names(statement))


_CHANGING = {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popleft",
             "remove", "setdefault", "update"}  # fmt: skip
"""Methods that change a list, set, dictionary or deque."""


def changing(
    statement: FailedStatement, codes: Iterable[CodeType], handlers: Iterable[CodeType] = ()
) -> LineGroup:
    """Return the functions among ``codes`` that change what a failed statement compares, such as a
    list of the application, and the lines of the statement's own function that do. ``handlers`` may
    also change it by a function of the same file that they call.
    """
    functions: set[CodeType] = set()
    spans: list[Span] = []
    handlers = set(handlers)
    for code in {*codes, *handlers}:
        tree = tree_of(code.co_filename)
        node = None if tree is None else _node_of(tree, code)
        if tree is None or node is None:
            continue
        if code is statement.code:
            changes = _changes(node, statement.names)
            spans += [span_of(code.co_filename, change) for change in changes]
            continue
        reached = _reached(tree, node) if code in handlers else [node]
        if any(_changes_any(function, statement.names) for function in reached):
            functions.add(code)
    return LineGroup(tuple(spans), frozenset(functions))


def _changes_any(function: ast.AST, names: frozenset[str]) -> bool:
    if isinstance(function, ast.Lambda):
        return not names.isdisjoint(map(_changed, ast.walk(function.body)))
    return any(_changes(function, names))


def _reached(tree: ast.Module, function: ast.AST) -> list[ast.AST]:
    """Return a function, and those of the same file that it calls by their names."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)}
    reached: list[ast.AST] = [function]
    for node in reached:  # which grows meanwhile
        called = {_name(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)}
        reached += [functions[name] for name in sorted(called & functions.keys())
                    if functions[name] not in reached]  # fmt: skip
    return reached


def _node_of(tree: ast.Module, code: CodeType) -> ast.AST | None:
    """Return the syntax tree of a function, given its code; None for one of several lambdas in one
    line.
    """
    if code.co_name == "<lambda>":
        lambdas = [node for node in ast.walk(tree)
                   if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno]  # fmt: skip
        return lambdas[0] if len(lambdas) == 1 else None
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and node.name == code.co_name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
    return None


def _changes(function: ast.AST, names: frozenset[str]) -> Iterator[ast.stmt]:
    """Yield the statements of a function that change an object with one of the names."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, FUNCTIONS):
            continue  # It has code of its own.
        if isinstance(child, ast.stmt) and names & set(map(_changed, expressions_of(child))):
            yield child
        yield from _changes(child, names)


def _changed(node: ast.AST) -> str:
    """Return the name of the object that an expression changes; empty if it changes none."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
        return node.attr
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return _name(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _name(node.func.value) if node.func.attr in _CHANGING else ""
    return ""


def _name(node: ast.expr) -> str:
    return getattr(node, "attr", "") or getattr(node, "id", "")


def _assignment(function: ast.AST, name: str, before: int) -> ast.stmt | None:
    """Return the last statement of a function before a line that assigns a name."""
    statements = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.stmt) and node.lineno < before and not isinstance(node, FUNCTIONS)
        if any(
            isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Store)
            for part in expressions_of(node)
        )
    ]
    return max(statements, key=lambda node: node.lineno, default=None)


def _called(frame: FrameType, expressions: Iterable[ast.AST]) -> frozenset[CodeType]:
    """Return the code of the test's functions and methods that expressions call."""
    codes: set[CodeType] = set()
    names = {**frame.f_globals, **frame.f_locals}
    for node in expressions:
        if isinstance(node, ast.Call) and (function := _function(node.func, names)) is not None:
            codes.update(_with_inner(function.__code__))
    return frozenset(codes)


def _function(node: ast.expr, names: Mapping[str, Any]) -> FunctionType | None:
    value: Any = None
    if isinstance(node, ast.Name):
        value = names.get(node.id)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        # Look attributes up without calling the application's properties.
        owner = names.get(node.value.id)
        value = None if owner is None else getattr_static(type(owner), node.attr, None)
    is_application = isinstance(value, FunctionType) and not is_library(value.__code__.co_filename)
    return value if is_application else None


def codes_of(functions: Iterable[object]) -> Iterator[CodeType]:
    """Yield the code of each value that is a function or method, without its decorators."""
    for function in functions:
        while (inner := _inner_function(function)) is not None:
            function = inner
        if isinstance(function, FunctionType):
            yield function.__code__


def codes_of_application(functions: Iterable[object], levels: int = _LEVELS) -> Iterator[CodeType]:
    """Yield the codes of functions, and of those inside them. A library's function, such as a view that
    a decorator made, stands for the application's functions that it holds.
    """
    for function in functions:
        for code in codes_of([function]):
            if not is_library(code.co_filename):
                yield from _with_inner(code)
        while (inner := _inner_function(function)) is not None:
            function = inner
        if (
            levels
            and isinstance(function, FunctionType)
            and is_library(function.__code__.co_filename)
        ):
            cells = [cell for cell in function.__closure__ or () if cell != CellType()]
            held = [cell.cell_contents for cell in cells if callable(cell.cell_contents)]
            yield from codes_of_application(held, levels - 1)


def _inner_function(function: object) -> object:
    """Return the function of a method or a partial, or the one that a decorator wrapped; else None."""
    # Not an attribute as such: a parameter may be lazy, or have a property of this name.
    if type(function) is MethodType:
        return function.__func__
    if type(function) is partial:
        return function.func
    return getattr_static(function, "__wrapped__", None)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


def latest(places: Sequence[CodePlace], group: LineGroup, *, repeats: bool) -> list[int]:
    """Return the indexes of the places in a group, those of the last run of its lines alone.

    Unless the statement ``repeats`` its looks, an earlier place of the same instruction is that of
    an earlier round of a loop.
    """
    newest_first = range(len(places) - 1, -1, -1)
    inside = [at for at in newest_first if group.has(places[at])]
    if not inside:
        return []
    run = list(takewhile(lambda at: group.has(places[at]), range(inside[0], -1, -1)))
    chosen: dict[CodePlace, int] = {}
    for at in run:
        if places[at] in chosen and not (repeats or places[at][0] in group.codes):
            break
        chosen.setdefault(places[at], at)
    indexes = run if repeats or group.codes else list(chosen.values())
    return sorted(indexes)
