"""Real-time limits of attempts, measured by a clock that time-freezing tools do not change.

The timeout of an attempt counts on the queue's clock. The limits here only keep a test suite from
hanging. One daemon thread, started on first use, serves all attempts of a sender.
"""

from __future__ import annotations

import heapq
import itertools
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...core.timeparse import monotonic

T = TypeVar("T")

_COMPACT = 64
"""Number of cancelled deadlines, beside as many as are active, that are kept before a clean-up."""


class CapReached(Exception):
    """Raised if a destination takes longer than the real-time cap. Its text is the error to report."""


class Deadlines:
    """Calls functions after a real-time delay.

    ``cap`` is the limit of one attempt in seconds, even if its timeout is longer. While
    ``time_passes()`` is true, the queue's clock runs with the real one.
    """

    def __init__(self, cap: float, time_passes: Callable[[], bool] = lambda: False) -> None:
        self.cap = cap
        self._time_passes = time_passes
        self._condition = threading.Condition()
        self._heap: list[tuple[float, int]] = []
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    def start(self, callback: Callable[[], object], seconds: float | None = None) -> int:
        """Call a function after a delay (default: the cap). Returns a number for ``cancel()``."""
        due = monotonic() + (self.cap if seconds is None else seconds)
        with self._condition:
            number = next(self._numbers)
            self._callbacks[number] = callback
            if len(self._heap) > 2 * len(self._callbacks) + _COMPACT:
                # Remove cancelled deadlines, which may be a day away.
                self._heap = [each for each in self._heap if each[1] in self._callbacks]
                heapq.heapify(self._heap)
            heapq.heappush(self._heap, (due, number))
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._watch, name="fakecloud queue deadlines", daemon=True
                )
                self._thread.start()
            elif self._heap[0][1] == number:
                self._condition.notify()
        return number

    def cancel(self, number: int) -> bool:
        """Cancel a callback; return False if it has already been called."""
        with self._condition:
            return self._callbacks.pop(number, None) is not None

    def close(self) -> None:
        """End the thread and forget all callbacks, also those that are started later."""
        with self._condition:
            self._closed = True
            self._callbacks.clear()
            self._condition.notify()
            thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(2)

    def limit(self, timeout_us: int) -> float | None:
        """Return an attempt's timeout in real seconds, or None if only the cap limits it."""
        limit = timeout_us / 1_000_000
        return limit if 0 < limit < self.cap and self._time_passes() else None

    def timeout_text(self, why: str = "") -> str:
        """Return the error at the cap, with advice if what ``why`` says blocked an event loop."""
        text = f"no answer within {self.cap:g} s of real time"
        if why and loop_is_running():
            text += (
                f"; {why}, which blocked this thread's event loop. If the destination needs that "
                "loop, use an awaitable method (await queue.aio.run_until_idle())"
            )
        return text

    async def within_cap(self, work: Awaitable[T]) -> T:
        """Await work in the running loop (asyncio or trio); raise ``CapReached`` at the cap."""
        if not asyncio_is_running():
            return await self._within_cap_trio(work)
        import asyncio

        loop = asyncio.get_running_loop()
        task = loop.create_task(_result_of(work))
        # Cancel the task from this thread: a tool may have frozen the loop's own timers.
        planned = self.start(lambda: loop.call_soon_threadsafe(task.cancel))
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            in_time = self.cancel(planned)
        if task.cancelled() and not in_time:
            raise CapReached(self.timeout_text())
        return task.result()

    async def _within_cap_trio(self, work: Awaitable[T]) -> T:
        trio = sys.modules["trio"]
        token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as scope:
            planned = self.start(lambda: token.run_sync_soon(scope.cancel))
            try:
                return await work
            finally:
                self.cancel(planned)
        raise CapReached(self.timeout_text())

    def _watch(self) -> None:
        while True:
            with self._condition:
                while self._heap and self._heap[0][1] not in self._callbacks:
                    heapq.heappop(self._heap)
                if self._closed:
                    return
                if not self._heap:
                    self._condition.wait()
                    continue
                due, number = self._heap[0]
                left = due - monotonic()
                if left > 0:
                    self._condition.wait(left)
                    continue
                heapq.heappop(self._heap)
                callback = self._callbacks.pop(number)
            try:
                callback()
            except Exception:
                # Ignore the error: the attempt that the callback should end has already ended.
                continue


async def _result_of(work: Awaitable[T]) -> T:
    return await work


def asyncio_is_running() -> bool:
    # Do not import asyncio here. Code that runs a loop has already imported it.
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


def loop_is_running() -> bool:
    trio = sys.modules.get("trio")
    return asyncio_is_running() or (trio is not None and bool(trio.lowlevel.in_trio_run()))
