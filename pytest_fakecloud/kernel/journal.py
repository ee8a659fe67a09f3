"""What the clients did: calls with their answers, and events that are not HTTP."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, SupportsIndex, TypeVar, cast, overload

from .asserting import check_times
from .errors import ContractError, check_function
from .instants import to_datetime

__all__ = ["Call", "Event", "Found", "Journal"]

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
            if (predicate is None or predicate(item))
            and all(_agrees_any(_field(item, name), wanted) for name, wanted in fields.items())
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
    found = getattr(item, name, _MISSING)
    if found is _MISSING and isinstance(item, Call):
        return item.facts.get(name, _MISSING)
    return found


def _agrees(value: object, wanted: object) -> bool:
    if callable(wanted) and value is not _MISSING:
        return bool(wanted(value))
    return value == wanted


class Call:
    """One request and its answer.

    ``at_us`` is the instant on the cloud's clock, ``target`` the request target as it came,
    ``headers`` the raw header list, ``route`` the name of the endpoint, ``facts`` what the service
    tells of the call (``command``, ``topic``, …), ``fault`` the fault applied, ``problem`` why a
    strict test should fail, ``note`` the diagnosis for reports. ``outcome`` is ``"answered"``,
    ``"dropped"``, ``"lost"``, ``"hung"`` or ``"open"`` while the answer is not out. ``reached`` tells
    whether the endpoint did what was asked, whatever a fault made of its answer.
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

    def json(self) -> Any:
        """The request body as JSON."""
        return json.loads(self.body)

    def answer_json(self) -> Any:
        """The answer's body as JSON."""
        return json.loads(self.answer)

    def __repr__(self) -> str:
        answer = self.status if self.status is not None else self.outcome
        fault = f" fault={self.fault}" if self.fault else ""
        return f"<Call {self.number} {self.handle} {self.method} {self.target} -> {answer}{fault}>"


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
    one. Appending is safe from any thread.
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
        self._watchers: tuple[Callable[[Entry], None], ...] = ()

    # -- recording -------------------------------------------------------------------------------

    def open_call(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        client: tuple[str, int] | None,
    ) -> Call:
        """Record a request that has just come in; the pipeline fills in its answer."""
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
        return call

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
        # Numbered with the lock, so that the order of numbers is the order of every list.
        with self._lock:
            entry.number = next(self._numbers)
            self._entries.append(entry)
            if self.keep is not None:
                self._forget()
            if parent is not None:
                parent._entries.append(entry)
                if parent.keep is not None:
                    parent._forget()
        if self._watchers:
            for watcher in self._watchers:
                watcher(entry)
        if parent is not None and parent._watchers:
            for watcher in parent._watchers:
                watcher(entry)

    def _forget(self) -> None:
        # Now and then, so that a full journal costs no more than an empty one; a new list, because
        # somebody may be looking at the old one.
        keep = self.keep or 0
        if len(self._entries) > keep + keep // 4:
            self._entries = self._entries[-keep:] if keep else []

    def clear(self) -> None:
        """Forget everything, here and what the parent has of it."""
        with self._lock:
            gone = set(map(id, self._entries))
            self._entries = []
            if self._parent is not None:
                kept = [entry for entry in self._parent._entries if id(entry) not in gone]
                self._parent._entries = kept

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
        reasons = [(call, _why_not(call, what, where)) for call in calls]
        found = Found(call for call, why in reasons if not why)
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
    reasons = []
    if what is not None:
        names: list[object] = [call.route, call.path, call.target]
        names += [f"{call.method} {call.path}", f"{call.method} {call.target}"]
        commands = call.facts.get("command")
        names += commands if isinstance(commands, list) else [commands]
        if what not in names and what.upper() not in names:
            shown = call.facts.get("command") or call.route or call.path
            reasons.append(f"is {shown}, not {what}")
    for name, wanted in where.items():
        value = _field(call, name)
        if not _agrees_any(value, wanted):
            shown = "absent" if value is _MISSING else repr(value)
            reasons.append(f"{name} is {shown}, not {wanted!r}")
    return reasons


def _agrees_any(value: object, wanted: object) -> bool:
    if _agrees(value, wanted):
        return True
    return isinstance(value, list) and wanted in cast("list[object]", value)
