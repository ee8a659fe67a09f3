"""Replaces functions of client libraries, alongside other tools that replace them."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

Function: TypeAlias = Callable[..., Any]
"""A function of a client library, or its replacement."""


class ShortcutWarning(UserWarning):
    """A warning that a client library has no function of a name that should be replaced."""


class Hook:
    """One function of a library, which is replaced while the hook has users.

    ``module`` and ``path`` name the function (``"httpx"``, ``"HTTPTransport.handle_request"``);
    ``wrap`` makes the replacement from the original; ``without`` is the part of the warning that
    says what follows if the library has no such function. The function is replaced once the library has
    been imported. Other tools may replace it too, before or afterwards. If another tool's function
    is in place when the last user leaves, it is not removed; the hook's replacement, which that
    tool may call, then calls the original.
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
        self._users = 0
        self._ours: Function | None = None
        self._spare: Function | None = None
        self._original: Function | None = None
        self._warned = False
        self._lock = threading.RLock()
        self._place: tuple[Any, Any, str] = (None, None, "")
        """The library's module, and the object and the name where the replacement was put."""

    @property
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
        module, holder, name = self._place
        in_place = holder is not None and vars(holder).get(name) is self._ours
        if in_place and self._ours is not None and sys.modules.get(self.module) is module:
            return
        with self._lock:
            holder, name = self._find() if self._users else (None, "")
            if holder is None or (present := getattr(holder, name)) is self._ours:
                return
            if self._spare is not None and self._original is present:
                # Use the last replacement again, because the original has not changed since.
                self._ours, self._spare = self._spare, None
            else:
                self._original, self._spare = present, None
                self._ours = self._wrap(present, lambda: self._users > 0)
            setattr(holder, name, self._ours)
            self._place = (sys.modules[self.module], holder, name)

    def leave(self) -> None:
        """Remove a user. The last restores the original, unless another tool replaced it too."""
        with self._lock:
            self._users = max(0, self._users - 1)
            if self._users or self._ours is None:
                return
            holder, name = self._find()
            if holder is not None and getattr(holder, name) is self._ours:
                setattr(holder, name, self._original)
                self._ours, self._spare = None, self._ours

    def _find(self) -> tuple[Any, str]:
        module = sys.modules.get(self.module)
        if module is None:
            return None, ""
        holder: Any = module
        *owners, name = self.path.split(".")
        for owner in owners:
            holder = getattr(holder, owner, None)
        if holder is None or not callable(getattr(holder, name, None)):
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"{self.module} has no {self.path} in this version, so {self.without}",
                    ShortcutWarning,
                    stacklevel=3,
                )
            return None, ""
        return holder, name


class Hooks:
    """Hooks that are used together."""

    def __init__(self, hooks: Iterable[Hook]) -> None:
        self.hooks = tuple(hooks)

    def enter(self) -> None:
        """Register a user of each hook."""
        for hook in self.hooks:
            hook.enter()

    def refresh(self) -> None:
        """Replace functions of libraries imported since ``enter()``, or restored by another tool."""
        for hook in self.hooks:
            hook.refresh()

    def leave(self) -> None:
        """Remove a user of each hook. The last user restores the originals."""
        for hook in self.hooks:
            hook.leave()
