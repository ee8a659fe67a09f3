"""Explanation of a stuck run: the line in which each strand waits, the object it waits for, and its
holder.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from .frames import application_frame, source_of
from .strands import Strand


def is_in_application(strand: Strand) -> bool:
    """Return whether a strand waits in a line of the application."""
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
    parts = []
    for strand in waiting:
        frame = application_frame(frames.get(strand.host.thread))
        if frame is None:
            parts.append(f"{strand.title} waits forever")
            continue
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        text = f"{strand.title} waits forever at {where}: {line}"
        wanted = _wanted(frame, line)
        holder = held.get(id(wanted)) if wanted is not None else None
        if holder is not None and holder is not strand:
            text += f", which {holder.title} holds"
        elif holder is strand:
            text += ", which it holds itself"
        parts.append(text)
    kind = "deadlock" if len(waiting) > 1 else "stuck"
    return f"{kind}: {'; '.join(parts)}"


def _wanted(frame: FrameType, line: str) -> Any:
    """Return the object that a line such as ``with lock:`` or ``done.wait()`` waits for."""
    text = line.removeprefix("async ").rstrip(":")
    text = text.removeprefix("with ")
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
        owner = _value(frame, node.value)
        return getattr(owner, "__dict__", {}).get(node.attr)
    return None


def _held(frame: FrameType | None) -> Iterator[Any]:
    """Yield the objects of the ``with`` blocks that a stack is inside."""
    while frame is not None:
        if application_frame(frame) is frame:
            yield from _held_in(frame)
        frame = frame.f_back


def _held_in(frame: FrameType) -> Iterator[Any]:
    lines = linecache.getlines(frame.f_code.co_filename)
    try:
        tree = ast.parse("".join(lines))
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
