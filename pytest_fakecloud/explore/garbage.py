"""Collection of garbage between schedules, which must not happen in the middle of one."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect garbage only where ``collect_garbage()`` is called, between schedules.

    A finalizer that sends a command, such as the one of redis-py's Pipeline, would otherwise run at
    any allocation, also in code of the fakes that holds a lock, and would make the schedules differ.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    gc.freeze()  # Exclude the objects of the test session from these collections.
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


def collect_garbage() -> None:
    """Collect the oldest generation of objects that is due by the collector's own thresholds."""
    counts = zip(gc.get_count(), gc.get_threshold(), strict=True)
    due = [generation for generation, (count, limit) in enumerate(counts) if count > limit > 0]
    if due:
        gc.collect(due[-1])
