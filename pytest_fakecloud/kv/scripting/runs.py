"""The run of a script or function, as other clients and threads observe it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...core.timeparse import monotonic

if TYPE_CHECKING:
    from ...core.timekeeper import Timekeeper
    from ..engine.client import Client

GIVE_WAY_SECONDS = 0.005
"""Seconds after which a running script lets other threads use the interpreter."""


@dataclass(eq=False, slots=True)
class ScriptRun:
    """A run of a script or function."""

    clock: Timekeeper
    session: Client
    read_only: bool
    keys: frozenset[bytes] | None
    """The keys that the script may access, or None if it may access all keys."""
    name: bytes
    without_memory: bool
    """Whether memory was full when the script started, so its commands may not allocate more."""
    line: list[bytes] | None = None
    """The command line that called the function; None for a script."""
    wrote: bool = False
    """Whether a write command was called, after which the run cannot be killed."""
    killed: bool = False
    begun: float = field(init=False)
    """Start of the run in wall-clock time, and in microseconds of fake time in ``begun_us``."""
    begun_us: int = field(init=False)
    gives_way_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.begun, self.begun_us = monotonic(), self.clock.now_us()
        self.gives_way_at = self.begun + GIVE_WAY_SECONDS

    @property
    def is_function(self) -> bool:
        return self.line is not None

    @property
    def milliseconds(self) -> int:
        """Duration of the run in milliseconds, in wall-clock or fake time, whichever is longer."""
        real = int((monotonic() - self.begun) * 1000)
        return max(real, (self.clock.now_us() - self.begun_us) // 1000)
