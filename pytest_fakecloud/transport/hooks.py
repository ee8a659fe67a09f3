"""Replaces functions of client libraries, alongside other tools that replace them."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

Function: TypeAlias = Callable[..., Any]
"""A function of a client library, or its replacement."""


class ShortcutWarning(UserWarning):
    """A warning that a client library has no function of a name that should be replaced."""


class _Replacement(NamedTuple):
    """A replaced function: the original, and the ``function`` that the holder has instead."""

    module: Any
    holder: Any
    name: str
    original: Function
    function: Function

    def is_in_place(self) -> bool:
        return getattr(self.holder, self.name, None) is self.function


class Hook:
    """One function of a library, which is replaced while the hook has users.

    ``module`` and ``path`` name the function (``"httpx"``, ``"HTTPTransport.handle_request"``);
    ``wrap`` makes the replacement from the original and a function that returns whether the hook
    has users; ``without`` is the part of the warning that says what follows if the library has no
    such function. The function is replaced once the library has been imported. Other tools may
    replace it too, before or afterwards. If another tool's function is in place when the last user
    leaves, it stays, and the hook's replacement, if that tool calls it, calls the original.
    """

    def __init__(
        self,
        module: str,
        path: str,
        wrap: Callable[[Function, Callable[[], bool]], Function],
        *,
        without: str,
    ) -> None:
        self.module = module
        self.path = path
        self.without = without
        self._wrap = wrap
        *self._owners, self._name = path.split(".")
        self._users = 0
        self._last: _Replacement | None = None
        """The latest replacement; it stays here after the last user has left, to be used again."""
        self._warned = False
        self._lock = threading.RLock()

    def active(self) -> bool:
        return self._users > 0

    def enter(self) -> None:
        """Register a user. The function is replaced as soon as its library has been imported."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self.refresh()

    def refresh(self) -> None:
        """Replace the function, if the library is imported and the replacement not in place."""
        # Every fake calls this, so check the usual case first.
        last = self._last
        module = sys.modules.get(self.module)
        if last is not None and last.module is module and last.is_in_place():
            return
        with self._lock:
            last = self._last
            holder = self._find() if self._users else None
            if holder is None:
                return
            present = getattr(holder, self._name)
            if last is not None and present is last.function:
                return
            if last is not None and present is last.original:
                function = last.function
            else:
                function = self._wrap(present, self.active)
            setattr(holder, self._name, function)
            module = sys.modules[self.module]
            self._last = _Replacement(module, holder, self._name, present, function)

    def leave(self) -> None:
        """Remove a user. The last restores the original, unless another tool replaced it too."""
        with self._lock:
            self._users = max(0, self._users - 1)
            last = self._last
            if not self._users and last is not None and last.is_in_place():
                setattr(last.holder, last.name, last.original)

    def _find(self) -> Any:
        module = sys.modules.get(self.module)
        if module is None:
            return None
        holder: Any = module
        for owner in self._owners:
            holder = getattr(holder, owner, None)
        if callable(getattr(holder, self._name, None)):
            return holder
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.module} has no {self.path} in this version, so {self.without}",
                ShortcutWarning,
                stacklevel=3,
            )
        return None


class Hooks:
    """Hooks that are used together."""

    def __init__(self, hooks: Iterable[Hook]) -> None:
        self.hooks = tuple(hooks)

    def enter(self) -> None:
        for hook in self.hooks:
            hook.enter()

    def refresh(self) -> None:
        """Replace functions of libraries imported since ``enter()``, or restored by another tool."""
        for hook in self.hooks:
            hook.refresh()

    def leave(self) -> None:
        for hook in self.hooks:
            hook.leave()
