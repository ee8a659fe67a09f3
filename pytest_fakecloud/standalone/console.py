"""The console: one page that shows a running cloud and lets a person move its clock."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["FILES", "file", "page"]

FILES: Mapping[str, str] = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "rows.js": "text/javascript; charset=utf-8",
}
"""What the page loads, with the content types; nothing is inline, and nothing comes from elsewhere."""
_FOLDER = Path(__file__).parent


def page() -> bytes:
    """The page itself."""
    return (_FOLDER / "console.html").read_bytes()


def file(name: str) -> bytes:
    """One of ``FILES``."""
    return (_FOLDER / name).read_bytes()
