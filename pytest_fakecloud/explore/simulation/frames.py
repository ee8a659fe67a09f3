"""Stack frames of explored code, and which of them belong to the application."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

from ...core.recorder import is_library

_DEPTH = 4
"""Maximum number of lines to keep of a stack."""
Source: TypeAlias = tuple[str, ...]
"""The innermost lines of a stack that are in the same file of the application, as ``file:line``."""
carried_source: ContextVar[Source] = ContextVar("carried_source", default=())
"""The source of a request that a thread of ``explore()`` makes for an event loop."""


def source_of(frame: FrameType | None) -> Source:
    """Return the application's lines of a stack, innermost first."""
    found = application_frame(frame)
    lines: list[str] = []
    if found is None:
        return ()
    name = found.f_code.co_filename
    while found is not None and found.f_code.co_filename == name and len(lines) < _DEPTH:
        lines.append(f"{Path(name).name}:{found.f_lineno}")
        found = application_frame(found.f_back)
    return tuple(lines)


class Sources:
    """The application's lines that make each call of a run, if ``stacks`` asks for them.

    A call can reach a fake in another thread, so the lines are stored by the local port of the
    connection when the code sends.
    """

    def __init__(self, *, stacks: bool) -> None:
        self._stacks = stacks
        self.by_port: dict[int, Source] = {}
        self._by_task: weakref.WeakKeyDictionary[Any, Source] = weakref.WeakKeyDictionary()

    def note(self, port: int) -> None:
        """Note the lines that are about to send from a local port."""
        if not self._stacks:
            return
        source = self.here()
        # A loop can send the end of a request outside of a task.
        if source or asyncio._get_running_loop() is None or asyncio.current_task() is not None:
            self.by_port[port] = source

    def note_task(self, task: asyncio.Task[Any]) -> None:
        """Note the lines that create a task."""
        if self._stacks:
            self._by_task[task] = self.here()

    def here(self) -> Source:
        """Return the application's lines that lead here, or that created the current task."""
        source = source_of(sys._getframe())
        if not source and asyncio._get_running_loop() is not None:
            task = asyncio.current_task()
            source = () if task is None else self._by_task.get(task, ())
        return source


def innermost(frame: FrameType | None) -> str:
    return next(iter(source_of(frame)), "an unknown line")


def distinct_places(sources: Sequence[Source]) -> list[str]:
    """Return one line for each source; if several share a line in a helper, the line of the
    helper's caller: ``a.py:1`` called from ``a.py:7`` and ``a.py:9`` becomes these two.
    """
    left = list(sources)
    for _ in range(_DEPTH - 1):
        callers: dict[str, set[str]] = {}
        for source in left:
            if source:
                callers.setdefault(source[0], set()).update(source[1:2])
        shared = {line for line, calling in callers.items() if len(calling) > 1}
        left = [source[1:] if source and source[0] in shared else source for source in left]
    return [source[0] if source else "" for source in left]


def application_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost application frame of a stack, or None."""
    while frame is not None:
        if not is_library(frame.f_code.co_filename):
            return frame
        frame = frame.f_back
    return None
