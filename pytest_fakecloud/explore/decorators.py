"""Decorators for explored code and its tests: ``observed`` and ``replay_schedule``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, cast

from ..core.errors import ContractError, shown
from .schedule import Schedule

if TYPE_CHECKING:
    from .simulation.simulation import Simulation

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_Block: TypeAlias = Callable[
    [tuple[Any, ...], dict[str, Any]], AbstractContextManager[Callable[[object], None]]
]
"""Takes a call's arguments; returns a context manager of a function that takes the call's result."""


@dataclass(slots=True)
class Replay:
    """A schedule that ``replay_schedule`` makes a test run."""

    text: str
    is_explored: bool = False
    """Whether the test has called ``explore()``."""


current_replay: ContextVar[Replay | None] = ContextVar("replay", default=None)
"""The replay of this test, if it is decorated."""
current_simulation: ContextVar[Simulation | None] = ContextVar("simulation", default=None)
"""The simulation in which the current code runs."""


def observed(function: Callable[P, T]) -> Callable[P, T]:
    """Make ``explore`` record each call of a function: its client, start, end and result.

    The function may be plain or asynchronous. Outside ``explore`` the decorator has no effect. A
    call that raises an exception may or may not have taken effect.
    """
    if not callable(function):
        raise ContractError(f"{shown(function)} is not a function: mark one with @observed")
    name = getattr(function, "__name__", type(function).__name__)

    @contextmanager
    def recording(
        args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[Callable[[object], None]]:
        simulation = current_simulation.get()
        if simulation is None:
            yield _ignore
            return
        operation = simulation.began(name, args, kwargs)
        try:
            yield functools.partial(simulation.record.end, operation)
        except BaseException as error:
            operation.error = error
            raise

    return _within(recording, function)


def replay_schedule(text: str) -> Callable[[F], F]:
    """Decorate a test so that ``explore`` runs only this schedule in it.

    The test raises ``ContractError`` if it ends without a call of ``explore``.
    """
    Schedule.parse(text)

    @contextmanager
    def replaying(*_: object) -> Iterator[Callable[[object], None]]:
        replay = Replay(text)
        token = current_replay.set(replay)
        try:
            yield _ignore
        finally:
            current_replay.reset(token)
        if not replay.is_explored:
            raise ContractError(
                f"replay_schedule({shown(text)}) had no effect: the test did not call explore(). "
                "Remove the decorator, or call explore() in the test"
            )

    return functools.partial(_within, replaying)


def _ignore(result: object) -> None:
    """Take the result of a call that is not recorded."""


def _within(block: _Block, function: F) -> F:
    """Return a plain or asynchronous function whose calls run in a ``with`` block."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def within_async(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            with block(args, kwargs) as take_result:
                result = await function(*args, **kwargs)
                take_result(result)
            return result

        return cast("F", within_async)

    @functools.wraps(function)
    def within(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        with block(args, kwargs) as take_result:
            result = function(*args, **kwargs)
            take_result(result)
        return result

    return cast("F", within)
