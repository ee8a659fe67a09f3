"""Stacks of explored code: which of their lines are the application's."""

from __future__ import annotations

import sysconfig
import threading
from pathlib import Path
from types import FrameType

_OWN = str(Path(__file__).parents[2])
_LIBRARIES = tuple(
    str(Path(found))
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (found := sysconfig.get_paths().get(name))
)


def source_of(frame: FrameType | None) -> str | None:
    """The innermost line of a stack that is the application's, as ``file:line``."""
    found = application_frame(frame)
    return None if found is None else f"{Path(found.f_code.co_filename).name}:{found.f_lineno}"


def is_library(name: str) -> bool:
    """Whether a file belongs to a library, to the standard library or to this package."""
    return name.startswith((_OWN, *_LIBRARIES, "<frozen")) or "site-packages" in name


def application_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of a stack that is the application's, or None."""
    while frame is not None:
        if not is_library(frame.f_code.co_filename):
            return frame
        frame = frame.f_back
    return None


def waits_for_lock(thread: int, frame: FrameType | None) -> bool:
    """Whether a thread sleeps in a line of the application, or in a lock of the standard library."""
    if frame is None:
        return False
    name = frame.f_code.co_filename
    if is_library(name) and Path(name).name not in ("threading.py", "queue.py"):
        return False
    native = next((t.native_id for t in threading.enumerate() if t.ident == thread), None)
    try:
        status = Path(f"/proc/self/task/{native}/stat").read_text()
    except OSError:
        return True  # not on Linux
    return status.rpartition(")")[2].split()[0] == "S"
