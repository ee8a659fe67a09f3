"""Finds the lines of the application that make a call, while the call is recorded.

A client in this process is on the stack of the thread that handles the call, or it waits for the
response in another thread or in a task of an event loop. The thread or task that uses the client's
socket makes the call, also if others wait at the same time: frameworks run synchronous handlers and
views in worker threads, for which a test client and an event loop wait. If a worker runs only library
code, as for ``asyncio.to_thread(client.get, key)``, the call is that of the task that awaits it.

No line is recorded if several may wait for the response and no socket is found, or if a task runs
only library code, such as ``gather(client.get(url))``.

To walk the stack of a running thread has crashed CPython 3.11, so `Stacks` is asked first: it reads
the stack of most clients in their own threads, when they send. Not that of a client that sends over
TLS, on the sockets of gevent or with compiled code, nor the task that awaits a worker.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import islice, takewhile
from types import FrameType
from typing import Any, NamedTuple, TypeAlias

from ..core.calls import Call
from ..core.errors import report_failure
from ..core.frames import code_place, frames_of_coroutine, is_own, stack_of, thread_frames
from ..core.libraries import is_library
from ..core.recorder import CallSite, SharedRecords
from .clocks import module_of
from .stacks import Stacks

_NOT_CLIENTS = sys.stdlib_module_names | {
    "_pytest",
    "anyio",
    "hypercorn",
    "pytest_asyncio",
    "uvicorn",
}
"""Modules whose own tasks make no calls."""
_PAUSES = {"asyncio.locks", "asyncio.queues", "asyncio.tasks", "asyncio.timeouts"}
"""Modules in which a task waits for another task or a time, such as ``asyncio.sleep()``."""
_SOCKETS = {
    "aiohttp.streams",
    "anyio._backends._asyncio",
    "asyncio.selector_events",
    "asyncio.streams",
}
"""Modules in which a task uses a socket, through a transport."""
_MAX_FRAMES = 300  # to search in a stack
_MOST_PLACES = 6  # to record for a call
_Future: TypeAlias = "asyncio.Future[object] | concurrent.futures.Future[object]"


def note_site(records: SharedRecords, call: Call, stacks: Stacks) -> None:
    """Note the places of the application that make a call, given the stacks that send on sockets."""
    # A search through other threads' stacks must not change the answer to the call.
    with report_failure("the line of a call could not be found", records.failures.append):
        site = _call_site(call.client, stacks)
        if site.places:
            records.sites[call.number] = site


def _call_site(client: tuple[str, int] | None, stacks: Stacks) -> CallSite:
    """Return the places that make the current call, given the address of its client's socket."""
    if client is not None and (sent := stacks.of(client)) is not None:
        places = [place for place in sent.places if _is_application(place[0].co_filename)]
        if places:
            return CallSite(tuple(places))
    stack = _stack(sys._getframe(1))
    here = _application(stack)
    loop = asyncio._get_running_loop()
    job = _job_of(stack)
    if here or loop is not None or job is not None:
        # Without a place, a task of this thread makes the call, and runs only library code.
        return _site(_Caller(here, job=job))
    callers = [caller for caller in _waiting_callers() if caller.address in (None, client)]
    callers = [caller for caller in callers if caller.address is not None] or callers
    return _site(callers[0]) if len(callers) == 1 else CallSite()


def _site(caller: _Caller) -> CallSite:
    frames = caller.frames
    if caller.job is not None and (awaiting := _awaiting(caller.job)) is not None:
        frames = awaiting.frames
    return CallSite(tuple(map(code_place, frames[:_MOST_PLACES])))


class _Caller(NamedTuple):
    """A thread or a task that may be waiting: the application's frames, if any, and the address of the
    socket on which it sends or receives, if that is known. A thread that executes a function of a
    library as a job of an executor or of AnyIO has the future of its result, the ``job``.
    """

    frames: list[FrameType]
    address: tuple[str, int] | None = None
    job: _Future | None = None


def _waiting_callers() -> Iterator[_Caller]:
    """Yield each thread or task that may be waiting."""
    for stack in _stacks():
        if loops := _loops(stack):
            for at, loop in loops:
                yield from _tasks(stack[:at], loop)
        elif (address := _socket_address(stack)) is not None or _waits(stack[0]):
            frames = _application(stack)
            job = None if address is None else _job_of(stack)
            if frames or job is not None:
                yield _Caller(frames, address, job)


def _stack(frame: FrameType) -> list[FrameType]:
    """Return the frames of a stack, innermost first."""
    return list(islice(stack_of(frame), _MAX_FRAMES))


def _stacks() -> list[list[FrameType]]:
    """Return the stacks of the other threads."""
    # Follow the frames before anything else: a thread goes on, and a frame that ends has no caller.
    own = threading.get_ident()
    return [_stack(top) for ident, top in thread_frames().items() if ident != own]


def _application(stack: list[FrameType]) -> list[FrameType]:
    return [frame for frame in stack if _is_application(frame.f_code.co_filename)]


def _waits(frame: FrameType) -> bool:
    """Return whether a thread is executing library code, as it does while it waits for a response."""
    return not _is_application(frame.f_code.co_filename) and not is_own(frame)


def _loops(stack: list[FrameType]) -> list[tuple[int, asyncio.AbstractEventLoop]]:
    """Return the event loops that run on a stack, each with the index of its frame."""
    # Compare the names in a list first: few stacks have an event loop, and each call looks for one.
    indexes = [at for at, frame in enumerate(stack) if frame.f_code.co_name == "run_forever"]
    loops = [(at, stack[at].f_locals.get("self")) for at in indexes]
    return [(at, loop) for at, loop in loops if isinstance(loop, asyncio.AbstractEventLoop)]


def _all_tasks(loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[Any]] | None:
    """Return the tasks of a loop; None if its thread changed the set during the iteration."""
    try:
        return list(asyncio.all_tasks(loop))
    except RuntimeError:
        return None


def _tasks(stack: list[FrameType], loop: asyncio.AbstractEventLoop) -> Iterator[_Caller]:
    """Yield each task that waits in a loop, or the callback that the loop executes, given the frames
    of the thread inside the loop.
    """
    tasks = _all_tasks(loop)
    if tasks is None:
        yield _Caller([])
        return
    every = {task: _task_frames(task, stack) for task in tasks}
    of_tasks = {frame for frames in every.values() for frame in frames}
    inside = set(map(_task_inside, of_tasks))
    callback = _application(stack)
    # The loop goes on meanwhile: it may be between two tasks now, and have run one on this stack.
    if callback and asyncio.current_task(loop) is None and of_tasks.isdisjoint(callback):
        yield _Caller(callback, _socket_address(stack))
    for task, frames in every.items():
        if task in inside:
            continue
        application = _application(frames[::-1])
        address = _socket_address(stack) if frames[-1:] == stack[:1] else _address(frames)
        if not application:
            # One of these libraries may make calls.
            if not _NOT_CLIENTS.issuperset(module_of(frame).partition(".")[0] for frame in frames):
                yield _Caller([], address)
        # Skip a task that runs the application's code or only pauses: it waits for no response.
        elif not _PAUSES.issuperset(map(module_of, frames[frames.index(application[0]) + 1 :])):
            yield _Caller(application, address)


def _task_frames(task: asyncio.Task[object], stack: list[FrameType]) -> list[FrameType]:
    """Return the frames of a task, outermost first, given the stack of the thread inside its loop."""
    frames = _coroutine_frames(task)
    on_stack = set(stack)
    executed = next((frame for frame in frames if frame in on_stack), None)
    if executed is None:
        return frames
    # A coroutine that is executed awaits nothing. What it calls is on the stack.
    return frames[: frames.index(executed)] + stack[: stack.index(executed) + 1][::-1]


def _coroutine_frames(task: asyncio.Task[object]) -> list[FrameType]:
    """Return the frames of a task's coroutines, outermost first."""
    frames: list[FrameType] = []
    for frame in frames_of_coroutine(task.get_coro()):
        frames.append(frame)
        if task_inside := _task_inside(frame):
            return frames + _coroutine_frames(task_inside)
    return frames


def _address(frames: list[FrameType]) -> tuple[str, int] | None:
    """Return the address of the socket on which a task sends or receives, given its frames."""
    for frame in [frame for frame in frames[-_MOST_PLACES:] if module_of(frame) in _SOCKETS]:
        me = frame.f_locals.get("self")
        for transport in (me, getattr(me, "_transport", None), getattr(me, "transport", None)):
            if isinstance(transport, asyncio.BaseTransport) and (
                name := transport.get_extra_info("sockname")
            ):
                return tuple(name[:2])
    return None


def _library(stack: list[FrameType]) -> list[FrameType]:
    """Return the frames of the library code that a thread executes, up to the application's code."""
    return list(takewhile(lambda frame: not _is_application(frame.f_code.co_filename), stack))


def _socket_address(stack: list[FrameType]) -> tuple[str, int] | None:
    """Return the address of the socket that a thread uses in the library code that it executes."""
    for frame in _library(stack):
        names = frame.f_locals
        attributes = getattr(names.get("self"), "__dict__", {})
        for value in (names.get("sock"), attributes.get("_sock"), attributes.get("sock")):
            if isinstance(value, socket.socket):
                with suppress(OSError):  # The thread has closed it.
                    address = value.getsockname()
                    return tuple(address[:2]) if isinstance(address, tuple) else None
    return None


def _job_of(stack: list[FrameType]) -> _Future | None:
    """Return the future of the job in which a thread executes library code, if any."""
    for frame in _library(stack):
        # The functions that execute jobs have this name in both libraries.
        names = frame.f_locals if frame.f_code.co_name == "run" else {}
        for future in (names.get("future"), getattr(names.get("self"), "future", None)):
            if isinstance(future, asyncio.Future | concurrent.futures.Future):
                return future
    return None


def _awaiting(job: _Future) -> _Caller | None:
    """Return the task that awaits a job, or the only thread that waits for an executor; if any."""
    stacks = _stacks()
    futures = _copies(job)
    tasks: list[_Caller] = []
    threads: list[_Caller] = []
    for stack in stacks:
        for at, loop in _loops(stack):
            for task in _all_tasks(loop) or ():
                frames = _task_frames(task, stack[:at])
                innermost = [task, *filter(None, map(_task_inside, frames))][-1]
                # A job may begin while its task still executes the function that submits it.
                if getattr(innermost, "_fut_waiter", None) in futures or (
                    frames[-1:] == stack[:1] and _holds(frames, futures)
                ):
                    tasks.append(_Caller(_application(frames[::-1])))
        if any(module_of(frame).startswith("concurrent.futures.") for frame in _library(stack)):
            threads.append(_Caller(_application(stack)))
    threads = [thread for thread in threads if thread.frames]
    # A task that runs inside another one has a part of its frames.
    longest = max(tasks, key=lambda task: len(task.frames), default=None)
    return longest or (threads[0] if len(threads) == 1 else None)


def _copies(future: _Future) -> list[_Future]:
    """Return a future and those to which its result will be copied, as ``asyncio.shield()`` does."""
    futures = [future]
    for source in futures:
        for callback in _callbacks(source):
            for cell in getattr(callback, "__closure__", None) or ():
                content = cell.cell_contents
                if isinstance(content, asyncio.Future) and content not in futures:
                    futures.append(content)
    return futures


def _holds(stack: list[FrameType], futures: list[_Future]) -> bool:
    """Return whether one of these futures is the value of a local variable."""
    ids = set(map(id, futures))
    return any(id(value) in ids for frame in stack for value in frame.f_locals.values())


def _callbacks(future: Any) -> list[object]:
    """Return the functions that will be called with the result of a future."""
    if isinstance(future, concurrent.futures.Future):
        return list(future._done_callbacks)  # type: ignore[attr-defined]
    return [callback for callback, _ in future._callbacks or ()]


def _task_inside(frame: FrameType) -> asyncio.Task[object] | None:
    """Return the task in which ``asyncio.wait_for()`` runs a coroutine before Python 3.12, if any."""
    inside = frame.f_locals.get("fut") if frame.f_code is asyncio.wait_for.__code__ else None
    return inside if isinstance(inside, asyncio.Task) else None


@lru_cache(maxsize=4096)
def _is_application(filename: str) -> bool:
    return not filename.startswith("<") and not is_library(filename)
