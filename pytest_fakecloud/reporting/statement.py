"""What a failing statement read: the data of the fakes at which it looked, what the application read in
the calls whose results it compared, or the deliveries that filled a list that it compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import CodeType

from ..core.calls import Arguments
from ..core.functions import codes_of_application
from ..core.recorder import Look
from . import asserted, reading
from .accesses import OrderedAccess
from .asserted import CodeGroup, FailedStatement
from .calls import collected
from .contract import functions_of
from .lookups import Lookups, records_of
from .model import DataAccess, JournalNumber, ReportRow, Sought
from .observed import ObservedTest
from .reading import ReadByStatement
from .values import shortened
from .values_read import compared_data


def read_by_statement(
    test: ObservedTest, accesses: Sequence[OrderedAccess]
) -> ReadByStatement | None:
    """Return what the failing statement of a test read; None if no row accessed data."""
    if not accesses and not any(row.source.delivery for row in test.rows):
        return None
    return _with_unwritten(_Finder(test, accesses).find(), accesses)


def read_by_other_process(
    test: ObservedTest, accesses: Sequence[OrderedAccess], read: Iterable[object]
) -> ReadByStatement | None:
    """Return what a failing statement of another process compared, given the names and the values of
    `compared_data()`, or else what the test has looked at since the last call, or else what the last
    call accessed; None if no row accessed data.
    """
    masked = map(test.lookups.mask.value, read)
    until, numbers = dict[Sought, int](), set[int]()
    for compared in compared_data(masked, test.rows, accesses, test.lookups):
        until[compared.sought] = max(compared.until, until.get(compared.sought, 0))
        numbers.update(() if compared.row is None else [compared.row])
    finder = _Finder(test, accesses)
    statement: ReadByStatement | None
    if until:
        statement = reading.NamedData(sought=tuple(until), rows=tuple(sorted(numbers)), until=until)
    else:
        statement = finder.looked_at_last() or finder.last_call((), is_of_statement=True)
    return _with_unwritten(statement, accesses)


class _Finder:
    def __init__(self, test: ObservedTest, accesses: Sequence[OrderedAccess]) -> None:
        self._records = records_of(test.cloud)
        self._raised = test.raised
        self._lookups: Lookups = test.lookups
        self._fakes = {fake.name: fake for fake in test.fakes}
        self._rows = {row.number: row for row in test.rows}
        self._accesses = accesses
        self._places = test.places

    def find(self) -> ReadByStatement | None:
        """Return what the innermost of the failed statements read that read anything, or else the last
        call.
        """
        handled, promised = self._deliveries_by_handler(), asserted.promise_looks(self._raised)
        statements = list(asserted.failed_statements(self._raised))
        for statement in statements:
            data_read = self._looked_or_called(statement, promised)
            if data_read is None:
                data_read = self._changed(statement, handled)
            if data_read is not None:
                return data_read
        return self.last_call(statements, asserted.has_failed_statement(self._raised))

    def _looked_or_called(
        self, statement: FailedStatement, promised: Sequence[Look]
    ) -> ReadByStatement | None:
        """Return what a statement looked at, and what the calls read whose results it compared, given
        the looks of a broken promise that it passed to an exploration::

        assert kv_server.value("stock") == 1  # It looked.
        answer = client.get("stock")
        assert answer == "1"  # A line close to it called.
        """
        looks = list(self._records.looks)
        own_looks, numbers = list(promised), tuple[int, ...]()
        for group in statement.groups:
            at = asserted.latest([look.place for look in looks], group, repeats=statement.repeats)
            own_looks += [looks[index] for index in at]
            # Calls on lines that are less close than a look, or than other calls, made something else.
            if not own_looks and not numbers:
                numbers = self._made_from(group)
        called = self._read_by(numbers)
        if not own_looks:
            return replace(called, place=statement.place) if called.sought else None
        # A promise can be looked at again after it was broken, by trials that confirm the cause.
        last = max(look.number for look in promised or own_looks)
        sought = tuple(dict.fromkeys((*self._sought(own_looks), *called.sought)))
        if not sought:
            return None
        return reading.LookedAt(
            sought=sought,
            place=statement.place,
            rows=numbers,
            until={data: max(called.until.get(data, 0), last) for data in sought},
            looks=tuple(dict.fromkeys(map(self._shown, own_looks))),
        )

    def _changed(
        self, statement: FailedStatement, handled: Mapping[CodeType, Sequence[int]]
    ) -> ReadByStatement | None:
        """Return what functions read that changed an object which a statement compares::

        def handle(request): sent.append(request.json())  # a handler of deliveries
        def load(): loaded.append(client.get("stock"))
        assert (sent, loaded) == ([], [])
        """
        codes = {code for places in self._places.values() for code, _ in places}
        group = asserted.changing(statement, codes, handled)
        # Deliveries to a handler filled the list, and not what the handler read for them.
        delivered = sorted({number for code in group.codes for number in handled.get(code, ())})
        numbers = tuple(delivered) or self._made_from(group)
        by = tuple(sorted({code.co_name for code in group.codes}))
        read = self._read_by(numbers)
        return reading.ChangedByCallers(
            sought=read.sought, place=statement.place, rows=numbers, until=read.until,
            is_read=read.is_read, earlier=read.earlier, by=by,
        ) if read.sought else None  # fmt: skip

    def _read_by(self, numbers: tuple[int, ...]) -> reading.ReadByCalls:
        """Return what calls read, or wrote if they read nothing, and what earlier equal ones read."""
        accesses = [ordered for ordered in self._accesses if ordered.row.number in numbers]
        reads = [ordered.access for ordered in accesses if ordered.access.reads]
        data = tuple(dict.fromkeys(_sought_of(reads or [ordered.access for ordered in accesses])))
        earlier = tuple(
            read for read in dict.fromkeys(self._read_earlier(numbers)) if read not in data
        )
        until: dict[Sought, JournalNumber] = {}
        for read in data + earlier:
            covered = [ordered for ordered in accesses if read.covers(ordered.access)]
            last = [ordered.order for ordered in covered if ordered.access.reads]
            until[read] = max(last or [ordered.order for ordered in covered], default=0)
        return reading.ReadByCalls(
            sought=data + earlier, rows=numbers, until=until, earlier=earlier, is_read=bool(reads)
        )

    def looked_at_last(self) -> ReadByStatement | None:
        """Return what the test has looked at since the last call; None if it has not."""
        looks = list(self._records.looks)[-1:]
        sought = tuple(dict.fromkeys(self._sought(looks)))
        if not sought or (self._accesses and looks[0].number < self._accesses[-1].order):
            return None
        until = dict.fromkeys(sought, looks[0].number)
        return reading.LookedAt(sought=sought, looks=(self._shown(looks[0]),), until=until)

    def last_call(
        self, statements: Sequence[FailedStatement], is_of_statement: bool
    ) -> reading.LastCall | None:
        """Return what the last row accessed, with the rows of the same request or delivery::

        client.set("stock", "1")
        assert total == 2  # Nothing says where the total is from.
        """
        if not self._accesses:
            return None
        last = self._accesses[-1].row
        accesses = [
            ordered for ordered in self._accesses
            if ordered.row is last or (last.cause and ordered.row.cause == last.cause)
        ]  # fmt: skip
        cause = self._rows.get(last.cause)
        # The response to a request depends on what it read; the effect of a delivery is what it wrote.
        is_request = cause is not None and cause.kind == "request"
        preferred = [ordered.access for ordered in accesses if ordered.access.writes != is_request]
        sought = tuple(
            dict.fromkeys(_sought_of(preferred or [ordered.access for ordered in accesses]))
        )
        place = statements[0].place if statements else None
        return reading.LastCall(
            sought=sought, place=place, rows=(last.number,), is_of_statement=is_of_statement
        )

    def _deliveries_by_handler(self) -> dict[CodeType, list[int]]:
        """Return the numbers of the deliveries to each function of the application that a destination
        calls, by its code.
        """
        numbers: dict[CodeType, list[int]] = {}
        for fake in self._fakes.values():
            rows = [row for row in self._rows.values()
                    if (own := row.source.delivery) and own.event.fake == fake.name]  # fmt: skip
            handlers = functions_of(fake.service).deliveries.handlers
            failed = f"what receives deliveries of {fake.name} cannot be shown"
            for functions, delivered in collected(
                failed, self._lookups.errors, handlers, fake, rows
            ):
                for code in codes_of_application(functions if delivered else ()):
                    numbers.setdefault(code, []).extend(delivered)
        return numbers

    def _made_from(self, group: CodeGroup) -> tuple[int, ...]:
        """Return the numbers of the calls and requests that were made from lines or functions of a
        group, and of the calls that these requests made.
        """
        places_of = {
            number: self._places[number] for number in self._rows if number in self._places
        }
        # Other statements may call the same functions, so the lines of the group itself come first.
        numbers = (
            {number for number, places in places_of.items() if any(map(group.spans_have, places))}
            or {number for number, places in places_of.items() if any(map(group.has, places))}
        )  # fmt: skip
        caused = (number for number, row in self._rows.items() if row.cause in numbers)
        return tuple(sorted(numbers.union(caused)))

    def _sought(self, looks: Iterable[Look]) -> list[Sought]:
        data: list[Sought] = []
        for look in looks:
            if (fake := self._fakes.get(look.fake)) is not None:
                sought = functions_of(fake.service).sought
                failed = f"what {self._shown(look)} read cannot be shown"
                looked_at = collected(
                    failed, self._lookups.errors, sought, fake, look.method, look.arguments
                )
                data += map(self._lookups.mask.sought, looked_at)
        return data

    def _shown(self, look: Look) -> str:
        return self._lookups.mask.text(
            f"{look.fake}.{look.method}({_shown_arguments(look.arguments)})"
        )

    def _read_earlier(self, numbers: Sequence[int]) -> Iterator[Sought]:
        """Yield what requests that equal calls had read before: a query may have lost a result."""
        for number in numbers:
            request = _request_of(self._rows[number])
            earlier = [ordered for ordered in self._accesses
                       if request and ordered.row.number not in numbers and not ordered.access.writes
                       and ordered.order < number and _request_of(ordered.row) == request]  # fmt: skip
            newest = max((ordered.row.number for ordered in earlier), default=0)
            yield from _sought_of(
                ordered.access for ordered in earlier if ordered.row.number == newest
            )


def _with_unwritten(
    statement: ReadByStatement | None, accesses: Iterable[OrderedAccess]
) -> ReadByStatement | None:
    """Return what a statement read, with the data that no row had written by then."""
    if statement is None or not statement.has_value:
        return statement
    writes = [own for own in accesses if own.access.writes and own.access.succeeded is not False]
    unwritten: dict[Sought, reading.UnwrittenKind] = {}
    for sought in statement.sought:
        orders = [ordered.order for ordered in writes if sought.covers(ordered.access)]
        if not orders:
            unwritten[sought] = "never"
        elif min(orders) > statement.until.get(sought, 0):
            unwritten[sought] = "later"
    return replace(statement, unwritten=unwritten)


def _sought_of(accesses: Iterable[DataAccess]) -> Iterator[Sought]:
    for access in accesses:
        yield Sought(access.subject, access.part if access.subject.kind.has_value else "")


def _request_of(row: ReportRow) -> object:
    """Return what is equal in calls that ask the same; None for any other row."""
    call = row.source.call
    return None if call is None else (call.fake, call.target, call.request_body)


def _shown_arguments(arguments: Arguments) -> str:
    positional, named = arguments
    texts = [shortened(repr(value), 60) for value in positional]
    return ", ".join(
        [*texts, *(f"{name}={shortened(repr(value), 60)}" for name, value in named.items())]
    )
