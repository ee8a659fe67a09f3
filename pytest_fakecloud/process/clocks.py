"""Replaces the functions with which a process sleeps and measures time, and asks a policy.

They are ``time.sleep``, ``asyncio.sleep``, and the clocks ``time.monotonic`` and
``time.perf_counter`` (with their ``_ns`` variants). A policy decides who moves the clock, and which
callers sleep and read it: see ``Policy``. Infrastructure keeps using real time.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import time
from collections.abc import Awaitable, Callable
from functools import cache
from types import FrameType
from typing import Any, NamedTuple, Protocol

from .replace import Function, original_of

# -- callers ---------------------------------------------------------------------------------------

INFRASTRUCTURE = frozenset(
    {
        "IPython", "_pydevd_bundle", "_pytest", "coverage", "debugpy", "execnet", "freezegun",
        "hypercorn", "hypothesis", "playwright", "pluggy", "pydevd", "pytest", "pytest_asyncio",
        "pytest_benchmark", "pytest_fakecloud", "pytest_httpserver", "pytest_timeout", "pytest_trio",
        "selenium", "time_machine", "trio", "uvicorn", "uvloop", "werkzeug", "xdist",
    }
)  # fmt: skip
"""Packages that always see real time, besides the standard library: test runners, servers and their
event loops, debuggers.
"""
CARRIERS = frozenset({"asyncio", "concurrent", "contextvars", "functools", "threading", "trio"})
"""Packages that sleep on behalf of their callers, as in ``Thread(target=time.sleep)``."""

_LIBRARIES_OF_TIMEOUTS = CARRIERS | {"contextlib", "anyio"}
"""Packages that set timeouts on behalf of their callers."""


def module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


@cache
def is_infrastructure_module(name: str) -> bool:
    """Return whether a module belongs to infrastructure, whose sleeps and clocks stay real."""
    top = name.partition(".")[0]
    return top in INFRASTRUCTURE or top in sys.stdlib_module_names


def is_infrastructure(frame: FrameType) -> bool:
    return is_infrastructure_module(module_of(frame))


def times_out_really(frame: FrameType | None) -> bool:
    """Return whether infrastructure sets the timeout, directly or through a library."""
    while frame is not None:
        name = module_of(frame)
        if name.partition(".")[0] not in _LIBRARIES_OF_TIMEOUTS:
            return is_infrastructure_module(name)
        frame = frame.f_back
    return True


def sleeps_really(frame: FrameType) -> bool:
    """Return whether a sleep that is called in a frame belongs to infrastructure."""
    name = module_of(frame)
    return is_infrastructure_module(name) and name.partition(".")[0] not in CARRIERS


def keeps_originals(module: str) -> bool:
    """Return whether a module keeps the real functions under its names.

    Modules of infrastructure do, except for those that own the functions or lend them to callers.
    """
    lends = module in ("time", "asyncio", "asyncio.tasks", "trio", "sched")
    return not lends and is_infrastructure_module(module)


# -- the functions that ask a policy ---------------------------------------------------------------


class RealClock(NamedTuple):
    """A real clock: the function that reads it, its value at the start, and its units per second."""

    read: Callable[[], Any]
    started: Any
    per_second: int


class Policy(Protocol):
    """Decides about sleeps and reads of clocks. ``caller`` is the frame that calls the function.

    A policy must use real time once it has ended, because other code may keep a replacement.
    """

    def sleep(self, seconds: float, really: Callable[[float], None], caller: FrameType) -> None:
        """Sleep in this thread, in fake time or with the real function."""

    def sleep_in_asyncio(
        self, delay: float, result: Any, really: Callable[..., Awaitable[Any]], caller: FrameType
    ) -> Awaitable[Any]:
        """Return an awaitable that sleeps in the running loop, and whose result is ``result``."""

    def read(self, clock: RealClock, caller: FrameType) -> Any:
        """Return the time of a clock, in its unit."""


def sleeps_of(policy: Policy) -> list[tuple[Function, Function]]:
    """Return ``time.sleep()`` and ``asyncio.sleep()``, each with the function to put in its place."""
    really = original_of(time.sleep)
    really_in_asyncio = original_of(asyncio.sleep)

    @functools.wraps(really)
    def sleep(*arguments: Any, **options: Any) -> None:
        # Other calls are errors, or know the function that a tool has put in place: gevent's needs no
        # argument, and then lets others run.
        if len(arguments) != 1 or options:
            really(*arguments, **options)
        else:
            policy.sleep(arguments[0], really, sys._getframe(1))

    @functools.wraps(really_in_asyncio)
    def sleep_in_asyncio(delay: float, result: Any = None) -> Any:
        return policy.sleep_in_asyncio(delay, result, really_in_asyncio, sys._getframe(1))

    return [(really, sleep), (really_in_asyncio, as_coroutine_function(sleep_in_asyncio))]


def clocks_of(policy: Policy) -> list[tuple[Function, Function]]:
    """Return the clocks of ``time``, each with the function to put in its place."""
    names = ("monotonic", "perf_counter", "monotonic_ns", "perf_counter_ns")
    return [_clock_of(policy, name) for name in names]


def _clock_of(policy: Policy, name: str) -> tuple[Function, Function]:
    really = original_of(getattr(time, name))
    clock = RealClock(really, really(), 10**9 if name.endswith("_ns") else 1)

    @functools.wraps(really)
    def read() -> Any:
        return policy.read(clock, sys._getframe(1))

    return really, read


def as_coroutine_function(function: Function) -> Function:
    """Mark a function that returns an awaitable, so that ``inspect`` recognizes it."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    return function
