"""What the databases of an engine need to know of the command that is running."""

from __future__ import annotations

from dataclasses import dataclass

from ..table.registry import CommandSpec


@dataclass
class Execution:
    """The command that the engine is running, as its databases see it. They share one, which the engine
    changes, and commands only by ``Session.count_reads()``.
    """

    now_us: int
    """Time in microseconds since the Unix epoch, which is constant during a command, script or
    transaction.
    """
    spec: CommandSpec | None = None
    """The command, or the last one if none is running."""
    counts_reads: bool = False
    """Whether reading a key counts as a hit or a miss: not between commands, when only the test reads,
    nor for further attempts of a blocked command, as in Redis 7.0.
    """
    notes_accesses: bool = True
    """Whether reading or writing an existing key changes its access time (CLIENT NO-TOUCH)."""

    def __post_init__(self) -> None:
        self.now_ms = self.now_us // 1000

    @property
    def event(self) -> str:
        """The name of the keyspace event of the command, unless the command names another."""
        return "" if self.spec is None else self.spec.event

    def set_time(self, now_us: int) -> None:
        self.now_us = now_us
        self.now_ms = now_us // 1000
