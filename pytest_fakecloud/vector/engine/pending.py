"""When changes become ready for queries: at once, by hand, after a time, or after some reads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from ...core.timekeeper import Timekeeper
from ...core.timers import Timer
from ..model import VectorRecord


@dataclass(slots=True, eq=False)
class Batch:
    """Changes of one namespace that become ready together.

    ``due_us`` is the instant on the clock, ``reads`` how many more queries or infos come first;
    None where that is not what the batch waits for.
    """

    namespace: str
    records: list[VectorRecord]
    due_us: int | None = None
    reads: int | None = None
    timer: Timer | None = None


class Readiness:
    """Decides whether a change is ready, and calls ``release(batch)`` for pending ones in time.

    ``delay_us`` and ``reads`` are the index's settings, None where unset; with both, whichever
    comes first. While ``held``, nothing becomes ready. ``lock`` is the engine's, held by all its calls.
    """

    def __init__(
        self,
        clock: Timekeeper,
        lock: threading.RLock,
        release: Callable[[Batch], None],
        delay_us: int | None,
        reads: int | None,
    ) -> None:
        self.held = False
        self.batches: list[Batch] = []
        self._clock = clock
        self._lock = lock
        self._release = release
        self._delay_us = delay_us
        self._reads = reads

    @property
    def immediate(self) -> bool:
        """Whether a change made now is ready at once."""
        return not self.held and self._delay_us is None and self._reads is None

    def wait_for(self, namespace: str, records: list[VectorRecord]) -> None:
        """Remember changes that are staged."""
        due_us = None if self._delay_us is None else self._clock.now_us() + self._delay_us
        batch = Batch(namespace, records, due_us, self._reads)
        self.batches.append(batch)
        self._plan(batch)

    def count_read(self) -> None:
        """Count a query or an info, and release what has waited for enough of them."""
        if self.held:
            return
        for batch in list(self.batches):
            if batch.reads is not None:
                if batch.reads <= 0:
                    self._finish(batch)
                else:
                    batch.reads -= 1

    def release_all(self) -> None:
        """Make everything ready, and stop holding."""
        self.held = False
        for batch in list(self.batches):
            self._finish(batch)

    def cancel(self) -> None:
        """Take back all timers."""
        for batch in self.batches:
            if batch.timer is not None:
                batch.timer.cancel()

    def copy(self) -> list[Batch]:
        """The waiting batches, without their timers."""
        return [replace(batch, timer=None) for batch in self.batches]

    def restore(self, batches: list[Batch], held: bool) -> None:
        """Wait for these batches instead of the present ones."""
        self.cancel()
        self.held = held
        self.batches = [replace(batch, timer=None) for batch in batches]
        for batch in self.batches:
            self._plan(batch)

    def _plan(self, batch: Batch) -> None:
        if batch.due_us is not None:
            count = len(batch.records)
            batch.timer = self._clock.call_at(
                batch.due_us,
                lambda _: self._fall_due(batch),
                lane="state",
                label=f"vector index: {count} pending change(s) become ready",
            )

    def _fall_due(self, batch: Batch) -> None:
        # The clock calls this from any thread, everything else is called by an engine that is locked.
        with self._lock:
            if not self.held:
                self._finish(batch)

    def _finish(self, batch: Batch) -> None:
        if batch in self.batches:
            self.batches.remove(batch)
            if batch.timer is not None:
                batch.timer.cancel()
            self._release(batch)
