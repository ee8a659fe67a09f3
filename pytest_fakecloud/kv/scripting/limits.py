"""Limits of one script."""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = 100
"""Maximum nesting of a script's reply that is converted to JSON or a Python value (decided here)."""
PORT_LEVELS = 7995
"""Maximum nesting of a script's reply over the Redis protocol, as measured on 7.0.15.

The unit is slots of Lua's stack: an array takes one, a map or a set three, the key of a map four.
"""


@dataclass(frozen=True)
class ScriptLimits:
    """Limits of one script (decided here; the service publishes none).

    ``instructions`` limits instructions of the Lua machine (a coroutine counts as 1,000, a command
    as 100), ``seconds`` wall-clock time, for work that is not counted in instructions, and
    ``memory`` bytes.
    """

    instructions: int = 50_000_000
    seconds: float = 5.0
    memory: int = 64 * 2**20
