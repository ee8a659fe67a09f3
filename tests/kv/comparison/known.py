"""Differences that stay, each with its reason. They count in the rate all the same."""

from __future__ import annotations

from typing import Any


def reason_for(line: list[bytes], ours: Any, theirs: dict[str, Any]) -> str | None:
    """Why this difference stays, or None when nobody knows."""
    for words, reason in KNOWN:
        if line[0].upper().decode("latin-1") in words.split():
            return reason
    return None


KNOWN: tuple[tuple[str, str], ...] = ()
