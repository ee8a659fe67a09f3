"""Waits of strands, in which other strands run and the time passes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from ...core.errors import Crash
from ...core.signals import Signal
from ...core.touches import READS_CLOCK
from ..fakes.gate import Gate
from .clock import TrialClock
from .outsiders import Outsiders
from .part import Common, Part
from .rest import Waiting, Wakeup
from .sleepers import Sleepers
from .strand import Strand


class StrandWaits(Part):
    """Lets a strand wait for a condition or a time. Then other strands run."""

    def __init__(
        self, common: Common, *, outsiders: Outsiders, sleepers: Sleepers, clock: TrialClock
    ) -> None:
        super().__init__(common)
        self._outsiders = outsiders
        self._sleepers = sleepers
        self._clock = clock

    def sleep(self, seconds: float) -> bool:
        """Sleep in fake time; return False for a thread that does not work for a strand."""
        strand = self._current_thread.strand()
        if strand is None:
            return self._sleep_elsewhere(seconds)
        self._turns.check_alive(strand)
        if self._fakes.clock.is_moving or seconds <= 0:
            return True
        self.wait_until(strand, None, self._fakes.time_after(seconds))
        return True

    def wait_until(
        self,
        strand: Strand,
        ready: Callable[[], bool] | None,
        until_us: int | None,
        *,
        for_other_thread: bool = False,
    ) -> None:
        """Let others run until ``ready()`` or a time. ``for_other_thread``: for a lock or the end of a
        thread.
        """
        if until_us is not None:
            self._access_log.touch([READS_CLOCK])
            # In another order, the time could pass while another strand can run.
            if len(self._strands) > 1:
                self._log.flags.add("timers")
        self._turns.yield_turn(strand, Waiting(ready, until_us, for_other_thread))

    def wait_in_command(
        self, strand: Strand, signal: Signal, poll: Callable[[], object], until_us: int
    ) -> object:
        """Let other strands run until ``poll()`` returns something other than None, for a strand whose
        blocking call this thread handles.
        """
        result: object = None

        def ready() -> bool:
            nonlocal result
            if result is None:  # A poll that succeeds takes its result, so it must not be repeated.
                result = poll()
            return result is not None or signal.closed

        if not ready() and self._fakes.now_us() < until_us:
            line = strand.line
            try:
                self.wait_until(strand, ready, until_us)
            except Crash:
                if self._current_thread.strand() is strand:
                    raise
            if ready() and line is not None and result is not None:
                self._log.postpone(line, self._fakes.now_us())
        return result

    def _sleep_elsewhere(self, seconds: float) -> bool:
        """Sleep in a thread that is not explored but works for a strand, such as a worker thread of an
        ASGI application; return False for other threads.
        """
        strand = self._sleeper()
        if strand is None:
            return False
        if not self._passes(strand, seconds):
            gate, me = Gate(), threading.get_ident()
            sleeping = self._outsiders.sleeping

            def wake() -> None:
                sleeping.discard(me)
                gate.release()

            sleeping.add(me)
            self._sleepers.add(self._fakes.time_after(seconds), strand, wake)
            gate.acquire()
            if self._turns.has_ended:
                raise RuntimeError("the trial has ended in which this thread began to sleep")
        return True

    async def sleep_async(self, seconds: float, new_wakeup: Callable[[], Wakeup]) -> bool:
        """Sleep in an event loop that works for a strand, unexplored; return False for other loops.

        A task that sleeps when the trial ends is cancelled: any other exception could be caught, or end
        the whole loop.
        """
        strand = self._sleeper()
        if strand is None:
            return False
        if not self._passes(strand, seconds):
            wakeup = new_wakeup()
            wake = partial(wakeup.wake_elsewhere, lambda: self._turns.has_ended)
            self._sleepers.add(self._fakes.time_after(seconds), strand, wake)
            await wakeup
        return True

    def _sleeper(self) -> Strand | None:
        """Return the strand for which this thread sleeps in fake time, although it is not explored."""
        if not self._current_thread.is_live():
            return None
        origin = self._current_thread.origin()
        if origin == "fake":  # It runs the handler of a ``destination`` for the delivering strand.
            return self._turns.holder
        return self._current_thread.carried() if origin in ("carried", "outsider") else None

    def _passes(self, strand: Strand, seconds: float) -> bool:
        """Let time pass for a strand that waits for this thread in its turn; return False for one that
        lets other strands run, whose sleep must wait for them.
        """
        if self._fakes.clock.is_moving or seconds <= 0:
            return True
        if self._turns.holder is not strand and not strand.thread.real_waits:
            return False
        self._clock.move_to(self._fakes.time_after(seconds))
        return True
