"""The console: one page that shows a running cloud and lets a person move its clock."""

from __future__ import annotations

from pathlib import Path

__all__ = ["page"]


def page() -> bytes:
    """The page, with all it needs inside it."""
    return (Path(__file__).parent / "console.html").read_bytes()
