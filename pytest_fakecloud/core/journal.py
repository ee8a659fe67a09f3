"""The journal that tests read: the calls and events of one fake, or of a whole cloud."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from .call_fields import CallNames, Listed, NamesOf
from .calls import Call, Entry, Event
from .field_types import ABSENT
from .matching import Field, Query
from .recorder import Recorder
from .results import Results, check_predicate, expect, results_of
from .settings import optional, whole

if TYPE_CHECKING:
    from .typed import CloudCallFields, CloudEventFields


class Journal:
    """The recorded calls and events of one fake, or of a whole cloud, in order.

    Type checkers accept the fields of all services, but for the journal of a service's fake only
    those of this service (``KVJournal`` in ``kv/typed.pyi``, …).
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @property
    def keep(self) -> int | None:
        """Number of entries to keep; older ones may be forgotten. None keeps all. Can be set."""
        return self._recorder.keep

    @keep.setter
    def keep(self, entries: int | None) -> None:
        self._recorder.keep = optional(whole(0)).read("keep", entries)

    @property
    def keep_bytes(self) -> int:
        """Maximum bytes of calls above 4 KiB that a cloud keeps. Set it on the cloud's journal.

        Beyond it the oldest calls are cut: they stay in the journal with the beginning of their
        long fields, and a condition that needs the rest raises ``ContractError``.
        """
        return self._recorder.shared.large.limit

    @keep_bytes.setter
    def keep_bytes(self, size: int) -> None:
        self._recorder.shared.large.limit = whole(0).read("keep_bytes", size)

    def clear(self) -> None:
        """Forget all entries. Clearing a fake's journal also removes them from the cloud's, and
        clearing the cloud's journal clears those of all fakes.
        """
        self._recorder.clear()

    @property
    def entries(self) -> Results[Entry]:
        """Calls and events in the order they were recorded."""
        return Results(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def _read(self) -> list[Entry]:
        self._recorder.was_read = True
        return self._recorder.entries

    def calls(
        self, predicate: Callable[[Call], bool] | None = None, /, **where: Unpack[CloudCallFields]
    ) -> Results[Call]:
        """Return the clients' calls, filtered by their fields or facts (``command="SET"``)."""
        __tracebackhide__ = True
        check_predicate(predicate)
        calls = results_of(
            (entry for entry in self._read() if isinstance(entry, Call)),
            self._recorder.call_fields,
            "call",
        )
        return calls.where(predicate, **where) if predicate or where else calls

    def events(self, kind: str | None = None, **where: Unpack[CloudEventFields]) -> Results[Event]:
        """Return the events, optionally of one kind, filtered by their data.

        Raises ``ContractError`` for a kind that the fakes of this journal never record.
        """
        __tracebackhide__ = True
        events = [entry for entry in self._read() if isinstance(entry, Event)]
        known = self._recorder.event_fields
        names = known.keys() | {name for event in events for name in event.data}
        asked = {name: known.get(name, Field())._replace(read=_event_value(name)) for name in names}
        kinds = self._recorder.event_kinds()
        if kinds:
            kinds = kinds.union(event.kind for event in events)
        asked["kind"] = Field(Listed("kind of event", lambda: kinds))
        query = Query({**where} if kind is None else {"kind": kind, **where}, asked, "event")
        return results_of(filter(query, events), asked, "event")

    def assert_called(
        self,
        what: str | re.Pattern[str] | None = None,
        *,
        times: int | None = None,
        **where: Unpack[CloudCallFields],
    ) -> Results[Call]:
        """Return the calls that match; fail unless there is at least one, or exactly ``times``.

        ``what`` is ``"POST /path"``, ``"/path"``, or the name of a route or command; ``where`` are
        fields or facts of the call. The failure lists the most similar calls and their differences.
        """
        __tracebackhide__ = True
        fields = self._recorder.call_fields
        given: dict[str, object] = {**where}
        if what is not None:
            field_type = CallNames(self._recorder.words)
            field_type.check("what", what)
            names = Field(field_type, NamesOf, several=True, bare=True, parts=NamesOf.each_command)
            fields = {**fields, "what": names}
            given = {"what": what, **where}
        return expect(
            "a call",
            self.calls(),
            Query(given, fields, "call"),
            times=times,
            if_empty="no client has made a call",
        )

    def assert_not_called(
        self, what: str | re.Pattern[str] | None = None, **where: Unpack[CloudCallFields]
    ) -> None:
        """Fail if any call matches."""
        __tracebackhide__ = True
        self.assert_called(what, times=0, **where)


def recorder_of(journal: Journal) -> Recorder:
    """Return the ``Recorder`` behind a journal. For the fakes, not for tests."""
    return journal._recorder


def _event_value(name: str) -> Callable[[Event], Any]:
    return lambda event: event.data.get(name, ABSENT)
