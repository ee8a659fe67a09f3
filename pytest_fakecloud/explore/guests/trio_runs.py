"""Runs of trio in a check of ``explore()``: their waits move the clock, as those of asyncio do."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ...core.errors import ContractError
from ...process.replace import Patch
from ..simulation.current_thread import PROMISE
from ..simulation.loops import AsyncLibrary
from ..world.world import World

_PATIENCE = 0.05
"""Real seconds to wait for a socket or a thread before the clock moves, or is looked at again."""


class Trio(AsyncLibrary):
    """trio, whose runs in a check have the clock of the cloud."""

    portal = "trio-portal-"

    def __init__(self, world: World) -> None:
        self._world = world

    def is_running(self) -> bool:
        trio = sys.modules.get("trio")
        return trio is not None and bool(trio.lowlevel.in_trio_run())

    def current_task(self) -> object | None:
        with contextlib.suppress(RuntimeError):  # between two tasks
            task: object = sys.modules["trio"].lowlevel.current_task()
            return task
        return None

    def patches(self) -> Iterator[Patch]:
        world, trio = self._world, sys.modules.get("trio")
        if trio is None:
            return
        real_run, real_run_sync = trio.run, trio.to_thread.run_sync

        def run(function: Callable[..., Any], *args: Any, clock: Any = None, **options: Any) -> Any:
            role = world.current_thread.role()
            if clock is not None or not (role.moves_clock or role is PROMISE):
                return real_run(function, *args, clock=clock, **options)
            clock = _Clock(world, trio)

            async def main() -> Any:
                with clock.scope:
                    return await function(*args)

            result = real_run(main, clock=clock, **options)
            if clock.error is not None:
                raise clock.error
            return result

        async def run_sync(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
            if not world.current_thread.role().moves_clock:
                return await real_run_sync(function, *args, **options)
            results: list[Any] = []

            def work() -> None:
                results.append(function(*args))

            await real_run_sync(partial(world.between_trials.run_in_check, work), **options)
            return results[0]

        yield trio, "run", run
        yield trio.to_thread, "run_sync", run_sync


class _Clock:
    """A clock for a run of trio, which is the clock of the cloud, as ``trio.abc.Clock``.

    trio asks it how long to wait when no task can run. It moves the clock of the cloud by one event, or
    to the next deadline, and lets trio look again. Sources: trio's documentation of ``trio.abc.Clock``;
    that a wait for a socket or a thread gets some real time is decided here.
    """

    def __init__(self, world: World, trio: Any) -> None:
        self._world = world
        self._trio = trio
        self._began_us = world.fakes.now_us()
        self._was_patient = False
        self.scope = trio.CancelScope()
        """The scope of trio's run, which ends at an error."""
        self.error: ContractError | None = None
        """The error of a promise of every step, which must not wait."""

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        # Measure times from the start: a float of the full time cannot tell microseconds apart.
        return (self._world.fakes.now_us() - self._began_us) / 1e6

    def deadline_to_sleep_time(self, deadline: float) -> float:
        seconds = deadline - self.current_time()
        if seconds <= 0:
            return 0.0
        if self._trio.to_thread.current_default_thread_limiter().borrowed_tokens:
            return _PATIENCE  # The waits of the thread move the clock.
        io = self._trio.lowlevel.current_statistics().io_statistics
        waiting = getattr(io, "tasks_waiting_read", 1) + getattr(io, "tasks_waiting_write", 1)
        # One task of trio waits for other threads.
        self._was_patient = waiting > 1 and not self._was_patient
        if self._was_patient:
            return _PATIENCE
        now_us, looks = self._world.fakes.now_us(), iter((False,))
        limit = None if seconds == math.inf else seconds
        try:
            self._world.waits.wait_in_check(lambda: next(looks, True), limit)
        except ContractError as error:
            if self.error is not None:
                raise  # A task that is shielded goes on waiting.
            self.error = error
            self.scope.cancel()
        return 0.0 if self._world.fakes.now_us() > now_us else min(seconds, _PATIENCE)
