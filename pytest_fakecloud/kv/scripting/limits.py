"""Limits on the resources of one script."""

from __future__ import annotations

from typing import NamedTuple

LEVELS = 100
"""Maximum nesting depth of a script's reply that becomes JSON or a Python value (decided here)."""
PORT_LEVELS = 7995
"""Maximum nesting depth of a script's reply over the Redis protocol, as measured on Redis 7.0.15.

The unit is a slot of Lua's stack: an array takes one slot, a map or a set three, the key of a map
four.
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
