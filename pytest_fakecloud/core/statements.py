"""Statements in source files, read from their syntax trees."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from .frames import CodePlace, place_at

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
"""The statements that define functions."""
LOOPS = (ast.For, ast.AsyncFor, ast.While)
"""The statements that repeat others."""


class Span(NamedTuple):
    """The lines of a statement in a file."""

    file: str
    first: int
    last: int

    def has(self, place: CodePlace) -> bool:
        code, _ = place
        return code.co_filename == self.file and self.first <= line_of(place) <= self.last


def line_of(place: CodePlace) -> int:
    return int(place_at(place)["line"])


def source_at(file: str, line: int) -> str:
    """Return the statement that begins at a line of a file in one line. Of a line inside a statement,
    return the expressions that begin there; the line alone if it cannot be parsed.
    """
    path = statements_around(file, line)
    if not path:
        return source_of(Span(file, line, line))
    span = span_of(file, path[-1])
    if span.first < line:
        ends = [node.end_lineno or line for node in expressions_of(path[-1])
                if isinstance(node, ast.expr) and node.lineno == line]  # fmt: skip
        span = Span(file, line, max(ends, default=line))
    return source_of(span)


class Beside(NamedTuple):
    """The lines of the statements above another one, of those below it that follow it at once, and of
    those that follow the end of the loop around it.
    """

    above: list[Span]
    below: list[Span]
    after_loop: list[Span]


def statements_beside(file: str, line: int) -> Beside:
    """Return the statements beside the one at a line, in its function and outside functions in it; of a
    compound statement, its head. Left out are statements that use no name, such as docstrings, and those
    that have not run with it: of other branches around it, and above those that leave the function.
    """
    around = statements_around(file, line)
    functions = [statement for statement in around if isinstance(statement, FUNCTIONS)]
    own = list(filter(_uses_name, _own_statements(functions[-1]))) if functions else []
    others = {
        inner for branch in _other_branches(around) for node in branch for inner in ast.walk(node)
    }
    loops = [statement for statement in around[:-1] if isinstance(statement, LOOPS)]
    beside = Beside([], [], [])
    for statement in own:
        if statement in others:
            continue
        if statement.lineno > around[-1].lineno:
            is_in_loop = not loops or statement.lineno <= (loops[-1].end_lineno or 0)
            (beside.below if is_in_loop else beside.after_loop).append(span_of(file, statement))
        elif statement is not around[-1] and not isinstance(statement, (ast.Return, ast.Raise)):
            beside.above.append(span_of(file, statement))
    return beside


def _other_branches(around: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Yield the branches beside those in which a statement is, given the statements around it."""
    for statement in around:
        if isinstance(statement, ast.If):
            branches = [statement.body, statement.orelse]
        elif isinstance(statement, ast.Match):
            branches = [case.body for case in statement.cases]
        else:
            continue
        others = [branch for branch in branches if not any(inner in branch for inner in around)]
        if len(others) < len(branches):  # It is in one of them, and not in the condition.
            yield from others


def _own_statements(node: ast.AST) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if not isinstance(child, (*FUNCTIONS, ast.expr)):
            yield from _own_statements(child)


def _uses_name(statement: ast.stmt) -> bool:
    return any(isinstance(part, ast.Name) for part in expressions_of(statement))


def handler_at(file: str, line: int) -> tuple[int, str] | None:
    """Return the line and the source of the first ``except`` of the innermost ``try`` around a line of
    code; None if there is none.
    """
    for statement in reversed(statements_around(file, line)):
        if isinstance(statement, ast.Try) and statement.handlers:
            body = statement.body
            if body[0].lineno <= line <= (body[-1].end_lineno or line):
                handler = statement.handlers[0]
                end = handler.body[0].end_lineno or handler.body[0].lineno
                return handler.lineno, source_of(Span(file, handler.lineno, end))
        if isinstance(statement, FUNCTIONS):
            return None
    return None


def source_of(span: Span) -> str:
    lines = range(span.first, span.last + 1)
    text = " ".join(linecache.getline(span.file, line).strip() for line in lines)
    return re.sub(r"(?<=[([{]) |,? ?(?=[)\]}])", "", text).removesuffix(",")


@cache
def _parsed(file: str, source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None


def tree_of(file: str) -> ast.Module | None:
    """Return the syntax tree of a file; None if it cannot be parsed."""
    linecache.checkcache(file)
    return _parsed(file, "".join(linecache.getlines(file)))


def statements_around(file: str, line: int) -> list[ast.stmt]:
    """Return the statements around a line, the outermost first; none if the file cannot be parsed."""
    tree = tree_of(file)
    return [] if tree is None else list(_path_to(tree, line))


def _path_to(node: ast.AST, line: int) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            if child.lineno <= line <= (child.end_lineno or child.lineno):
                yield child
                yield from _path_to(child, line)
        else:  # such as the handler of an exception
            yield from _path_to(child, line)


def span_of(file: str, statement: ast.stmt) -> Span:
    """Return the lines of a statement, or of the head of a compound one."""
    body = getattr(statement, "body", None)
    last = statement.end_lineno or statement.lineno
    return Span(file, statement.lineno, max(statement.lineno, body[0].lineno - 1) if body else last)


def expressions_of(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the expressions of a statement, without the statements inside it."""
    for child in ast.iter_child_nodes(statement):
        if not isinstance(child, ast.stmt):
            yield from ast.walk(child)
