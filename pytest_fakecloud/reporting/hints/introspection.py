"""Inspect exceptions, frames and objects of the application without running its code."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from traceback import walk_tb
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

# Read the attributes through the built-in classes, because subclasses may override them.
_CAUSE = vars(BaseException)["__cause__"].__get__
_CONTEXT = vars(BaseException)["__context__"].__get__
_ARGS = vars(BaseException)["args"].__get__
_EXCEPTIONS = vars(BaseExceptionGroup)["exceptions"].__get__


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes and contexts, and the errors in its arguments and groups."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        linked = [_CAUSE(one), _CONTEXT(one), *_ARGS(one)]
        if issubclass(type(one), BaseExceptionGroup):
            linked += _EXCEPTIONS(one)
        waiting += [each for each in linked if issubclass(type(each), BaseException)]


def frames_of(error: BaseException | None) -> list[FrameType]:
    return [frame for frame, _ in walk_tb(None if error is None else error.__traceback__)]


def locals_of(error: BaseException | None) -> list[object]:
    return [value for frame in frames_of(error) for value in frame.f_locals.values()]


def root(value: Any) -> str:
    """Return the package that defines a module, a function or a value's class."""
    kind = type(value)  # `isinstance()` would call a property `__class__` of the value
    name: object
    if issubclass(kind, ModuleType):
        name = inspect.getattr_static(value, "__name__", None)
    elif kind is MethodType:
        return root(value.__self__)
    elif kind is FunctionType or kind is BuiltinFunctionType:
        name = value.__module__
    else:
        name = inspect.getattr_static(value, "__module__", None)
    return name.partition(".")[0] if type(name) is str else ""


def attributes_of(value: object) -> dict[str, object]:
    """Return the attributes of an object; none of a lazy object, which is not evaluated."""
    if issubclass(type(value), type | ModuleType):
        return {}
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else {}
