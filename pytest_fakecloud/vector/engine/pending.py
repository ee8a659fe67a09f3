"""Pending changes, which queries see on request, after some fake time or after a number of reads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from ...core.timekeeper import Timekeeper
from ...core.timers import Timer
from ...core.wording import counted
from ..model import VectorRecord


@dataclass(slots=True, eq=False)
class Batch:
    """Changes of one namespace that become ready together.

    ``due_us`` is the fake time at which they become ready. ``reads`` is the number of further reads
    that do not see them. A condition that is None does not apply.
    """

    namespace: str
    records: list[VectorRecord]
    due_us: int | None = None
    reads: int | None = None
    timer: Timer | None = None


class Readiness:
    """Decides when changes become ready, and calls ``release(batch)`` when they do.

    ``delay_us`` and ``reads`` are the settings ``ready_after`` and ``ready_after_reads``, None if
    unset; if both are set, the condition that is met first applies. While anything holds the changes,
    nothing becomes ready. ``lock`` is the engine's lock, which the caller holds, except for ``hold()``
    and ``release()``.
    """

    def __init__(
        self,
        clock: Timekeeper,
        lock: threading.RLock,
        release: Callable[[Batch], None],
        delay_us: int | None,
        reads: int | None,
    ) -> None:
        self.holds = 0
        """How often ``hold()`` was called without its ``release()``."""
        self.batches: list[Batch] = []
        self._clock = clock
        self._lock = lock
        self._release = release
        self._delay_us = delay_us
        self._reads = reads

    @property
    def immediate(self) -> bool:
        return not self.holds and self._delay_us is None and self._reads is None

    def wait_for(self, namespace: str, records: list[VectorRecord]) -> None:
        due_us = None if self._delay_us is None else self._clock.now_us() + self._delay_us
        batch = Batch(namespace, records, due_us, self._reads)
        self.batches.append(batch)
        self._plan(batch)

    def count_read(self) -> None:
        """Count a query or info call, and release the batches hidden from enough calls."""
        if self.holds:
            return
        for batch in list(self.batches):
            if batch.reads is not None:
                if batch.reads <= 0:
                    self._finish(batch)
                else:
                    batch.reads -= 1

    def hold(self) -> None:
        """Hide all new and pending changes from queries and counts until ``release()``."""
        with self._lock:
            self.holds += 1

    def release(self) -> None:
        """End one ``hold()``. The last one makes all pending changes ready.

        New changes become ready according to the settings again.
        """
        with self._lock:
            self.holds -= 1
            if not self.holds:
                for batch in list(self.batches):
                    self._finish(batch)

    def follow(self, namespace: str, new: str) -> None:
        for batch in self.batches:
            if batch.namespace == namespace:
                batch.namespace = new

    def cancel(self) -> None:
        for batch in self.batches:
            if batch.timer is not None:
                batch.timer.cancel()

    def copy(self) -> list[Batch]:
        return [replace(batch, timer=None) for batch in self.batches]

    def restore(self, batches: list[Batch]) -> None:
        """Replace the pending changes. Those that only a hold delayed stay pending during one."""
        self.cancel()
        self.batches = [replace(batch, timer=None) for batch in batches]
        for batch in list(self.batches):
            if not self.holds and batch.due_us is None and batch.reads is None:
                self._finish(batch)
            self._plan(batch)

    def _plan(self, batch: Batch) -> None:
        if batch.due_us is not None:
            count = len(batch.records)
            batch.timer = self._clock.call_at(
                batch.due_us,
                lambda _: self._fall_due(batch),
                lane="state",
                label=f"vector index: apply {counted(count, 'pending change')}",
            )

    def _fall_due(self, batch: Batch) -> None:
        # The clock calls this method from any thread, so it takes the lock. The engine, which calls
        # the other methods, already holds the lock.
        with self._lock:
            if not self.holds:
                self._finish(batch)

    def _finish(self, batch: Batch) -> None:
        if batch in self.batches:
            self.batches.remove(batch)
            if batch.timer is not None:
                batch.timer.cancel()
            self._release(batch)
