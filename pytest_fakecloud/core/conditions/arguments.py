"""Checks of functions and numbers that a test passes."""

from __future__ import annotations

import inspect

from ..errors import ContractError, shown
from ..wording import brief


def check_times(times: object) -> None:
    """Raise ``ContractError`` unless ``times=`` is None or a non-negative integer."""
    if times is not None and (type(times) is not int or times < 0):
        raise ContractError(f"times={brief(times)} is not a count: pass an integer of at least 0")


def check_function(value: object, kind: str) -> None:
    """Raise ``ContractError`` unless the object is callable and its result need not be awaited or
    iterated.

    ``kind`` completes the phrase "pass one …" in the error message.
    """
    if not callable(value):
        raise ContractError(f"{shown(value)} is not a function: pass one {kind}")
    if is_lazy_function(value):
        raise ContractError(
            f"{shown(value)} must be awaited or iterated, which is not supported here: "
            f"pass a function {kind}"
        )


def is_lazy_function(function: object) -> bool:
    """Return whether a call only creates a coroutine or a generator, without running its code."""
    called = getattr(type(function), "__call__", None)  # noqa: B004
    return any(
        inspect.iscoroutinefunction(each)
        or inspect.isgeneratorfunction(each)
        or inspect.isasyncgenfunction(each)
        for each in (function, called)
    )


def discard_awaitable(result: object) -> bool:
    """Return whether a function's result must be awaited. If it is a coroutine, close it to avoid a
    warning.
    """
    if inspect.iscoroutine(result):
        result.close()
    return inspect.isawaitable(result)
