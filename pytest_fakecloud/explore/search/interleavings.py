"""Which interleavings of the steps of strands a search has tried, and whether there can be others.

There are up to three searches for interleavings (``sources.OrdersOfCalls``), which the ``Explorer``
begins in this order: without late answers, with them if ``kinds`` has ``late``, and also of the moves of
the clock. Each contains the interleavings of those before it. One that has ended says how far it got, an
``Extent``; from those of all, ``TriedInterleavings`` follow, which ``Exploration`` puts into words.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum

from ..values.disturbances import Kind
from .dpor import Branch


class Extent(IntEnum):
    """Which interleavings have run."""

    SOME = 0
    ALL_OF_SEARCH = 1
    """All of the last search for them; one with late answers or timers could find others."""
    ALL_OF_KINDS = 2
    """All to which the kinds of disturbances in use can lead, which do not move the clock."""
    ALL = 3
    """All, also of timers and, if ``kinds`` has them, of late answers."""


@dataclass(frozen=True, slots=True)
class TriedInterleavings:
    """The interleavings that a search has tried, and what is known of others."""

    extent: Extent = Extent.SOME
    is_unfinished: bool = False
    """Whether a search for interleavings has not ended."""

    @property
    def is_exhaustive(self) -> bool:
        return self.extent == Extent.ALL

    @property
    def has_all(self) -> bool:
        """Whether no search for interleavings could find another one. While one goes on, this is known
        only if an earlier one has run all interleavings, also those of late answers and timers.
        """
        return self.extent > (Extent.ALL_OF_KINDS if self.is_unfinished else Extent.SOME)

    @classmethod
    def by(cls, results: Sequence[Extent | None]) -> TriedInterleavings:
        """Return what searches have run, each of which contains the interleavings of those before it.
        The result of one that has not ended is None.
        """
        ended = [extent for extent in results if extent is not None]
        # What holds for all kinds is known for good.
        for_good = max(ended, default=Extent.SOME)
        latest = ended[-1] if ended else Extent.SOME
        extent = for_good if for_good >= Extent.ALL_OF_KINDS else latest
        return cls(extent, is_unfinished=None in results)

    def merged(self, other: TriedInterleavings) -> TriedInterleavings:
        """Return what is known from searches with two inputs."""
        is_unfinished = self.is_unfinished or other.is_unfinished
        return TriedInterleavings(min(self.extent, other.extent), is_unfinished)


def extent_of_search(root: Branch, kinds: Collection[Kind], *, has_timers: bool) -> Extent:
    """Return which interleavings have run when the tree of a root has no others. ``has_timers``: whether
    the clock could have moved while a strand could run.
    """
    if not root.late and "late" in kinds:
        return Extent.ALL_OF_SEARCH
    if has_timers and not root.moves_clock:
        return Extent.ALL_OF_SEARCH if "jump" in kinds else Extent.ALL_OF_KINDS
    return Extent.ALL
