"""Files that the package writes.

Those with whole requests can be read only by their owner, because masking may miss a secret. Pages of
reports and their data have the mode that the umask gives, because they are made to be published.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_AMBIGUOUS = re.compile(r"[^A-Za-z0-9._/:]")
"""A character of a test's path, besides its separators, that is or becomes "-" in a file name."""


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


def file_name(name: str) -> str:
    """Return a file name for a test that is valid on every system and different for each test."""
    function, bracket, parameters = name.partition("[")
    parameters = parameters.removesuffix("]") if bracket else ""
    parameters_part = _UNSAFE.sub("-", parameters).strip("-.")
    cleaned = "-".join(filter(None, (_UNSAFE.sub("-", function).strip("-."), parameters_part)))
    if parameters_part == parameters and not _AMBIGUOUS.search(function) and len(cleaned) <= 150:
        return cleaned
    # Two tests may differ only in characters that "-" replaces, such as a/b.py and a-b.py.
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{cleaned[:130]}-{digest}"
