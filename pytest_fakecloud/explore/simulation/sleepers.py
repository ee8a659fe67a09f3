"""Sleeps of threads and tasks that are not explored but work for strands."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ..fakes.gate import wait_really
from ..values.limits import CHECKS_OF_SLEEPERS
from .part import Common, Part
from .strand import Strand


class _Sleeper(NamedTuple):
    until_us: int
    strand: Strand
    """The strand that waits for the sleeping code."""
    wake: Callable[[], object]


class Sleepers(Part):
    """Sleeps of threads and tasks that are not explored, such as those of an application. They end when
    the clock has moved far enough, one after the other.
    """

    def __init__(self, common: Common) -> None:
        super().__init__(common)
        self._sleepers: list[_Sleeper] = []

    def __bool__(self) -> bool:
        return bool(self._sleepers)

    def add(self, until_us: int, strand: Strand, wake: Callable[[], object]) -> None:
        self._sleepers.append(_Sleeper(until_us, strand, wake))

    def times(self) -> list[int]:
        return [sleeper.until_us for sleeper in self._sleepers]

    def wake(self, now_us: int) -> None:
        """Wake the sleepers whose time has come, one after the other, in the order of the strands."""
        due = [s for s in self._sleepers if s.until_us <= now_us]
        for sleeper in sorted(due, key=lambda s: (s.until_us, self._strands.index(s.strand))):
            self._sleepers.remove(sleeper)
            sleeper.wake()
            wait_really(partial(self._has_gone_on, sleeper.strand), CHECKS_OF_SLEEPERS)

    def _has_gone_on(self, strand: Strand) -> bool:
        """Return whether the code that works for a strand sleeps again, or has let the strand go on."""
        sleeps_again = any(other.strand is strand for other in self._sleepers)
        ready = strand.waiting.ready
        return self._turns.has_ended or sleeps_again or ready is None or ready()

    def end(self) -> None:
        """Wake all sleepers, because the trial has ended."""
        while self._sleepers:
            self._sleepers.pop().wake()
