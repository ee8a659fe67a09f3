"""Finds the lines of the application that make a call, while the call is recorded.

A client in this process is on the stack of the thread that handles the call, or it waits for the
response in another thread or in a task of an event loop. No line is recorded if several may wait for
it, or if a task runs only library code, such as ``gather(client.get(url))``.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from types import FrameType
from typing import NamedTuple
from weakref import WeakKeyDictionary

from ..core.libraries import is_library
from ..core.recorder import CallSite, code_place, is_own, stack_of
from .clocks import module_of

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
_NUMBERS: WeakKeyDictionary[asyncio.Task[object], int] = WeakKeyDictionary()
"""A number for each task that made a call. Unlike its id(), no later task has the same."""
_COUNT = itertools.count(1)


def call_site(client: tuple[str, int] | None = None) -> CallSite:
    """Return the places of the application that make the current call, and the task that does, given
    the address of the client's socket.
    """
    here = _application(_stack(sys._getframe(1)))
    loop = asyncio._get_running_loop()
    if here or loop is not None:
        # Without a place, a task of this thread makes the call, and runs only library code.
        return _site(here, None if loop is None else asyncio.current_task(loop))
    callers = [
        caller
        for caller in _waiting_callers()
        if client is None or caller.address in (None, client)
    ]
    callers = [caller for caller in callers if caller.address is not None] or callers
    return _site(callers[0].frames, callers[0].task) if len(callers) == 1 else CallSite()


def _site(frames: list[FrameType], task: asyncio.Task[object] | None) -> CallSite:
    number = 0 if task is None else _NUMBERS.setdefault(task, next(_COUNT))
    return CallSite(tuple(map(code_place, frames[:_MOST_PLACES])), number)


class _Caller(NamedTuple):
    """A thread or a task that may be waiting: the application's frames, if any, and the address of the
    socket on which it sends or receives, if that is known.
    """

    frames: list[FrameType]
    task: asyncio.Task[object] | None = None
    address: tuple[str, int] | None = None


def _waiting_callers() -> Iterator[_Caller]:
    """Yield each thread or task that may be waiting."""
    own = threading.get_ident()
    for ident, top in sys._current_frames().items():
        if ident == own:
            continue
        stack = _stack(top)
        if tasks := list(_tasks(stack)):
            yield from tasks
        elif _waits(top) and (frames := _application(stack)):
            yield _Caller(frames)


def _stack(frame: FrameType) -> list[FrameType]:
    """Return the frames of a stack, innermost first."""
    return list(islice(stack_of(frame), _MAX_FRAMES))


def _application(stack: list[FrameType]) -> list[FrameType]:
    return [frame for frame in stack if _is_application(frame.f_code.co_filename)]


def _waits(frame: FrameType) -> bool:
    """Return whether a thread is executing library code, as it does while it waits for a response."""
    return not _is_application(frame.f_code.co_filename) and not is_own(frame)


def _tasks(stack: list[FrameType]) -> Iterator[_Caller]:
    """Yield each task that waits in a loop on this stack."""
    # Compare the names in a list first: few stacks have an event loop, and each call looks for one.
    for at in [at for at, frame in enumerate(stack) if frame.f_code.co_name == "run_forever"]:
        loop = stack[at].f_locals.get("self")
        if not isinstance(loop, asyncio.AbstractEventLoop):
            continue
        try:
            tasks = list(asyncio.all_tasks(loop))
        except RuntimeError:  # the loop's thread changed the set during the iteration
            yield _Caller([])
            continue
        running = asyncio.current_task(loop)
        # A running coroutine awaits nothing. Its frames are those of the thread.
        every = {
            task: stack[:at][::-1] if task is running else _coroutine_frames(task) for task in tasks
        }
        inside = {_task_inside(frame) for frames in every.values() for frame in frames}
        for task, frames in every.items():
            if task in inside:
                continue
            application = _application(frames[::-1])
            if not application:
                # One of these libraries may make calls.
                if not _NOT_CLIENTS.issuperset(
                    module_of(frame).partition(".")[0] for frame in frames
                ):
                    yield _Caller([], task, _address(frames))
            # Skip a task that runs the application's code or only pauses: it waits for no response.
            elif not _PAUSES.issuperset(map(module_of, frames[frames.index(application[0]) + 1 :])):
                yield _Caller(application, task, _address(frames))


def _coroutine_frames(task: asyncio.Task[object]) -> list[FrameType]:
    """Return the frames of a task's coroutines, outermost first."""
    frames: list[FrameType] = []
    awaited: object = task.get_coro()
    while awaited is not None and len(frames) < _MAX_FRAMES:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        # A proxy or a mock that is awaited has every attribute.
        if isinstance(frame, FrameType):
            frames.append(frame)
            if task_inside := _task_inside(frame):
                awaited = task_inside.get_coro()
                continue
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
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


def _task_inside(frame: FrameType) -> asyncio.Task[object] | None:
    """Return the task in which ``asyncio.wait_for()`` runs a coroutine before Python 3.12, if any."""
    inside = frame.f_locals.get("fut") if frame.f_code is asyncio.wait_for.__code__ else None
    return inside if isinstance(inside, asyncio.Task) else None


@lru_cache(maxsize=4096)
def _is_application(filename: str) -> bool:
    return not filename.startswith("<") and not is_library(filename)
