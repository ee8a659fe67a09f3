"""Finds the lines that make a call, in a small part of the time that `call_sites` takes.

The first failure of a test has no exact call sites, because finding them takes longer than the call.
So each call keeps references to the code on the stack that is probably the application's, and the
report of a failing test decides which of it is.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from types import FrameType

from ..core.recorder import CallLines, CodePlace

_MOST = 6
"""Maximum number of lines to keep for a call."""
_RUNNER = os.path.join("_pytest", "python.py")
"""The end of the name of the file in which pytest calls a test."""
_LOOP = os.path.join("asyncio", "base_events.py")
"""The end of the name of the file in which an event loop calls a task."""
_PACKAGE = os.path.dirname(os.path.dirname(__file__))


class Lines:
    """Returns the lines that make the current call.

    A call has lines if code that may be the application's is on the stack of a single thread, outside
    of an event loop. That thread makes the call, or waits for code that does, such as a delivery.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        """The kind of each file: ``application``, ``library``, ``runner`` or ``loop``."""
        paths = sysconfig.get_paths()
        folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
        self._libraries = (_PACKAGE, "<", *folders)

    def __call__(self) -> CallLines | None:
        callers = []
        own = threading.get_ident()
        for ident, top in sys._current_frames().items():
            if lines := self._lines(sys._getframe(1) if ident == own else top):
                callers.append(lines)
        return callers[0] if len(callers) == 1 else None

    def _lines(self, frame: FrameType | None) -> CallLines | None:
        places: list[CodePlace] = []
        library = ""
        while frame is not None:
            code = frame.f_code
            kind = self._kinds.get(code.co_filename)
            if kind is None:
                kind = self._find_kind(code.co_filename)
            if kind == "application":
                if len(places) < _MOST:
                    places.append((code, frame.f_lasti))
            elif kind == "library":
                library = library if places else code.co_filename
            elif kind == "runner":
                break
            else:
                return None
            frame = frame.f_back
        return CallLines(tuple(places), library) if places else None

    def _find_kind(self, filename: str) -> str:
        kind = "application"
        if filename.endswith(_RUNNER):
            kind = "runner"
        elif filename.endswith(_LOOP):
            kind = "loop"
        elif filename.startswith(self._libraries):
            kind = "library"
        self._kinds[filename] = kind
        return kind
