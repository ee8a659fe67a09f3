"""The locks of explored code and of its checks."""

from __future__ import annotations

import math
import queue
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from ...core.errors import Crash
from ...core.frames import is_own, stack_of
from ...core.threads import DaemonThread, start_thread
from ...process.replace import Patch
from ..simulation.current_thread import ENDED, SETUP, STRAND
from ..values.limits import END_OF_LOCK

if TYPE_CHECKING:
    from .world import World

# Keep the originals, because explore() replaces the names.
_allocate, _monotonic = threading.Lock, time.monotonic
_MAKERS_OF_LOCKS = ("threading", "queue", __name__)
"""Modules that create locks for their callers."""
_MAKERS_OF_THREADS = (DaemonThread.__init__.__code__, start_thread.__code__)
"""Functions that create and start the threads of this package."""


class SharedLock:
    """A lock that lets other strands run during a wait. Other threads use the wrapped lock."""

    def __init__(self, world: World, name: str, real: Any = None) -> None:
        self._world = world
        self.name = name
        self._real: Any = _allocate() if real is None else real

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock like ``threading.Lock``; ``timeout`` is in fake time."""
        here = self._world.simulation_and_strand()
        if here is None:
            return self._acquire_really(blocking, timeout)
        simulation, strand = here
        # A thread from before may hold the lock, or be about to fulfil a future under it.
        simulation.real_waits.await_idle()
        until = None
        if timeout != -1:
            if not blocking or timeout < 0:
                return bool(self._real.acquire(blocking, timeout))  # raises ValueError
            # A real wait lasts longer than its timeout. Code such as `as_completed()` relies on this.
            until = self._world.fakes.now_us() + math.floor(timeout * 1e6) + 1
        while not (acquired := self._real.acquire(False)):
            if not blocking or (until is not None and self._world.fakes.now_us() >= until):
                break
            simulation.strand_waits.wait_until(strand, self._is_free, until, for_other_thread=True)
        simulation.access_log.touch_lock(self.name)
        return bool(acquired)

    def _acquire_really(self, blocking: bool, timeout: float) -> bool:
        """Acquire the lock in a thread that is not explored, or at the end of a trial."""
        if blocking and self._world.current_thread.role() is ENDED:
            if self._real.acquire(True, END_OF_LOCK):
                return True
            raise Crash
        return bool(self._real.acquire(blocking, timeout))

    def release(self) -> None:
        self._real.release()
        simulation = self._world.simulation
        # Skip a thread that just starts, because it may do so in a step of another strand. Include
        # the strands that the end of a trial stops: a strand that waited depends on their order.
        if simulation is not None and self._world.current_thread.role().is_explored:
            simulation.access_log.touch_lock(self.name)

    def locked(self) -> bool:
        return not self._is_free()

    def free(self) -> None:
        """Make the lock free, whichever thread holds it."""
        self._real._at_fork_reinit()

    def _is_free(self) -> bool:
        if not self._real.acquire(False):
            return False
        self._real.release()
        return True

    __enter__ = acquire

    def __exit__(self, *error: object) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _LockOfCheck(SharedLock):
    """A lock that a check creates, also that of ``Condition.wait()``, with time-outs in fake time."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not blocking or timeout <= 0 or self._real.acquire(False):
            return super().acquire(blocking, timeout)
        # Another thread that runs may end the wait, which real time alone can show.
        patience = self._world.waits.patience_with_threads(timeout)
        if patience and self._real.acquire(True, patience):
            return True
        self._world.waits.wait_in_check(self._is_free, timeout)
        return bool(self._real.acquire(False))

    __enter__ = acquire


class SharedReentrantLock(SharedLock):
    """Like ``SharedLock``, for a lock that its holder can acquire again."""

    def _is_free(self) -> bool:
        # The strand that the holder's thread asks for is another one, for which the lock is not free.
        return not self._real._is_owned() and super()._is_free()

    def _acquire_restore(self, state: Any) -> None:
        """Acquire the lock again after ``Condition.wait()``, as often as before."""
        self.acquire()
        self._real.release()
        self._real._acquire_restore(state)


def lock_patches(world: World) -> Iterator[Patch]:
    """Yield what creates locks and queues. Those of ``threading`` in Python use the locks."""
    real_rlock, real_queue = threading.RLock, queue.SimpleQueue

    def is_explored(frame: FrameType) -> bool:
        thread = world.current_thread
        is_explored = thread.role() is SETUP or thread.cooperating() is not None
        return is_explored and not is_of_a_fake(frame)

    def lock() -> Any:
        thread = world.current_thread
        strand = thread.cooperating()
        is_real = strand is None and not thread.role().moves_clock
        if is_real or is_of_a_fake(sys._getframe(1)):
            return _allocate()
        if strand is None:
            return _LockOfCheck(world, "check")
        # Choose a name that is the same in every trial, because footprints of trials are compared.
        strand.locks_created += 1
        return SharedLock(world, f"{strand.scheduled_name}#{strand.locks_created}")

    def rlock() -> Any:
        is_real = not is_explored(sys._getframe(1))
        return real_rlock() if is_real else threading._PyRLock()  # type: ignore[attr-defined]

    class SimpleQueue:
        """A class, because code also writes ``SimpleQueue[int]()``."""

        def __new__(cls) -> Any:
            is_real = not is_explored(sys._getframe(1))
            return real_queue() if is_real else queue._PySimpleQueue()  # type: ignore[attr-defined]

        def __class_getitem__(cls, item: Any) -> type:
            return cls

    def monotonic() -> float:
        """Return the time with which ``threading`` and ``queue`` measure their time-outs."""
        role = world.current_thread.role()
        if role is not STRAND and not role.moves_clock:
            return _monotonic()
        return world.fakes.elapsed_us() / 1e6

    yield threading, "Lock", lock
    yield threading, "_allocate_lock", lock
    yield threading, "RLock", rlock
    yield threading, "_time", monotonic
    yield queue, "SimpleQueue", SimpleQueue
    yield queue, "time", monotonic


def is_of_a_fake(frame: FrameType | None) -> bool:
    """Return whether a lock is created by this package, whose own locks are not explored."""
    # The first client that uses a port would record accesses to its locks; a later trial would not.
    while frame is not None and frame.f_globals.get("__name__") in _MAKERS_OF_LOCKS:
        frame = frame.f_back
    # A tool that wraps ``threading.Thread`` can be between ``threading`` and this package.
    return (frame is not None and is_own(frame)) or any(
        caller.f_code in _MAKERS_OF_THREADS for caller in stack_of(frame)
    )
