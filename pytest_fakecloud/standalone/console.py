"""The console: one page that shows a running cloud and lets a person move its clock."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import get_data

__all__ = ["FILES", "file", "page"]

FILES: Mapping[str, str] = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "rows.js": "text/javascript; charset=utf-8",
}
"""What the page loads, with the content types; nothing is inline, and nothing comes from elsewhere."""


def page() -> bytes:
    """The page itself."""
    return _file("console.html")


def file(name: str) -> bytes:
    """One of ``FILES``."""
    return _file(name)


def _file(name: str) -> bytes:
    # As modules are read: a test's faked file system has no files of ours.
    data = get_data(__package__, name)
    assert data is not None
    return data
