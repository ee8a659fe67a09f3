"""Endpoints of the journal, and of the list of strict-mode violations."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import attrgetter, itemgetter
from time import sleep
from typing import TYPE_CHECKING, Any, cast

from ...core.calls import Call, Entry, Event
from ...core.journal import recorder_of
from ...core.timeparse import monotonic
from ...core.timers import Signal
from ...http.messages import Answer, Request, Stream
from ...http.routing import Route
from ...reporting.as_json import row_json
from ...reporting.bodies import printable
from ...reporting.masking import Mask
from ...reporting.model import Row as ReportRow
from ...reporting.rows import began, rows
from ...reporting.scene import Scene
from .requests import PREFIX, whole_number
from .shapes import ProblemEntry, Row

if TYPE_CHECKING:
    from ...cloud import Cloud


HEARTBEAT_SECONDS = 15.0
GRACE_SECONDS = 0.1
"""Real seconds that a stream waits for the response to a call before it sends a row without one."""
LOOK_SECONDS = 0.002
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

        ``?after=N`` leaves out the rows up to number N, ``?limit=N`` returns at most N rows.
        """
        after = whole_number(request.query("after"))
        limit = whole_number(request.query("limit"))
        found = sorted(_rows(self._cloud, after + 1, limit), key=itemgetter("number"))
        return Answer(_json(found))

    def stream(self, request: Request) -> Stream:
        """Stream the rows of the journal after ``?after=N`` as server-sent events.

        A row is sent again under the same number when it changes: a call in progress has ``"done":
        false`` until it is answered, and calls made during a delivery name the delivery as their
        cause when it has finished. ``Last-Event-ID`` resumes the stream.
        """
        after = max(
            whole_number(request.query("after")), whole_number(request.fields.get("last-event-id"))
        )
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
        sent = after
        under_way: list[Entry] = []
        while not signal.closed:
            seen = signal.version
            finished = [entry for entry in under_way if _is_done(entry)]
            for entry in finished:
                under_way.remove(entry)
            fresh = _entries(self._cloud, sent + 1)
            for entry in fresh:
                sent = entry.number
                # Most calls are answered a moment after they are recorded, so wait for the
                # response. If another call is still open, do not wait, because a slow call must not
                # delay the calls after it.
                patience = monotonic() + (0 if under_way else GRACE_SECONDS)
                while not (done := _is_done(entry)) and monotonic() < patience:
                    sleep(LOOK_SECONDS)
                if not done:
                    under_way.append(entry)
            made = _shown(self._cloud, rows(self._cloud, finished))
            if fresh:
                made += _rows(self._cloud, min(map(began, fresh)))
            for row in made:
                yield b"id: %d\ndata: %s\n\n" % (row["number"], _json(row))
            signal.sleep(seen, GRACE_SECONDS if under_way else HEARTBEAT_SECONDS)
            if signal.version == seen and not under_way:
                yield b": still here\n\n"

    def end_streams(self) -> None:
        """Close every open journal stream. Called before the server closes."""
        for signal in list(self._streams):
            signal.close()

    def get_problems(self, request: Request) -> list[ProblemEntry]:
        """Return the strict-mode violations."""
        return [
            {"kind": one.kind, "text": one.text, "facts": {k: str(v) for k, v in one.facts.items()}}
            for one in self._cloud.problems
        ]


def _is_done(entry: Entry) -> bool:
    return not isinstance(entry, Call) or entry.outcome != "open"


def _entries(cloud: Cloud, first: int) -> list[Entry]:
    """Return the journal entries from a number on."""
    entries = cloud.journal.entries
    return entries[bisect_left(entries, first, key=attrgetter("number")) :]


def _rows(cloud: Cloud, first: int, limit: int = 0) -> list[Row]:
    """Return the rows of the journal from a number on, in causal order.

    ``limit`` is the maximum number of entries, 0 for no limit. A delivery has two entries.
    """
    entries = _entries(cloud, first - CONTEXT)
    if limit:
        entries = entries[: bisect_left(entries, first, key=attrgetter("number")) + limit]
    made = rows(cloud, entries)
    return _shown(cloud, [row for row in made if row.number >= first])


def _shown(cloud: Cloud, made: Iterable[ReportRow]) -> list[Row]:
    scene = Scene(mask=Mask(cloud))
    return [cast("Row", row_json(row, (), scene) | _state(row)) for row in made]


def _state(row: ReportRow) -> dict[str, Any]:
    entry = row.entry
    if isinstance(entry, Call | Event):
        return {"handle": entry.handle, "done": _is_done(entry)}
    return {"handle": row.peer, "done": True}


def _json(value: object) -> bytes:
    return printable(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()
