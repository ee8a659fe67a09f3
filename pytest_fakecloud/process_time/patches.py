"""Replaces the functions with which a process sleeps and measures time, while sleeps move a clock.

They are ``time.sleep``, ``asyncio.sleep``, ``trio.sleep`` and ``trio.sleep_until``, and the clocks
``time.monotonic`` and ``time.perf_counter`` (with their ``_ns`` variants). The replaced clocks run
ahead of the real clocks by the time slept. Names imported with ``from time import sleep`` are
replaced too. Infrastructure keeps using real time (see ``callers``).
"""

from __future__ import annotations

import asyncio
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

from .callers import is_infrastructure_module
from .loops import TrioTimeouts
from .replacements import REPLACEMENTS, asyncio_call_at, original_of, replacement_of
from .sleepers import Sleepers

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
