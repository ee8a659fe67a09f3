"""Finds the line of the application that makes a call, while the call is recorded.

A client in this process is on the stack of the thread that handles the call, or it waits for the
response in another thread or in a task of an event loop. No line is recorded if several wait, or if
a task runs only library code, such as ``gather(client.get(url))``.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from ..core.recorder import Place, is_library, is_own, place_of

_NOT_CLIENTS = sys.stdlib_module_names | {
    "_pytest",
    "anyio",
    "hypercorn",
    "pytest_asyncio",
    "uvicorn",
}
"""Modules whose own tasks make no calls."""
_MAX_FRAMES = 300
"""Maximum number of frames to search in a stack."""


def call_site() -> Place | None:
    """Return the line of the application that makes the current call, or None."""
    here = _application(_stack(sys._getframe(1)))
    if here is not None:
        return place_of(here)
    if asyncio._get_running_loop() is not None:
        return None  # A task of this thread makes the call, and runs only library code.
    callers = list(_waiting_callers())
    only = callers[0] if len(callers) == 1 else None
    return None if only is None else place_of(only)


def _waiting_callers() -> Iterator[FrameType | None]:
    """Yield a frame for each other thread or task that may be waiting; None for library tasks."""
    own = threading.get_ident()
    for ident, top in sys._current_frames().items():
        if ident == own or not _waits(top):
            continue
        stack = _stack(top)
        if tasks := list(_tasks(stack)):
            yield from tasks
        elif (frame := _application(stack)) is not None:
            yield frame


def _stack(frame: FrameType | None) -> list[FrameType]:
    """Return the frames of a stack, innermost first."""
    stack: list[FrameType] = []
    while frame is not None and len(stack) < _MAX_FRAMES:
        stack.append(frame)
        frame = frame.f_back
    return stack


def _application(stack: list[FrameType]) -> FrameType | None:
    return next((one for one in stack if _is_application(one.f_code.co_filename)), None)


def _waits(frame: FrameType) -> bool:
    """Return whether a thread is executing library code, as it does while it waits for a response."""
    return not _is_application(frame.f_code.co_filename) and not is_own(frame)


def _tasks(stack: list[FrameType]) -> Iterator[FrameType | None]:
    """Yield the application's frame, or None, for each task that waits in a loop on this stack."""
    for frame in stack:
        loop = frame.f_locals.get("self") if frame.f_code.co_name == "run_forever" else None
        if not isinstance(loop, asyncio.AbstractEventLoop):
            continue
        try:
            tasks = list(asyncio.all_tasks(loop))
        except RuntimeError:  # the loop's thread changed the set during the iteration
            yield None
            continue
        for task in tasks:
            frames = _coroutine_frames(task)
            application = _application(frames[::-1])
            # Skip a task that waits in the application's code: it waits for no response.
            if application is None:
                if any(map(_is_client, frames)):
                    yield None
            elif application is not frames[-1]:
                yield application


def _coroutine_frames(task: asyncio.Task[object]) -> list[FrameType]:
    """Return the frames of a task's coroutines, outermost first."""
    frames: list[FrameType] = []
    awaited: object = task.get_coro()
    while awaited is not None and len(frames) < _MAX_FRAMES:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None:
            frames.append(frame)
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    return frames


def _is_client(frame: FrameType) -> bool:
    """Return whether a frame belongs to a library that may make calls."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _NOT_CLIENTS


def _is_application(filename: str) -> bool:
    return not filename.startswith("<") and not is_library(filename)
