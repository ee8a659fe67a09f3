"""The names of the types of values."""

from __future__ import annotations


def type_name(value: object) -> str:
    """Return the reply of TYPE for a stored value."""
    if isinstance(value, bytes | bytearray):
        return "string"
    return value.type_name  # type: ignore[attr-defined,no-any-return]
