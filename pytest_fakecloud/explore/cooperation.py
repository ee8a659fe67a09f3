"""Threads, processes and signals of explored code: each thread becomes a strand."""

from __future__ import annotations

import contextlib
import logging
import math
import multiprocessing.process
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from traceback import walk_stack
from typing import TYPE_CHECKING, Any

from ..core.errors import ContractError
from .locks import lock_patches
from .simulation.frames import innermost
from .simulation.strands import Strand
from .watching import swap

if TYPE_CHECKING:
    from types import FrameType

    from .simulation.simulation import Simulation
    from .world import World

_EXIT_ADVICE = "explore() sees only this process and keeps it alive. Replace that call in the test"
_CELERY_ADVICE = (
    "it waits with epoll, which explore() does not control. Make a client that takes messages with "
    "`channel.basic_get('celery')` of `app.connection()`, calls `app.tasks[...]` and acknowledges them"
)
_Patch = tuple[object, str, object]
"""The owner and the name of an attribute, and its value while code is explored."""


@contextlib.contextmanager
def cooperation(world: World) -> Iterator[None]:
    """Turn threads of explored code into strands, and make its locks yield to other strands."""
    patches = [
        *lock_patches(world),
        *_thread_patches(world),
        *_process_patches(world),
        *_signal_patches(world),
        (os, "urandom", urandom := _seeded_urandom(world)),
        (random, "_urandom", urandom),
        # Silence this logger, because it would report a pool's threads that the end of the run stops.
        (logging.getLogger("concurrent.futures"), "disabled", True),
    ]
    with contextlib.ExitStack() as exits:
        for owner, name, value in patches:
            swap(exits, owner, name, value)
        yield


def _in_strands(
    world: World, original: Callable[..., Any], replacement: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that calls ``replacement(simulation, strand, …)`` in explored code only."""

    def patched(*args: Any, **kwargs: Any) -> Any:
        here = world.here()
        return original(*args, **kwargs) if here is None else replacement(*here, *args, **kwargs)

    return patched


def _thread_patches(world: World) -> Iterator[_Patch]:
    real_start, real_join = threading.Thread.start, threading.Thread.join
    real_shutdown = ThreadPoolExecutor.shutdown

    def start(simulation: Simulation, strand: Strand, thread: threading.Thread) -> None:
        # Do not explore threads of the fakes, e.g. for ASGI applications.
        target = getattr(thread, "_target", None)
        if not str(getattr(target, "__module__", "")).startswith("pytest_fakecloud."):
            child = simulation.lifecycle.new_thread(strand, thread)
            vars(thread)["_strand"] = child
            run = partial(simulation.turns.run_in_own_thread, child, thread.run)
            thread.run = run  # type: ignore[method-assign]
        with strand.waits_for_real():
            real_start(thread)

    def join(
        simulation: Simulation,
        strand: Strand,
        thread: threading.Thread,
        timeout: float | None = None,
    ) -> None:
        child: Strand | None = vars(thread).get("_strand")
        if child is None or thread is threading.current_thread():
            real_join(thread, timeout)
            return
        until = None
        if timeout is not None:
            until = world.now_us() + math.ceil(max(0.0, timeout) * 1e6)
        while child.state != "ended" and (until is None or world.now_us() < until):
            simulation.waits.wait_for(strand, lambda: child.state == "ended", until, "join")

    def shutdown(pool: Any, *args: Any, **options: Any) -> None:
        # Join the threads in the same order in each run. The order of a set differs.
        pool._threads = sorted(pool._threads, key=lambda one: one.name)
        real_shutdown(pool, *args, **options)

    yield threading.Thread, "start", _in_strands(world, real_start, start)
    yield threading.Thread, "join", _in_strands(world, real_join, join)
    yield ThreadPoolExecutor, "shutdown", shutdown


def _process_patches(world: World) -> Iterator[_Patch]:
    def refuses(what: str, advice: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def refused(simulation: Simulation, strand: Strand, *_: Any, **__: Any) -> None:
            where = innermost(sys._getframe())
            simulation.turns.fail(
                ContractError(f"{strand.title} calls {what} at {where}: {advice}")
            )

        return _in_strands(world, original, refused)

    def notes_process(original: Callable[..., Any]) -> Callable[..., Any]:
        def started(simulation: Simulation, strand: Strand, *args: Any, **kwargs: Any) -> Any:
            if not _finds_address(sys._getframe()):
                where = innermost(sys._getframe())
                note = f"not explored: a child process that {strand.title} started at {where}"
                simulation.run.notes[note] = None
            with strand.waits_for_real():
                return original(*args, **kwargs)

        return _in_strands(world, original, started)

    process = multiprocessing.process.BaseProcess
    yield os, "_exit", refuses("os._exit", _EXIT_ADVICE, os._exit)
    yield subprocess.Popen, "__init__", notes_process(subprocess.Popen.__init__)
    yield process, "start", notes_process(process.start)
    celery = sys.modules.get("celery.worker")
    if celery is not None:
        owner = celery.WorkController
        yield owner, "start", refuses("Worker.start of Celery", _CELERY_ADVICE, owner.start)


def _finds_address(frame: FrameType) -> bool:
    """Return whether a call comes from ``uuid``, which starts a process to find a network address."""
    return any(each.f_globals.get("__name__") == "uuid" for each, _ in walk_stack(frame))


def _signal_patches(world: World) -> Iterator[_Patch]:
    """Yield functions that do nothing in a strand, where the originals raise an error."""

    def skips(original: Callable[..., Any], result: object) -> Callable[..., Any]:
        def skipped(simulation: Simulation, strand: Strand, *_: Any, **__: Any) -> object:
            simulation.run.notes["not explored: signals, and timeouts that signals end"] = None
            return result

        return _in_strands(world, original, skipped)

    results = {"signal": signal.SIG_DFL, "alarm": 0, "setitimer": (0.0, 0.0)}
    for name, result in results.items():
        if hasattr(signal, name):
            yield signal, name, skips(getattr(signal, name), result)


def _seeded_urandom(world: World) -> Callable[[int], bytes]:
    """Return a function whose bytes, and so those of ``uuid4()``, are the same in every run."""
    real_urandom = os.urandom

    def urandom(size: int, /) -> bytes:
        strand = world.cooperating()
        if strand is None:
            return real_urandom(size)
        strand.urandom_calls += 1
        seed = f"{world.cloud.seed} {strand.title} {strand.urandom_calls}"
        return random.Random(seed).randbytes(size)

    return urandom
