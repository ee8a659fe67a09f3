"""Frames on the stack of a thread, and the places in code that they execute."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import TypeAlias

_PACKAGE = f"{__package__.partition('.')[0]}."
_MAX_COROUTINES = 300
"""Maximum number of coroutines to follow, of which each awaits the next."""
Place: TypeAlias = dict[str, str | int]
"""A file, a line and a function."""
CodePlace: TypeAlias = tuple[CodeType, int]
"""A function's code and the index of an instruction in it. Finding its line takes longer than the
call of a fake's method, so only reports do that.
"""


def _elsewhere() -> None: ...


ELSEWHERE: CodePlace = (_elsewhere.__code__, 0)
"""The place of code in another process, which is unknown."""


def code_place(frame: FrameType) -> CodePlace:
    return frame.f_code, frame.f_lasti


def place_at(place: CodePlace) -> Place:
    code, index = place
    line = next((n for start, end, n in code.co_lines() if start <= index < end), None)
    return {
        "file": code.co_filename, "line": line or code.co_firstlineno, "function": code.co_name
    }  # fmt: skip


def stack_of(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def thread_frame(ident: int | None) -> FrameType | None:
    """Return the frame that a thread executes; None if it has ended."""
    with _creating_frames():
        frame = sys._current_frames().get(ident or 0)
        for _ in stack_of(frame):
            pass
        return frame


def thread_frames() -> dict[int, FrameType]:
    """Return the frame that each thread executes, by the thread's identifier."""
    with _creating_frames():
        frames = sys._current_frames()
        for frame in frames.values():
            for _ in stack_of(frame):
                pass
        return frames


@contextmanager
def _creating_frames() -> Iterator[None]:
    """Collect no garbage in the block, which asks for the frames of other threads and all their callers.

    Python creates the objects of frames when they are asked for. Version 3.11 may collect garbage then,
    so that the thread goes on, and the object is of a frame that has ended, which crashes the process.
    """
    collects = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if collects:
            gc.enable()


def frames_of_coroutine(coroutine: object) -> Iterator[FrameType]:
    """Yield the frames of a coroutine and of those that it awaits, outermost first."""
    awaited = coroutine
    for _ in range(_MAX_COROUTINES):
        if awaited is None:
            return
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        # A proxy or a mock that is awaited has every attribute.
        if isinstance(frame, FrameType):
            yield frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)


def is_own(frame: FrameType) -> bool:
    """Return whether a frame belongs to this package."""
    name = frame.f_globals.get("__name__")
    return isinstance(name, str) and name.startswith(_PACKAGE)
