"""A trio run whose time follows the clock."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from ..core.errors import ContractError, shown
from ..core.timeparse import monotonic
from .moving import LONGEST, SHORTEST, watch
from .sleepers import Sleepers

_IDLE_TIMEOUT = 0.25
"""Maximum real seconds to wait for a run to become idle."""
_IDLE_INTERVAL = 0.05
"""Real seconds for which all other tasks must be blocked."""


class TrioRun:
    """A trio run (one call of ``trio.run()``) in which tasks sleep, as a ``Loop``."""

    def __init__(self, trio: Any, real_sleep: Callable[[float], Any]) -> None:
        self._trio = trio
        self._real_sleep = real_sleep
        self.cancelled: type[BaseException] = trio.Cancelled
        self._token = trio.lowlevel.current_trio_token()
        self._clock = trio.lowlevel.current_clock()
        self.key = self._token
        if not hasattr(self._clock, "offset") and not hasattr(self._clock, "jump"):
            raise ContractError(
                f"the sleeps of this trio run cannot move the fakes' clock, because the run's clock "
                f"{shown(self._clock)} cannot be moved: run the test with trio's own clock"
            )

    @classmethod
    def running(cls, sleepers: Sleepers, real_sleep: Callable[[float], Any]) -> TrioRun:
        """Return the ``TrioRun`` for the trio run of this thread."""
        found = cls(sys.modules["trio"], real_sleep)
        sleepers.carry(found.key, found.move)
        return found

    def move(self, moved_us: int) -> None:
        self._call_in_loop(lambda: self._jump(moved_us / 1e6))

    def _jump(self, seconds: float) -> None:
        if hasattr(self._clock, "offset"):
            # Bypass the frozen class's __setattr__; trio reads the attribute at each use.
            object.__setattr__(self._clock, "offset", self._clock.offset + seconds)
        else:
            self._clock.jump(seconds)

    def _call_in_loop(self, function: Callable[[], object]) -> None:
        if self._is_here():
            function()
            return
        with contextlib.suppress(self._trio.RunFinishedError):
            self._token.run_sync_soon(function)

    def _is_here(self) -> bool:
        try:
            return self._trio.lowlevel.current_trio_token() is self._token
        except RuntimeError:
            return False

    async def wait_until_idle(
        self, patience: float, ends: Callable[[], bool] = lambda: False
    ) -> bool:
        import trio.testing

        with self._trio.move_on_after(_IDLE_TIMEOUT) as scope:
            await trio.testing.wait_all_tasks_blocked(0.0)
            began = monotonic()
            while self._awaits_others() and monotonic() - began < patience:
                # Wait in short intervals, because a sleeper also waits until all other tasks are
                # blocked.
                await trio.testing.wait_all_tasks_blocked(_IDLE_INTERVAL)
                scope.deadline = self._trio.current_time() + _IDLE_TIMEOUT
                if ends():
                    return False
        return not scope.cancelled_caught and not ends()

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._trio.lowlevel.spawn_system_task(work)

    def _awaits_others(self) -> bool:
        io = self._trio.lowlevel.current_statistics().io_statistics
        waiting = getattr(io, "tasks_waiting_read", 1) + getattr(io, "tasks_waiting_write", 1)
        # Do not count trio's internal task, which waits for wake-ups from other threads.
        limiter = self._trio.to_thread.current_default_thread_limiter()
        return waiting > 1 or limiter.borrowed_tokens > 0

    def has_timeouts(self) -> bool:
        return self.next_timeout() is not None

    def next_timeout(self) -> float | None:
        left: float = self._trio.lowlevel.current_statistics().seconds_to_next_deadline
        return None if left == float("inf") else left

    def event(self) -> tuple[Callable[[], None], Callable[[], Any]]:
        event = self._trio.Event()
        return (lambda: self._call_in_loop(event.set)), event.wait

    async def sleep_really(self, seconds: float) -> None:
        await self._real_sleep(seconds)


class TrioTimeouts:
    """A trio instrument that lets the clock move to timeouts while no task of the run sleeps."""

    def __init__(self, sleepers: Sleepers, real_sleep: Callable[[float], Any]) -> None:
        self._sleepers = sleepers
        self._real_sleep = real_sleep
        self._token: Any = None

    def before_io_wait(self, timeout: float) -> None:
        """Start a watcher if the run would be idle until a timeout."""
        if self._sleepers.over or not SHORTEST < timeout < LONGEST:
            return
        if self._token is None:
            self._token = sys.modules["trio"].lowlevel.current_trio_token()
        if self._token not in self._sleepers.watched:
            # Start the watcher through the token: a task started directly would not run before the
            # wait ends.
            self._token.run_sync_soon(self._watch, idempotent=True)

    def _watch(self) -> None:
        # Ignore a run whose clock cannot be moved, and one that is ending and accepts no more
        # tasks.
        with contextlib.suppress(ContractError, RuntimeError):
            loop = TrioRun.running(self._sleepers, self._real_sleep)
            if self._sleepers.first_of(loop.key) is None:
                watch(loop, self._sleepers)
