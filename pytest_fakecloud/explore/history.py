"""The operations of the clients in one run: how they are recorded, and the history for checks."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from ..core.errors import ContractError, shown

if TYPE_CHECKING:
    from ..any_cloud import AnyCloud
    from .simulation.simulation import Simulation

P = ParamSpec("P")
T = TypeVar("T")
current_simulation: ContextVar[Simulation | None] = ContextVar("simulation", default=None)
"""The simulation in which the current code runs."""


@dataclass(slots=True, eq=False)
class Operation:
    """A call of a function marked with ``observed``.

    ``began`` and ``ended`` are positions in the order of all starts and ends. If the client does not
    know whether the call took effect, ``ended`` is None and ``error`` is the exception.
    """

    client: str
    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    began: int
    ended: int | None = None
    result: object = None
    error: BaseException | None = None

    def __repr__(self) -> str:
        given = [repr(each) for each in self.args]
        given += [f"{name}={value!r}" for name, value in self.kwargs.items()]
        answer = "?" if self.ended is None else repr(self.result)
        return f"{self.client}: {self.name}({', '.join(given)}) -> {answer}"


@dataclass
class History:
    """One run, for checks to inspect.

    ``cloud`` contains the fakes. ``schedule`` is the schedule as a string. ``operations`` are the calls
    of functions marked with ``observed``, ``clients`` the clients as operations. ``results`` maps
    clients and workers that returned to what they returned, ``errors`` those that gave up to their
    exception. ``crashed`` are the names of clients and workers that a crash ended. The first
    restart of a worker ``relay`` is ``relay/2``.
    """

    cloud: AnyCloud
    schedule: str
    operations: list[Operation] = field(default_factory=list)
    clients: list[Operation] = field(default_factory=list)
    results: dict[str, object] = field(default_factory=dict)
    errors: dict[str, BaseException] = field(default_factory=dict)
    crashed: list[str] = field(default_factory=list)


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
    running = current_simulation.get()
    if running is None:
        yield lambda result: None
        return
    operation = running.began(name, args, kwargs)
    try:
        yield functools.partial(running.record.end, operation)
    except BaseException as error:
        operation.error = error
        raise
