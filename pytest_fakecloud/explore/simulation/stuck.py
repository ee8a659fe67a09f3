"""Stuck strands: their detection, and the explanation of where each waits and for what."""

from __future__ import annotations

import ast
import linecache
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ...core.errors import ContractError
from ...core.recorder import is_library
from ...core.timeparse import monotonic
from .frames import application_frame, source_of
from .strands import Strand

if TYPE_CHECKING:
    from .scheduler import Scheduler
    from .turns import Turns

LOOK = 0.05
"""Wall-clock seconds between two calls of ``Watchdog.look()``."""
_BUSY = 0.3
"""Wall-clock seconds for which a strand may block before another strand runs."""
_STUCK = 1.5
"""Wall-clock seconds for which a strand may block before it counts as stuck, if no other can run."""
_LOST = 10.0
"""Wall-clock seconds without a running strand after which the run fails."""
_REAL = 30.0
"""Wall-clock seconds for which a strand may wait for a thread of the fakes or another process."""


class Watchdog:
    """Lets other strands run while one is blocked, and ends a run that is stuck."""

    def __init__(self, turns: Turns, scheduler: Scheduler) -> None:
        self._turns = turns
        self._scheduler = scheduler
        self._seen: object = None
        self._since = monotonic()

    def look(self) -> None:
        strand = self._turns.current
        thread = 0 if strand is None else strand.host.thread
        frame = None if strand is None else sys._current_frames().get(thread)
        is_locked = frame is not None and _may_wait_for_lock(frame)
        woken = _wakings(thread) if is_locked else None
        place = None if frame is None else (id(frame), frame.f_lasti, woken)
        seen = self._turns.progress, place
        if seen != self._seen:
            self._seen, self._since = seen, monotonic()
            return
        seconds = monotonic() - self._since
        if strand is None:
            if seconds > _LOST:
                text = "no strand of explore() runs: please report this as a bug"
                self._turns.end(ContractError(text))
        elif woken is not None and not (strand.host.real_waits and seconds < _REAL):
            self._help(strand, seconds)

    def _help(self, blocked: Strand, seconds: float) -> None:
        """Step over a blocked strand, or end the run if that has not helped for long enough."""
        if seconds > _STUCK:
            self._scheduler.stuck(blocked)
            blocked.is_stepped_over = True
            self._turns.end(None)
        elif seconds >= _BUSY and blocked.host.loop.running is None:
            self._turns.step_over(blocked)


def _may_wait_for_lock(frame: FrameType) -> bool:
    """Return whether a line of the application or a lock of the standard library is running."""
    name = frame.f_code.co_filename
    return not is_library(name) or Path(name).name in ("threading.py", "queue.py")


def _wakings(thread: int) -> int | None:
    """Return how many times a sleeping thread has woken up (0 if that is unknown); None if it runs.

    A thread waits for a lock as long as this number does not change. A thread that waits for the
    interpreter's own lock wakes up every few milliseconds, so a busy machine is not mistaken for a
    deadlock.
    """
    native = next((t.native_id for t in threading.enumerate() if t.ident == thread), None)
    try:
        status = Path(f"/proc/self/task/{native}/status").read_text()
    except OSError:
        return 0  # Only Linux provides this number.
    found = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    if not found.get("State", "S").strip().startswith("S"):
        return None
    return int(found.get("voluntary_ctxt_switches", 0))


def is_in_application(strand: Strand) -> bool:
    return application_frame(sys._current_frames().get(strand.host.thread)) is not None


def describe_places(strands: Sequence[Strand]) -> str:
    """Return the names of strands, each with its current line of the application if it has one."""
    frames = sys._current_frames()
    sources = [source_of(frames.get(strand.host.thread)) for strand in strands]
    return ", ".join(
        f"{strand.title} ({source[0]})" if source else strand.title
        for strand, source in zip(strands, sources, strict=True)
    )


def describe_stuck(strands: Sequence[Strand], waiting: Sequence[Strand]) -> str:
    """Return a description of where each strand waits, and which strand holds the lock."""
    frames = sys._current_frames()
    held = {
        id(lock): strand
        for strand in strands
        if strand.state != "ended"
        for lock in _held(frames.get(strand.host.thread))
    }
    parts = [_describe_wait(strand, frames.get(strand.host.thread), held) for strand in waiting]
    return f"{'deadlock' if len(waiting) > 1 else 'stuck'}: {'; '.join(parts)}"


def _describe_wait(strand: Strand, frame: FrameType | None, held: Mapping[int, Strand]) -> str:
    """Describe where a strand waits; ``held`` maps the ID of each lock to the strand that holds it."""
    frame = application_frame(frame)
    if frame is None:
        return f"{strand.title} waits forever"
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    text = f"{strand.title} waits forever at {source_of(frame)[0]}: {line}"
    holder = held.get(id(_wanted(frame, line)))
    if holder is None:
        return text
    return f"{text}, which {'it holds itself' if holder is strand else f'{holder.title} holds'}"


def _wanted(frame: FrameType, line: str) -> Any:
    """Return the object that a line such as ``with lock:`` or ``done.wait()`` waits for."""
    text = line.removeprefix("async ").removeprefix("with ").rstrip(":")
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Attribute):
        tree = tree.func.value
    return _value(frame, tree)


def _value(frame: FrameType, node: ast.AST) -> Any:
    """Return the value of a name or attribute chain without running application code."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        return getattr(_value(frame, node.value), "__dict__", {}).get(node.attr)
    return None


def _held(frame: FrameType | None) -> Iterator[Any]:
    """Yield the objects of the ``with`` blocks that a stack is inside."""
    while frame is not None:
        if application_frame(frame) is frame:
            yield from _held_in(frame)
        frame = frame.f_back


def _held_in(frame: FrameType) -> Iterator[Any]:
    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.With | ast.AsyncWith):
            continue
        first, last = node.body[0].lineno, node.end_lineno or 0
        if first <= frame.f_lineno <= last and node.lineno >= frame.f_code.co_firstlineno:
            for item in node.items:
                found = _value(frame, item.context_expr)
                if found is not None:
                    yield found
