"""The run of a script: its limits, its state, and the commands of other clients meanwhile.

SCRIPT KILL and FUNCTION KILL take effect immediately. After ``busy-reply-threshold`` milliseconds,
Redis rejects all but a few commands with BUSY (measured on 7.0). Both wall-clock time and fake time
count towards the threshold; the longer one applies. The vendor's service cannot kill scripts and
returns NOTBUSY.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ...core.timers import monotonic
from ..errors import CommandError
from . import errors

if TYPE_CHECKING:
    from ...core.timekeeper import Timekeeper
    from ..engine.engine import Engine
    from ..engine.session import Session
    from ..table.registry import CommandSpec


LEVELS = 100
"""Maximum nesting depth of a script's reply that becomes JSON or a Python value (decided here)."""
PORT_LEVELS = 7995
"""Maximum nesting depth of a script's reply over the Redis protocol, as measured on Redis 7.0.15.

The unit is a slot of Lua's stack: an array takes one, a map or a set three, the key of a map four.
"""


class ScriptLimits(NamedTuple):
    """The limits of one script (decided here; the service publishes none).

    ``instructions`` is the maximum number of Lua instructions; a coroutine counts as 1,000, a
    command as 100. ``seconds`` is the maximum wall-clock time, because some work is not counted in
    instructions. ``memory`` is the maximum number of bytes.
    """

    instructions: int = 50_000_000
    seconds: float = 5.0
    memory: int = 64 * 2**20


GIVE_WAY_SECONDS = 0.005
"""Seconds after which a running script lets other threads use the interpreter."""


@dataclass(eq=False, slots=True)
class ScriptRun:
    """A run of a script or function."""

    clock: Timekeeper
    session: Session
    read_only: bool
    keys: frozenset[bytes] | None
    """The keys that the script may access, or None if it may access all keys."""
    name: bytes
    without_memory: bool
    """Whether memory was full when the script started, so its commands may not allocate more."""
    line: list[bytes] | None
    """The command line that called the function; None for a script."""
    begun: float
    """Start of the run in seconds of wall-clock time."""
    begun_us: int
    """Start of the run in microseconds of fake time."""
    gives_way_at: float
    """Wall-clock time at which to let other threads use the interpreter."""
    wrote: bool = False
    """Whether a write command was called, after which the run cannot be killed."""
    killed: bool = False

    @property
    def is_function(self) -> bool:
        return self.line is not None

    @property
    def milliseconds(self) -> int:
        """Duration of the run in milliseconds, in wall-clock or fake time, whichever is longer."""
        real = int((monotonic() - self.begun) * 1000)
        return max(real, (self.clock.now_us() - self.begun_us) // 1000)


# -- errors ---------------------------------------------------------------------------------------


class HostLost(Exception):
    """Raised if Lua runs out of memory outside a script. The runtime is unusable afterwards."""


@dataclass(eq=False)
class ScriptFailure(Exception):
    """An error raised by a script.

    ``text`` is the message including its error code, such as ``ERR``. ``source`` and ``line`` say
    where the script raised the error. ``counted`` is true if the statistics already include the
    error, because it came from a command that the script called. ``too_long`` is true if the script
    exceeded its instruction or time limit.
    """

    text: bytes
    source: bytes | None = None
    line: int | None = None
    counted: bool = False
    too_long: bool = False


_KILL_SCRIPT, _KILL_FUNCTION = "SCRIPT KILL", "FUNCTION KILL"
_KILLS = frozenset({_KILL_SCRIPT, _KILL_FUNCTION})
_RUN_DURING_SCRIPT = _KILLS | {"AUTH", "HELLO", "QUIT", "MULTI", "CLIENT SETINFO", "FUNCTION STATS"}
"""Commands that run while a script is running.

Real servers allow them, and they use no state that the script can change. All other commands wait
until the script ends (decided here).
"""
_ASK_SECONDS = 0.02
"""Time between two checks of a waiting client whether it may run during the script."""
_GIVE_WAY_TIMEOUT = 0.2
"""Maximum wall-clock time in seconds that ``give_way()`` waits."""


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
        """Like ``wait()``, but without registering this thread if the engine's lock is free."""
        return self._engine.lock.acquire(False) or self.wait(argv)

    def wait(self, argv: list[bytes]) -> bool:
        """Wait for the engine's lock; return False if the line runs without it, during a script."""
        thread = threading.get_ident()
        self.queued.add(thread)
        try:
            while not self._engine.lock.acquire(timeout=_ASK_SECONDS):
                run = self._engine.scripting.running
                if run is not None and self._runs_during_script(run, argv):
                    return False
            return True
        finally:
            self.queued.discard(thread)
            self._taken.set()

    def give_way(self) -> None:
        """Let a waiting client run first. The caller must not hold the engine's lock."""
        # Wait explicitly, because a thread that releases a lock usually takes it again first.
        self._taken.clear()
        if self.queued:
            self._taken.wait(_GIVE_WAY_TIMEOUT)

    def _runs_during_script(self, run: ScriptRun, argv: list[bytes]) -> bool:
        """Return whether a command line is handled while the script holds the lock."""
        threshold_ms = self._engine.config.number("busy-reply-threshold")
        # A run of this length makes other commands receive a BUSY error.
        is_busy = 0 < threshold_ms <= run.milliseconds and not self._vendor
        try:
            spec = self._engine.table.resolve(argv)
        except CommandError:
            return is_busy
        if spec.name in _KILLS and (self._vendor or spec.name == _kill_command(run)):
            return True
        needs_lock = "allow_busy" in spec.flags and spec.name not in _RUN_DURING_SCRIPT
        return is_busy and not needs_lock

    def check_during_script(self, spec: CommandSpec) -> None:
        """Raise a BUSY error if the command may not run while a script is running."""
        if self._vendor and spec.name in _KILLS:
            return
        # Check this even if the script has ended in the meantime, because the caller does not hold
        # the lock that other commands need.
        run = self._engine.scripting.running
        is_function = run is not None and run.is_function
        if spec.name in _KILLS:
            may_run = run is None or spec.name == _kill_command(run)
        elif spec.name == "FUNCTION STATS":
            may_run = is_function
        else:
            may_run = spec.name in _RUN_DURING_SCRIPT
        if not may_run:
            raise CommandError(errors.busy(is_function))

    def kill(self) -> None:
        """Kill the running script; raise NOTBUSY if none is running, UNKILLABLE if it has written."""
        run = self._engine.scripting.running
        if run is None or self._vendor:
            raise CommandError(errors.NOT_BUSY)
        if run.wrote:
            raise CommandError(errors.UNKILLABLE)
        run.killed = True


def _kill_command(run: ScriptRun) -> str:
    return _KILL_FUNCTION if run.is_function else _KILL_SCRIPT
