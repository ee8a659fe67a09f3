"""What one script may use."""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = 100
"""How deep a script's reply may be nested where it becomes JSON or a Python value (decided here)."""
PORT_LEVELS = 7995
"""The same over the Redis protocol, as measured on 7.0.15.

It counts slots of Lua's stack: an array takes one, a map or a set three, the key of a map four.
"""


@dataclass(frozen=True)
class ScriptLimits:
    """Bounds of one script (decided here; the service publishes no figures).

    ``instructions`` of the Lua machine (a coroutine costs 1,000, a command 100), ``seconds`` of
    real time, for what is not counted in instructions, and ``memory`` in bytes.
    """

    instructions: int = 50_000_000
    seconds: float = 5.0
    memory: int = 64 * 2**20
