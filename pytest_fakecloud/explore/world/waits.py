"""Waits of the checks and of ``setup=``, which move the clock of the cloud, and of explored code."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakSet

from ...core.errors import ContractError
from ...core.signals import Signal
from ...core.timers import monotonic, to_datetime
from ..fakes.deliveries import DELIVERIES_END_US
from ..fakes.gate import wait_really
from ..simulation.current_thread import PROMISE
from ..simulation.pool import ABANDONED
from ..simulation.rest import Wakeup
from ..values.limits import EARLIER_THREADS

if TYPE_CHECKING:
    from .world import World


class ThreadWaits:
    """Lets threads wait in fake time: until a condition is true, or some seconds have passed.

    A check or ``setup=`` moves the clock from event to event, explored code lets other strands run, and
    a promise that is checked after every step must not wait. Other threads sleep in fake time if they
    work for a strand; all else that they wait for takes real time.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._moving = threading.RLock()
        self._earlier_threads = WeakSet(threading.enumerate())
        """The threads that were alive when the exploration began, with this one."""

    def sleep(self, seconds: float) -> bool:
        """Sleep in fake time; return False for a thread that neither checks nor works for a strand."""
        simulation = self._world.simulation
        if simulation is None:
            return self.wait_in_check(lambda: False, seconds)
        self._check_promise(seconds)
        return simulation.strand_waits.sleep(seconds)

    async def sleep_async(self, seconds: float, new_wakeup: Callable[[], Wakeup]) -> bool:
        """Sleep in fake time in an event loop that is not explored; return False for other loops."""
        simulation = self._world.simulation
        if simulation is None:
            return self.wait_in_check(lambda: False, seconds)
        self._check_promise(seconds)
        return await simulation.strand_waits.sleep_async(seconds, new_wakeup)

    def wait_in_check(self, is_over: Callable[[], bool], seconds: float | None) -> bool:
        """Move the clock from event to event until ``is_over()`` is true or a time has passed, because
        a check waits; return False for other threads, and if only another thread can end the wait.
        """
        world = self._world
        if world.simulation is not None:
            self._check_promise(seconds)
            return False
        if not world.current_thread.role().moves_clock:
            return False
        is_limited = seconds is not None
        until_us = world.fakes.time_after(DELIVERIES_END_US / 1e6 if seconds is None else seconds)
        with self._moving:
            if world.fakes.clock.is_moving:
                return is_limited  # A handler of a delivery, during which the time stands still.
            while not is_over():
                now, due = world.fakes.now_us(), world.fakes.clock.next_due_us()
                if due is None and not is_limited:
                    return False
                if now >= until_us:
                    return is_limited
                target = until_us if due is None else min(until_us, max(due, now + 1))
                world.fakes.clock.move_to(to_datetime(target))
        return True

    def wait_until(self, is_over: Callable[[], bool], timeout: float | None) -> None:
        """Wait until ``is_over()``, unless the timeout is 0; raise ``TimeoutError`` when it ends."""
        world, strand = self._world, self._world.current_thread.strand()
        simulation = None if strand is None else world.simulation
        if timeout != 0 and not is_over():
            if simulation is not None and strand is not None:
                until = None if timeout is None else world.fakes.time_after(timeout)
                simulation.strand_waits.wait_until(strand, is_over, until)
            elif not self.wait_in_check(is_over, timeout):
                end = math.inf if timeout is None else monotonic() + timeout
                wait_really(lambda: is_over() or monotonic() > end, None)
            if not is_over():
                raise TimeoutError("timed out")
        if simulation is not None and strand is not None:
            simulation.turns.check_alive(strand)

    def wait_in_command(
        self,
        real: Callable[[Signal, Callable[[], object], int], object],
        signal: Signal,
        poll: Callable[[], object],
        until_us: int,
    ) -> object:
        """Wait until ``poll()`` returns something other than None, for a blocking command of a fake."""
        world, thread, simulation = self._world, self._world.current_thread, self._world.simulation
        strand = thread.served()
        if simulation is not None and strand is not None and not world.fakes.clock.is_moving:
            return simulation.strand_waits.wait_in_command(strand, signal, poll, until_us)
        stream = world.fakes.connections.streams.get(threading.get_ident())
        if stream is not None:
            return stream.look(
                poll,
                lambda: (
                    signal.closed
                    or world.fakes.now_us() >= until_us
                    or (simulation is not None and simulation.turns.has_ended)
                ),
            )
        result: object = None

        def is_over() -> bool:
            nonlocal result
            result = poll()
            return result is not None

        aside = world.fakes.connections.aside_here()
        if aside is not None:
            aside.step_back()
        elif world.simulation is None:
            self.wait_in_check(is_over, max(0, until_us - world.fakes.now_us()) / 1e6)
        return real(signal, poll, until_us) if result is None else result

    def patience_with_threads(self, timeout: float) -> float:
        """Return for how many real seconds a wait with a time-out may still be ended by another thread:
        not by one of the fakes, nor by an abandoned one. A thread that was there before the exploration
        can be idle for good, as libraries keep some for later, so such a one gets ``EARLIER_THREADS``
        (decided here).
        """
        me = threading.current_thread()
        others = [
            thread
            for thread in threading.enumerate()
            if thread is not me and not thread.name.startswith(("fakecloud-", ABANDONED))
        ]
        if all(thread in self._earlier_threads for thread in others):
            return min(timeout, EARLIER_THREADS) if others else 0.0
        return timeout

    def _check_promise(self, seconds: float | None) -> None:
        """Raise ``ContractError`` if a promise that is checked after every step is about to wait."""
        if seconds and self._world.current_thread.role() is PROMISE:
            raise ContractError(
                "a promise that is checked after every step waits, but time that passes in it would "
                "change the trial: read from the fakes, or wait in a check at the end of a trial, such "
                "as eventually()"
            )
