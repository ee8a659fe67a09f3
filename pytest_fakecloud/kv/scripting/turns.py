"""Controls what other clients can do while a script runs: wait, receive an error, or kill the
script.

SCRIPT KILL and FUNCTION KILL take effect immediately. After ``busy-reply-threshold`` milliseconds,
Redis answers BUSY to all but a few commands (measured on 7.0). Both wall-clock time and fake time
count towards the threshold; the longer one applies. The vendor's service cannot kill scripts and
answers NOTBUSY.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...core.timeparse import monotonic
from ..errors import CommandError
from . import errors

if TYPE_CHECKING:
    from ...core.timekeeper import Timekeeper
    from ..engine.client import Client
    from ..engine.engine import Engine
    from ..table.registry import CommandSpec

_KILLS = {"SCRIPT KILL": False, "FUNCTION KILL": True}
"""Commands that kill a script (False) or a function (True)."""
_ASIDE = frozenset({"AUTH", "HELLO", "QUIT", "MULTI", "CLIENT SETINFO", "FUNCTION STATS", *_KILLS})
"""Commands that run while a script is running.

Real servers allow them, and they use no shared state. All other commands wait until the script ends
(decided here).
"""
GIVE_WAY_SECONDS = 0.005
"""Seconds after which a running script lets other threads use the interpreter."""
_ASK_SECONDS = 0.02
_PATIENCE = 0.2
"""Maximum wall-clock time in seconds that ``give_way()`` waits."""


@dataclass(eq=False, slots=True)
class ScriptRun:
    """A run of a script or function."""

    clock: Timekeeper
    session: Client
    read_only: bool
    keys: frozenset[bytes] | None
    name: bytes
    without_memory: bool
    """Whether memory was full when the script started, so its commands may not allocate more."""
    line: list[bytes] | None = None
    """The command line that called the function; None for a script."""
    wrote: bool = False
    killed: bool = False
    begun: float = field(init=False)
    begun_us: int = field(init=False)
    gives_way_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.begun, self.begun_us = monotonic(), self.clock.now_us()
        self.gives_way_at = self.begun + GIVE_WAY_SECONDS

    @property
    def milliseconds(self) -> int:
        """Duration of the run in milliseconds, in wall-clock or fake time, whichever is longer."""
        real = int((monotonic() - self.begun) * 1000)
        return max(real, (self.clock.now_us() - self.begun_us) // 1000)


class Turns:
    """Decides what other clients may do while a script holds the engine's lock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._vendor = engine.dialect == "vendor"
        self.queued: set[int] = set()
        """Identifiers of the threads that are waiting for the engine's lock."""
        self._taken = threading.Event()
        """Set when a waiting thread has taken the lock."""

    def take(self, argv: list[bytes]) -> bool:
        """Take the engine's lock; return False if the line runs without it, beside a script."""
        return self._engine.lock.acquire(False) or self.wait(argv)

    def wait(self, argv: list[bytes]) -> bool:
        """Wait for the engine's lock; return False if the line runs without it, beside a script."""
        thread = threading.get_ident()
        self.queued.add(thread)
        try:
            return self._wait(argv)
        finally:
            self.queued.discard(thread)
            self._taken.set()

    def give_way(self) -> None:
        """Let a waiting client run first. The caller must not hold the engine's lock."""
        # Wait explicitly: a thread that releases a lock and takes it again is faster than the
        # threads that wait for it.
        self._taken.clear()
        if self.queued:
            self._taken.wait(_PATIENCE)

    def _wait(self, argv: list[bytes]) -> bool:
        engine = self._engine
        while not engine.lock.acquire(timeout=_ASK_SECONDS):
            run = self._engine.scripting.running
            if run is None:
                continue
            try:
                spec = engine.table.resolve(argv)
            except CommandError:
                if self._is_busy(run):
                    return False
                continue
            function = _KILLS.get(spec.name)
            if function is not None and (self._vendor or function is (run.line is not None)):
                return False
            waits = "allow_busy" in spec.flags and spec.name not in _ASIDE
            if self._is_busy(run) and not waits:
                return False
        return True

    def _is_busy(self, run: ScriptRun) -> bool:
        threshold_ms = self._engine.config.number("busy-reply-threshold")
        return 0 < threshold_ms <= run.milliseconds and not self._vendor

    def check_beside(self, spec: CommandSpec) -> None:
        """Raise a BUSY error if the command may not run while a script is running."""
        if self._vendor and spec.name in _KILLS:
            return
        # Check this even if the script has ended in the meantime, because the caller does not hold
        # the lock that other commands need.
        run = self._engine.scripting.running
        function = run is not None and run.line is not None
        other_kind = run is not None and _KILLS.get(spec.name, function) is not function
        if (
            spec.name not in _ASIDE
            or other_kind
            or (spec.name == "FUNCTION STATS" and not function)
        ):
            raise CommandError(errors.busy(function))

    def kill(self) -> None:
        """Kill the running script; raise NOTBUSY if none is running, UNKILLABLE if it has written."""
        run = self._engine.scripting.running
        if run is None or self._vendor:
            raise CommandError(errors.NOT_BUSY)
        if run.wrote:
            raise CommandError(errors.UNKILLABLE)
        run.killed = True
