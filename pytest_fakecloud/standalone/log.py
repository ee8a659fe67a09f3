"""What a server says of itself on standard error: lines for people, or one JSON object a line."""

from __future__ import annotations

import json
import sys
import threading
from datetime import UTC, datetime
from typing import Any, Literal, TextIO, TypeAlias

LogFormat: TypeAlias = Literal["text", "json"]
FORMATS: tuple[LogFormat, ...] = ("text", "json")
_ASIDE = frozenset({"ready", "stopping"})
"""Events that people read from standard output, or cause themselves."""


class Log:
    """Events of a server: a name, a sentence, and what it is about.

    There is one for the start, how far long loads are, warnings, bugs and the end; none for a call,
    which the journal has. As JSON each has ``at`` (real UTC time), ``level``, ``event``, ``text``
    and its own fields. No token is ever in one.
    """

    def __init__(self, form: LogFormat = "text", file: TextIO | None = None) -> None:
        self._form = form
        self._file = file
        self._lock = threading.Lock()

    def say(self, event: str, text: str, *, level: str = "info", **fields: Any) -> None:
        """Write one event."""
        if self._form == "text" and event in _ASIDE:
            return
        line = f"pytest-fakecloud: {'warning: ' if level == 'warning' else ''}{text}"
        if self._form == "json":
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            line = json.dumps(
                {"at": at, "level": level, "event": event, "text": text, **fields},
                ensure_ascii=False,
                default=str,
            )
        # One write for each, so that lines of several threads stay whole.
        with self._lock:
            file = self._file or sys.stderr
            file.write(line + "\n")
            file.flush()

    def bug(self, text: str) -> None:
        """A bug of the server itself."""
        self.say("bug", text, level="error")
