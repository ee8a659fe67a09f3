"""The names of the types of values."""

from __future__ import annotations

String = bytes | bytearray
"""The types of a stored string, which is a ``bytearray`` after a change in place."""


def type_name(value: object) -> str:
    """Return the reply of TYPE for a stored value."""
    if isinstance(value, String):
        return "string"
    return value.type_name  # type: ignore[attr-defined,no-any-return]
