"""The event loops in which the applications and coroutine functions of a queue run."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .asgi_runner import AsgiRunner
    from .lifespans import AsgiApp, RunningLifespan, RunningLifespans


class EventLoops:
    """The event loops in which applications and coroutine functions of one table run."""

    def __init__(self) -> None:
        self._runner: AsgiRunner | None = None
        self._running: RunningLifespans | None = None
        self._lock = threading.Lock()

    def runner(self) -> AsgiRunner:
        """Return the loop for coroutines that no running loop awaits, starting it on first use."""
        with self._lock:
            if self._runner is None:
                # Imported here, because the module imports asyncio, which no other part of a queue
                # needs.
                from .asgi_runner import AsgiRunner

                self._runner = AsgiRunner()
            return self._runner

    def running_lifespan(self, app: AsgiApp) -> RunningLifespan | None:
        """Return the application's lifespan if code other than the queue runs it, else None."""
        if self._runner is not None and self._runner.has(app):
            return None
        if self._running is None:
            from .lifespans import RunningLifespans

            self._running = RunningLifespans()
        return self._running.find(app)

    def close(self) -> None:
        """End the queue's own loop and the lifespans that run in it."""
        with self._lock:
            runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()
