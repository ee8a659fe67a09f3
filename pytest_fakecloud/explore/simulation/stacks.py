"""The lines of the application in the stacks of its threads and tasks."""

from __future__ import annotations

import linecache
import sys
import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

from ...core.errors import report_failure
from ...core.frames import stack_of, thread_frame, thread_frames
from ...core.libraries import is_library
from ...http.messages import Request
from .strand import Strand

if TYPE_CHECKING:
    from .loops import AsyncLibrary

_DEPTH = 4
"""Maximum number of lines to keep of a stack."""
CallSite: TypeAlias = tuple[str, ...]
"""The innermost lines of a stack that are in the same file of the application, as ``file:line``."""
carried_call_site: ContextVar[CallSite] = ContextVar("carried_call_site", default=())
"""The call site of a request that a thread of ``explore()`` makes for an event loop."""


def call_site_of(frame: FrameType | None) -> CallSite:
    """Return the application's lines of a stack, innermost first."""
    caller = application_frame(frame)
    lines: list[str] = []
    if caller is None:
        return ()
    name = caller.f_code.co_filename
    while caller is not None and caller.f_code.co_filename == name and len(lines) < _DEPTH:
        lines.append(f"{Path(name).name}:{caller.f_lineno}")
        caller = application_frame(caller.f_back)
    return tuple(lines)


class CallSites:
    """The application's lines that make each call, by local port: another thread may serve the call."""

    def __init__(
        self, async_library: Callable[[], AsyncLibrary | None], *, are_noted: bool
    ) -> None:
        self._async_library = async_library
        self._are_noted = are_noted
        self._by_port: dict[int, CallSite] = {}
        self._by_task: weakref.WeakKeyDictionary[Any, CallSite] = weakref.WeakKeyDictionary()

    def note(self, port: int) -> None:
        if not self._are_noted:
            return
        site = self.current()
        # A loop can send the end of a request outside of a task.
        library = None if site else self._async_library()
        if library is None or library.current_task() is not None:
            self._by_port[port] = site

    def note_task(self, task: object) -> None:
        if self._are_noted:
            self._by_task[task] = self.current()

    def current(self) -> CallSite:
        """Return the application's lines that lead here, or that created the current task."""
        site = call_site_of(sys._getframe())
        library = None if site else self._async_library()
        task = None if library is None else library.current_task()
        return site if task is None else self._by_task.get(task, ())

    def of_call(self, strand: Strand, request: Request) -> CallSite:
        """Return the application's lines that make a call, which this thread handles for a strand."""
        port = request.client[1] if request.client else 0
        site = carried_call_site.get() or self.current() or self._by_port.get(port, ())
        if not site and strand.host.loop is None:
            site = call_site_of(thread_frame(strand.thread.ident))
        return site


def innermost(frame: FrameType | None) -> str:
    return next(iter(call_site_of(frame)), "an unknown line")


def distinct_places(sites: Sequence[CallSite]) -> list[str]:
    """Return one line for each site; a shared helper's line is replaced by those of its callers."""
    shortened = list(sites)
    for _ in range(_DEPTH - 1):
        callers: dict[str, set[str]] = {}
        for site in shortened:
            if site:
                callers.setdefault(site[0], set()).update(site[1:2])
        shared = {line for line, calling in callers.items() if len(calling) > 1}
        shortened = [site[1:] if site and site[0] in shared else site for site in shortened]
    return [site[0] if site else "" for site in shortened]


def application_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost application frame of a stack, or None."""
    return next(
        (caller for caller in stack_of(frame) if not is_library(caller.f_code.co_filename)), None
    )


def describe_places(strands: Sequence[Strand]) -> str:
    """Return the names of strands, each with its current line of the application if it has one."""
    places: list[str] = []
    for strand in strands:
        lines: list[str] = []
        with report_failure("its line could not be found", lines.append):
            lines += call_site_of(thread_frame(strand.thread.ident))
        places.append(f"{strand.name} ({lines[0]})" if lines else strand.name)
    return ", ".join(places)


def describe_stuck(waiting: Sequence[Strand]) -> str:
    """Return a description of where each strand waits."""
    frames = thread_frames()
    parts: list[str] = []
    with report_failure(f"the places of {describe_places(waiting)} are unknown", parts.append):
        parts += [_describe_wait(strand, frames.get(strand.thread.ident)) for strand in waiting]
    return f"{'deadlock' if len(waiting) > 1 else 'stuck'}: {'; '.join(parts)}"


def _describe_wait(strand: Strand, frame: FrameType | None) -> str:
    frame = application_frame(frame)
    if frame is None:
        return f"{strand.name} waits forever"
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    return f"{strand.name} waits forever at {call_site_of(frame)[0]}: {line}"
