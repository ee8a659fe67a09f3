"""Files that hold requests: what clients sent may be secret, so they are their owner's alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

PRIVATE = 0o600


def make_private(path: Path) -> Path:
    """Make sure that a file is there and that only its owner can read it, folders included.

    What is no file (a pipe, a terminal) keeps its mode, and a file its content.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
    try:
        # A file that was there before keeps the mode it had, unless told.
        if hasattr(os, "fchmod") and stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, PRIVATE)
    finally:
        os.close(descriptor)
    return path


def write_private(path: Path, text: str) -> Path:
    """Write a text to a file that only its owner can read, folders included; the path."""
    make_private(path).write_text(text, encoding="utf-8", errors="backslashreplace")
    return path
