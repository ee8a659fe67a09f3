"""Endpoints of the journal and the problems."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from time import sleep
from typing import TYPE_CHECKING

from ...core.calls import Call, Entry
from ...core.journal import recorder_of
from ...core.timeparse import monotonic
from ...core.timers import Signal
from ...http.messages import Request, Stream
from ...http.routing import Route
from ...reporting.as_json import whole_text
from ...reporting.masking import Mask
from ...reporting.rows import rows
from ...reporting.wording import Scene, describe
from ..views import told
from .requests import PREFIX, whole_number
from .shapes import ProblemEntry, Row

if TYPE_CHECKING:
    from ...cloud import Cloud


HEARTBEAT_SECONDS = 15.0
GRACE_SECONDS = 0.1
"""How long the stream waits for the answer of a call before it sends the call without it."""
LOOK_SECONDS = 0.002


class JournalRoutes:
    """Read the journal, at once or as it is written, and the problems."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._streams: set[Signal] = set()

    def routes(self) -> list[Route]:
        """Return the endpoints."""
        return [
            Route("GET", f"{PREFIX}/journal", "journal", self.journal_rows),
            Route("GET", f"{PREFIX}/journal/stream", "journal_stream", self.stream, lingers=True),
            Route("GET", f"{PREFIX}/problems", "problems", self.get_problems),
        ]

    def journal_rows(self, request: Request) -> list[Row]:
        """What happened, oldest first; ``?after=N`` leaves out entries up to that number."""
        after = whole_number(request.query("after"))
        return [_row_of(self._cloud, entry) for entry in self._entries(after)]

    def _entries(self, after: int) -> list[Entry]:
        entries = self._cloud.journal.entries
        return entries[bisect_right(entries, after, key=attrgetter("number")) :]

    def stream(self, request: Request) -> Stream:
        """The journal as server-sent events, from ``?after=N`` on, as it is written.

        A call that is still under way comes with ``"done": false``, and once more, under the same
        number, when it has its answer. A client that comes back with ``Last-Event-ID`` goes on there.
        """
        after = max(
            whole_number(request.query("after")), whole_number(request.fields.get("last-event-id"))
        )
        # Only woken, never handed entries: of a client that does not read, nothing piles up here.
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
            for entry in self._entries(sent):
                sent = entry.number
                # Most calls are answered a moment after they are written down; where one is
                # not, those behind it are told of at once.
                patience = monotonic() + (0 if under_way else GRACE_SECONDS)
                while not (done := _is_done(entry)) and monotonic() < patience:
                    sleep(LOOK_SECONDS)
                if not done:
                    under_way.append(entry)
                yield self._event(entry)
            for entry in [entry for entry in under_way if _is_done(entry)]:
                under_way.remove(entry)
                yield self._event(entry)
            signal.sleep(seen, GRACE_SECONDS if under_way else HEARTBEAT_SECONDS)
            if signal.version == seen and not under_way:
                yield b": still here\n\n"

    def _event(self, entry: Entry) -> bytes:
        data = json.dumps(_row_of(self._cloud, entry), ensure_ascii=False)
        return f"id: {entry.number}\ndata: {data}\n\n".encode()

    def end_streams(self) -> None:
        """End every open journal stream; the server is closing."""
        for signal in list(self._streams):
            signal.close()

    def get_problems(self, request: Request) -> list[ProblemEntry]:
        """What a strict test would fail for."""
        return [{"kind": p.kind, "text": p.text} for p in self._cloud.problems]


def _is_done(entry: Entry) -> bool:
    return not isinstance(entry, Call) or entry.outcome != "open"


def _row_of(cloud: Cloud, entry: Entry) -> Row:
    row = rows(cloud, [entry])[0]
    scene = Scene(mask=Mask(cloud))
    words = describe(row, scene)
    sent, got = whole_text(row, scene)
    return {
        "number": row.number,
        "at": told(entry.at_us),
        "kind": "call" if isinstance(entry, Call) else entry.kind,
        "handle": entry.handle,
        "source": row.actor,
        "target": row.peer,
        "what": words.what,
        "answer": words.answer,
        "ok": row.ok,
        "done": _is_done(entry),
        "fault": ", ".join(one.description for one in row.faults),
        "note": words.note,
        "sent": sent,
        "got": got,
    }
