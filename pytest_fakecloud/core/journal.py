"""What the clients did: calls with their answers, and events that are not HTTP."""

from __future__ import annotations

import itertools
import json
import re
import threading
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, cast, get_args

from .dataclass import dataclass
from .errors import CannotTell, ContractError, check_function, shown
from .found import Found, check_predicate, expect
from .matching import (
    ABSENT,
    ANYTHING,
    BYTES,
    FLAG,
    HEADERS,
    INSTANT,
    JSON,
    METHOD,
    NUMBER,
    TEXT,
    Field,
    Query,
    Sort,
    nearest,
    one_of,
)
from .timeparse import to_datetime

__all__ = [
    "CALL_FIELDS",
    "KEEP_BYTES",
    "Call",
    "CallNames",
    "CutBytes",
    "Event",
    "Found",
    "Journal",
    "NamesOf",
    "Outcome",
]

KEEP_BYTES = 128 * 1024 * 1024
"""The most bytes of heavy calls that a cloud's journal keeps whole, unless it is told otherwise."""
LIGHT = 4096
"""Bytes of head, body and answer up to which a call is light: it is never cut, only forgotten."""
KEPT_OF_CUT = 1024
"""Bytes that are left of a body, an answer or a fact that is cut."""
ITEMS_OF_CUT = 16
"""Items that are left of a list among the facts that is cut."""
_HEADERS_OF_CUT, _HEADER_OF_CUT = 64, 256
_PER_HEADER = 160  # what Python needs for a pair of texts besides their characters


Outcome: TypeAlias = Literal[
    "answered",
    "broken off",
    "dropped",
    "hung",
    "lost",
    "open",
    "refused",
    "streamed",
    "truncated",
]
"""What became of a call; it is ``"open"`` while its answer is not out."""


class CutBytes(bytes):
    """The beginning of a body that the journal has cut, with a word that says so.

    ``size`` is the true one. What only the whole could tell is refused with a ``ContractError``: a
    comparison, and a search for what is not in the beginning. ``CutBytes.of`` makes one.
    """

    size: int

    @classmethod
    def of(cls, whole: bytes, size: int | None = None) -> CutBytes:
        """The beginning of a body, which may itself be one of something longer."""
        size = len(whole) if size is None else size
        made = cls(b"%b... (cut by the journal: %d bytes in all)" % (whole[:KEPT_OF_CUT], size))
        made.size = size
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, bytes | bytearray) or self is other:
            return self is other
        if len(other) != self.size or other[:KEPT_OF_CUT] != self[:KEPT_OF_CUT]:
            return False
        raise _cannot_tell(f"whether a body of {self.size:,} bytes is the same")

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, part: object) -> bool:
        if isinstance(part, bytes | bytearray) and part in bytes(self[:KEPT_OF_CUT]):
            return True
        raise _cannot_tell(f"what is in a body of {self.size:,} bytes")


def _cannot_tell(what: str) -> CannotTell:
    return CannotTell(
        f"cannot tell {what}: the journal has cut it. Let it keep more before the calls are made "
        f"(cloud.journal.keep_bytes, {KEEP_BYTES:,} unless set), clear it earlier, or look at "
        "what the fake holds; what came without credentials is never kept whole"
    )


class Call:
    """One request and its answer.

    ``at_us`` is the instant on the cloud's clock, ``target`` the request target as it came,
    ``headers`` the raw header list, ``route`` the name of the endpoint, ``facts`` what the service
    tells of the call (``command``, ``topic``, …), ``fault`` the fault applied, ``problem`` why a
    strict test should fail, ``note`` the diagnosis for reports, ``outcome`` an ``Outcome``.
    ``reached`` tells whether the endpoint did what was asked, whatever a fault made of its answer,
    ``until`` the journal's number when its faults were done. ``cut`` names the fields and facts of
    which the journal has kept the beginning only, with their true sizes.
    """

    # One is made for every request, so only what is always known is set; the rest is the class's.
    status: int | None = None
    answer_headers: Sequence[tuple[str, str]] = ()
    answer: bytes = b""
    route: str = ""
    fault: str | None = None
    outcome: Outcome = "open"
    reached: bool = False
    problem: str | None = None
    note: str = ""
    cut: Mapping[str, int] = MappingProxyType({})
    weight: int = 0
    until: int = 0
    read_facts: Callable[[], dict[str, Any]] | None = None
    _facts: dict[str, Any] | None = None

    def __init__(
        self,
        number: int,
        at_us: int,
        service: str,
        handle: str,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        client: tuple[str, int] | None = None,
    ) -> None:
        self.number = number
        self.at_us = at_us
        self.service = service
        self.handle = handle
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        self.client = client

    @property
    def facts(self) -> dict[str, Any]:
        """What the service tells of the call; read when first asked for, as most calls never are."""
        if self._facts is None:
            self._facts = self.read_facts() if self.read_facts is not None else {}
        return self._facts

    @property
    def at(self) -> datetime:
        """The instant of the call as an aware UTC datetime."""
        return to_datetime(self.at_us)

    @property
    def path(self) -> str:
        """The request target without its query."""
        return self.target.partition("?")[0]

    def header(self, name: str) -> str | None:
        """The first request header of that name, whatever its spelling."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)

    def field(self, name: str) -> object:
        """A field or fact by name; ``ContractError`` where it was cut."""
        if self.cut:
            size = self.cut.get(name) or self.cut.get(_CUT_WITH.get(name, name))
            known = hasattr(self, name)
            if size is None and not known and name not in (self._facts or ()):
                size = self.cut.get("facts")
            if size is not None:
                raise _cannot_tell(f"the {name} ({size:,} bytes) of {self!r}")
        found = getattr(self, name, ABSENT)
        return self.facts.get(name, ABSENT) if found is ABSENT else found

    def whole_body(self) -> bytes:
        """The request body; ``ContractError`` where it was cut."""
        return cast("bytes", self.field("body"))

    def json(self) -> Any:
        """The request body as JSON; ``ContractError`` where it was cut."""
        return json.loads(self.whole_body())

    def answer_json(self) -> Any:
        """The answer's body as JSON; ``ContractError`` where it was cut."""
        return json.loads(cast("bytes", self.field("answer")))

    def weigh(self) -> int:
        """About how many bytes the journal keeps for it."""
        heads = (*self.headers, *self.answer_headers)
        return (
            len(self.body)
            + len(self.answer)
            + 3 * len(self.target)  # with its parts in the request the facts are read from
            + sum(len(name) + len(value) + _PER_HEADER for name, value in heads)
        )

    def shorten(self, *, read_facts: bool = True) -> None:
        """Keep the beginning of whatever is long, and say so in ``cut`` and ``note``.

        Without ``read_facts`` its facts are given up: who sends much without credentials must not
        have it read too.
        """
        facts = self.facts if read_facts or self._facts is not None else {}
        cut = dict(self.cut)
        kept = dict(facts)
        for name, value in facts.items():
            size = _size_of(value)
            if size > KEPT_OF_CUT and name not in cut:
                cut[name], kept[name] = size, _beginning(value)
        if not facts and not read_facts:
            cut["facts"] = len(self.body)
        headers = self.headers
        size = sum(len(name) + len(value) for name, value in headers)
        if "headers" not in cut and (size > LIGHT or len(headers) > _HEADERS_OF_CUT):
            cut["headers"] = size
            headers = [
                (_beginning(name, _HEADER_OF_CUT), _beginning(value, _HEADER_OF_CUT))
                for name, value in headers[:_HEADERS_OF_CUT]
            ]
        long = {"target": self.target, "body": self.body, "answer": self.answer}
        long = {
            name: value
            for name, value in long.items()
            if len(value) > KEPT_OF_CUT and name not in cut
        }
        cut |= {name: len(value) for name, value in long.items()}
        # First what says that it was cut, so that nobody takes the beginning for the whole.
        self._tell_cut(cut)
        self._facts, self.read_facts = kept, None
        self.headers = headers
        for name, value in long.items():
            beginning = CutBytes.of(value) if isinstance(value, bytes) else _beginning(value)
            setattr(self, name, beginning)

    def _tell_cut(self, cut: Mapping[str, int]) -> None:
        fresh = {name: size for name, size in cut.items() if name not in self.cut}
        if fresh:
            self.cut = cut
            sizes = ", ".join(f"{name} ({size:,} bytes)" for name, size in fresh.items())
            self.note = f"{self.note}\ncut by the journal: {sizes}".lstrip()

    def begin_cut(self, **sizes: int) -> None:
        """Say that only the beginning of some fields was ever recorded, and their true sizes."""
        self._tell_cut({**self.cut, **sizes})

    def __repr__(self) -> str:
        answer = self.status if self.status is not None else self.outcome
        fault = f" fault={self.fault}" if self.fault else ""
        return f"<Call {self.number} {self.handle} {self.method} {self.target} -> {answer}{fault}>"


_CUT_WITH = {"path": "target"}


def _size_of(value: object, most: int = 1 << 20) -> int:
    """About the bytes of a fact, counted no further than ``most``."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    if not isinstance(value, list | tuple):
        return 8
    size = 8
    for item in value:
        size += _size_of(item, most - size) + 8
        if size > most:
            break
    return size


def _beginning(value: Any, most: int = KEPT_OF_CUT) -> Any:
    """A fact of which only so much is left that it can be shown."""
    if isinstance(value, str):
        # A text of its own class (a command's name) stays what it is.
        return value if len(value) <= most else f"{value[:most]}…"
    if isinstance(value, bytes):
        return value[:most]
    if isinstance(value, list | tuple):
        return [_beginning(item, 64) for item in value[:ITEMS_OF_CUT]]
    if isinstance(value, Mapping):
        return {_beginning(k, 64): _beginning(v, 64) for k, v in list(value.items())[:ITEMS_OF_CUT]}
    return value  # a number, or nothing


@dataclass(slots=True, eq=False)
class Event:
    """Something that happened inside a service and is no HTTP call to it.

    ``kind`` is the service's own word (``"attempt"``, ``"rebalance"``, …), ``text`` one readable
    line, ``data`` the details.
    """

    number: int
    at_us: int
    service: str
    handle: str
    kind: str
    text: str
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def at(self) -> datetime:
        """The instant of the event as an aware UTC datetime."""
        return to_datetime(self.at_us)


Entry = Call | Event


def _json_or_absent(read: Callable[[Call], Any]) -> Callable[[Call], Any]:
    def value(call: Call) -> Any:
        try:
            return read(call)
        except (ValueError, RecursionError):
            return ABSENT

    return value


def _part(name: str) -> Callable[[Call], Any]:
    return lambda call: call.field(name)


CALL_FIELDS: Mapping[str, Field] = {
    **{
        name: Field(sort, _part(name))
        for name, sort in {
            "number": NUMBER,
            "at": INSTANT,
            "at_us": NUMBER,
            "service": TEXT,
            "handle": TEXT,
            "method": METHOD,
            "target": TEXT,
            "path": TEXT,
            "headers": HEADERS,
            "body": BYTES,
            "client": ANYTHING,
            "status": NUMBER,
            "answer_headers": HEADERS,
            "answer": BYTES,
            "route": TEXT,
            "fault": TEXT,
            "outcome": one_of("outcome", get_args(Outcome)),
            "reached": FLAG,
            "problem": TEXT,
            "note": TEXT,
        }.items()
    },
    "json": Field(JSON, _json_or_absent(Call.json)),
    "answer_json": Field(JSON, _json_or_absent(Call.answer_json)),
}
"""What may be asked about every call, whatever its service; services add facts of their own."""


class CallNames(Sort):
    """A call by one text: ``"POST /path"``, a path, a route's name, or a command's."""

    expected = "'POST /path', '/path', a route or a command as text, a pattern"

    def __init__(self, words: Callable[[], Iterable[str]]) -> None:
        self._words = words

    def accepts(self, wanted: Any) -> bool:
        return isinstance(wanted, str) or isinstance(getattr(wanted, "pattern", None), str)

    def check(self, name: str, wanted: Any) -> None:
        given = shown(wanted) if name == "what" else f"{name}={shown(wanted)}"
        if callable(wanted) or not self.accepts(wanted):
            raise ContractError(f"{given} names no call: give {self.expected}, or fields by name")
        if not isinstance(wanted, str):
            return
        method, space, target = wanted.partition(" ")
        if space and target.startswith(("/", "*", "http")):
            METHOD.check("method", method)
        elif "/" not in wanted:
            words = sorted(set(self._words()))
            if words and not any(self.equals(word, wanted) for word in words):
                raise ContractError(
                    f"{given} is neither a route nor a command{nearest(wanted, words)}; "
                    f"give {self.expected}"
                )

    def equals(self, found: Any, wanted: Any) -> bool:
        if super().equals(found, wanted):
            return True
        if "/" in wanted or not isinstance(found, str):
            return False
        # Commands are written in any case.
        return super().equals(found.upper(), wanted.upper())

    def differs(self, name: str, found: Any, wanted: Any) -> str:
        return f"is {found.shown}, not {wanted}"

    def check_whole(self, found: Any, wanted: Any) -> None:
        # A name with a slash is no command, so the facts have no say in it.
        cut = {"target"} if isinstance(wanted, str) and "/" in wanted else _TELL_NAMES
        if not found.call.cut.keys().isdisjoint(cut):
            raise _cannot_tell(f"whether {found.call!r} is {wanted!r}")


_TELL_NAMES = frozenset({"target", "command", "facts"})


class NamesOf(list[str]):
    """The texts that name a call; ``shown`` is the one that tells most."""

    def __init__(self, call: Call) -> None:
        self.call = call
        commands = call.facts.get("command")
        self.shown = commands or call.route or call.path
        for each in commands if isinstance(commands, list) else [commands]:
            if each:
                # A command with sub-commands is meant by its own name too.
                self += dict.fromkeys((each, each.partition(" ")[0]))
        self += [call.route, call.path, call.target]
        self += [f"{call.method} {call.path}", f"{call.method} {call.target}"]


class Teacher(Protocol):
    """Who knows what may be asked about the calls of a service."""

    fact_fields: ClassVar[Mapping[str, Field]]

    def words(self) -> Iterable[str]:
        """The names of its routes and commands."""


class Journal:
    """All calls and events of one handle, or of a whole cloud, in order.

    A handle's journal hands each entry on to its cloud's (``parent``), so the cloud's is the merged
    one. Appending is safe from any thread. The cloud's bounds what both hold: by entries (``keep``)
    and by bytes (``keep_bytes``).
    """

    def __init__(
        self,
        now_us: Callable[[], int],
        *,
        service: str = "",
        handle: str = "",
        parent: Journal | None = None,
    ) -> None:
        self._now_us = now_us
        self._service = service
        self._handle = handle
        self._parent = parent
        self._numbers: Iterator[int] = itertools.count(1) if parent is None else parent._numbers
        self._lock: threading.Lock = threading.Lock() if parent is None else parent._lock
        self._entries: list[Entry] = []
        self.keep: int | None = None if parent is None else parent.keep
        """How many entries are kept at least; older ones are forgotten. None: all of them."""
        self.keep_bytes = KEEP_BYTES
        """How many bytes of calls beyond 4 KiB the whole cloud keeps; the oldest are cut first.

        Set on the cloud's journal. A call that is cut stays an entry, with the beginning of what
        was long; a question only the whole could answer is a ``ContractError``.
        """
        self._root: Journal = self if parent is None else parent._root
        self._children: weakref.WeakSet[Journal] | tuple[()] = ()
        if parent is None:
            self._children = weakref.WeakSet()
        elif isinstance(parent._children, weakref.WeakSet):
            with self._lock:
                parent._children.add(self)
        self._heavy: deque[Call] = deque()
        self._heavy_bytes = 0
        self._watchers: tuple[Callable[[Entry], None], ...] = ()
        self._teachers: dict[str, tuple[Mapping[str, Field], weakref.ref[Teacher]]] = {}

    def learn(self, service: str, teacher: Teacher) -> None:
        """Take in what may be asked about a service's calls: its facts, its routes and commands."""
        taught = self._teachers[service] = teacher.fact_fields, weakref.ref(teacher)
        if self._parent is not None:
            self._parent._teachers[service] = taught

    def _words(self) -> Iterator[str]:
        for _, teacher in self._teachers.values():
            known = teacher()
            if known is not None:
                yield from known.words()

    # -- recording -------------------------------------------------------------------------------

    def open_call(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        client: tuple[str, int] | None,
        head_bytes: int = 0,
    ) -> Call:
        """Record a request that has just come in; the pipeline fills in its answer.

        ``head_bytes`` is about how long target and headers are, where a stranger wrote them.
        """
        call = Call(
            0,
            self._now_us(),
            self._service,
            self._handle,
            method,
            target,
            headers,
            body,
            client,
        )
        self._append(call)
        if len(body) + head_bytes > LIGHT:
            self._root._weigh(call)
        return call

    def answered(self, call: Call) -> None:
        """Look again at how much a call holds, now that its answer is there."""
        if call.weight or len(call.answer) > LIGHT:
            self._root._weigh(call)

    def _weigh(self, call: Call) -> None:
        weight = call.weigh()
        with self._lock:
            if not call.weight:
                self._heavy.append(call)
            self._heavy_bytes += weight - call.weight
            call.weight = weight
            too_many = self._too_many() if self._heavy_bytes > self.keep_bytes else ()
        # Not with the lock: it may read a large body for its facts.
        for each in too_many:
            each.shorten()

    def _too_many(self) -> list[Call]:
        """Take the oldest off the scales until what is left may stay; with the lock."""
        going, under_way = [], []
        while self._heavy and self._heavy_bytes > self.keep_bytes:
            call = self._heavy.popleft()
            if call.outcome == "open":
                under_way.append(call)  # somebody else holds it whole anyway
            else:
                going.append(self._taken_off(call))
        self._heavy.extendleft(reversed(under_way))
        return going

    def _taken_off(self, call: Call) -> Call:
        self._heavy_bytes -= call.weight
        call.weight = 0
        return call

    def cut(self, call: Call) -> None:
        """Keep of a large call only its beginning, and none of its facts."""
        with self._lock:
            if not call.weight:
                return
            self._root._heavy.remove(call)
            self._root._taken_off(call)
        call.shorten(read_facts=False)

    def add_event(self, kind: str, text: str, *, at_us: int | None = None, **data: object) -> Event:
        """Record something that happened inside the service."""
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

    def reserve(self) -> int:
        """Take the next number for something that begins now and is recorded when it has ended."""
        return next(self._numbers)

    def watch(self, watcher: Callable[[Entry], None]) -> Callable[[], None]:
        """Call the watcher with each new entry; return what takes it off again."""
        check_function(watcher, "that takes an entry")
        with self._lock:
            self._watchers = (*self._watchers, watcher)

        def stop() -> None:
            with self._lock:
                self._watchers = tuple(each for each in self._watchers if each is not watcher)

        return stop

    def _append(self, entry: Entry) -> None:
        parent = self._parent
        forgotten: Iterable[Call] = ()
        # Numbered with the lock, so that the order of numbers is the order of every list.
        with self._lock:
            entry.number = next(self._numbers)
            self._entries.append(entry)
            if self.keep is not None:
                forgotten = self._forget()
            if parent is not None:
                parent._entries.append(entry)
                if parent.keep is not None:
                    forgotten = parent._forget()
        for each in forgotten:
            each.shorten()
        if self._watchers:
            for watcher in self._watchers:
                watcher(entry)
        if parent is not None and parent._watchers:
            for watcher in parent._watchers:
                watcher(entry)

    def _forget(self) -> Iterable[Call]:
        """Drop the oldest entries; returns the heavy ones, which a handle's journal may still have."""
        # Now and then, so that a full journal costs no more than an empty one; a new list, because
        # somebody may be looking at the old one.
        keep = self.keep or 0
        if len(self._entries) <= keep + keep // 4:
            return ()
        dropped = self._entries[: len(self._entries) - keep]
        self._entries = self._entries[-keep:] if keep else []
        last, heavy = dropped[-1].number, self._heavy
        gone = [call for call in heavy if call.number <= last and call.outcome != "open"]
        self._take_off(gone)
        for child in self._children:
            # Of many handles' journals each would keep that many entries; together they do.
            kept = child._entries
            child._entries = kept[bisect_right(kept, last, key=_number_of) :]
        return gone

    def _take_off(self, calls: Iterable[Call]) -> None:
        gone = set(map(id, calls))
        if gone:
            for call in self._heavy:
                if id(call) in gone:
                    self._taken_off(call)
            self._heavy = deque(call for call in self._heavy if id(call) not in gone)

    def clear(self) -> None:
        """Forget everything, here and what the parent has of it."""
        with self._lock:
            gone = set(map(id, self._entries))
            entries, self._entries = self._entries, []
            if self._parent is not None:
                kept = [entry for entry in self._parent._entries if id(entry) not in gone]
                self._parent._entries = kept
            if self._root._heavy:
                self._root._take_off(e for e in entries if isinstance(e, Call))

    def forget_since(self, number: int) -> None:
        """Forget what has come since a number of ``reserve()``, in the handles' journals too.

        For the cloud's journal: what was only tried out.
        """
        with self._lock:
            gone: list[Entry] = []
            for journal in (self, *self._children):
                at = bisect_right(journal._entries, number, key=_number_of)
                gone += journal._entries[at:]
                journal._entries = journal._entries[:at]
            if self._root._heavy:
                self._root._take_off(e for e in gone if isinstance(e, Call))

    # -- looking ---------------------------------------------------------------------------------

    @property
    def entries(self) -> Found[Entry]:
        """Calls and events in the order they came."""
        return Found(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def calls(
        self, predicate: Callable[[Call], bool] | None = None, /, **where: object
    ) -> Found[Call]:
        """The clients' calls, filtered by fields of ``Call`` or by its facts (``command="SET"``)."""
        __tracebackhide__ = True
        check_predicate(predicate)
        calls = Found.of(
            (entry for entry in self._entries if isinstance(entry, Call)), self.call_fields, "call"
        )
        return calls.where(predicate, **where) if predicate or where else calls

    @property
    def call_fields(self) -> Mapping[str, Field]:
        """What may be asked about calls: their own fields and the facts of their services."""
        facts = {
            name: Field(known.sort, known.read or _part(name), known.several)
            for fields, _ in self._teachers.values()
            for name, known in fields.items()
        }
        return {**facts, **CALL_FIELDS}

    def events(self, kind: str | None = None, **where: object) -> Found[Event]:
        """The events, all or of one kind, filtered by their data."""
        __tracebackhide__ = True
        events = [entry for entry in self._entries if isinstance(entry, Event)]
        names = {*where} if not events else {name for event in events for name in event.data}
        fields = {name: Field(read=_datum(name)) for name in names}
        asked = {**fields, "kind": Field(TEXT)}
        query = Query({**where} if kind is None else {"kind": kind, **where}, asked, "event")
        return Found.of(filter(query, events), asked, "event")

    # -- asserting -------------------------------------------------------------------------------

    def assert_called(
        self,
        what: str | re.Pattern[str] | None = None,
        *,
        times: int | None = None,
        **where: object,
    ) -> Found[Call]:
        """Return the calls that match; fail unless there is at least one, or exactly ``times``.

        ``what`` is ``"POST /path"``, ``"/path"``, a route's name or a command's name; ``where`` are
        fields or facts of the call. The failure lists the nearest calls and what differed in each.
        """
        __tracebackhide__ = True
        fields = self.call_fields
        given = dict(where)
        if what is not None:
            sort = CallNames(self._words)
            sort.check("what", what)
            fields = {**fields, "what": Field(sort, NamesOf, several=True, bare=True)}
            given = {"what": what, **where}
        return expect(
            "a call",
            self.calls(),
            Query(given, fields, "call"),
            times=times,
            none="no client has called at all",
        )

    def assert_not_called(self, what: str | re.Pattern[str] | None = None, **where: object) -> None:
        """Fail when any call matches."""
        __tracebackhide__ = True
        self.assert_called(what, times=0, **where)


def _number_of(entry: Entry) -> int:
    return entry.number


def _datum(name: str) -> Callable[[Event], Any]:
    return lambda event: event.data.get(name, ABSENT)
