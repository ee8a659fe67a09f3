"""Finds the lines of a call that skips the socket, in a small part of the time that `call_sites` takes.

The first failure of a test has no exact call sites, because finding them takes longer than the call.
So each such call keeps references to the code on its stack that is probably the application's, and the
report of a failing test decides which of it is.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from types import FrameType

from ..core.frames import CodePlace
from ..core.recorder import CallLines

_MOST = 6
"""Maximum number of lines to keep for a call."""
_RUNNER = os.path.join("_pytest", "python.py")
"""The end of the name of the file in which pytest calls a test."""
_LOOP = os.path.join("asyncio", "base_events.py")
"""The end of the name of the file in which an event loop calls a task."""
_PACKAGE = os.path.dirname(os.path.dirname(__file__))


class Lines:
    """Returns the lines that make the current call, if it comes from code of this thread.

    A call over a socket is served in another thread than its client's. It has no lines here: to walk
    the stack of a running thread at each call has crashed CPython 3.11.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        """The kind of each file: ``application``, ``library``, ``runner`` or ``loop``."""
        paths = sysconfig.get_paths()
        folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
        self._libraries = (_PACKAGE, "<", *folders)

    def __call__(self) -> CallLines | None:
        frame: FrameType | None = sys._getframe(1)
        places: list[CodePlace] = []
        library = ""
        while frame is not None:
            code = frame.f_code
            kind = self._kinds.get(code.co_filename)
            if kind is None:
                kind = self._find_kind(code.co_filename)
            if kind == "library":
                if not places:
                    library = code.co_filename
            elif kind == "application":
                if len(places) < _MOST:
                    places.append((code, frame.f_lasti))
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
