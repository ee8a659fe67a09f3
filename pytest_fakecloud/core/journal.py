"""The journal that tests read, its lists of results, and the assertion that items match."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, Unpack, overload

from .calls import Call, CallNames, Entry, Event, Listed, NamesOf, data_field
from .errors import CannotTell, ContractError, counted
from .field_types import ANYTHING
from .matching import Field, Mismatch, Query, Question, fields_of
from .recorder import Recorder
from .settings import optional, whole

if TYPE_CHECKING:
    # Type checkers derive the fields of ``where()`` from the item's class.
    from .._typing.core import CloudCallFields, CloudEventFields, Items
else:
    Items = list

T = TypeVar("T")
_LISTED_MATCHES = 10
_LISTED_MISSES = 5
_COMPARED = 1000
"""Maximum number of non-matching items that are ranked by similarity; more would take seconds."""


class Results(Items[T]):
    """A list of results with ``only()``, ``last`` and ``where()``."""

    _fields: Mapping[str, Field] | None = None
    """The fields that ``where()`` accepts; None for the attributes of the items."""
    _kind: str = "item"
    _notes: Callable[[], Iterable[str]] | None = None
    """Returns lines to add when ``only()`` or ``last`` fails on an empty list."""

    def only(self) -> T:
        """Return the only item; ``AssertionError`` with a listing if there are none or several."""
        __tracebackhide__ = True
        if len(self) != 1:
            listing = "".join(f"\n  {item!r}" for item in self[:_LISTED_MATCHES])
            text = f"expected exactly one {self._kind}, found {len(self)}{listing}"
            raise AssertionError(text if self else self._with_notes(text))
        return self[0]

    @property
    def last(self) -> T:
        """The newest item; raises ``AssertionError`` if the list is empty."""
        __tracebackhide__ = True
        if not self:
            raise AssertionError(
                self._with_notes(f"expected at least one {self._kind}, found none")
            )
        return self[-1]

    if not TYPE_CHECKING:

        def where(
            self, predicate: Callable[[T], bool] | None = None, /, **fields: object
        ) -> Results[T]:
            """Return the items that satisfy the predicate and whose fields match the given values.

            A field is an attribute, a key if the item is a mapping, or a fact of a call;
            ``core.matching`` defines what matches. Raises ``ContractError`` for an unknown field, a
            value that the field can never have, or a predicate that raises.
            """
            __tracebackhide__ = True
            check_predicate(predicate)
            known_fields = self._fields
            if known_fields is None:
                # An empty list has no items to derive fields from, so accept any field.
                known_fields = _fields_of_items(self) if self else dict.fromkeys(fields, Field())
            query = Query(fields, known_fields, self._kind)
            question = None if predicate is None else Question("predicate", predicate)
            matching = (
                item for item in self if query(item) and (question is None or question.agrees(item))
            )
            return self._with_items(matching)

    def _with_items(self, items: Iterable[T]) -> Results[T]:
        copied = copy.copy(self)
        copied[:] = items
        return copied

    def _with_notes(self, text: str) -> str:
        notes = () if self._notes is None else self._notes()
        return "\n".join([text, *(f"  {note}" for note in notes)])

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> T: ...
    @overload
    def __getitem__(self, index: slice, /) -> Results[T]: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> T | Results[T]:
        if isinstance(index, slice):
            return self._with_items(super().__getitem__(index))
        return super().__getitem__(index)


def _fields_of_items(items: Iterable[Any]) -> Mapping[str, Field]:
    fields: dict[str, Field] = {}
    kinds: Iterable[Any] = dict.fromkeys(map(type, items))
    for kind in kinds:
        if not issubclass(kind, Mapping):
            fields |= fields_of(kind)
    for item in items:
        if isinstance(item, Mapping):
            names = [key for key in item if isinstance(key, str)]
        else:
            names = [name for name in getattr(item, "__dict__", ()) if not name.startswith("_")]
        for name in names:
            fields.setdefault(name, Field())
    return fields


def results_of(items: Iterable[T], fields: Mapping[str, Field], kind: str) -> Results[T]:
    """Return a list of items of a ``kind`` that can be filtered by the given fields."""
    results = Results(items)
    results._fields, results._kind = fields, kind
    return results


def check_predicate(predicate: object) -> None:
    """Raise ``ContractError`` unless the predicate is None or a function that is not async."""
    if predicate is not None and not callable(predicate):
        raise ContractError(
            f"{predicate!r} is not a function: pass a predicate, or fields as keyword arguments such as "
            "command='SET', path='/get/k' or status=200"
        )
    ANYTHING.check("predicate", predicate)


def expect(
    what: str,
    items: Iterable[T],
    query: Query,
    *,
    times: int | None = None,
    show: Callable[[T], str] = repr,
    not_counted: Iterable[tuple[T, str]] = (),
    notes: Callable[[int], Iterable[str]] = lambda count: (),
    if_empty: str = "there are none",
    is_minor: Callable[[T], bool] = lambda item: False,
) -> Results[T]:
    """Return the items that match; fail unless at least one does, or exactly ``times``.

    The failure begins with ``what`` ("a call") and lists the matches, and then the other items with
    their differences, nearest first. ``not_counted`` are pairs of an item that does not count and
    the reason. ``notes`` receives the number of matches and returns further lines. Items that are
    ``is_minor`` are listed among the others only if there is nothing else to list. Raises
    ``CannotTell`` if the result depends on items that the journal has cut.
    """
    __tracebackhide__ = True
    optional(whole(0)).read("times", times)
    matched: list[T] = []
    others: list[T] = []
    undecided: CannotTell | None = None
    for item in items:
        try:
            (matched if query(item) else others).append(item)
        except CannotTell as error:
            undecided = undecided or error
    count = len(matched)
    # The items that the journal has cut could change the result.
    if undecided is not None and (count <= times if times is not None else not count):
        raise undecided
    if count == times or (times is None and count):
        return results_of(matched, query.fields, query.kind)
    listed_others = [item for item in others if not is_minor(item)]
    if not (listed_others or matched):
        listed_others = others
    misses = [(item, query.differences(item)) for item in listed_others]
    misses += [
        (item, [*query.differences(item), Mismatch(False, why)]) for item, why in not_counted
    ]
    expected = "never" if times == 0 else "at least once"
    if times:
        expected = counted(times, "time")
    lines = [f"expected {' '.join(filter(None, (what, str(query), expected)))}, found {count}"]
    lines += [f"  matched: {_indented(show(item))}" for item in matched[:_LISTED_MATCHES]]
    if count > _LISTED_MATCHES:
        lines.append(f"  ... and {count - _LISTED_MATCHES} more that match")
    lines += _lines_of_misses(misses, query, show)
    if not matched and not misses:
        lines.append(f"  {if_empty}")
    raise AssertionError("\n".join([*lines, *notes(count)]))


def _lines_of_misses(
    misses: list[tuple[T, list[Mismatch]]], query: Query, show: Callable[[T], str]
) -> Iterator[str]:
    def distance(miss: tuple[T, list[Mismatch]]) -> tuple[int, int]:
        # What says which thing is meant weighs more than the state that it is in.
        return sum(mismatch.identifies for mismatch in miss[1]), len(miss[1])

    ranked = sorted(misses, key=distance)
    ranked[:_COMPARED] = sorted(
        ranked[:_COMPARED], key=lambda miss: (distance(miss), query.unlikeness(miss[0]))
    )
    for item, differences in ranked[:_LISTED_MISSES]:
        yield f"  not {_indented(show(item), '; '.join(mismatch.text for mismatch in differences))}"
    if len(ranked) > _LISTED_MISSES:
        yield f"  ... and {len(ranked) - _LISTED_MISSES} more that differ"


def _indented(text: str, why: str = "") -> str:
    first, *more = text.splitlines() or [""]
    return "\n".join([f"{first}: {why}" if why else first, *(f"    {line}" for line in more)])


class Journal:
    """The recorded calls and events of one fake, or of a whole cloud, in order.

    Type checkers accept the fields of all services, but for the journal of a service's fake only
    those of this service (``KVJournal`` in ``_typing/kv.pyi``, …).
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
        return self._recorder.shared.keep_bytes

    @keep_bytes.setter
    def keep_bytes(self, size: int) -> None:
        self._recorder.shared.keep_bytes = whole(0).read("keep_bytes", size)

    def clear(self) -> None:
        """Forget all entries. Clearing a fake's journal also removes them from the cloud's, and
        clearing the cloud's journal clears those of all fakes.
        """
        self._recorder.catch_up()
        self._recorder.clear()

    @property
    def entries(self) -> Results[Entry]:
        """Calls and events in the order they were recorded."""
        return Results(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def _read(self) -> list[Entry]:
        self._recorder.was_read = True
        self._recorder.catch_up()
        return self._recorder.entries

    def calls(
        self, predicate: Callable[[Call], bool] | None = None, /, **where: Unpack[CloudCallFields]
    ) -> Results[Call]:
        """Return the clients' calls, filtered by their fields or facts (``command="SET"``)."""
        __tracebackhide__ = True
        calls = results_of(
            (entry for entry in self._read() if isinstance(entry, Call)),
            self._recorder.call_fields,
            "call",
        )
        return calls if predicate is None and not where else calls.where(predicate, **where)

    def events(self, kind: str | None = None, **where: Unpack[CloudEventFields]) -> Results[Event]:
        """Return the events, optionally of one kind, filtered by their data.

        Raises ``ContractError`` for a kind that the fakes of this journal never record.
        """
        __tracebackhide__ = True
        events = [entry for entry in self._read() if isinstance(entry, Event)]
        fields = {**self._recorder.event_fields}
        for name in {name for event in events for name in event.data if name not in fields}:
            fields[name] = data_field(name, Field())
        kinds = self._recorder.event_kinds()
        if kinds:
            kinds = kinds.union(event.kind for event in events)
        fields["kind"] = Field(Listed("kind of event", lambda: kinds))
        query = Query({**where} if kind is None else {"kind": kind, **where}, fields, "event")
        return results_of(filter(query, events), fields, "event")

    def assert_called(
        self,
        what: str | re.Pattern[str] | None = None,
        *,
        times: int | None = None,
        **where: Unpack[CloudCallFields],
    ) -> Results[Call]:
        """Return the calls that match; fail unless there is at least one, or exactly ``times``.

        ``what`` is ``"POST /path"``, ``"/path"``, or the name of a route or command; ``where`` are
        fields or facts of the call. The failure lists the most similar calls and their differences. It
        leaves out the commands with which clients set up connections, unless a condition names one.
        """
        __tracebackhide__ = True
        fields = self._recorder.call_fields
        conditions: dict[str, object] = {**where}
        if what is not None:
            field_type = CallNames(self._recorder.words)
            field_type.check("what", what)
            names = Field(field_type, NamesOf, several=True, bare=True, parts=NamesOf.each_command)
            fields = {**fields, "what": names}
            conditions = {"what": what, **where}
        return expect(
            "a call",
            self.calls(),
            Query(conditions, fields, "call"),
            times=times,
            if_empty="no client has made a call",
            is_minor=self._recorder.other_handshakes(conditions),
        )

    def assert_not_called(
        self, what: str | re.Pattern[str] | None = None, **where: Unpack[CloudCallFields]
    ) -> None:
        """Fail if any call matches."""
        __tracebackhide__ = True
        self.assert_called(what, times=0, **where)
