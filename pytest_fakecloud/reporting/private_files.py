"""Files that only their owner can read, because the requests in them may contain secrets."""

from __future__ import annotations

import os
import stat
from pathlib import Path

PRIVATE = 0o600


def make_private(path: Path) -> Path:
    """Create a file and its folders, readable only by its owner; return the path.

    An existing file keeps its content. A pipe or a terminal keeps its mode.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
    try:
        # os.open() sets the mode of new files only.
        if hasattr(os, "fchmod") and stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, PRIVATE)
    finally:
        os.close(descriptor)
    return path


def write_private(path: Path, text: str) -> Path:
    """Write a string to a file that only its owner can read, creating folders; return the path."""
    make_private(path).write_text(text, encoding="utf-8", errors="backslashreplace")
    return path
