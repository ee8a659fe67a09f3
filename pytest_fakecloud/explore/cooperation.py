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
from traceback import walk_stack
from typing import TYPE_CHECKING, Any

from ..core.errors import ContractError
from .locks import lock_patches
from .simulation.frames import innermost
from .simulation.strands import Crash, Strand
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
        (os, "urandom", urandom := _urandom(world)),
        (random, "_urandom", urandom),
        # Silence this logger, because it would report a pool's threads that the end of the run stops.
        (logging.getLogger("concurrent.futures"), "disabled", True),
    ]
    with contextlib.ExitStack() as exits:
        for owner, name, value in patches:
            swap(exits, owner, name, value)
        yield


def _thread_patches(world: World) -> list[_Patch]:
    real_start, real_join = threading.Thread.start, threading.Thread.join
    real_shutdown = ThreadPoolExecutor.shutdown

    def start(thread: threading.Thread) -> None:
        here = world.here()
        if here is None:
            real_start(thread)
            return
        simulation, strand = here
        # Do not explore threads of the fakes, e.g. for ASGI applications.
        target = getattr(thread, "_target", None)
        is_of_a_fake = str(getattr(target, "__module__", "")).startswith("pytest_fakecloud.")
        if is_of_a_fake:
            with strand.waits_for_real():
                real_start(thread)
        else:
            _begin(simulation, strand, thread, real_start)

    def join(thread: threading.Thread, timeout: float | None = None) -> None:
        here = world.here()
        child: Strand | None = vars(thread).get("_strand")
        if here is None or child is None or thread is threading.current_thread():
            real_join(thread, timeout)
            return
        simulation, strand = here
        until = None
        if timeout is not None:
            until = world.now_us() + math.ceil(max(0.0, timeout) * 1e6)
        while not _has_ended(child):
            if until is not None and world.now_us() >= until:
                return
            simulation.waits.wait_for(strand, lambda: _has_ended(child), until, "join")

    def shutdown(pool: Any, *args: Any, **options: Any) -> None:
        # Join the threads in the same order in each run. The order of a set differs.
        pool._threads = sorted(pool._threads, key=lambda one: one.name)
        real_shutdown(pool, *args, **options)

    return [
        (threading.Thread, "start", start),
        (threading.Thread, "join", join),
        (ThreadPoolExecutor, "shutdown", shutdown),
    ]


def _process_patches(world: World) -> list[_Patch]:
    def refuse(what: str, advice: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def refused(*args: Any, **kwargs: Any) -> Any:
            here = world.here()
            if here is None:
                return original(*args, **kwargs)
            simulation, strand = here
            where = innermost(sys._getframe(1))
            simulation.turns.fail(
                ContractError(f"{strand.title} calls {what} at {where}: {advice}")
            )

        return refused

    def notes_process(original: Callable[..., Any]) -> Callable[..., Any]:
        def started(*args: Any, **kwargs: Any) -> Any:
            here = world.here()
            if here is None:
                return original(*args, **kwargs)
            simulation, strand = here
            if not _finds_address(sys._getframe(1)):
                where = innermost(sys._getframe(1))
                note = f"not explored: a child process that {strand.title} started at {where}"
                simulation.run.notes[note] = None
            with strand.waits_for_real():
                return original(*args, **kwargs)

        return started

    process = multiprocessing.process.BaseProcess
    return [
        (os, "_exit", refuse("os._exit", _EXIT_ADVICE, os._exit)),
        (subprocess.Popen, "__init__", notes_process(subprocess.Popen.__init__)),
        (process, "start", notes_process(process.start)),
        *(
            (owner, name, refuse(what, _CELERY_ADVICE, getattr(owner, name)))
            for what, owner, name in _workers_of_celery()
        ),
    ]


def _signal_patches(world: World) -> list[_Patch]:
    def skips(original: Callable[..., Any], result: object) -> Callable[..., Any]:
        """Return a replacement for a function that raises in a strand; it does nothing there."""

        def skipped(*args: Any, **kwargs: Any) -> Any:
            here = world.here()
            if here is None:
                return original(*args, **kwargs)
            simulation, _ = here
            simulation.run.notes["not explored: signals, and timeouts that signals end"] = None
            return result

        return skipped

    results = {"signal": signal.SIG_DFL, "alarm": 0, "setitimer": (0.0, 0.0)}
    return [
        (signal, name, skips(getattr(signal, name), result))
        for name, result in results.items()
        if hasattr(signal, name)
    ]


def _urandom(world: World) -> Callable[[int], bytes]:
    real_urandom = os.urandom

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

    return urandom


def _workers_of_celery() -> Iterator[tuple[str, Any, str]]:
    """Yield the method that starts a Celery worker, if Celery is loaded."""
    module = sys.modules.get("celery.worker")
    if module is not None:
        yield "Worker.start of Celery", module.WorkController, "start"


def _finds_address(frame: FrameType) -> bool:
    """Return whether a call comes from ``uuid``, which starts a process to find a network address."""
    return any(each.f_globals.get("__name__") == "uuid" for each, _ in walk_stack(frame))


def _has_ended(strand: Strand) -> bool:
    return strand.state == "ended"


def _begin(
    simulation: Simulation,
    strand: Strand,
    thread: threading.Thread,
    real_start: Callable[..., None],
) -> None:
    child = simulation.waits.new_thread(strand, thread)
    run = thread.run
    vars(thread)["_strand"] = child

    def running() -> None:
        turns = simulation.turns
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
