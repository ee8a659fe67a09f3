"""Lists of results that tests inspect, and the assertion that a number of items matches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

from .conditions import checked_count
from .errors import CannotTell, ContractError
from .field_types import ANYTHING
from .matching import Field, Query, Question, fields_of
from .wording import counted

if TYPE_CHECKING:
    # Type checkers derive the fields of ``where()`` from the item's class.
    from .typed import Items
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
            query = Query(fields, self._fields_for(fields), self._kind)
            asked = None if predicate is None else Question("predicate", predicate)
            kept = (item for item in self if query(item) and (asked is None or asked.agrees(item)))
            return self._with_items(kept)

    def _fields_for(self, asked: Mapping[str, object]) -> Mapping[str, Field]:
        if self._fields is not None:
            return self._fields
        if not self:
            # An empty list has no items to derive fields from, so accept any field.
            return dict.fromkeys(asked, Field())
        return _fields_of_items(self)

    def _with_items(self, items: Iterable[T]) -> Results[T]:
        made: Results[T] = Results(items)
        made._fields, made._kind, made._notes = self._fields, self._kind, self._notes
        return made

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
    known: dict[str, Field] = {}
    kinds: Iterable[Any] = dict.fromkeys(map(type, items))
    for kind in kinds:
        if not issubclass(kind, Mapping):
            known |= fields_of(kind)
    for item in items:
        if isinstance(item, Mapping):
            names = [key for key in item if isinstance(key, str)]
        else:
            names = [name for name in getattr(item, "__dict__", ()) if not name.startswith("_")]
        for name in names:
            known.setdefault(name, Field())
    return known


def results_of(items: Iterable[T], fields: Mapping[str, Field], kind: str) -> Results[T]:
    """Return a list of items of a ``kind`` that can be filtered by the given fields."""
    found = Results(items)
    found._fields, found._kind = fields, kind
    return found


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
    notes: Callable[[int], Iterable[str]] = lambda found: (),
    if_empty: str = "there are none",
) -> Results[T]:
    """Return the items that match; fail unless at least one does, or exactly ``times``.

    The failure begins with ``what`` ("a call") and lists the query, the matches, and then the other
    items with their differences, nearest first. ``show`` formats an item, in one or more lines.
    ``not_counted`` are pairs of an item that does not count and the reason. ``notes`` receives the
    number of matches and returns further lines. ``if_empty`` is the line for an empty list. Raises
    ``AssertionError``, ``ContractError`` for an invalid ``times``, and ``CannotTell`` if the result
    depends on items that the journal has cut.
    """
    __tracebackhide__ = True
    checked_count("times", times)
    matched, others, undecided = _sorted_by_match(items, query)
    count = len(matched)
    could_decide = count <= times if times is not None else not count
    if undecided and could_decide:  # the items that the journal has cut could change the result
        raise undecided[0]
    if count == times or (times is None and count):
        return results_of(matched, query.fields, query.kind)
    misses = [(item, query.why_not(item)) for item in others]
    misses += [(item, [*query.why_not(item), why]) for item, why in not_counted]
    lines = [
        _headline(what, query, times, count),
        *_lines_of_matches(matched, show),
        *_lines_of_misses(misses, query, show),
    ]
    if not matched and not misses:
        lines.append(f"  {if_empty}")
    raise AssertionError("\n".join([*lines, *notes(count)]))


def _headline(what: str, query: Query, times: int | None, count: int) -> str:
    asked = str(query)
    expected = (
        "at least once" if times is None else "never" if times == 0 else counted(times, "time")
    )
    return f"expected {what}{f' {asked}' if asked else ''} {expected}, found {count}"


def _sorted_by_match(items: Iterable[T], query: Query) -> tuple[list[T], list[T], list[CannotTell]]:
    """Return the items that match, those that do not, and an error for each item that was cut."""
    matched: list[T] = []
    others: list[T] = []
    undecided: list[CannotTell] = []
    for item in items:
        try:
            if query(item):
                matched.append(item)
            else:
                others.append(item)
        except CannotTell as error:
            undecided.append(error)
    return matched, others, undecided


def _lines_of_matches(matched: list[T], show: Callable[[T], str]) -> Iterator[str]:
    for item in matched[:_LISTED_MATCHES]:
        yield f"  matched: {_indented(show(item))}"
    if len(matched) > _LISTED_MATCHES:
        yield f"  ... and {len(matched) - _LISTED_MATCHES} more that match"


def _lines_of_misses(
    misses: list[tuple[T, list[str]]], query: Query, show: Callable[[T], str]
) -> Iterator[str]:
    ranked = sorted(misses, key=lambda pair: len(pair[1]))
    ranked[:_COMPARED] = sorted(
        ranked[:_COMPARED], key=lambda pair: (len(pair[1]), query.unlikeness(pair[0]))
    )
    for item, why in ranked[:_LISTED_MISSES]:
        yield f"  not {_indented(show(item), '; '.join(why))}"
    if len(ranked) > _LISTED_MISSES:
        yield f"  ... and {len(ranked) - _LISTED_MISSES} more that differ"


def _indented(text: str, why: str = "") -> str:
    first, *more = text.splitlines() or [""]
    return "\n".join([f"{first}: {why}" if why else first, *(f"    {line}" for line in more)])
