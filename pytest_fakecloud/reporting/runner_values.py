"""The data that a failing statement of another process compared, found by the names and values that the
test's runner sent: the rows that returned or wrote them.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from .contract import ExchangedValues
from .errors import contained
from .model import JournalNumber, OrderedAccess, Sought
from .observed import ObservedTest

_COMMON = frozenset({None, (bool, True), (bool, False), 0, 1, "", "OK", (list,), (dict,)})
"""Values, as `_nodes()` adds them, that calls return whatever data they are about."""
_TRAILING_COMMA = re.compile(r",(?=\s*[\]}])")


class ComparedData(NamedTuple):
    """Data that a statement compared. ``until`` is when it was read last, ``row`` the row that returned
    or wrote the value; None if the data was named.
    """

    sought: Sought
    until: JournalNumber
    row: JournalNumber | None = None


def compared_data(read: Iterable[object], test: ObservedTest) -> Iterator[ComparedData]:
    """Yield the data that names and values stand for.

    A name is that of a subject, or of a part that has an id. A value stands for the data of the last
    row that returned it, or else of the last one that wrote it. One that no row has is compared by its
    parts, such as the items of a list. A value that calls often return, such as null, counts only if
    the last row returned it.
    """
    values = []
    for item in read:
        named_data = list(_with_name(item, test.accesses)) if isinstance(item, str) and item else []
        yield from named_data
        if not named_data:
            values.append(_parsed(item))
    if values and test.accesses:
        yield from _RowValues(test).data_of(values)


def _with_name(name: str, accesses: Sequence[OrderedAccess]) -> Iterator[ComparedData]:
    # The statement itself may have looked at the data, without a call.
    end = max((ordered.order for ordered in accesses), default=0)
    for subject, part in dict.fromkeys(
        (ordered.access.subject, ordered.access.part) for ordered in accesses
    ):
        if subject.name == name:
            yield ComparedData(Sought(subject), end)
        elif part == name and subject.kind.has_value and subject.kind.parts_have_ids:
            yield ComparedData(Sought(subject, part), end)


_Exchanges: TypeAlias = "dict[Hashable, tuple[int, ExchangedValues]]"
"""The last row that had a value, and what it exchanged."""


class _RowValues:
    """The rows that accessed data, with the values that they sent and got back."""

    def __init__(self, test: ObservedTest) -> None:
        self._test = test
        self._last = test.accesses[-1].row.number
        self._accesses: dict[int, list[OrderedAccess]] = {}
        for ordered in test.accesses:
            self._accesses.setdefault(ordered.row.number, []).append(ordered)

    def data_of(self, values: Sequence[object]) -> Iterator[ComparedData]:
        """Yield the data of the rows that had values, or parts of a value that no row had: of
        ``[{"id": 7}]``, if no row had this list and none its item, that of the last row that had 7.
        """
        returned, written = self._last_with(_nodes_in(values))
        waiting = deque(values)
        while waiting:
            value = waiting.popleft()
            node = _nodes(value, [])
            if exchange := returned.get(node) or written.get(node):
                yield from self._data_of(*exchange)
            else:
                waiting += _parts_of(value)

    def _last_with(self, nodes: set[Hashable]) -> tuple[_Exchanges, _Exchanges]:
        """Return the last row that returned each of these values, and the last that wrote it. Of common
        values, only the last row counts, and only what it returned.
        """
        returned: _Exchanges = {}
        written: _Exchanges = {}
        for row in [row for row in self._test.rows if row.number in self._accesses]:
            accesses = [ordered.access for ordered in self._accesses[row.number]]
            exchanges, errors = list[ExchangedValues](), self._test.errors
            failed = f"commands of {row.peer} cannot be compared"
            with contained(failed, errors):
                exchanges += row.source.values(row, accesses, self._test.lookups)
            rare = nodes - _COMMON
            wanted = nodes if row.number == self._last else rare
            for exchange in exchanges:
                found = row.number, exchange
                returned.update(dict.fromkeys(wanted & _nodes_in(exchange.returned), found))
                written.update(dict.fromkeys(rare & _nodes_in(exchange.sent), found))
        return returned, written

    def _data_of(self, number: int, exchange: ExchangedValues) -> Iterator[ComparedData]:
        until = max(ordered.order for ordered in self._accesses[number])
        accesses = exchange.accesses
        for access in [access for access in accesses if not access.writes] or accesses:
            part = access.part if access.subject.kind.has_value else ""
            yield ComparedData(Sought(access.subject, part), until, number)


def _parsed(value: object) -> object:
    """Return the value of a string with JSON, also as Vitest and Jest print it; another value itself."""
    for text in (value, _TRAILING_COMMA.sub("", value)) if isinstance(value, str) else ():
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return value


def _parts_of(value: object) -> Iterator[object]:
    """Yield the items of a list, or the values of an object of JSON."""
    parts = list(value.values()) if isinstance(value, dict) else value
    yield from map(_parsed, parts) if isinstance(parts, list) else ()


def _nodes_in(values: Iterable[object]) -> set[Hashable]:
    """Return values, and all values inside them, as `_nodes()` adds them."""
    nodes: list[Hashable] = []
    with suppress(RecursionError):
        for value in values:
            _nodes(value, nodes)
    return set(nodes)


def _nodes(value: object, nodes: list[Hashable]) -> Hashable:
    """Return a value in a form that is equal for equal values, a number and its digits among them, and
    add it and all values inside it to ``nodes``.
    """
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    node: Hashable
    if isinstance(value, dict):
        node = (dict, *sorted((str(name), _nodes(item, nodes)) for name, item in value.items()))
    elif isinstance(value, list | tuple):
        node = (list, *(_nodes(item, nodes) for item in value))
    elif isinstance(value, bool):
        node = (bool, value)
    else:
        node = value if isinstance(value, int | float | None) else str(value)
    nodes.append(node)
    return node
