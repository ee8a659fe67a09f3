"""What the system says about a thread: whether it sleeps, and how often it has woken up."""

from __future__ import annotations

import platform
import re
import threading
from pathlib import Path

_SLEEPS = {"x86_64": (35, 230), "aarch64": (101, 115)}
"""The numbers of the system calls nanosleep and clock_nanosleep of Linux, by machine."""


def sleeps_really(ident: int) -> bool:
    """Return whether a thread sleeps in the kernel; False if that is unknown, as outside of Linux."""
    try:
        call = _task_file(thread_with(ident), "syscall").read_text().split()[0]
    except OSError:
        return False
    return call.isdigit() and int(call) in _SLEEPS.get(platform.machine(), ())


def thread_with(ident: int) -> threading.Thread | None:
    return next((thread for thread in threading.enumerate() if thread.ident == ident), None)


def _task_file(thread: threading.Thread | None, name: str) -> Path:
    """Return the path of a file of Linux that describes a thread."""
    return Path(f"/proc/self/task/{None if thread is None else thread.native_id}/{name}")


_STATUS = re.compile(
    rb"^State:\s+(?P<state>\w).*^voluntary_ctxt_switches:\s+(?P<wakings>\d+)",
    re.DOTALL | re.MULTILINE,
)
"""The state of a thread, and how many times it has waited, in its file ``status``."""


def wakings(thread: threading.Thread | None) -> int | None:
    """Return how many times a sleeping thread has woken up (0 if that is unknown); None if it runs.

    A thread that waits for the interpreter's own lock wakes up every few milliseconds, so a busy
    machine is not mistaken for a deadlock.
    """
    try:
        status = _task_file(thread, "status").read_bytes()
    except OSError:
        return 0  # Only Linux provides this number.
    match = _STATUS.search(status)
    if match is None:
        return 0
    return int(match["wakings"]) if match["state"] == b"S" else None
