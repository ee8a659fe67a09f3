"""What one script may use."""

from __future__ import annotations

from ...core.lazy import dataclass

__all__ = ["ScriptLimits"]


@dataclass(frozen=True)
class ScriptLimits:
    """Bounds of one script (decided here; the service publishes no figures).

    ``instructions`` of the Lua machine (a coroutine costs 1,000, a command 100), ``seconds`` of
    real time, for what is not counted in instructions, and ``memory`` in bytes.
    """

    instructions: int = 50_000_000
    seconds: float = 5.0
    memory: int = 64 * 2**20
