"""The log of a stand-alone server."""

from __future__ import annotations

import json
import sys
import threading
from datetime import UTC, datetime
from typing import Any, Literal, TextIO, TypeAlias

LogFormat: TypeAlias = Literal["text", "json"]
FORMATS: tuple[LogFormat, ...] = ("text", "json")
_ASIDE = frozenset({"ready", "stopping"})
"""Events not written as text, because standard output shows them or the user caused them."""


class Log:
    """The log of a server. An event has a name, a text, and its own fields.

    Logged events are the start, the progress of long loads, warnings, bugs and the end; calls are
    in the journal instead. As JSON, an event has ``at`` (wall-clock UTC), ``level``, ``event``,
    ``text`` and its own fields. No event contains a token.
    """

    def __init__(self, form: LogFormat = "text", file: TextIO | None = None) -> None:
        self._form = form
        self._file = file
        self._lock = threading.Lock()

    def say(self, event: str, text: str, *, level: str = "info", **fields: Any) -> None:
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
        # Write each line with one call, so that lines from different threads are not interleaved.
        with self._lock:
            file = self._file or sys.stderr
            file.write(line + "\n")
            file.flush()

    def bug(self, text: str) -> None:
        self.say("bug", text, level="error")
