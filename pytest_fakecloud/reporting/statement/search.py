"""The search for what a failing statement read: the data of the fakes at which it looked, what the
application read in the calls whose results it compared, or the deliveries that filled a list that it
compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import CodeType

from ...core.functions import codes_of_application
from ...core.recorder import Look
from ..accesses import Sought
from ..contract import functions_of
from ..errors import collected
from ..lookups import records_of
from ..model import OrderedAccess
from ..observed import ObservedTest
from .by_calls import calls_from, read_by_rows, sought_of
from .by_looks import look_text, looks_from, sought_by
from .by_values import compared_data
from .failed import (
    FailedStatement,
    changing,
    failed_statements,
    has_failed_statement,
    promise_looks,
)
from .read_data import ChangedByFunctions, LastAccess, LookedAt, NamedData, ReadData, UnwrittenKind


def read_by_statement(test: ObservedTest) -> ReadData | None:
    """Return what the innermost of the failed statements read that read anything, or else the last call;
    None if no row accessed data.
    """
    if not test.accesses and not any(row.source.delivery for row in test.rows):
        return None
    promised, handled = promise_looks(test.raised), _deliveries_by_handler(test)
    statements = list(failed_statements(test.raised))
    for statement in statements:
        read_data = _looked_or_called(statement, promised, test)
        read_data = read_data or _changed(statement, handled, test)
        if read_data is not None:
            return _with_unwritten(read_data, test.accesses)
    return _last_access(statements, test, is_of_statement=has_failed_statement(test.raised))


def read_by_other_process(test: ObservedTest, read: Iterable[object]) -> ReadData | None:
    """Return what a failing statement of another process compared, given the names and the values of
    `compared_data()`, or else what the test has looked at last if no row accessed data later, or else
    what the last row accessed; None without all of these.
    """
    until, numbers = dict[Sought, int](), set[int]()
    masked = map(test.lookups.mask.value, read)
    for compared in compared_data(masked, test):
        until[compared.sought] = max(compared.until, until.get(compared.sought, 0))
        numbers.update(() if compared.row is None else [compared.row])
    named = NamedData(sought=tuple(until), row_numbers=tuple(sorted(numbers)), until=until)
    read_data = named if until else _looked_at_last(test)
    if read_data is None:
        return _last_access((), test, is_of_statement=True)
    return _with_unwritten(read_data, test.accesses)


def _looked_or_called(
    statement: FailedStatement, promised: Sequence[Look], test: ObservedTest
) -> ReadData | None:
    """Return what a statement looked at, and what the calls read whose results it compared, given the
    looks of a broken promise that it passed to an exploration::

    assert kv_server.value("stock") == 1  # It looked.
    answer = client.get("stock")
    assert answer == "1"  # A line close to it called.
    """
    looks, numbers = _looks_and_calls(statement, promised, test)
    called = read_by_rows(numbers, test)
    read_at = [look.place for look in looks]
    read_at += [place for number in numbers for place in test.places.get(number, ())]
    assigned_at = statement.assigned_at(read_at)
    if not looks:
        read_data = replace(called, place=statement.place, assigned_at=assigned_at)
        return read_data if called.sought else None
    sought = tuple(dict.fromkeys([*sought_by(looks, test), *called.sought]))
    if not sought:
        return None
    # A promise can be looked at again after it was broken, by trials that confirm the cause.
    last = max(look.number for look in promised or looks)
    until = {data: max(called.until.get(data, 0), last) for data in sought}
    texts = tuple(dict.fromkeys(look_text(look, test.lookups.mask) for look in looks))
    return LookedAt(
        sought=sought, place=statement.place, assigned_at=assigned_at, row_numbers=numbers,
        until=until, looks=texts,
    )  # fmt: skip


def _looks_and_calls(
    statement: FailedStatement, promised: Sequence[Look], test: ObservedTest
) -> tuple[list[Look], tuple[int, ...]]:
    """Return all looks of a statement, and the numbers of the calls of its closest group of lines that
    made calls. Calls on lines that are less close than a look made something else.
    """
    all_looks = list(records_of(test.cloud).looks)
    looks, numbers = list(promised), tuple[int, ...]()
    for group in statement.groups:
        looks += looks_from(all_looks, group, repeats=statement.repeats)
        if not looks and not numbers:
            numbers = calls_from(group, test)
    return looks, numbers


def _changed(
    statement: FailedStatement, handled: Mapping[CodeType, Sequence[int]], test: ObservedTest
) -> ReadData | None:
    """Return what functions read that changed an object which a statement compares::

    def handle(request): sent.append(request.json())  # a handler of deliveries
    def load(): loaded.append(client.get("stock"))
    assert (sent, loaded) == ([], [])
    """
    codes = {code for places in test.places.values() for code, _ in places}
    group = changing(statement, codes, handled)
    # A view of an application that the statement uses may change what another view returns.
    used = frozenset[CodeType]().union(*(own.codes for own in statement.groups))
    views = used & codes & handled.keys()
    functions = group.codes | views
    # Deliveries to a handler filled the list, and not what the handler read for them.
    delivered = sorted({number for code in functions for number in handled.get(code, ())})
    read = read_by_rows(tuple(delivered) or calls_from(group, test), test)
    by = tuple(sorted({code.co_name for code in functions}))
    return ChangedByFunctions(
        sought=read.sought, place=statement.place, row_numbers=read.row_numbers, until=read.until,
        is_read=read.is_read, earlier=read.earlier, by=by,
    ) if read.sought else None  # fmt: skip


def _deliveries_by_handler(test: ObservedTest) -> dict[CodeType, list[int]]:
    """Return the numbers of the deliveries to each function of the application that a destination
    calls, by its code.
    """
    numbers: dict[CodeType, list[int]] = {}
    for fake in test.fakes:
        rows = [row for row in test.rows
                if (own := row.source.delivery) and own.event.fake == fake.name]  # fmt: skip
        handlers = functions_of(fake.service).deliveries.handlers
        failed = f"what receives deliveries of {fake.name} cannot be shown"
        for functions, delivered in collected(failed, test.errors, handlers, fake, rows):
            for code in codes_of_application(functions if delivered else ()):
                numbers.setdefault(code, []).extend(delivered)
    return numbers


def _looked_at_last(test: ObservedTest) -> LookedAt | None:
    """Return what the test's last look read; None if a row accessed data later, or without a look."""
    looks = list(records_of(test.cloud).looks)[-1:]
    sought = tuple(sought_by(looks, test))
    if not sought or (test.accesses and looks[0].number < test.accesses[-1].order):
        return None
    until = dict.fromkeys(sought, looks[0].number)
    return LookedAt(sought=sought, looks=(look_text(looks[0], test.lookups.mask),), until=until)


def _last_access(
    statements: Sequence[FailedStatement], test: ObservedTest, *, is_of_statement: bool
) -> LastAccess | None:
    """Return what the last row accessed, with the rows of the same request or delivery::

    client.set("stock", "1")
    assert total == 2  # Nothing says where the total is from.
    """
    if not test.accesses:
        return None
    last = test.accesses[-1].row
    accesses = [
        ordered.access for ordered in test.accesses
        if ordered.row is last or (last.parent and ordered.row.parent == last.parent)
    ]  # fmt: skip
    parent = test.by_number.get(last.parent)
    # The response to a request depends on what it read; the effect of a delivery is what it wrote.
    is_in_request = parent is not None and parent.kind == "request"
    preferred = [access for access in accesses if access.writes != is_in_request]
    sought = tuple(dict.fromkeys(sought_of(preferred or accesses)))
    place, rows = statements[0].place if statements else None, (last.number,)
    return LastAccess(sought=sought, place=place, row_numbers=rows, is_of_statement=is_of_statement)


def _with_unwritten(read_data: ReadData, accesses: Iterable[OrderedAccess]) -> ReadData:
    """Return what a statement read, with the data that no row had written by then."""
    if not read_data.read_values:
        return read_data
    writes = [own for own in accesses if own.access.is_effective_write]
    unwritten: dict[Sought, UnwrittenKind] = {}
    for sought in read_data.sought:
        orders = [ordered.order for ordered in writes if sought.covers(ordered.access)]
        if not orders:
            unwritten[sought] = "never"
        # A fake itself may write what it delivers, as that of a schedule.
        elif not sought.subject.kind.is_delivered and min(orders) > read_data.until.get(sought, 0):
            unwritten[sought] = "later"
    return replace(read_data, unwritten=unwritten)
