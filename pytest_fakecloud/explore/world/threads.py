"""The threads that explored code and its checks start."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any

from ...process.replace import Patch
from ..simulation.current_thread import carried_strand
from ..simulation.simulation import Simulation
from ..simulation.strand import Strand
from ..values.limits import LOST_AFTER

if TYPE_CHECKING:
    from .world import World


def _is_thread_of_a_fake(thread: threading.Thread) -> bool:
    """Return whether this package starts a thread, e.g. for ASGI applications, which is not explored."""
    target = getattr(thread, "_target", None)
    return str(getattr(target, "__module__", "")).startswith("pytest_fakecloud.")


def _can_start(thread: threading.Thread) -> bool:
    """Return whether a thread can be started: it is initialized, and has not been started yet."""
    return vars(thread).get("_ident", 0) is None


def _run_within(thread: threading.Thread, around: Callable[[Callable[[], None]], object]) -> None:
    """Have a thread call ``around`` with its own ``run()``, in place of that."""
    run = thread.run

    def run_within(thread: threading.Thread) -> None:
        around(run)

    # A method, because tools that wrap it, such as sentry-sdk, call the function of the method.
    thread.run = MethodType(run_within, thread)  # type: ignore[method-assign]


def thread_patches(world: World) -> Iterator[Patch]:
    real_start, real_join = threading.Thread.start, threading.Thread.join
    real_shutdown, real_submit = ThreadPoolExecutor.shutdown, ThreadPoolExecutor.submit

    def start(simulation: Simulation, strand: Strand, thread: threading.Thread) -> None:
        before, child = dict(vars(thread)), None
        if not _is_thread_of_a_fake(thread):
            child = simulation.strands.new_thread(
                strand, thread, len(simulation.access_log.steps) - 1
            )
            vars(thread)["_strand"] = child
            _run_within(thread, partial(simulation.turns.run_in_own_thread, child))
        # The end of the process must not wait for a thread that is abandoned.
        vars(thread)["_daemonic"] = True
        try:
            with strand.waits_for_real():
                real_start(thread)
        except Exception:
            if _can_start(thread):
                # The system allows no further thread, for example. The code may try it again.
                vars(thread).clear()
                vars(thread).update(before)
                if child is not None:
                    child.end()
            raise
        vars(thread)["_daemonic"] = before["_daemonic"]

    def start_anywhere(thread: threading.Thread) -> None:
        if not _can_start(thread):
            real_start(thread)
            return
        if (here := world.simulation_and_strand()) is not None:
            start(*here, thread)
            return
        if world.current_thread.carried() is not None:
            # Threads that begin in one which is not explored work for the same strand.
            _run_within(thread, copy_context().run)
        if world.current_thread.role().moves_clock and not _is_thread_of_a_fake(thread):
            _run_within(thread, world.between_trials.run_in_check)
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
            until = world.fakes.time_after(max(0.0, timeout))
        while child.state != "ended" and (until is None or world.fakes.now_us() < until):
            simulation.strand_waits.wait_until(
                strand, lambda: child.state == "ended", until, for_other_thread=True
            )
        if child.state == "ended":
            # It has handed over the turn. The thread itself is alive a moment longer.
            with strand.waits_for_real():
                real_join(thread, LOST_AFTER)

    def shutdown(pool: Any, *args: Any, **options: Any) -> None:
        # Join the threads in the same order in each trial. The order of a set differs.
        pool._threads = sorted(pool._threads, key=lambda thread: thread.name)
        real_shutdown(pool, *args, **options)

    def submit(pool: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        # An event loop that is not explored, such as that of an ASGI application, runs functions in
        # threads whose contexts do not name the strand for which they work.
        strand = world.current_thread.carried()
        if strand is None or world.current_thread.role().is_explored:
            return real_submit(pool, function, *args, **kwargs)

        def work() -> Any:
            token = carried_strand.set(strand)
            try:
                return function(*args, **kwargs)
            finally:
                carried_strand.reset(token)

        return real_submit(pool, work)

    yield ThreadPoolExecutor, "submit", submit
    yield threading.Thread, "start", start_anywhere
    yield threading.Thread, "join", world.in_strands(real_join, join)
    yield ThreadPoolExecutor, "shutdown", shutdown
