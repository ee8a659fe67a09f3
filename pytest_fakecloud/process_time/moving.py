"""Sleeps in event loops of asyncio and trio, which move the clock; anyio uses the same sleeps.

A loop's time follows the clock, so timeouts (``wait_for``, ``asyncio.timeout``, ``move_on_after``)
end at the expected time. In each loop, the sleeper that wakes first waits until nothing else in the
loop can run. If a response may still arrive from outside (a socket is being read, a worker thread
is busy), it waits ``PATIENCE`` real seconds more. Then it moves the clock to the time at which the
next sleep ends, or to an earlier timeout. While no task of a loop sleeps, a watcher moves the clock
to the loop's timeouts, with more patience (``OUTSIDE``). A loop's time never goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from ..core.concurrency.aio import drive
from ..core.concurrency.turns import Occupied
from ..core.timeparse import monotonic
from .sleepers import GRACE, Sleeper, Sleepers

PATIENCE = 0.05
"""Real seconds to wait for a response from outside the loop before the clock moves."""
OUTSIDE = 2.0
"""Real seconds to wait before the clock moves to a timeout while no task sleeps.

A blocking call waits in a fake for less than this, so a timeout around it does not end first.
"""
SHORTEST = 0.05
"""Shortest timeout in seconds that the clock moves to; shorter ones take real time."""
LONGEST = 3.2e9
"""Longest timeout in seconds that the clock moves to, a century; longer ones are endless waits."""
SHORT_SLEEP = 0.002
"""Real seconds to sleep before another thread or task is looked at again."""


class Loop(Protocol):
    """An event loop in which tasks sleep.

    ``key`` identifies the loop, ``cancelled`` is the exception raised in a cancelled task.
    ``sleep_really()`` sleeps in real time; other tasks can run even if the time is 0.
    """

    key: object
    cancelled: type[BaseException]
    sleep_really: Callable[[float], Any]

    async def wait_until_idle(
        self, patience: float, ends: Callable[[], bool] = lambda: False
    ) -> bool:
        """Return True when nothing else in the loop can run.

        If a response may arrive from outside, first wait up to ``patience`` real seconds for it.
        Returns False if the loop does not become idle in time, or as soon as ``ends()`` is true.
        """

    def event(self) -> tuple[Callable[[], None], Callable[[], Any]]:
        """Return ``(set, wait)``: ``wait()`` returns after any thread has called ``set()``."""

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a task that nobody awaits."""

    def has_timeouts(self) -> bool:
        """Return whether the clock may move to one of the loop's timeouts while no task sleeps."""

    def next_timeout(self) -> float | None:
        """Return the seconds until the loop's next timeout, in the loop's time, or None."""


async def sleep_in(loop: Loop, sleepers: Sleepers, seconds: float) -> None:
    """Sleep in an event loop. If the patches end first, sleep for the remaining time in real time."""
    until_us = sleepers.until_us(seconds)
    with sleepers.asleep(until_us, loop.key) as sleeper:
        while not sleepers.over and sleepers.clock.now_us() < until_us:
            if sleepers.first_of(loop.key) is not sleeper:
                await _wait_to_be_first(loop, sleepers, sleeper)
                continue
            # Go on even if the loop does not become idle: it may wait for this sleep in a loop of its
            # own, as in `while not task.done(): await asyncio.sleep(0)`.
            await loop.wait_until_idle(PATIENCE)
            sleepers.settle(sleeper)
            try:
                await _move_clock_on_turn(loop, sleepers, sleeper)
            finally:
                sleeper.settled = False
    if sleepers.first_of(loop.key) is None and loop.has_timeouts():
        watch(loop, sleepers)
    # Sleep even if no time is left, so that other tasks can run.
    await loop.sleep_really(sleepers.left(until_us))


async def _wait_to_be_first(loop: Loop, sleepers: Sleepers, sleeper: Sleeper) -> None:
    sleeper.wake, wait = loop.event()
    if not sleepers.over and sleepers.first_of(loop.key) is not sleeper:
        await wait()


def watch(loop: Loop, sleepers: Sleepers) -> None:
    """Move the clock to the timeouts of a loop while no task in it sleeps.

    Call this in the loop's thread, after a timeout was set or the last sleeper has finished.
    """
    if loop.key not in sleepers.watched and not sleepers.over:
        sleepers.watched.add(loop.key)
        loop.spawn(lambda: _watch(loop, sleepers))


async def _watch(loop: Loop, sleepers: Sleepers) -> None:
    def ends() -> bool:
        return sleepers.over or sleepers.first_of(loop.key) is not None

    try:
        # End when a task sleeps: its sleeper moves the clock, and starts a new watcher at its end.
        while not ends() and loop.has_timeouts():
            is_idle = await loop.wait_until_idle(OUTSIDE, ends)
            if not is_idle or (left := loop.next_timeout()) is None:
                continue
            with sleepers.asleep(sleepers.until_us(left), loop.key) as watcher:
                sleepers.settle(watcher)
                try:
                    await _move_clock_on_turn(loop, sleepers, watcher, loop.has_timeouts)
                except loop.cancelled:
                    raise
                except BaseException as error:
                    # Keep the exception, e.g. of a handler, for stop(): no task awaits this one.
                    sleepers.failure = error
                    return
    finally:
        sleepers.watched.discard(loop.key)


async def _move_clock_on_turn(
    loop: Loop,
    sleepers: Sleepers,
    sleeper: Sleeper,
    still_wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Wait until a sleeper may move the clock, and move it, unless another sleeper has moved it."""
    now_us = sleepers.clock.now_us()
    if not await _wait_for_turn(loop, sleepers, sleeper, now_us):
        return
    if sleepers.first_of(loop.key) is not sleeper or not still_wanted():
        return
    target_us = sleepers.next_us(sleeper)
    timeout = loop.next_timeout()
    if timeout is not None:
        target_us = min(target_us, now_us + max(0, round(timeout * 1_000_000)))
    if target_us > now_us:
        await _move_clock(sleepers, sleeper, target_us)
    else:
        # Let the task of the expired timeout run; a timeout below a microsecond needs real time.
        await loop.sleep_really(0 if timeout is not None and timeout <= 0 else 1e-6)


async def _wait_for_turn(loop: Loop, sleepers: Sleepers, sleeper: Sleeper, now_us: int) -> bool:
    """Wait until a sleeper may move the clock; return False if another sleeper has moved it."""
    give_up = monotonic() + GRACE
    while not sleepers.is_turn(sleeper) and monotonic() < give_up:
        await loop.sleep_really(SHORT_SLEEP)
        if sleepers.over or sleepers.clock.now_us() != now_us:
            return False
    return True


async def _move_clock(sleepers: Sleepers, sleeper: Sleeper, target_us: int) -> None:
    clock = sleepers.clock
    sleeper.moving = True
    try:
        await drive(clock, lambda: max(target_us, clock.now_us()), yielding=True)
    except Occupied:
        clock.spend_until(target_us)
    finally:
        sleeper.moving = False
