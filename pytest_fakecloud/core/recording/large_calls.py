"""Keeps the calls of a cloud's journal within a limit in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from ..calls import KEEP_BYTES, Call, weight_of


class LargeCalls:
    """The calls above 4 KiB that a journal keeps in full, oldest first.

    ``sizes`` maps each call to the approximate bytes that the journal keeps for it, and ``total``
    is their sum. The recorder's lock protects it.
    """

    def __init__(self) -> None:
        self.limit = KEEP_BYTES
        """Maximum bytes of all large calls; beyond it the oldest are cut."""
        self.sizes: OrderedDict[Call, int] = OrderedDict()
        self.total = 0

    def update(self, call: Call) -> list[Call]:
        """Add a call, or update its size; remove and return the calls that must be cut."""
        size = weight_of(call)
        self.total += size - self.sizes.get(call, 0)
        self.sizes[call] = size
        return self._pop_over_limit() if self.total > self.limit else []

    def remove(self, calls: Iterable[object]) -> None:
        """Remove those of the given entries that are large calls."""
        for call in calls:
            if isinstance(call, Call):
                self.total -= self.sizes.pop(call, 0)

    def _pop_over_limit(self) -> list[Call]:
        finished: list[Call] = []
        in_progress: list[tuple[Call, int]] = []
        while self.sizes and self.total > self.limit:
            call, size = self.sizes.popitem(last=False)
            if call.outcome == "open":
                # The server still holds this call in full, so cutting it would free nothing.
                in_progress.append((call, size))
            else:
                self.total -= size
                finished.append(call)
        for call, size in reversed(in_progress):
            self.sizes[call] = size
            self.sizes.move_to_end(call, last=False)
        return finished
