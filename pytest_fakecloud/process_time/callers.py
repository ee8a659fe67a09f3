"""Distinguishes code under test from infrastructure, which always sees real time."""

from __future__ import annotations

import sys
from functools import cache
from types import FrameType

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
