"""Names of parametrized cases."""

from __future__ import annotations

import re


def steady(value: object) -> str:
    """The text of a value without addresses, so that all workers of a run name a case alike."""
    return re.sub(
        r" at 0x[0-9a-fA-F]+| id='\d+'", "", value if isinstance(value, str) else repr(value)
    )
