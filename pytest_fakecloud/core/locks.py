"""Holding a lock that no exception of a signal's handler leaves taken."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def holding(lock: threading.RLock, take: Callable[[], object], action: Callable[[], T]) -> T:
    """Return ``action()``, called while the thread holds a re-entrant lock, which ``take()`` takes; it
    may raise an exception instead. Afterwards the lock is as before, at whatever moment a signal's
    handler raises: ``with lock`` would do if nothing but waiting took it.
    """
    # A handler can raise between acquire() and the next instruction, so the lock is taken inside the
    # block that releases it. Whether that has happened, only the lock knows: ask it like
    # threading.Condition does.
    owned: Any = lock._is_owned  # type: ignore[attr-defined]
    is_outer = not owned()
    try:
        if is_outer:
            take()
        return action()
    finally:
        if is_outer:
            try:  # noqa: SIM105 - suppress() is written in Python, so it can be interrupted.
                lock.release()
            except RuntimeError:
                pass  # It was not taken.
