"""Who reads or sleeps: code under test, or what carries it."""

from __future__ import annotations

import sys
from types import FrameType

INFRASTRUCTURE = frozenset(
    {
        "IPython", "_pydevd_bundle", "_pytest", "coverage", "debugpy", "execnet", "freezegun",
        "hypercorn", "hypothesis", "playwright", "pluggy", "pydevd", "pytest", "pytest_asyncio",
        "pytest_benchmark", "pytest_fakecloud", "pytest_httpserver", "pytest_timeout", "pytest_trio",
        "selenium", "time_machine", "trio", "uvicorn", "uvloop", "werkzeug", "xdist",
    }
)  # fmt: skip
"""What keeps real time besides the standard library: test runners, servers' own loops, debuggers."""
CARRIERS = frozenset({"asyncio", "concurrent", "contextvars", "functools", "threading", "trio"})
"""What calls a sleep on another's behalf, as ``Thread(target=time.sleep)`` does."""

_LIBRARIES_OF_TIMEOUTS = CARRIERS | {"contextlib", "anyio"}
"""What sets a timeout on another's behalf."""

_known: dict[str, bool] = {}


def is_infrastructure_module(name: str) -> bool:
    """Whether a module's sleeps and clocks stay real."""
    found = _known.get(name)
    if found is None:
        top = name.partition(".")[0]
        found = top in INFRASTRUCTURE or top in sys.stdlib_module_names
        _known[name] = found
    return found


def is_infrastructure(frame: FrameType) -> bool:
    """Whether a frame is of such a module."""
    return is_infrastructure_module(str(frame.f_globals.get("__name__", "")))


def times_out_really(frame: FrameType | None) -> bool:
    """Whether a timeout set in a frame, or by a library that carries it, is one of infrastructure."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in _LIBRARIES_OF_TIMEOUTS:
            return is_infrastructure_module(name)
        frame = frame.f_back
    return True


def sleeps_really(frame: FrameType) -> bool:
    """Whether a sleep asked for in a frame is one of infrastructure."""
    name = str(frame.f_globals.get("__name__", ""))
    return is_infrastructure_module(name) and name.partition(".")[0] not in CARRIERS
