"""Files that the package writes.

Those with whole requests can be read only by their owner, because masking may miss a secret. Pages of
reports and their data have the mode that the umask gives, because they are made to be published.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def make_private(path: Path) -> Path:
    """Create a file and its folders, readable only by its owner; return the path.

    An existing file keeps its content. A pipe or a terminal keeps its mode.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        # os.open() sets the mode of new files only.
        if hasattr(os, "fchmod") and stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    return path


def write_private(path: Path, text: str) -> Path:
    """Write a string to a file that only its owner can read, creating folders; return the path."""
    make_private(path).write_text(text, encoding="utf-8", errors="backslashreplace")
    return path


def write_public(path: Path, text: str) -> Path:
    """Write a string to a new file with the mode that the umask gives; return the path.

    It replaces an existing file, whose mode may be another one. Folders are created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path
