"""Functions that sleep and read clocks in fake time, each made from the function that it replaces.

Sleeps of infrastructure (see ``callers``) and impossible times take real time. So does every call
after the sleepers have ended, because other code may still have a replacement.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.abc
import importlib.machinery
import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

from ..core.timers import LAST_US
from .sleepers import (
    LONGEST,
    SHORTEST,
    AsyncioLoop,
    Sleepers,
    TrioRun,
    TrioTimeouts,
    sleep_in,
    watch,
)
from .wall import is_infrastructure, is_infrastructure_module, sleeps_really, times_out_really

MOMENT = 1e-6
"""Seconds by which ``time.sleep(0)`` advances the clock."""
_REPLACES = "_fakecloud_replaces"


def original_of(function: Any) -> Any:
    """Return the function that a replacement replaces; return any other function unchanged."""
    return getattr(function, _REPLACES, function)


def replacement_of(original: Any, make: Callable[[Sleepers, Any], Any], sleepers: Sleepers) -> Any:
    """Return a replacement of a function that ``original_of()`` recognizes."""
    made = functools.wraps(original)(make(sleepers, original))
    setattr(made, _REPLACES, original)
    return made


def _takes_real_time(sleepers: Sleepers, seconds: object) -> bool:
    """Return whether a sleep must take real time.

    This is so for a time that is zero, infinite or invalid, for a sleep that ends after the year
    9999, and for every sleep after the sleepers have ended.
    """
    return (
        sleepers.over
        or not isinstance(seconds, int | float)
        or not 0 < seconds < math.inf
        or sleepers.clock.now_us() + seconds * 1e6 >= LAST_US
    )


def _marked(function: Any) -> Any:
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    return function


# -- time ------------------------------------------------------------------------------------------


def _sleep(sleepers: Sleepers, really: Callable[[float], None]) -> Callable[[float], None]:
    def sleep(seconds: float, /) -> None:
        # Let sleep(0) take a moment too, because a loop around it expects time to pass.
        span = MOMENT if seconds == 0 else seconds
        if _takes_real_time(sleepers, span) or sleeps_really(sys._getframe(1)):
            really(seconds)
        else:
            sleepers.sleep(span, really)

    return sleep


def _clock(
    sleepers: Sleepers, really: Callable[[], Any], per_us: float = 1e-6
) -> Callable[[], Any]:
    """Replace a clock that counts ``per_us`` units in a microsecond."""

    def read() -> Any:
        if sleepers.over or is_infrastructure(sys._getframe(1)):
            return really()
        return really() + sleepers.ahead_us * per_us

    return read


# -- asyncio ---------------------------------------------------------------------------------------


def _asyncio_sleep(sleepers: Sleepers, really: Any) -> Any:
    async def sleep_in_fake_time(delay: float, result: Any = None) -> Any:
        await sleep_in(AsyncioLoop.running(sleepers, really), sleepers, delay)
        return result

    def sleep(delay: float, result: Any = None) -> Any:
        if _takes_real_time(sleepers, delay) or sleeps_really(sys._getframe(1)):
            return really(delay, result)
        return sleep_in_fake_time(delay, result)

    return _marked(sleep)


def asyncio_call_at(sleepers: Sleepers, really: Any) -> Any:
    """Replace ``BaseEventLoop.call_at()``, so that the clock may move to timeouts of the code."""
    asyncio_sleep = original_of(asyncio.sleep)

    def call_at(loop: Any, when: float, *args: Any, **kwargs: Any) -> Any:
        handle = really(loop, when, *args, **kwargs)
        if (
            not sleepers.over
            and SHORTEST < when - loop.time() < LONGEST
            # Since Python 3.12, asyncio limits the time for ending its worker threads, which is real.
            and not loop._executor_shutdown_called
            and asyncio._get_running_loop() is loop
            and not times_out_really(sys._getframe(1))
        ):
            running = AsyncioLoop.running(sleepers, asyncio_sleep)
            running.add_timeout(handle)
            watch(running, sleepers)
        return handle

    return call_at


# -- trio ------------------------------------------------------------------------------------------


async def _sleep_in_trio(sleepers: Sleepers, trio_sleep: Any, seconds: float) -> None:
    await sleep_in(TrioRun.running(sleepers, trio_sleep), sleepers, seconds)


def _trio_sleep(sleepers: Sleepers, really: Any) -> Any:
    def sleep(seconds: float) -> Any:
        if _takes_real_time(sleepers, seconds) or sleeps_really(sys._getframe(1)):
            return really(seconds)
        return _sleep_in_trio(sleepers, really, seconds)

    return _marked(sleep)


def _trio_sleep_until(sleepers: Sleepers, really: Any) -> Any:
    trio_sleep = original_of(sys.modules["trio"].sleep)

    async def sleep_until_fake_time(deadline: float) -> None:
        seconds = deadline - sys.modules["trio"].current_time()
        is_real = _takes_real_time(sleepers, seconds)
        await (really(deadline) if is_real else _sleep_in_trio(sleepers, trio_sleep, seconds))

    def sleep_until(deadline: float) -> Any:
        if sleeps_really(sys._getframe(1)):
            return really(deadline)
        return sleep_until_fake_time(deadline)

    return _marked(sleep_until)


def _trio_run(sleepers: Sleepers, really: Any) -> Any:
    trio_sleep = original_of(sys.modules["trio"].sleep)

    def run(*args: Any, instruments: Sequence[Any] = (), **kwargs: Any) -> Any:
        if not sleepers.over:
            instruments = (*instruments, TrioTimeouts(sleepers, trio_sleep))
        return really(*args, instruments=instruments, **kwargs)

    return run


REPLACEMENTS: Mapping[str, Mapping[str, Callable[[Sleepers, Any], Any]]] = {
    "time": {
        "sleep": _sleep,
        "monotonic": _clock,
        "monotonic_ns": partial(_clock, per_us=1000),
        "perf_counter": _clock,
        "perf_counter_ns": partial(_clock, per_us=1000),
    },
    "asyncio": {"sleep": _asyncio_sleep},
    "trio": {"sleep": _trio_sleep, "sleep_until": _trio_sleep_until, "run": _trio_run},
}
"""For each function to replace, by module and name, a function that makes its replacement."""


_BaseLoop: Any = asyncio.BaseEventLoop


class Patches:
    """The replaced functions of this process, between ``start()`` and ``stop()``.

    Both look at every name of every loaded module, which takes some milliseconds. ``stop()`` keeps
    replacements by other code. If they call a function of this module, it calls the original.
    """

    def __init__(self, sleepers: Sleepers) -> None:
        self._sleepers = sleepers
        self._replaced: list[tuple[dict[str, Any], str, Any, Any]] = []
        """The replaced names: namespace, name, original and replacement."""
        self._by_original: dict[int, tuple[Any, Any]] = {}
        """The originals and their replacements, by the ID of the original."""
        self._finder = _OnTrioImport(self._replace_trio)
        self._call_at = _BaseLoop.call_at
        self._our_call_at = replacement_of(self._call_at, asyncio_call_at, sleepers)

    def start(self) -> None:
        self._replace("time")
        self._replace("asyncio")
        _BaseLoop.call_at = self._our_call_at
        if "trio" in sys.modules:
            self._replace_trio()
        else:
            sys.meta_path.insert(0, self._finder)
        self._replace_imported()

    def _replace_trio(self) -> None:
        self._replace("trio")
        # Add the instrument to a trio run that has already started.
        with suppress(RuntimeError):
            trio = sys.modules["trio"]
            timeouts = TrioTimeouts(self._sleepers, original_of(trio.sleep))
            trio.lowlevel.add_instrument(timeouts)

    def _replace(self, library: str) -> None:
        # The functions of asyncio have their names in ``asyncio.tasks`` too.
        namespaces = [
            vars(module)
            for name in (library, f"{library}.tasks")
            if (module := sys.modules.get(name)) is not None
        ]
        for name, make in REPLACEMENTS[library].items():
            for names in namespaces:
                # Unwrap an old replacement, which another tool may have restored after stop().
                names[name] = original_of(names[name])
            original = namespaces[0][name]
            ours = replacement_of(original, make, self._sleepers)
            self._by_original[id(original)] = (original, ours)
            for names in namespaces:
                self._replace_in(names, name, original, ours)

    def _replace_in(self, names: dict[str, Any], name: str, original: Any, ours: Any) -> None:
        if names.get(name) is original:
            names[name] = ours
            self._replaced.append((names, name, original, ours))

    def _replace_imported(self) -> None:
        """Replace names imported with ``from … import``."""
        modules = [
            vars(module)
            for module_name, module in list(sys.modules.items())
            if isinstance(module, ModuleType) and not is_infrastructure_module(module_name)
        ]
        for names in (*modules, *_names_of_loops()):
            for name, value in list(names.items()):
                known = self._by_original.get(id(value))
                if known is not None:
                    self._replace_in(names, name, *known)

    def stop(self) -> None:
        """Restore the originals wherever a replacement is still in place."""
        if _BaseLoop.call_at is self._our_call_at:
            _BaseLoop.call_at = self._call_at
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        while self._replaced:
            names, name, original, ours = self._replaced.pop()
            if names.get(name) is ours:
                names[name] = original
        originals = {id(ours): original for original, ours in self._by_original.values()}
        # Restore names in modules that were imported since start().
        for module in list(sys.modules.values()):
            if isinstance(module, ModuleType):
                for name, value in list(vars(module).items()):
                    if id(value) in originals:
                        vars(module)[name] = originals[id(value)]


def _names_of_loops() -> list[dict[str, Any]]:
    """Return the namespaces of anyio's event-loop modules.

    anyio keeps them permanently, even if the end of a nested pytest run forgets the modules.
    """
    anyio = sys.modules.get("anyio._core._eventloop")
    loops: dict[str, Any] = getattr(anyio, "loaded_backends", {})
    return [getattr(loop.sleep, "__globals__", {}) for loop in list(loops.values())]


class _OnTrioImport(importlib.abc.MetaPathFinder):
    """An import hook that calls a function whenever trio has been imported."""

    def __init__(self, on_import: Callable[[], None]) -> None:
        self._on_import = on_import

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return trio's spec, with a loader that also calls the function; None for other modules."""
        if name != "trio":
            return None
        specs = (
            finder.find_spec(name, path, target)
            for finder in sys.meta_path
            if finder is not self and hasattr(finder, "find_spec")
        )
        spec = next(filter(None, specs), None)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            # The code may have looked for trio only, and import it after the hook was removed.
            if self in sys.meta_path:
                self._on_import()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
