"""The journal that tests read, and the recorder that the fakes write it with."""

from __future__ import annotations

import itertools
import re
import threading
import weakref
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Unpack

from .call_fields import (
    CALL_FIELDS,
    EVENT_FIELD_TYPES,
    EVENT_KINDS,
    CallFields,
    CallNames,
    EventFields,
    Listed,
    NamesOf,
    part,
)
from .calls import KEEP_BYTES, LIGHT, Action, Call, Entry, Event, shorten, weight_of
from .field_types import ABSENT, ANYTHING, either
from .found import Found, check_predicate, expect, found_of
from .matching import Field, Query

if TYPE_CHECKING:
    from ..http.app import App
    from ..http.messages import Request
    from .clock import Reads

_PACKAGE = f"{__package__.partition('.')[0]}."
_ACTIONS = 1_000
"""Maximum number of a test's actions that are kept; beyond it the oldest are dropped."""
_NOTHING_HEAVY: OrderedDict[Call, int] = OrderedDict()
"""An empty mapping shared by all journals that have had no call above 4 KiB. Never modified."""


class Recorder:
    """Records the calls and events of one fake, or of a whole cloud, in order.

    A fake's recorder also adds each entry to its cloud's recorder (``parent``), which therefore has
    the entries of all fakes. Recording is thread-safe. The cloud's recorder limits what it and the
    fakes' recorders keep, by number (``keep``) and by size (``keep_bytes``). ``entries`` holds the
    entries that are kept.
    """

    keep: int | None = None
    """Number of entries to keep; older ones may be forgotten. None keeps all."""
    keep_bytes = KEEP_BYTES
    """Maximum bytes of calls above 4 KiB that the whole cloud keeps; beyond it the oldest calls are
    cut.
    """
    was_read = False
    """Whether a test has read the journal or asserted on it."""
    _watchers: tuple[Callable[[Entry], None], ...] = ()

    def __init__(
        self,
        now_us: Callable[[], int],
        service: str = "",
        handle: str = "",
        parent: Recorder | None = None,
    ) -> None:
        self._now_us = now_us
        self._service = service
        self._handle = handle
        self._parent = parent
        self.entries: list[Entry] = []
        self._apps: dict[str, tuple[type[App], weakref.ref[App]]] = {}
        self._names = {handle} - {""}
        """Names of all fakes whose calls this journal records, including closed ones."""
        if parent is None:
            self._root = self
            self._numbers: Iterator[int] = itertools.count(1)
            self._lock = threading.Lock()
            # Only a cloud's recorder has the following attributes.
            self.actions: deque[Action] = deque(maxlen=_ACTIONS)
            self.find_site: Callable[[], dict[str, str | int] | None] | None = None
            """A function that returns the source line of the current call; None if call sites are
            not recorded.
            """
            self.reads: Reads | None = None
            """When threads read the clock, interleaved with the numbers of calls and actions; None
            if not recorded.
            """
            self.sites: dict[int, dict[str, str | int]] = {}
            """The source line that made each call, by the call's number."""
            self._children: set[weakref.ref[Recorder]] = set()
            self._heavy = _NOTHING_HEAVY
            """The calls above 4 KiB, oldest first, with the approximate bytes of each."""
            self._heavy_bytes = 0
        else:
            self._root = parent._root
            self._numbers = parent._numbers
            self._lock = parent._lock
            self.keep = parent.keep
            parent._names |= self._names
            parent._children.add(weakref.ref(self, parent._children.discard))

    def learn(self, service: str, app: App) -> None:
        """Register the facts, routes and commands that a service's calls can be filtered by."""
        known = self._apps[service] = type(app), weakref.ref(app)
        if self._parent is not None:
            self._parent._apps[service] = known

    def words(self) -> Iterator[str]:
        """Yield the names that calls can be filtered by: routes and commands."""
        for _, reference in self._apps.values():
            app = reference()
            if app is not None:
                yield from app.words()

    @property
    def call_fields(self) -> Mapping[str, Field]:
        """The fields that calls can be filtered by: their own and their services' facts."""
        declared: dict[str, list[Field]] = {}
        for app, _ in self._apps.values():
            for name, known in app.fact_fields.items():
                declared.setdefault(name, []).append(known)
        facts = {
            name: Field(
                either(one.type for one in known),
                known[0].read or part(name),
                any(one.several for one in known),
            )
            for name, known in declared.items()
        }
        listed = {
            "route": Listed("name of a route", self.words),
            "service": Listed("service of a fake here", lambda: self._apps),
            "handle": Listed("name of a fake here", lambda: self._names),
        }
        names = {name: Field(field_type, part(name)) for name, field_type in listed.items()}
        return {**facts, **CALL_FIELDS, **names}

    def event_kinds(self) -> frozenset[str]:
        """Return the kinds of events that the services of this journal record."""
        kinds = (app.event_kinds for app, _ in self._apps.values())
        return EVENT_KINDS.union(*kinds) if self._apps else frozenset()

    # -- recording -------------------------------------------------------------------------------

    def open_call(
        self,
        request: Request,
        *,
        at_us: int | None = None,
        facts: Callable[[Call], dict[str, Any]] | None = None,
    ) -> Call:
        """Record a received request; the server fills in the response later.

        ``at_us`` is its time (now by default). ``facts`` reads details from the call on first
        access.
        """
        call = Call(
            0,
            self._now_us() if at_us is None else at_us,
            self._service,
            self._handle,
            request.method,
            request.target,
            request.headers,
            request.body,
            request.client,
            facts,
        )
        self._append(call)
        self._mark(call.number)
        if self._root.find_site is not None:
            site = self._root.find_site()
            if site is not None:
                self._root.sites[call.number] = site
        if len(request.body) + request.head_bytes > LIGHT:
            self._root._weigh(call)
        return call

    def answered(self, call: Call) -> None:
        """Update the size of a call after its response was recorded."""
        if len(call.answer) > LIGHT or call in self._root._heavy:
            self._root._weigh(call)

    def _weigh(self, call: Call) -> None:
        weight = weight_of(call)
        with self._lock:
            if self._heavy is _NOTHING_HEAVY:
                self._heavy = OrderedDict()
            self._heavy_bytes += weight - self._heavy.get(call, 0)
            self._heavy[call] = weight
            too_many = self._too_many() if self._heavy_bytes > self.keep_bytes else ()
        # Shorten the calls without holding the lock, because that may parse a large body for its
        # facts.
        for each in too_many:
            shorten(each)

    def _too_many(self) -> list[Call]:
        """Remove the oldest large calls from ``_heavy`` until the rest fits the size limit; return
        the removed calls.

        The caller holds the lock.
        """
        going: list[Call] = []
        under_way: list[tuple[Call, int]] = []
        while self._heavy and self._heavy_bytes > self.keep_bytes:
            call, weight = self._heavy.popitem(last=False)
            if call.outcome == "open":
                under_way.append(
                    (call, weight)
                )  # The server still holds a call in progress in full, so cutting it frees nothing.
            else:
                self._heavy_bytes -= weight
                going.append(call)
        for call, weight in reversed(under_way):
            self._heavy[call] = weight
            self._heavy.move_to_end(call, last=False)
        return going

    def cut(self, call: Call) -> None:
        """Cut a large call to its beginning and drop its facts."""
        with self._lock:
            if call not in self._root._heavy:
                return
            self._root._take_off((call,))
        shorten(call, read_facts=False)

    @property
    def most_bytes(self) -> int:
        """The ``keep_bytes`` of the cloud's recorder, which also limits data kept beside a journal."""
        return self._root.keep_bytes

    @property
    def is_known(self) -> bool:
        """Whether a test has read this journal or its cloud's."""
        return self.was_read or self._root.was_read

    def add_event(self, kind: str, text: str, *, at_us: int | None = None, **data: object) -> Event:
        """Record an event inside the service."""
        event = Event(
            0,
            self._now_us() if at_us is None else at_us,
            self._service,
            self._handle,
            kind,
            text,
            data,
        )
        self._append(event)
        return event

    def act(
        self,
        kind: str,
        caller: FrameType,
        number: int,
        call: tuple[Sequence[Any], Mapping[str, Any]] | None = None,
        **data: object,
    ) -> None:
        """Record an action of the test on the fake, with a number from ``reserve()``.

        ``caller`` is the frame of the test's code, ``call`` the arguments of the method ``kind``.
        Actions are not journal entries: only reports show them.
        """
        code = caller.f_code
        where = {"file": code.co_filename, "line": caller.f_lineno, "function": code.co_name}
        self._root.actions.append(
            Action(number, self._now_us(), self._service, self._handle, kind, "",
                   {**data, "where": where}, call)
        )  # fmt: skip

    def reserve(self) -> int:
        """Reserve the next number for something that begins now but is recorded when it ends."""
        number = next(self._numbers)
        self._mark(number)
        return number

    def _mark(self, number: int) -> None:
        if self._root.reads is not None:
            self._root.reads.append((threading.get_ident(), -number))

    def begins_now(self, call: Call, at_us: int) -> None:
        """Renumber a call that waited before it reached the engine: make it the newest entry, at
        the given time.
        """
        root = self._root
        with self._lock:
            if root.entries and root.entries[-1] is call and call.at_us == at_us:
                return
            site = root.sites.pop(call.number, None) if root.sites else None
            call.number, call.at_us = next(self._numbers), at_us
            if site is not None:
                root.sites[call.number] = site
            for journal in {self, root}:
                entries = journal.entries
                for index in range(len(entries) - 1, -1, -1):
                    if entries[index] is call:
                        del entries[index]
                        entries.append(call)
                        break

    def watch(self, watcher: Callable[[Entry], None]) -> Callable[[], None]:
        """Call the watcher with each new entry; return a function that stops it."""
        with self._lock:
            self._watchers = (*self._watchers, watcher)

        def stop() -> None:
            with self._lock:
                self._watchers = tuple(each for each in self._watchers if each is not watcher)

        return stop

    def _append(self, entry: Entry) -> None:
        parent = self._parent
        forgotten: Iterable[Call] = ()
        # Number the entry inside the lock, so that numbers increase in every list.
        with self._lock:
            entry.number = next(self._numbers)
            self.entries.append(entry)
            if self.keep is not None:
                forgotten = self._forget()
            if parent is not None:
                parent.entries.append(entry)
                if parent.keep is not None:
                    forgotten = parent._forget()
        for each in forgotten:
            shorten(each)
        if self._watchers:
            for watcher in self._watchers:
                watcher(entry)
        if parent is not None and parent._watchers:
            for watcher in parent._watchers:
                watcher(entry)

    def _forget(self) -> Iterable[Call]:
        """Drop the oldest entries; return the large ones, which a fake's journal may still hold."""
        # Drop entries in batches, so that a full journal is as fast as an empty one. Create a new
        # list, because another thread may be reading the old one.
        keep = self.keep or 0
        if len(self.entries) <= keep + keep // 4:
            return ()
        dropped = self.entries[: len(self.entries) - keep]
        self.entries = self.entries[-keep:] if keep else []
        if self._parent is not None:
            return ()
        last = dropped[-1].number
        self._forget_sites(lambda number: number <= last)
        gone = [call for call in self._heavy if call.number <= last and call.outcome != "open"]
        self._take_off(gone)
        for child in self._open_children():
            # Drop them from the fakes' journals too, because the limit applies to all fakes
            # together.
            kept = child.entries
            child.entries = kept[bisect_right(kept, last, key=_number_of) :]
        return gone

    def _open_children(self) -> list[Recorder]:
        # Iterate over a copy: a fake can be garbage-collected at any time, which removes its
        # reference.
        found = (reference() for reference in self._children.copy())
        return [child for child in found if child is not None]

    def _take_off(self, calls: Iterable[Call]) -> None:
        for call in calls:
            self._heavy_bytes -= self._heavy.pop(call, 0)

    def _forget_sites(self, is_gone: Callable[[int], bool]) -> None:
        sites = self._root.sites
        # Iterate over a copy, because calls in other threads add their sites without the lock.
        for number in list(sites):
            if is_gone(number):
                sites.pop(number, None)

    def clear(self) -> None:
        """Forget all entries: of a fake, also in the cloud's recorder; of a cloud, also in the
        recorders of its fakes.
        """
        with self._lock:
            others = [
                one for one in self._root.actions if self._parent and one.handle != self._handle
            ]
            self._root.actions = deque(others, _ACTIONS)
            entries, self.entries = self.entries, []
            self._forget_sites({entry.number for entry in entries}.__contains__)
            if self._parent is not None:
                gone = set(map(id, entries))
                kept = [entry for entry in self._parent.entries if id(entry) not in gone]
                self._parent.entries = kept
            else:
                for child in self._open_children():
                    child.entries = []
            if self._root._heavy:
                self._root._take_off(e for e in entries if isinstance(e, Call))

    def forget_since(self, number: int) -> None:
        """Forget the entries after a number from ``reserve()``, also in the fakes' journals.

        Used by the cloud's recorder to undo a trial run.
        """
        with self._lock:
            self._forget_sites(lambda each: each > number)
            for journal in (self, *self._open_children()):
                at = bisect_right(journal.entries, number, key=_number_of)
                gone, journal.entries = journal.entries[at:], journal.entries[:at]
                if self._heavy:
                    self._take_off(e for e in gone if isinstance(e, Call))


def is_own(frame: FrameType) -> bool:
    """Return whether a frame belongs to this package."""
    return str(frame.f_globals.get("__name__", "")).startswith(_PACKAGE)


class Journal:
    """The recorded calls and events of one fake, or of a whole cloud, in order."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @property
    def keep(self) -> int | None:
        """Number of entries to keep; older ones may be forgotten. None keeps all. Can be set."""
        return self._recorder.keep

    @keep.setter
    def keep(self, entries: int | None) -> None:
        self._recorder.keep = entries

    @property
    def keep_bytes(self) -> int:
        """Maximum bytes of calls above 4 KiB that the whole cloud keeps. Set it on the cloud's
        journal.

        Beyond it the oldest calls are cut: they stay in the journal with the beginning of their
        long fields, and a condition that needs the rest raises ``ContractError``.
        """
        return self._recorder.keep_bytes

    @keep_bytes.setter
    def keep_bytes(self, size: int) -> None:
        self._recorder.keep_bytes = size

    def clear(self) -> None:
        """Forget all entries. Clearing a fake's journal also removes them from the cloud's, and
        clearing the cloud's journal clears those of all fakes.
        """
        self._recorder.clear()

    # -- reading ---------------------------------------------------------------------------------

    @property
    def entries(self) -> Found[Entry]:
        """Calls and events in the order they were recorded."""
        return Found(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def _read(self) -> list[Entry]:
        self._recorder.was_read = True
        return self._recorder.entries

    def calls(
        self, predicate: Callable[[Call], bool] | None = None, /, **where: Unpack[CallFields]
    ) -> Found[Call]:
        """Return the clients' calls, filtered by fields of ``Call`` or by facts
        (``command="SET"``).
        """
        __tracebackhide__ = True
        check_predicate(predicate)
        calls = found_of(
            (entry for entry in self._read() if isinstance(entry, Call)),
            self._recorder.call_fields,
            "call",
        )
        return calls.where(predicate, **where) if predicate or where else calls

    def events(self, kind: str | None = None, **where: Unpack[EventFields]) -> Found[Event]:
        """Return the events, optionally of one kind, filtered by their data.

        Raises ``ContractError`` for a kind that the fakes of this journal never record.
        """
        __tracebackhide__ = True
        events = [entry for entry in self._read() if isinstance(entry, Event)]
        names = EVENT_FIELD_TYPES.keys() | {name for event in events for name in event.data}
        asked = {name: Field(EVENT_FIELD_TYPES.get(name, ANYTHING), _datum(name)) for name in names}
        kinds = self._recorder.event_kinds()
        if kinds:
            kinds = kinds.union(event.kind for event in events)
        asked["kind"] = Field(Listed("kind of event", lambda: kinds))
        query = Query({**where} if kind is None else {"kind": kind, **where}, asked, "event")
        return found_of(filter(query, events), asked, "event")

    # -- asserting -------------------------------------------------------------------------------

    def assert_called(
        self,
        what: str | re.Pattern[str] | None = None,
        *,
        times: int | None = None,
        **where: Unpack[CallFields],
    ) -> Found[Call]:
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
            fields = {**fields, "what": Field(field_type, NamesOf, several=True, bare=True)}
            given = {"what": what, **where}
        return expect(
            "a call",
            self.calls(),
            Query(given, fields, "call"),
            times=times,
            none="no client has made a call",
        )

    def assert_not_called(
        self, what: str | re.Pattern[str] | None = None, **where: Unpack[CallFields]
    ) -> None:
        """Fail if any call matches."""
        __tracebackhide__ = True
        self.assert_called(what, times=0, **where)


def recorder_of(journal: Journal) -> Recorder:
    """Return the ``Recorder`` behind a journal. For the fakes, not for tests."""
    return journal._recorder


def _number_of(entry: Entry) -> int:
    return entry.number


def _datum(name: str) -> Callable[[Event], Any]:
    return lambda event: event.data.get(name, ABSENT)
