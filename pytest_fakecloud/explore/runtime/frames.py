"""Stack frames of explored code, and which of them belong to the application."""

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
    """Return the innermost application line of a stack as ``file:line``."""
    found = application_frame(frame)
    return None if found is None else f"{Path(found.f_code.co_filename).name}:{found.f_lineno}"


def is_library(name: str) -> bool:
    """Return whether a file belongs to a library or to this package."""
    return name.startswith((_OWN, *_LIBRARIES, "<frozen")) or "site-packages" in name


def application_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost application frame of a stack, or None."""
    while frame is not None:
        if not is_library(frame.f_code.co_filename):
            return frame
        frame = frame.f_back
    return None


def wakings(thread: int, frame: FrameType | None) -> int | None:
    """Return how often a sleeping thread has woken up; None for a thread that waits for no lock.

    A thread that sleeps in a line of the application, or in a lock of the standard library, waits
    for a lock while this number stays the same. A thread that waits for the interpreter's own lock
    wakes up every few milliseconds, so a busy machine is not mistaken for a deadlock.
    """
    if frame is None:
        return None
    name = frame.f_code.co_filename
    if is_library(name) and Path(name).name not in ("threading.py", "queue.py"):
        return None
    native = next((t.native_id for t in threading.enumerate() if t.ident == thread), None)
    try:
        status = Path(f"/proc/self/task/{native}/status").read_text()
    except OSError:
        return 0  # only Linux provides this number
    found = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    if not found.get("State", "S").strip().startswith("S"):
        return None
    return int(found.get("voluntary_ctxt_switches", 0))
