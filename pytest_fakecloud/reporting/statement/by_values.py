"""The data that a failing statement of another process compared, found by the names and values that the
test's runner sent: the rows that returned or wrote them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from ...core.json_values import decoded_value, node_of, nodes_in, parts_of
from ..accesses import JournalNumber, Sought
from ..contract import ExchangedValues
from ..errors import contained
from ..model import OrderedAccess
from ..observed import ObservedTest

_COMMON = frozenset({None, (bool, True), (bool, False), 0, 1, "", "OK", (list,), (dict,)})
"""Values, as `node_of()` adds them, that calls return whatever data they are about."""


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
            values.append(decoded_value(item))
    if values and test.accesses:
        yield from _RowValues(test).data_of(values)


def _with_name(name: str, accesses: Sequence[OrderedAccess]) -> Iterator[ComparedData]:
    # The statement itself may have looked at the data, without a call.
    end = max((ordered.order for ordered in accesses), default=0)
    parts = dict.fromkeys((own.access.subject, own.access.part) for own in accesses)
    for subject, part in parts:
        if subject.name == name:
            yield ComparedData(Sought(subject), end)
        elif part == name and subject.kind.has_value and subject.kind.parts_have_ids:
            yield ComparedData(Sought(subject, part), end)


_LastExchanges: TypeAlias = "dict[Hashable, tuple[int, ExchangedValues]]"
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
        returned, written = self._last_with(nodes_in(values))
        waiting = deque(values)
        while waiting:
            value = waiting.popleft()
            node = node_of(value)
            if exchange := returned.get(node) or written.get(node):
                yield from self._data_of(*exchange)
            else:
                waiting += parts_of(value)

    def _last_with(self, nodes: set[Hashable]) -> tuple[_LastExchanges, _LastExchanges]:
        """Return the last row that returned each of these values, and the last that wrote it. Of common
        values, only the last row counts, and only what it returned.
        """
        returned: _LastExchanges = {}
        written: _LastExchanges = {}
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
                returned.update(dict.fromkeys(wanted & nodes_in(exchange.returned), found))
                written.update(dict.fromkeys(rare & nodes_in(exchange.sent), found))
        return returned, written

    def _data_of(self, number: int, exchange: ExchangedValues) -> Iterator[ComparedData]:
        until = max(ordered.order for ordered in self._accesses[number])
        accesses = exchange.accesses
        for access in [access for access in accesses if not access.writes] or accesses:
            part = access.part if access.subject.kind.has_value else ""
            yield ComparedData(Sought(access.subject, part), until, number)
