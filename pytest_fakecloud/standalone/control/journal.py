"""Endpoints of the journal, and of the list of strict-mode violations."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, cast

from ...core.calls import Call, Entry, Event
from ...core.journal import recorder_of
from ...core.timeparse import monotonic
from ...core.timers import Signal
from ...http.messages import Answer, Request, Stream
from ...http.routing import Route
from ...reporting.as_json import row_json
from ...reporting.calls import printable
from ...reporting.masking import Mask
from ...reporting.model import Lookups
from ...reporting.model import Row as ReportRow
from ...reporting.rows import began, rows
from ..browse.pages import whole_number
from . import PREFIX
from .shapes import ProblemEntry, Row

if TYPE_CHECKING:
    from ...cloud import Cloud

HEARTBEAT_SECONDS = 15.0
"""Real seconds without a new row after which a stream sends a comment, so that it stays open."""
GRACE_SECONDS = 0.1
"""Real seconds that a stream waits for the response to a call before it sends a row without one."""
CONTEXT = 50
"""Number of entries before the first requested entry that are searched for the causes of rows."""


class JournalRoutes:
    """Endpoints that return the journal, as a list or as a stream, and the problems."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._streams: set[Signal] = set()

    def routes(self) -> list[Route]:
        return [
            Route("GET", f"{PREFIX}/journal", "journal", self.journal_rows),
            Route("GET", f"{PREFIX}/journal/stream", "journal_stream", self.stream, lingers=True),
            Route("GET", f"{PREFIX}/problems", "problems", self.get_problems),
        ]

    def journal_rows(self, request: Request) -> Answer:
        """Return the rows of the journal, oldest first.

        ``?after=N`` leaves out the rows up to number N, ``?limit=N`` reads at most N entries of the
        journal. A delivery has two entries and one row.
        """
        after, limit = (whole_number(name, request.query(name)) or 0 for name in ("after", "limit"))
        found = sorted(_rows_from(self._cloud, after + 1, limit), key=itemgetter("number"))
        return Answer(_json(found))

    def stream(self, request: Request) -> Stream:
        """Stream the rows of the journal after ``?after=N`` as server-sent events.

        A row is sent again under the same number when it changes: a call in progress has ``"done":
        false`` until it is answered, and calls made during a delivery name the delivery as their
        cause when it has finished. ``Last-Event-ID`` resumes the stream.
        """
        resumed = whole_number("last-event-id", request.fields.get("last-event-id")) or 0
        after = max(whole_number("after", request.query("after")) or 0, resumed)
        # The signal only wakes the stream. No data accumulates for a client that does not read.
        signal = Signal()
        self._streams.add(signal)
        unwatch = recorder_of(self._cloud.journal).watch(lambda entry: signal.notify())

        def end() -> None:
            unwatch()
            self._streams.discard(signal)
            signal.close()

        return Stream(self._events(signal, after), on_close=end)

    def _events(self, signal: Signal, after: int) -> Iterator[bytes]:
        unsent = _UnsentRows(self._cloud, signal, after)
        while not signal.closed:
            seen = signal.version
            for row in unsent.take():
                yield b"id: %d\ndata: %s\n\n" % (row["number"], _json(row))
            signal.sleep(seen, HEARTBEAT_SECONDS)
            if signal.version == seen:
                yield b": still here\n\n"

    def end_streams(self) -> None:
        """Close every open journal stream. Called before the server closes."""
        for signal in list(self._streams):
            signal.close()

    def get_problems(self, request: Request) -> list[ProblemEntry]:
        """Return the strict-mode violations."""
        return [
            {"kind": one.kind, "text": one.text, "facts": {k: str(v) for k, v in one.facts.items()}}
            for one in self._cloud.problems()
        ]


class _UnsentRows:
    """The rows that a stream has not sent yet, or that have changed since.

    ``signal`` is notified of each new entry and of each response.
    """

    def __init__(self, cloud: Cloud, signal: Signal, after: int) -> None:
        self._cloud = cloud
        self._signal = signal
        self._last = after
        self._open_calls: list[Entry] = []
        """The calls whose rows were sent without a response."""

    def take(self) -> list[Row]:
        """Return the rows of calls answered since the last call, and those of new entries."""
        answered = [entry for entry in self._open_calls if _is_done(entry)]
        self._open_calls = [entry for entry in self._open_calls if entry not in answered]
        new = _entries_from(self._cloud, self._last + 1)
        for entry in new:
            self._last = entry.number
            if not self._wait_for_response(entry):
                self._open_calls.append(entry)
        found = _as_json_rows(self._cloud, rows(self._cloud, answered))
        return found + (_rows_from(self._cloud, min(map(began, new))) if new else [])

    def _wait_for_response(self, entry: Entry) -> bool:
        """Wait a moment until an entry is complete; return whether it is.

        Most calls are answered a moment after they are recorded. If another call is still open, do
        not wait, because a slow call must not delay the calls after it.
        """
        signal = self._signal
        deadline = monotonic() + (0 if self._open_calls else GRACE_SECONDS)
        seen = signal.version
        while not _is_done(entry) and not signal.closed and (left := deadline - monotonic()) > 0:
            signal.sleep(seen, left)
            seen = signal.version
        return _is_done(entry)


def _is_done(entry: Entry) -> bool:
    return not isinstance(entry, Call) or entry.outcome != "open"


def _entries_from(cloud: Cloud, first: int) -> list[Entry]:
    entries = cloud.journal.entries
    return entries[bisect_left(entries, first, key=attrgetter("number")) :]


def _rows_from(cloud: Cloud, first: int, limit: int = 0) -> list[Row]:
    """Return the rows of the journal from a number on, in causal order.

    ``limit`` is the maximum number of entries, 0 for no limit. A delivery has two entries.
    """
    entries = _entries_from(cloud, first - CONTEXT)
    if limit:
        entries = entries[: bisect_left(entries, first, key=attrgetter("number")) + limit]
    made = rows(cloud, entries)
    return _as_json_rows(cloud, [row for row in made if row.number >= first])


def _as_json_rows(cloud: Cloud, made: Iterable[ReportRow]) -> list[Row]:
    lookups = Lookups(mask=Mask(cloud))
    return [cast("Row", row_json(row, (), lookups) | _progress_fields(row)) for row in made]


def _progress_fields(row: ReportRow) -> dict[str, Any]:
    entry = row.entry
    if isinstance(entry, Call | Event):
        return {"handle": entry.handle, "done": _is_done(entry)}
    return {"handle": row.peer, "done": True}


def _json(value: object) -> bytes:
    return printable(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()
