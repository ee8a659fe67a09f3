"""Stack frames of explored code, and which of them belong to the application."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import TypeAlias

_OWN = f"{Path(__file__).parents[2]}{os.sep}"
_LIBRARIES = tuple(
    f"{Path(found)}{os.sep}"
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (found := sysconfig.get_paths().get(name))
)


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


def innermost(frame: FrameType | None) -> str:
    return next(iter(source_of(frame)), "an unknown line")


def distinct_places(sources: Sequence[Source]) -> list[str]:
    """Return one line for each source; if several share a line in a helper, the line of the
    helper's caller.
    """
    left = list(sources)
    for _ in range(_DEPTH - 1):
        callers: dict[str, set[str]] = {}
        for source in left:
            if source:
                callers.setdefault(source[0], set()).update(source[1:2])
        shared = {line for line, above in callers.items() if len(above) > 1}
        left = [source[1:] if source and source[0] in shared else source for source in left]
    return [source[0] if source else "" for source in left]


def is_library(name: str) -> bool:
    """Return whether a file belongs to a library or to this package."""
    return name.startswith((_OWN, *_LIBRARIES, "<frozen")) or "site-packages" in name


def application_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost application frame of a stack, or None."""
    while frame is not None:
        if not is_library(frame.f_code.co_filename):
            return frame
        frame = frame.f_back
    return None
