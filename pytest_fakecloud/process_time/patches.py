"""Replaces the functions with which a process sleeps and measures time, while sleeps move the
clock.

They are ``time.sleep``, ``asyncio.sleep``, ``trio.sleep`` and ``trio.sleep_until``, and the clocks
``time.monotonic`` and ``time.perf_counter`` (with their ``_ns`` variants). The replaced clocks run
ahead of the real clocks by the time slept. Names imported with ``from time import sleep`` are
replaced too. The standard library's own waits, test runners and event loops of servers keep using
real time (see ``callers``).
"""

from __future__ import annotations

import asyncio
import functools
import importlib.abc
import importlib.machinery
import inspect
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

from ..core.timeparse import LAST_US
from .callers import is_infrastructure, is_infrastructure_module, sleeps_really, times_out_really
from .loops import AsyncioLoop, TrioRun, TrioTimeouts
from .moving import LONGEST, SHORTEST, sleep_in, watch
from .sleepers import Sleepers

_HOMES: dict[str, tuple[str, ...]] = {
    "asyncio": ("asyncio", "asyncio.tasks"),
    "trio": ("trio",),
    "time": ("time",),
}
MOMENT = 1e-6
"""Seconds by which ``time.sleep(0)`` advances the clock."""
_REPLACES = "_fakecloud_replaces"
_BaseLoop: Any = asyncio.BaseEventLoop


class Patches:
    """The replaced functions of this process, between ``start()`` and ``stop()``.

    ``stop()`` does not undo replacements by other code. Such code may still call a replaced
    function, which after ``stop()`` calls the original.
    """

    def __init__(self, sleepers: Sleepers) -> None:
        self._sleepers = sleepers
        self._replaced: list[tuple[dict[str, Any], str, Any, Any]] = []
        """The replaced names: namespace, name, original and replacement."""
        self._by_original: dict[int, tuple[Any, Any]] = {}
        """The originals and their replacements, by the ID of the original."""
        self._finder = _OnTrioImport(self._replace_trio)
        self._call_at = _BaseLoop.call_at
        self._our_call_at = self._asyncio_call_at(self._call_at)

    def start(self) -> None:
        self._replace("time", {
            "sleep": self._sleep,
            **{name: partial(self._clock_of, 1) for name in ("monotonic", "perf_counter")},
            **{
                name: partial(self._clock_of, 1_000_000_000)
                for name in ("monotonic_ns", "perf_counter_ns")
            },
        })  # fmt: skip
        self._replace("asyncio", {"sleep": self._asyncio_sleep})
        _BaseLoop.call_at = self._our_call_at
        if "trio" in sys.modules:
            self._replace_trio()
        else:
            sys.meta_path.insert(0, self._finder)
        self._replace_imported()

    def _replace_trio(self) -> None:
        original = sys.modules["trio"].sleep
        really = getattr(original, _REPLACES, original)

        async def sleep_in_fake_time(seconds: float) -> None:
            await sleep_in(TrioRun.running(self._sleepers, really), self._sleepers, seconds)

        self._replace("trio", {
            "sleep": partial(self._trio_sleep, sleep_in_fake_time),
            "sleep_until": partial(self._trio_sleep_until, sleep_in_fake_time),
            "run": self._trio_run,
        })  # fmt: skip
        trio = sys.modules["trio"]
        # Add the instrument to a trio run that has already started.
        with suppress(RuntimeError):
            trio.lowlevel.add_instrument(self._instrument())

    def _replace(self, module: str, made: dict[str, Callable[[Any], Any]]) -> None:
        for name, make in made.items():
            homes = [vars(sys.modules[home]) for home in _HOMES[module] if home in sys.modules]
            for names in homes:
                # Unwrap an old replacement, which another tool may have restored after stop().
                names[name] = getattr(names[name], _REPLACES, names[name])
            original = homes[0][name]
            ours = make(original)
            setattr(ours, _REPLACES, original)
            self._by_original[id(original)] = (original, ours)
            for names in homes:
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

    # -- the replacements ------------------------------------------------------------------------

    def _sleep(self, really: Callable[[float], None]) -> Callable[[float], None]:
        sleepers = self._sleepers

        @functools.wraps(really)
        def sleep(seconds: float, /) -> None:
            # Let sleep(0) take a moment too, because a loop around it expects time to pass.
            span = MOMENT if seconds == 0 else seconds
            if _takes_real_time(sleepers, span) or sleeps_really(sys._getframe(1)):
                really(seconds)
            else:
                sleepers.sleep(span, really)

        return sleep

    def _clock_of(self, per_second: int, really: Callable[[], Any]) -> Callable[[], Any]:
        sleepers, per_us = self._sleepers, per_second / 1_000_000

        @functools.wraps(really)
        def read() -> Any:
            if sleepers.over or is_infrastructure(sys._getframe(1)):
                return really()
            ahead = sleepers.ahead_us * per_us
            return really() + (ahead if per_second == 1 else int(ahead))

        return read

    def _asyncio_sleep(self, really: Any) -> Any:
        sleepers = self._sleepers

        async def sleep_in_fake_time(delay: float, result: Any = None) -> Any:
            await sleep_in(AsyncioLoop.running(sleepers, really), sleepers, delay)
            return result

        @functools.wraps(really)
        def sleep(delay: float, result: Any = None) -> Any:
            if _takes_real_time(sleepers, delay) or sleeps_really(sys._getframe(1)):
                return really(delay, result)
            return sleep_in_fake_time(delay, result)

        return _marked(sleep)

    def _asyncio_call_at(self, really: Any) -> Any:
        sleepers, asyncio_sleep = self._sleepers, asyncio.sleep
        asyncio_sleep = getattr(asyncio_sleep, _REPLACES, asyncio_sleep)

        @functools.wraps(really)
        def call_at(loop: Any, when: float, *args: Any, **kwargs: Any) -> Any:
            handle = really(loop, when, *args, **kwargs)
            if (
                not sleepers.over
                and SHORTEST < when - loop.time() < LONGEST
                and asyncio._get_running_loop() is loop
                and not times_out_really(sys._getframe(1))
            ):
                running = AsyncioLoop.running(sleepers, asyncio_sleep)
                running.add_timeout(handle)
                watch(running, sleepers)
            return handle

        return call_at

    def _trio_sleep(self, sleep_in_fake_time: Callable[[float], Any], really: Any) -> Any:
        sleepers = self._sleepers

        @functools.wraps(really)
        def sleep(seconds: float) -> Any:
            if _takes_real_time(sleepers, seconds) or sleeps_really(sys._getframe(1)):
                return really(seconds)
            return sleep_in_fake_time(seconds)

        return _marked(sleep)

    def _trio_sleep_until(self, sleep_in_fake_time: Callable[[float], Any], really: Any) -> Any:
        sleepers = self._sleepers

        async def sleep_until_fake_time(deadline: float) -> None:
            seconds = deadline - sys.modules["trio"].current_time()
            is_real = _takes_real_time(sleepers, seconds)
            await (really(deadline) if is_real else sleep_in_fake_time(seconds))

        @functools.wraps(really)
        def sleep_until(deadline: float) -> Any:
            if sleeps_really(sys._getframe(1)):
                return really(deadline)
            return sleep_until_fake_time(deadline)

        return _marked(sleep_until)

    def _instrument(self) -> TrioTimeouts:
        really = getattr(sys.modules["trio"].sleep, _REPLACES)
        return TrioTimeouts(self._sleepers, really)

    def _trio_run(self, really: Any) -> Any:
        sleepers = self._sleepers

        @functools.wraps(really)
        def run(*args: Any, instruments: Sequence[Any] = (), **kwargs: Any) -> Any:
            if not sleepers.over:
                instruments = (*instruments, self._instrument())
            return really(*args, instruments=instruments, **kwargs)

        return run


def _takes_real_time(sleepers: Sleepers, seconds: object) -> bool:
    """Return whether a sleep must take real time.

    This is so for a time that is zero, infinite or invalid, for a sleep that ends after the year
    9999, and for every sleep after the patches have ended.
    """
    return (
        sleepers.over
        or not isinstance(seconds, int | float)
        or not 0 < seconds < math.inf
        or sleepers.clock.now_us() + seconds * 1e6 >= LAST_US
    )


def _names_of_loops() -> list[dict[str, Any]]:
    """Return the namespaces of anyio's event-loop modules.

    anyio keeps these modules permanently, even after a nested pytest run, at whose end modules
    imported during it are removed from ``sys.modules``.
    """
    anyio = sys.modules.get("anyio._core._eventloop")
    loops: dict[str, Any] = getattr(anyio, "loaded_backends", {})
    return [getattr(loop.sleep, "__globals__", {}) for loop in list(loops.values())]


def _marked(function: Any) -> Any:
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    return function


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
