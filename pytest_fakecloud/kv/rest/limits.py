"""Limits on the commands of clients: their size, and their number per UTC day and per second."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from ...http.messages import Request
from .. import errors
from ..errors import CommandError
from ..settings import KVConfig

_DAY_US = 86_400_000_000
_SECOND_US = 1_000_000


class CommandLimits:
    """Enforces the limits of a database. ``now_us`` returns the time of the fake's clock."""

    def __init__(self, limits: KVConfig, now_us: Callable[[], int]) -> None:
        self._max_size = limits.max_request_size
        self._now_us = now_us
        self._lock = threading.Lock()
        self._windows = [
            _Window(width_us, limit, error)
            for width_us, limit, error in (
                (_DAY_US, limits.daily_limit, errors.MAX_DAILY_REQUESTS),
                (_SECOND_US, limits.max_requests_per_second, errors.MAX_REQUESTS),
            )
            if limit is not None
        ]

    def must_check(self, request: Request) -> bool:
        """Return whether the commands of a request must be checked.

        If their number is not limited, only a request that exceeds the maximum size of a command
        can contain a command that exceeds it, because decoding only shortens commands.
        """
        if self._windows:
            return True
        size = len(request.body) + len(request.target)
        return self._max_size is not None and size > self._max_size

    def check(self, line: list[bytes]) -> None:
        """Count a command, even if it is too large; raise ``CommandError`` if it exceeds a limit."""
        self.count()
        self.check_size(line)

    def check_size(self, line: list[bytes]) -> None:
        """Raise ``CommandError`` if a command is too large."""
        if self._max_size is not None and sum(map(len, line)) > self._max_size:
            raise CommandError(errors.MAX_REQUEST_SIZE)

    def count(self, commands: int = 1) -> None:
        """Count commands. If they would exceed a limit, raise ``CommandError`` and count none."""
        if not self._windows:
            return
        with self._lock:
            now_us = self._now_us()
            for window in self._windows:
                window.advance(now_us)
                if window.used + commands > window.limit:
                    raise CommandError(window.error)
            for window in self._windows:
                window.used += commands

    def reset(self) -> None:
        with self._lock:
            for window in self._windows:
                window.used = 0


@dataclass(eq=False, repr=False, slots=True)
class _Window:
    """A period of the clock in which at most ``limit`` commands may run."""

    width_us: int
    limit: int
    error: bytes
    index: int = 0
    """The number of whole periods since the Unix epoch."""
    used: int = 0

    def advance(self, now_us: int) -> None:
        index = now_us // self.width_us
        if index != self.index:
            self.index = index
            self.used = 0
