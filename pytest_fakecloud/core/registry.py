"""Objects that are registered in one thread and iterated over in others, such as listeners."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

_registering = threading.Lock()
"""Protects all registries. Most of them never change, so they have no locks of their own."""


class Registry(Generic[T]):
    """Registered objects, over which other threads may iterate during changes."""

    items: tuple[T, ...] = ()

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def add(self, item: T) -> Callable[[], None]:
        """Register an object; return a function that removes it and can be called repeatedly."""
        with _registering:
            self.items = (*self.items, item)
        return functools.partial(self.remove, item)

    def remove(self, item: T) -> None:
        """Remove this very object, if it is registered."""
        with _registering:
            self.items = tuple([other for other in self.items if other is not item])
