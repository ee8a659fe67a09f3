"""The run of a script: its limits, its state, and the errors that end it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ...core.timeparse import monotonic

if TYPE_CHECKING:
    from ...core.timekeeper import Timekeeper
    from ..engine.session import Session


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
