"""The decorator of functions whose calls are the operations of a history."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast

from ...core.errors import ContractError, shown
from ..simulation.state import simulation

P = ParamSpec("P")
T = TypeVar("T")


def observed(function: Callable[P, T]) -> Callable[P, T]:
    """Make ``explore`` record each call of a function: its client, start, end and result.

    The function may be plain or asynchronous. Outside ``explore`` the decorator has no effect. A
    call that raises an exception may or may not have taken effect.
    """
    if not callable(function):
        raise ContractError(f"{shown(function)} is not a function: mark one with @observed")
    name = getattr(function, "__name__", type(function).__name__)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def recorded_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            with _recording(name, args, kwargs) as record_result:
                result = await function(*args, **kwargs)
                record_result(result)
            return result

        return cast("Callable[P, T]", recorded_async)

    @functools.wraps(function)
    def recorded(*args: P.args, **kwargs: P.kwargs) -> T:
        with _recording(name, args, kwargs) as record_result:
            result = function(*args, **kwargs)
            record_result(result)
        return result

    return recorded


@contextmanager
def _recording(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[Callable[[object], None]]:
    """Record the start of an operation, and its exception; yield a function for its result."""
    running = simulation.get()
    if running is None:
        yield lambda result: None
        return
    operation = running.began(name, args, kwargs)
    try:
        yield partial(running.finished, operation)
    except BaseException as error:
        operation.error = error
        raise
