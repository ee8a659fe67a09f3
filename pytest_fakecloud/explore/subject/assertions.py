"""The assertions of explored code, which are promises: whether a function contains one."""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...core.libraries import is_library

_DEPTH = 3
"""Maximum number of calls between the explored function and the assertion."""
_FAILING = frozenset({"fail", "raises", "AssertionError"})
"""Names whose use is an assertion, in addition to names that begin with ``assert``."""
_IMPLICIT = frozenset({"__init__", "__call__", "__enter__", "__exit__", "__aenter__", "__aexit__"})
"""Methods that code calls without naming them."""


@dataclass(frozen=True, slots=True)
class _Use:
    """An object that code names, such as a function, and the object that it is an attribute of."""

    value: object
    owner: object = None


def may_assert(function: Callable[..., object]) -> bool:
    """Return whether a function contains an assertion, or calls application code that does."""
    seen: set[types.CodeType] = set()
    uses = [_Use(function), *_attributes(_Use(function), _IMPLICIT)]
    for _ in range(_DEPTH + 1):
        following: list[_Use] = []
        for use in map(_unwrapped, uses):
            code = getattr(use.value, "__code__", None)
            if not isinstance(code, types.CodeType) or code in seen:
                continue
            seen.add(code)
            codes = list(_with_inner(code))
            if any(map(_asserts, codes)):
                return True
            following += _uses(use, {name for inner in codes for name in inner.co_names})
        uses = following
    return False


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of a function and of the functions that it defines."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_inner(constant)


def _asserts(code: types.CodeType) -> bool:
    if any(name in _FAILING or name.startswith("assert") for name in code.co_names):
        return True
    return any(
        instruction.opname == "LOAD_ASSERTION_ERROR"
        # From Python 3.14 on, other constants have the same instruction.
        or (
            instruction.opname == "LOAD_COMMON_CONSTANT" and "AssertionError" in instruction.argrepr
        )
        for instruction in dis.get_instructions(code)
    )


def _unwrapped(use: _Use) -> _Use:
    """Return the function behind a method, a partial object or a decorator."""
    value: Any = use.value
    owner = use.owner
    while True:
        if isinstance(value, functools.partial):
            value = value.func
        elif isinstance(value, types.MethodType):
            value, owner = value.__func__, value.__self__
        elif isinstance(value, staticmethod | classmethod):
            value = value.__func__
        elif (wrapped := inspect.getattr_static(value, "__wrapped__", None)) is not None:
            value = wrapped
        else:
            return _Use(value, owner)


def _uses(function: _Use, names: set[str]) -> list[_Use]:
    """Return the objects that a function names, and those of their attributes that it names."""
    values = [function.owner, *named_by(function.value)]
    uses = [_Use(value) for value in values if value is not None]
    # Two levels of attributes reach self.cart.check() and package.module.check().
    attributes = [attribute for use in uses for attribute in _attributes(use, names | _IMPLICIT)]
    attributes += [attribute for use in attributes for attribute in _attributes(use, names)]
    return uses + [use for use in attributes if _is_application(use)]


def named_by(function: Any) -> Iterator[object]:
    """Yield the values of the variables from outside that a function and its inner functions name,
    for a library only those that the function has enclosed.
    """
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # The variable has no value yet.
            yield cell.cell_contents
    names = {name for code in _with_inner(function.__code__) for name in code.co_names}
    scope = {} if is_library(function.__code__.co_filename) else function.__globals__
    yield from (scope[name] for name in names if name in scope)


def _attributes(use: _Use, names: set[str] | frozenset[str]) -> Iterator[_Use]:
    for name in names:
        value = inspect.getattr_static(use.value, name, None)
        if value is not None:
            yield _Use(value, use.value)


def _is_application(use: _Use) -> bool:
    code = getattr(_unwrapped(use).value, "__code__", None)
    return isinstance(code, types.CodeType) and not is_library(code.co_filename)
