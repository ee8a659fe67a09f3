"""The daily request limit, which starts anew at midnight UTC on the clock."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .model import Limits

__all__ = ["Quota"]

_DAY_US = 86_400_000_000


class Quota:
    """Counts commands per UTC day, and says how many more there may be."""

    def __init__(self, limits: Limits, now_us: Callable[[], int]) -> None:
        self._limits = limits
        self._now_us = now_us
        self._lock = threading.Lock()
        self._day = 0
        self._used = 0

    def take(self, commands: int) -> bool:
        """Count that many commands at once; False, and nothing counted, when they do not fit."""
        limit = self._limits.daily_limit
        if limit is None:
            return True
        with self._lock:
            day = self._now_us() // _DAY_US
            if day != self._day:
                self._day, self._used = day, 0
            if self._used + commands > limit:
                return False
            self._used += commands
            return True

    def reset(self) -> None:
        """Count from nothing again."""
        with self._lock:
            self._used = 0
