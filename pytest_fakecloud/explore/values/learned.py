"""What the trials of an exploration have shown so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from .trial import Verdict


@dataclass
class Learned:
    """What the verdicts of an exploration have shown so far, with all inputs."""

    reads_order: bool = False
    """Whether a check has read in which order operations or clients began and ended: then that order
    counts in the footprints of later trials, which nothing else here changes.
    """
    used_allowances: set[str] = field(default_factory=set)
    """The entries of ``allow=`` that a trial needed."""

    def add(self, verdict: Verdict) -> None:
        self.reads_order = self.reads_order or verdict.reads_order
        self.used_allowances |= verdict.used_allowances
