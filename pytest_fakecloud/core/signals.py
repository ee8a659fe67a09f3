"""Waking threads that sleep."""

from __future__ import annotations

import threading
from typing import Any


class Signal:
    """Wakes sleeping calls: at ``notify()``, when the clock moves, and at ``close()``."""

    # Not a ``threading.Condition``, whose methods are written in Python: a signal's handler that
    # raises inside them leaves its lock taken. No lock is held during a sleep.
    __slots__ = ("__weakref__", "_lock", "_sleepers", "closed", "version")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._sleepers: dict[object, None] = {}
        """A taken lock for each sleeping call, in the order of their beginning."""
        self.version = 0
        """A number that increases with each notification."""
        self.closed = False

    def notify(self) -> None:
        with self._lock:
            self.version += 1
            while self._sleepers:
                sleeper: Any = self._sleepers.popitem()[0]
                sleeper.release()

    def close(self) -> None:
        """End every current and future wait."""
        self.closed = True
        self.notify()

    def sleep(self, seen: int, seconds: float) -> None:
        """Sleep until ``version`` exceeds ``seen``, but at most ``seconds`` real seconds."""
        sleeper = threading.Lock()
        sleeper.acquire()
        try:
            with self._lock:
                if self.version != seen or self.closed:
                    return
                self._sleepers[sleeper] = None
            sleeper.acquire(timeout=seconds)
        finally:
            self._sleepers.pop(sleeper, None)
