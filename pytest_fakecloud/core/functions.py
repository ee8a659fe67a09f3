"""The functions of an application: their codes, and what they change as their syntax trees say."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import partial
from inspect import getattr_static
from types import CellType, CodeType, FrameType, FunctionType, MethodType
from typing import Any

from .libraries import is_library
from .statements import FUNCTIONS, expressions_of, tree_of

_LEVELS = 4
"""Maximum number of decorators of libraries around a function."""
_CHANGING = {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popleft",
             "remove", "setdefault", "update"}  # fmt: skip
"""Methods that change a list, set, dictionary or deque."""


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
                yield from with_inner(code)
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


def with_inner(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function, and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from with_inner(constant)


def codes_called(frame: FrameType, expressions: Iterable[ast.AST]) -> frozenset[CodeType]:
    """Return the code of the functions and methods of no library that expressions call."""
    codes: set[CodeType] = set()
    names = {**frame.f_globals, **frame.f_locals}
    for node in expressions:
        if (
            isinstance(node, ast.Call)
            and (function := _function_named(node.func, names)) is not None
        ):
            codes.update(with_inner(function.__code__))
    return frozenset(codes)


def _function_named(node: ast.expr, names: Mapping[str, Any]) -> FunctionType | None:
    value: Any = None
    if isinstance(node, ast.Name):
        value = names.get(node.id)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        # Look attributes up without calling the application's properties.
        owner = names.get(node.value.id)
        value = None if owner is None else getattr_static(type(owner), node.attr, None)
    is_application = isinstance(value, FunctionType) and not is_library(value.__code__.co_filename)
    return value if is_application else None


# -- changes ---------------------------------------------------------------------------------------


def statements_changing(code: CodeType, names: frozenset[str]) -> list[ast.stmt]:
    """Return the statements of a function that change an object with one of the names."""
    tree = tree_of(code.co_filename)
    node = None if tree is None else _node_of(tree, code)
    return [] if node is None else list(_changes(node, names))


def changes_any(
    code: CodeType, names: frozenset[str], calling: Iterable[CodeType] = (), *, also_called: bool
) -> bool:
    """Return whether a function changes an object with one of the names, ``also_called``: or a function
    of the same file that it calls. A method with the name of one of the other functions that
    are ``calling`` a fake, such as ``append()`` of a log, is none of a list.
    """
    tree = tree_of(code.co_filename)
    node = None if tree is None else _node_of(tree, code)
    if tree is None or node is None:
        return False
    functions = _reached(tree, node) if also_called else [node]
    methods = _CHANGING - {other.co_name for other in calling if other is not code}
    return any(_changes_any(function, names, methods) for function in functions)


def _changes_any(function: ast.AST, names: frozenset[str], methods: Set[str]) -> bool:
    if isinstance(function, ast.Lambda):
        return any(_changed(node, methods) in names for node in ast.walk(function.body))
    return any(_changes(function, names, methods))


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


def _changes(
    function: ast.AST, names: frozenset[str], methods: Set[str] = _CHANGING
) -> Iterator[ast.stmt]:
    """Yield the statements of a function that change an object with one of the names."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, FUNCTIONS):
            continue  # It has code of its own.
        if isinstance(child, ast.stmt) and any(
            _changed(node, methods) in names for node in expressions_of(child)
        ):
            yield child
        yield from _changes(child, names, methods)


def _changed(node: ast.AST, methods: Set[str]) -> str:
    """Return the name of the object that an expression changes; empty if it changes none."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
        return node.attr
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return _name(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _name(node.func.value) if node.func.attr in methods else ""
    return ""


def _name(node: ast.expr) -> str:
    """Return the name of an object or of its item: ``rung`` of ``self.rung[building]``."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return getattr(node, "attr", "") or getattr(node, "id", "")


def assignment_of(function: ast.AST, name: str, before: int) -> ast.stmt | None:
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
