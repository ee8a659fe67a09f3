"""Timeouts that clients set."""

from __future__ import annotations

_NUMBERS = frozenset({int, float})


def are_timeouts(*values: object) -> bool:
    """Return whether each timeout is None or a positive number."""
    for value in values:
        if value is not None and (type(value) not in _NUMBERS or value <= 0):  # type: ignore[operator]
            return False
    return True
