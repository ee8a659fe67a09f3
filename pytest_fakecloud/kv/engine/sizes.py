"""The sizes of all keys, added up without looking at keys that have not changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..values.sizes import ENTRY, content_size, usage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .keyspace import Keyspace

STARTUP = 1024
"""Memory used by a server without data, in bytes."""


class _Sums:
    """The sizes of the keys of one database, and their sums."""

    def __init__(self) -> None:
        self.memory = 0
        self.content = 0
        self._sizes: dict[bytes, tuple[int, int]] = {}

    def update(self, db: Keyspace) -> None:
        if db.resized is None:
            db.resized = {*db.values, *self._sizes}
        while db.resized:
            key = db.resized.pop()
            memory, content = self._sizes.pop(key, (0, 0))
            self.memory -= memory
            self.content -= content
            value = db.values.get(key)
            if value is not None:
                memory, content = usage(key, value), len(key) + content_size(value)
                self._sizes[key] = memory, content
                self.memory += memory
                self.content += content


class Sizes:
    """The memory and the contents of all keys.

    The first request adds up the sizes of all keys. From then on, databases record which keys
    change (``Keyspace.resized``), and a request looks at these keys only. ``start`` makes the
    databases record changes.
    """

    def __init__(self, databases: Sequence[Keyspace], start: Callable[[], None]) -> None:
        self._databases = databases
        self._start = start
        self._sums = [_Sums() for _ in databases]
        self.requested = False

    def _update(self, db: Keyspace) -> _Sums:
        if not self.requested:
            self.requested = True
            self._start()
        sums = self._sums[db.index]
        sums.update(db)
        return sums

    def used_memory(self) -> int:
        """Return the memory used by the server and its keys, values and expiry times, in bytes."""
        return STARTUP + sum(
            self._update(db).memory + ENTRY * len(db.expires) for db in self._databases
        )

    def of_content(self, db: Keyspace) -> int:
        """Return the bytes of the keys and values of a database."""
        return self._update(db).content
