"""Threads and locks of explored code: each thread becomes a strand, and waiting for a lock lets
other strands run.
"""

from __future__ import annotations

import contextlib
import logging
import math
import multiprocessing.process
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..core.errors import ContractError
from ..core.recording.recorder import is_own
from .runtime.frames import innermost, is_library
from .runtime.strands import Crash, Strand

if TYPE_CHECKING:
    from types import FrameType

    from .run import Program
    from .simulation.simulation import Simulation
    from .world import World

_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_allocate = threading.Lock
_EXITS = "explore() sees only this process and keeps it alive. Replace that call in the test"
_WAITS = (
    "it waits with epoll, which explore() does not control. Make a client that takes messages with "
    "`channel.basic_get('celery')` of `app.connection()`, calls `app.tasks[...]` and acknowledges them"
)
_MAKERS_OF_LOCKS = ("threading", "queue", __name__)
"""Modules that create locks for their callers."""
_ENDING = 0.5
"""Wall-clock seconds to wait, at the end of a run, for a lock that another strand holds."""


class _Lock:
    """A lock that lets other strands run while a strand waits for it. Other threads use the wrapped
    lock.
    """

    def __init__(self, world: World, name: str, real: Any = None) -> None:
        self._world = world
        self.name = name
        self._real: Any = _allocate() if real is None else real

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock like ``threading.Lock``; ``timeout`` is in fake time."""
        stage: Any = self._world.stage
        strand = None if stage is None else stage.state.cooperating()
        if strand is None:
            if blocking and stage is not None and stage.state.is_ending():
                if self._real.acquire(True, _ENDING):
                    return True
                raise Crash
            return bool(self._real.acquire(blocking, timeout))
        until = None
        if timeout != -1:
            if not blocking or timeout < 0:
                return bool(self._real.acquire(blocking, timeout))  # raises ValueError
            # A real wait lasts longer than its timeout. Code such as `as_completed()` relies on this.
            until = self._world.now_us() + math.floor(timeout * 1e6) + 1
        while not (acquired := self._real.acquire(False)):
            if not blocking or (until is not None and self._world.now_us() >= until):
                break
            stage.waits.wait_for(strand, self._is_free, until, "lock")
        stage.record.touch_lock(self.name)
        return bool(acquired)

    def release(self) -> None:
        """Release the lock."""
        self._real.release()
        stage: Any = self._world.stage
        # Skip a thread that just starts, because it may do so in a step of another strand. Include
        # the strands that the end of a run stops: a strand that waited depends on their order.
        if stage is not None and stage.state.is_here():
            stage.record.touch_lock(self.name)

    def locked(self) -> bool:
        """Return whether any thread holds the lock."""
        return not self._is_free()

    def _is_free(self) -> bool:
        if not self._real.acquire(False):
            return False
        self._real.release()
        return True

    def _at_fork_reinit(self) -> None:
        self._real = _allocate()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _ReentrantLock(_Lock):
    """Like ``_Lock``, for a lock that its owner can acquire again."""

    def _is_free(self) -> bool:
        # The strand that the owner's thread asks for is another one, for which the lock is not free.
        return not self._real._is_owned() and super()._is_free()

    def _acquire_restore(self, state: Any) -> None:
        """Acquire the lock again after ``Condition.wait()``, as often as before."""
        self.acquire()
        self._real.release()
        self._real._acquire_restore(state)


@contextlib.contextmanager
def cooperation(world: World) -> Iterator[None]:
    """Turn threads of explored code into strands, and make its locks yield to other strands."""
    real_start, real_join = threading.Thread.start, threading.Thread.join

    def lock() -> Any:
        strand = world.cooperating()
        if strand is None or _is_of_a_fake(sys._getframe(1)):
            return _allocate()
        # Choose a name that is the same in every run, because footprints of runs are compared.
        strand.locks_created += 1
        return _Lock(world, f"{strand.name}#{strand.locks_created}")

    def rlock() -> Any:
        if world.cooperating() is None or _is_of_a_fake(sys._getframe(1)):
            return real_rlock()
        return threading._PyRLock()  # type: ignore[attr-defined]

    def simple_queue() -> Any:
        if world.cooperating() is None or _is_of_a_fake(sys._getframe(1)):
            return real_queue()
        return queue._PySimpleQueue()  # type: ignore[attr-defined]

    def start(thread: threading.Thread) -> None:
        stage: Any = world.stage
        strand = None if stage is None else stage.state.cooperating()
        # Do not explore threads of the fakes, e.g. for ASGI applications.
        target = getattr(thread, "_target", None)
        is_of_a_fake = str(getattr(target, "__module__", "")).startswith("pytest_fakecloud.")
        if strand is None:
            real_start(thread)
        elif is_of_a_fake:
            with strand.waits_for_real():
                real_start(thread)
        else:
            _begin(stage, strand, thread, real_start)

    def join(thread: threading.Thread, timeout: float | None = None) -> None:
        stage: Any = world.stage
        strand = None if stage is None else stage.state.cooperating()
        child: Strand | None = vars(thread).get("_strand")
        if strand is None or child is None or thread is threading.current_thread():
            real_join(thread, timeout)
            return
        until = None
        if timeout is not None:
            until = world.now_us() + math.ceil(max(0.0, timeout) * 1e6)
        while not _has_ended(child):
            if until is not None and world.now_us() >= until:
                return
            stage.waits.wait_for(strand, lambda: _has_ended(child), until, "join")

    def monotonic() -> float:
        """Return the time with which ``threading`` and ``queue`` measure their time-outs."""
        if world.cooperating() is None:
            return real_monotonic()
        return world.elapsed_us() / 1e6

    def urandom(size: int, /) -> bytes:
        """Return bytes that are the same in every run, so that names made with ``uuid4()`` are,
        too.
        """
        strand = world.cooperating()
        if strand is None:
            return real_urandom(size)
        strand.urandom_calls += 1
        return random.Random(f"{world.cloud.seed} {strand.title} {strand.urandom_calls}").randbytes(
            size
        )

    def refuse(what: str, advice: str) -> Callable[..., Any]:
        def refused(*args: Any, **kwargs: Any) -> Any:
            stage: Any = world.stage
            strand = None if stage is None else stage.state.cooperating()
            if strand is None:
                return originals[what](*args, **kwargs)
            where = innermost(sys._getframe(1))
            stage.turns.fail(ContractError(f"{strand.title} calls {what} at {where}: {advice}"))

        return refused

    def starts_process(name: str) -> Callable[..., Any]:
        def started(*args: Any, **kwargs: Any) -> Any:
            stage: Any = world.stage
            strand = None if stage is None else stage.state.cooperating()
            if strand is None:
                return originals[name](*args, **kwargs)
            if not _finds_address(sys._getframe(1)):
                where = innermost(sys._getframe(1))
                note = f"not explored: a child process that {strand.title} started at {where}"
                stage.run.notes[note] = None
            with strand.waits_for_real():
                return originals[name](*args, **kwargs)

        return started

    def skips(name: str, result: object) -> Callable[..., Any]:
        """Return a replacement for a function that raises in a strand; it does nothing there."""

        def skipped(*args: Any, **kwargs: Any) -> Any:
            stage: Any = world.stage
            strand = None if stage is None else stage.state.cooperating()
            if strand is None:
                return originals[name](*args, **kwargs)
            stage.run.notes["not explored: signals, and timeouts that signals end"] = None
            return result

        return skipped

    def shutdown(pool: Any, *args: Any, **options: Any) -> None:
        # Join the threads in the same order in each run. The order of a set differs.
        pool._threads = sorted(pool._threads, key=lambda one: one.name)
        real_shutdown(pool, *args, **options)

    real_shutdown = ThreadPoolExecutor.shutdown
    real_rlock, real_queue = threading.RLock, queue.SimpleQueue
    real_urandom, real_monotonic = os.urandom, time.monotonic
    originals: dict[str, Any] = {"os._exit": os._exit, "subprocess": subprocess.Popen.__init__}
    workers = list(_workers_of_celery())
    originals.update({what: getattr(owner, name) for what, owner, name in workers})
    originals["multiprocessing"] = multiprocessing.process.BaseProcess.start
    signals = {"signal": signal.SIG_DFL, "alarm": 0, "setitimer": (0.0, 0.0)}
    signals = {name: result for name, result in signals.items() if hasattr(signal, name)}
    originals.update({f"signal.{name}": getattr(signal, name) for name in signals})
    logger = logging.getLogger("concurrent.futures")
    with contextlib.ExitStack() as exits:
        for owner, name, value in (
            (threading, "Lock", lock),
            (threading, "_allocate_lock", lock),
            (threading, "RLock", rlock),
            (queue, "SimpleQueue", simple_queue),
            (threading, "_time", monotonic),
            (queue, "time", monotonic),
            (threading.Thread, "start", start),
            (threading.Thread, "join", join),
            (ThreadPoolExecutor, "shutdown", shutdown),
            (os, "urandom", urandom),
            (random, "_urandom", urandom),
            (os, "_exit", refuse("os._exit", _EXITS)),
            *((owner, name, refuse(what, _WAITS)) for what, owner, name in workers),
            (subprocess.Popen, "__init__", starts_process("subprocess")),
            (
                multiprocessing.process.BaseProcess,
                "start",
                starts_process("multiprocessing"),
            ),
            *((signal, name, skips(f"signal.{name}", signals[name])) for name in signals),
            # Silence this logger, because it would report a pool's threads that the end of the run
            # stops.
            (logger, "disabled", True),
        ):
            exits.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


def _workers_of_celery() -> Iterator[tuple[str, Any, str]]:
    """Yield the method that starts a Celery worker, if Celery is loaded."""
    module = sys.modules.get("celery.worker")
    if module is not None:
        yield "Worker.start of Celery", module.WorkController, "start"


def _is_of_a_fake(frame: FrameType | None) -> bool:
    """Return whether a lock is created by this package, whose own locks are not explored.

    Otherwise, the first client that uses a port would record accesses to the locks of the port,
    but the same client in the next exploration would not.
    """
    while frame is not None and frame.f_globals.get("__name__") in _MAKERS_OF_LOCKS:
        frame = frame.f_back
    return frame is not None and is_own(frame)


def _finds_address(frame: FrameType | None) -> bool:
    """Return whether a call comes from ``uuid``, which starts a process to find a network address."""
    while frame is not None:
        if frame.f_globals.get("__name__") == "uuid":
            return True
        frame = frame.f_back
    return False


def _has_ended(strand: Strand) -> bool:
    return strand.state == "ended"


def _begin(
    stage: Simulation, strand: Strand, thread: threading.Thread, real_start: Callable[..., None]
) -> None:
    child = stage.waits.new_thread(strand, thread)
    run = thread.run
    vars(thread)["_strand"] = child

    def running() -> None:
        turns = stage.turns
        turns.adopt(child)
        try:
            child.gate.acquire()
            turns.begin_adopted(child)
            run()
        except Crash:
            child.crashed = True
        except BaseException as error:
            child.error = error
        finally:
            turns.leave(child)

    thread.run = running  # type: ignore[method-assign]
    with strand.waits_for_real():
        real_start(thread)


@contextlib.contextmanager
def share_locks(world: World, programs: Iterable[Program]) -> Iterator[None]:
    """Replace the locks that programs refer to with locks that let other strands run.

    Locks that were created before ``explore()`` are found in the closures and modules of the
    functions, and in objects that they refer to.
    """
    made: dict[int, _Lock] = {}
    undo: list[Callable[[], None]] = []

    def replaced(lock: Any) -> _Lock:
        kind = _ReentrantLock if isinstance(lock, _LOCKS[1]) else _Lock
        return made.setdefault(id(lock), kind(world, f"#{len(made)}", lock))

    def visit_namespace(names: dict[str, Any], depth: int) -> None:
        for name, value in list(names.items()):
            if isinstance(value, _LOCKS):
                names[name] = replaced(value)
                undo.append(lambda n=name, v=value: names.__setitem__(n, v))  # type: ignore[misc]
            elif depth:
                visit(value, depth - 1)

    def visit(value: Any, depth: int) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        value = getattr(value, "func", value)
        owner = getattr(value, "__self__", None)
        if owner is not None and not isinstance(owner, type(sys)):
            visit(owner, depth)
        code = getattr(value, "__code__", None)
        if code is None:
            module = sys.modules.get(type(value).__module__)
            source = getattr(module, "__file__", None)
            if source and not is_library(source) and isinstance(vars_of(value), dict):
                visit_namespace(vars_of(value), depth)
            return
        if is_library(code.co_filename):
            return
        for cell in getattr(value, "__closure__", None) or ():
            with contextlib.suppress(ValueError):
                found = cell.cell_contents
                if isinstance(found, _LOCKS):
                    cell.cell_contents = replaced(found)
                    undo.append(lambda c=cell, f=found: setattr(c, "cell_contents", f))  # type: ignore[misc]
                else:
                    visit(found, depth)
        scope = getattr(value, "__globals__", {})
        for name in code.co_names:
            found = scope.get(name)
            if isinstance(found, _LOCKS):
                scope[name] = replaced(found)
                undo.append(lambda s=scope, n=name, f=found: s.__setitem__(n, f))  # type: ignore[misc]
            elif found is not None and depth:
                visit(found, depth - 1)

    seen: set[int] = set()
    for program in programs:
        visit(program.function, 3)
    try:
        yield
    finally:
        for put_back in reversed(undo):
            put_back()


def vars_of(value: object) -> Any:
    """Return the attribute dictionary of an object, or None."""
    return getattr(value, "__dict__", None)
