"""What the functions and objects of explored code have stored before ``explore()``."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MemberDescriptorType, SimpleNamespace
from typing import Any

from ...core.exits import Exits
from ...core.libraries import is_library
from ...process.replace import Function
from ..subject.clients import functions_of
from ..subject.programs import Program
from .locks import SharedLock, SharedReentrantLock
from .world import World

_DEPTH = 3
"""Maximum number of references to follow from a program to a lock or a sleep."""
_MOST_ITEMS = 100
"""Maximum number of items of a dictionary or list that is searched."""
_LOCK, _REENTRANT_LOCK = type(threading.Lock()), type(threading.RLock())


class StoredObjects:
    """Replaces the locks, sleeps and clocks to which functions referred before ``explore()``, and puts
    them back when ``exits`` is closed.
    """

    def __init__(self, world: World, exits: Exits, functions: Mapping[int, Function]) -> None:
        self._world = world
        self._exits = exits
        self._functions = functions
        self.locks: dict[int, SharedLock] = {}
        self._seen: dict[int, int] = {}
        """The greatest depth with which each object was visited, by ``id()``."""

    def replace_in(self, programs: Iterable[Program]) -> None:
        """Replace what the functions of programs refer to."""
        for program in programs:
            for function in functions_of(program.function):
                self.visit(function, _DEPTH)
        locks = self.locks.values()
        self._world.free_locks += [lock.free for lock in locks if not lock.locked()]

    def visit(self, value: Any, depth: int) -> None:
        """Replace what a value refers to, following ``depth`` further references from there."""
        if self._seen.get(id(value), -1) >= depth:
            return
        self._seen[id(value)] = depth
        if isinstance(value, partial):
            bound: Any = value
            state = bound.args, bound.keywords, vars(bound)
            self._replace(
                bound.func, depth, lambda function: bound.__setstate__((function, *state))
            )
            value = bound.func
        if isinstance(value, dict | list) and len(value) <= _MOST_ITEMS:
            pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
            for key, held in pairs:
                self._visit_held(held, depth, partial(value.__setitem__, key))
            return
        owner = getattr(value, "__self__", None)
        if owner is not None and not isinstance(owner, type(sys)):
            self.visit(owner, depth)
        code = getattr(value, "__code__", None)
        if code is None:
            self._visit_attributes(value, depth)
        elif not is_library(code.co_filename):
            self._visit_closure(value, depth)
            self._visit_names(getattr(value, "__globals__", {}), code.co_names, depth)

    def _visit_attributes(self, value: Any, depth: int) -> None:
        module = sys.modules.get(type(value).__module__)
        source = getattr(module, "__file__", None)
        if not isinstance(value, SimpleNamespace) and (not source or is_library(source)):
            return
        names = getattr(value, "__dict__", None)
        if isinstance(names, dict):
            self._visit_names(names, list(names), depth)
        for name in getattr(type(value), "__slots__", ()):
            if isinstance(getattr(type(value), name, None), MemberDescriptorType):
                held = getattr(value, name, None)
                self._visit_held(held, depth, partial(setattr, value, name))

    def _visit_closure(self, function: Any, depth: int) -> None:
        for cell in getattr(function, "__closure__", None) or ():
            try:
                value = cell.cell_contents
            except ValueError:
                continue  # The variable has no value yet.
            self._replace(value, depth, partial(setattr, cell, "cell_contents"))

    def _visit_names(self, scope: dict[str, Any], names: Iterable[str], depth: int) -> None:
        for name in names:
            if name in scope:
                self._visit_held(scope[name], depth, partial(scope.__setitem__, name))

    def _visit_held(self, value: Any, depth: int, put: Callable[[Any], None]) -> None:
        """Replace a value that is held by another one, or visit it if ``depth`` allows that."""
        is_replaced = isinstance(value, _LOCK | _REENTRANT_LOCK)
        if depth or is_replaced or id(value) in self._functions:
            self._replace(value, depth - 1, put)

    def _replace(self, value: Any, depth: int, put: Callable[[Any], None]) -> None:
        function = self._functions.get(id(value))
        if function is not None:
            self._exits.callback(put, value)
            put(function)
        elif isinstance(value, _LOCK | _REENTRANT_LOCK):
            kind = SharedReentrantLock if isinstance(value, _REENTRANT_LOCK) else SharedLock
            new = kind(self._world, f"#{len(self.locks)}", value)
            shared = self.locks.setdefault(id(value), new)
            self._exits.callback(put, value)
            put(shared)
        elif value is not None:
            self.visit(value, depth)
