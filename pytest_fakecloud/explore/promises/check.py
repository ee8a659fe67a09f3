"""Functions that ``explore()`` calls to check a promise."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sized
from typing import TYPE_CHECKING

from ...core.errors import ContractError, shown

if TYPE_CHECKING:
    from ..history import History

Check = Callable[["History"], None]


def takes_argument(function: Callable[..., object]) -> bool:
    """Return whether a check takes the history."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
        for p in parameters
    )


class Predicate:
    """A function that a promise calls, with the history if it takes an argument.

    Raises ``ContractError`` for anything other than a function.
    """

    def __init__(self, function: Callable[..., object], promise: str) -> None:
        if not callable(function):
            raise ContractError(f"{promise}() expects a function, got {shown(function)}")
        self._function = function
        self._promise = promise
        self.takes_history = takes_argument(function)
        name = getattr(function, "__name__", "")
        self.name = name if name.isidentifier() else "the predicate"

    def value(self, history: History) -> object:
        """Call the function; add a note to any exception but a failed assertion."""
        __tracebackhide__ = True
        try:
            return self._function(history) if self.takes_history else self._function()
        except AssertionError:
            raise
        except Exception as error:
            error.add_note(
                f"raised by {self.name}, the predicate of {self._promise}(). A predicate must not "
                "fail in any schedule: read from the fakes, such as kv_server.value('key'), instead "
                "of through a client"
            )
            raise


def count_of(value: object) -> float | None:
    """Return a number, or the size of a collection; None for any other value."""
    if value is None:
        return 0
    if isinstance(value, int | float):
        return value
    if isinstance(value, str | bytes):
        try:
            return int(value)
        except ValueError:
            return None
    return len(value) if isinstance(value, Sized) else None
