"""Rate limits: commands per UTC day and per second, by the fake's clock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import MAX_DAILY_REQUESTS, MAX_REQUESTS

if TYPE_CHECKING:
    from ..settings import Limits

_DAY_US = 86_400_000_000
_SECOND_US = 1_000_000


class Quota:
    """Enforces limits on the number of commands per UTC day and per second."""

    def __init__(self, limits: Limits, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._lock = threading.Lock()
        self._windows = [
            _Window(width_us, limit, error)
            for width_us, limit, error in (
                (_DAY_US, limits.daily_limit, MAX_DAILY_REQUESTS),
                (_SECOND_US, limits.max_requests_per_second, MAX_REQUESTS),
            )
            if limit is not None
        ]

    def __bool__(self) -> bool:
        return bool(self._windows)

    def charge(self, commands: int = 1) -> bytes | None:
        """Count commands. If they would exceed a limit, count nothing and return the error."""
        if not self:
            return None
        with self._lock:
            now_us = self._now_us()
            for window in self._windows:
                if not window.has_room(commands, now_us):
                    return window.error
            for window in self._windows:
                window.used += commands
            return None

    def reset(self) -> None:
        with self._lock:
            for window in self._windows:
                window.used = 0


@dataclass(eq=False, repr=False, slots=True)
class _Window:
    width_us: int
    limit: int
    error: bytes
    number: int = 0
    used: int = 0

    def has_room(self, commands: int, now_us: int) -> bool:
        number = now_us // self.width_us
        if number != self.number:
            self.number, self.used = number, 0
        return self.used + commands <= self.limit
