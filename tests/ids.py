"""Names of parametrized cases."""

from __future__ import annotations

import re


def steady(value: object) -> str:
    """Return the repr of a value without addresses, so that all workers use the same test names."""
    return re.sub(
        r" at 0x[0-9a-fA-F]+| id='\d+'", "", value if isinstance(value, str) else repr(value)
    )
