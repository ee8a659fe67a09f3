"""What the clients did: calls with their answers, and events that are not HTTP."""

from __future__ import annotations

import itertools
import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Generic, SupportsIndex, TypeVar, cast, overload

from .errors import ContractError, check_function
from .timeparse import to_datetime
from .wording import check_times

__all__ = ["KEEP_BYTES", "Call", "CutBytes", "Event", "Found", "Journal"]

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

T = TypeVar("T")


class Found(list[T], Generic[T]):
    """A plain list of what an inspection found, with ``only()``, ``last`` and ``where()``."""

    def only(self) -> T:
        """The single item; ``AssertionError`` listing the items when there are none or several."""
        if len(self) != 1:
            listing = "".join(f"\n  {item!r}" for item in self[:10])
            raise AssertionError(f"expected exactly one item, found {len(self)}{listing}")
        return self[0]

    @property
    def last(self) -> T:
        """The newest item; ``AssertionError`` when there is none."""
        if not self:
            raise AssertionError("expected at least one item, found none")
        return self[-1]

    def where(self, predicate: Callable[[T], bool] | None = None, /, **fields: object) -> Found[T]:
        """The items the predicate holds for and whose named fields equal the given values.

        A field is an attribute, a key where the item is a mapping, or a fact of a call; a callable
        as value is a predicate on the field; a field that is a list agrees with each of its items.
        """
        _check_predicate(predicate)
        return Found(
            item
            for item in self
            if (predicate is None or predicate(item)) and _agrees_all(item, fields)
        )

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> T: ...
    @overload
    def __getitem__(self, index: slice, /) -> Found[T]: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> T | Found[T]:
        if isinstance(index, slice):
            return Found(super().__getitem__(index))
        return super().__getitem__(index)


def _check_predicate(predicate: object) -> None:
    if predicate is not None and not callable(predicate):
        raise ContractError(
            f"{predicate!r} is no function: give a predicate, or fields by name such as "
            "command='SET', path='/get/k' or status=200"
        )


_MISSING = object()


def _field(item: object, name: str) -> object:
    if isinstance(item, Mapping):
        return item.get(name, _MISSING)
    if isinstance(item, Call):
        return item.field(name)
    return getattr(item, name, _MISSING)


def _agrees_all(item: object, fields: Mapping[str, object]) -> bool:
    if isinstance(item, Call) and item.cut:
        return not _why_not(item, None, fields)
    return all(_agrees_any(_field(item, name), wanted) for name, wanted in fields.items())


def _agrees(value: object, wanted: object) -> bool:
    if callable(wanted) and value is not _MISSING:
        return bool(wanted(value))
    return value == wanted


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


def _cannot_tell(what: str) -> ContractError:
    return ContractError(
        f"cannot tell {what}: the journal has cut it. Let it keep more before the calls are made "
        f"(cloud.journal.keep_bytes, {KEEP_BYTES:,} unless set), clear it earlier, or look at "
        "what the fake holds; what came without credentials is never kept whole"
    )


class Call:
    """One request and its answer.

    ``at_us`` is the instant on the cloud's clock, ``target`` the request target as it came,
    ``headers`` the raw header list, ``route`` the name of the endpoint, ``facts`` what the service
    tells of the call (``command``, ``topic``, …), ``fault`` the fault applied, ``problem`` why a
    strict test should fail, ``note`` the diagnosis for reports. ``outcome`` is ``"answered"``,
    ``"dropped"``, ``"lost"``, ``"hung"`` or ``"open"`` while the answer is not out. ``reached`` tells
    whether the endpoint did what was asked, whatever a fault made of its answer. ``cut`` names the
    fields and facts of which the journal has kept the beginning only, with their true sizes.
    """

    # One is made for every request, so only what is always known is set; the rest is the class's.
    status: int | None = None
    answer_headers: Sequence[tuple[str, str]] = ()
    answer: bytes = b""
    route: str = ""
    fault: str | None = None
    outcome: str = "open"
    reached: bool = False
    problem: str | None = None
    note: str = ""
    cut: Mapping[str, int] = MappingProxyType({})
    weight: int = 0
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
        found = getattr(self, name, _MISSING)
        return self.facts.get(name, _MISSING) if found is _MISSING else found

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
        self._heavy: deque[Call] = deque()
        self._heavy_bytes = 0
        self._watchers: tuple[Callable[[Entry], None], ...] = ()

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

    def watch(self, watcher: Callable[[Entry], None]) -> Callable[[], None]:
        """Call the watcher with each new entry; returns what takes it off again."""
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
        _check_predicate(predicate)
        calls: Found[Call] = Found(e for e in self._entries if isinstance(e, Call))
        return calls.where(predicate, **where) if predicate or where else calls

    def events(self, kind: str | None = None, **where: object) -> Found[Event]:
        """The events, all or of one kind, filtered by their data."""
        events = (e for e in self._entries if isinstance(e, Event))
        return Found(
            event
            for event in events
            if (kind is None or event.kind == kind)
            and all(_agrees(event.data.get(k, _MISSING), v) for k, v in where.items())
        )

    # -- asserting -------------------------------------------------------------------------------

    def assert_called(
        self, what: str | None = None, *, times: int | None = None, **where: object
    ) -> Found[Call]:
        """The calls that match; fails unless there is at least one, or exactly ``times``.

        ``what`` is ``"POST /path"``, ``"/path"``, a route's name or a command's name; ``where`` are
        fields or facts of the call. The failure lists the nearest calls and what differed in each.
        """
        if not isinstance(what, str | None):
            raise ContractError(
                f"{what!r} names no call: give 'POST /path', '/path', a route or a command as text, "
                "or fields such as body=…"
            )
        check_times(times)
        calls = self.calls()
        reasons: list[tuple[Call, list[str]]] = []
        undecided: list[ContractError] = []
        for call in calls:
            try:
                reasons.append((call, _why_not(call, what, where)))
            except ContractError as error:
                if not call.cut:
                    raise
                undecided.append(error)
        found = Found(call for call, why in reasons if not why)
        if undecided and (len(found) <= times if times is not None else not found):
            # Whether it holds or not depends on calls of which too little is left.
            raise undecided[0]
        if (times is None and found) or (times is not None and len(found) == times):
            return found
        wanted = " ".join(filter(None, [what or "", *(f"{k}={v!r}" for k, v in where.items())]))
        expected = "at least once" if times is None else f"{times} time(s)"
        lines = [f"expected a call {wanted or '(any)'} {expected}, found {len(found)}"]
        lines += [f"  matched: {call!r}" for call in found[:10]]
        misses = sorted(
            ((call, why) for call, why in reasons if why), key=lambda pair: len(pair[1])
        )
        lines += [f"  not {call!r}: {'; '.join(why)}" for call, why in misses[:5]]
        if not calls:
            lines.append("  no client has called at all")
        raise AssertionError("\n".join(lines))

    def assert_not_called(self, what: str | None = None, **where: object) -> None:
        """Fails when any call matches."""
        self.assert_called(what, times=0, **where)


def _why_not(call: Call, what: str | None, where: Mapping[str, object]) -> list[str]:
    reasons: list[str] = []
    undecided: ContractError | None = None
    if what is not None and (named := _why_not_named(call, what)):
        # A name with a slash is no command, so the facts have no say in it.
        cut = ("target",) if "/" in what else ("target", "command", "facts")
        if call.cut.keys().isdisjoint(cut):
            reasons.append(named)
        else:
            undecided = _cannot_tell(f"whether {call!r} is {what!r}")
    for name, wanted in where.items():
        try:
            value = _field(call, name)
        except ContractError as error:
            undecided = error
            continue
        if not _agrees_any(value, wanted):
            shown = "absent" if value is _MISSING else repr(value)
            reasons.append(f"{name} is {shown}, not {wanted!r}")
    if undecided is not None and not reasons:
        # Where anything else speaks against a call, nobody needs what was cut.
        raise undecided
    return reasons


def _why_not_named(call: Call, what: str) -> str:
    names: list[object] = [call.route, call.path, call.target]
    names += [f"{call.method} {call.path}", f"{call.method} {call.target}"]
    commands = call.facts.get("command")
    names += commands if isinstance(commands, list) else [commands]
    if what in names or what.upper() in names:
        return ""
    return f"is {call.facts.get('command') or call.route or call.path}, not {what}"


def _agrees_any(value: object, wanted: object) -> bool:
    if _agrees(value, wanted):
        return True
    return isinstance(value, list) and wanted in cast("list[object]", value)
