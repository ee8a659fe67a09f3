"""The history of the data that a failing statement compared: who wrote it, when, and from what.

The history lists what happened and explains nothing: it begins with the data at which the failing
statement looked, lists the writes of this data, and for each write the data from which the same
request, delivery or step has read the value, and the writes of that. `history_wording` has its words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..cloud.fake import Fake
from ..cloud.services import report_part
from ..core.calls import Arguments, Call, ReplayedScript, executed_at, on_connection
from ..core.errors import FakecloudError, listed
from ..core.frames import place_at
from ..core.recorder import Look, SharedRecords
from ..inspect.data import state_of
from .applications import ServedRequest
from .asserted import (
    ComparedItems,
    FailedStatement,
    LineGroup,
    application_places,
    changing,
    codes_of,
    compared_items,
    failed_statements,
    has_failed_statement,
    latest,
    promise_looks,
)
from .calls import Lookups, records_of
from .losses import with_losses
from .model import (
    DataAccess,
    ExpectedItem,
    Gap,
    HistoryRow,
    HistoryStart,
    Origin,
    Place,
    ReportRow,
    ReportSubject,
    Sought,
    StartKind,
    UnwrittenKind,
    ValueHistory,
)
from .replayed import baseline_of
from .values import NUMBER, parsed, readable, shortened, shortened_json, words_of

if TYPE_CHECKING:
    from .report import ObservedTest

MOST_ROWS = 12
"""Maximum number of rows in a history, without those of deliveries that wrote nothing and of data with
a similar name.
"""
_OF_SUBJECT = 8
"""Maximum number of writes of one subject that the failing statement compared: the newest."""
_OF_ORIGIN = 2
"""Maximum number of writes of a value from which another one was made."""
_READ_BEFORE = 2
"""Maximum number of reads that are origins of a write without having returned its value."""
_IDLE = 2
"""Maximum number of deliveries and requests that wrote nothing although others to the same URL did."""
_COUNTED = 3
"""Number of equal writes in succession from which on one row stands for all, whatever they returned."""
_UNWRITTEN = 4
"""Number of the last writes that are listed if nothing wrote the data."""
_READS = 3
"""Number of the last reads that are listed of the calls that made the compared value."""
_STEPS = 3
_GAPS = 3


class TimedAccess(NamedTuple):
    """An access of a row, and the time; ``order`` is the journal number at which it happened."""

    order: int
    row: ReportRow
    access: DataAccess
    at_us: int


def history_of(test: ObservedTest, rows: Sequence[ReportRow]) -> ValueHistory | None:
    """Return the history of a failed test; None if none of its calls accessed data."""
    builder = _HistoryBuilder(test, rows)
    start = builder.start(list(failed_statements(test.raised)), promise_looks(test.raised))
    if start is None:
        return None
    return builder.history(replace(start, is_of_statement=has_failed_statement(test.raised)))


class _HistoryBuilder:
    def __init__(self, test: ObservedTest, rows: Sequence[ReportRow]) -> None:
        cloud, lookups = test.cloud, _with_scripts(test)
        self._records: SharedRecords = records_of(cloud)
        self._fakes = {fake.name: fake for fake in cloud._context.fakes}
        self._rows = {row.number: row for row in rows}
        self._lookups = lookups
        stacks = {number: application_places(stack.places)
                  for number, stack in self._records.stacks.items()}  # fmt: skip
        sites = {number: site.places for number, site in self._records.sites.items()}
        requests = {row.number: application_places(row.entry.stack.places) for row in rows
                    if isinstance(row.entry, ServedRequest) and row.entry.stack}  # fmt: skip
        self._places = {**requests, **stacks, **sites}
        self._handled = self._deliveries_by_handler()
        uses = [use for row in rows for use in _uses_of(row, lookups, self._rows.get(row.follows))]
        uses += self._expiries(test, uses)
        self.uses = sorted(uses, key=lambda use: use.order)
        self._by_activity: dict[object, list[TimedAccess]] = {}
        self._writes: dict[tuple[str, str], list[TimedAccess]] = {}
        """The writes of each kind of data in each fake."""
        for use in self.uses:
            if use.access.writes:
                kind = use.access.subject.kind, use.access.subject.fake
                self._writes.setdefault(kind, []).append(use)
            is_own = self._is_activity(use.row.number)
            activity = use.row.number if is_own else self._activity(use.row)
            self._by_activity.setdefault(activity, []).append(use)
        self._texts: tuple[str, ...] = ()
        """The source of the failing statement, which may name a part."""
        self._failed_at: Place | None = None
        self._cloud, self._comparison = cloud, test.compared
        self._items = ComparedItems()
        self._stored: dict[tuple[str, bool], _Stored | None] = {}
        """What each fake contains, and its baseline (true)."""

    def _expiries(self, test: ObservedTest, uses: Sequence[TimedAccess]) -> list[TimedAccess]:
        """Return the expiries of keys: each follows the last access before it."""
        expired: list[TimedAccess] = []
        for fake in test.fakes:
            expiries = report_part(fake.fixture, "expiries")
            for number, at_us, access in expiries(test, fake) if expiries else ():
                if number in self._rows:
                    order = max((use.order for use in uses if use.at_us < at_us), default=0)
                    expired.append(TimedAccess(order, self._rows[number], access, at_us))
        return expired

    def _deliveries_by_handler(self) -> dict[CodeType, list[int]]:
        """Return the numbers of the deliveries to each function that is a destination, by its code."""
        numbers: dict[CodeType, list[int]] = {}
        for fake in self._fakes.values():
            handlers = report_part(fake.fixture, "handlers")
            for handler, message_ids in handlers(fake) if handlers else ():
                delivered = [row.number for row in self._rows.values()
                             if row.delivery is not None and row.delivery.fake == fake.name
                             and row.delivery.data.get("message_id") in message_ids]  # fmt: skip
                for code in codes_of([handler] if delivered else []):
                    numbers.setdefault(code, []).extend(delivered)
        return numbers

    # -- the start -------------------------------------------------------------------------------

    def start(
        self, statements: Sequence[FailedStatement], promised: Sequence[Look] = ()
    ) -> HistoryStart | None:
        """Return where the history starts; None if no data was accessed. ``promised`` are the looks of
        a broken promise that a statement passed to an exploration.
        """
        looks = list(self._records.looks)
        codes = {code for places in self._places.values() for code, _ in places}
        for statement in statements:
            chosen = list(promised)
            numbers: tuple[int, ...] = ()
            for group in statement.groups:
                at = latest([look.place for look in looks], group, repeats=statement.repeats)
                chosen += [looks[index] for index in at]
                numbers = numbers or (() if chosen else self._made_from(group))
            kind: StartKind = "looked" if chosen else "called"
            start = self._start_of_calls(kind, statement, numbers)
            sought = _unique([*self._sought(chosen), *start.sought])
            if sought:
                self._texts = (statement.whole,)
                self._items = self._items_of(statement)
                shown = tuple(dict.fromkeys(map(self._shown, chosen)))
                # A promise can be looked at again after it was broken, by trials that confirm the cause.
                until = max((look.number for look in promised or chosen), default=None)
                return replace(start, sought=sought, looks=shown, until=until)
            group = changing(statement, {*codes, *self._handled})
            handled = (number for code in group.codes for number in self._handled.get(code, ()))
            numbers = self._made_from(group) or tuple(sorted(handled))
            start = self._start_of_calls("changed", statement, numbers)
            if start.sought:
                self._items = self._items_of(statement)
                return replace(start, by=tuple(sorted({code.co_name for code in group.codes})))
        if not self.uses:
            return None
        place = statements[0].place if statements else None
        last = self.uses[-1].row
        uses = [use for use in self.uses if self._activity(use.row) == self._activity(last)
                and (last.cause or use.row is last)]  # fmt: skip
        # The response to a request depends on what it read; the effect of a delivery is what it wrote.
        is_request = last.cause and self._rows[last.cause].kind == "request"
        preferred = [use.access for use in uses if use.access.writes is not is_request]
        accesses = list(_with_data(preferred)) or [use.access for use in uses]
        return HistoryStart("last_call", _unique(_sought_of(accesses)), place, (), (last.number,))

    def _items_of(self, statement: FailedStatement) -> ComparedItems:
        """Return the items that a failed statement compared, if all that it asserts is an equality."""
        comparison = self._comparison
        if comparison is None or comparison.code is not statement.code or not statement.is_equation:
            return ComparedItems()
        with suppress(Exception):  # of the values' own methods
            return compared_items(comparison.left, comparison.right)
        return ComparedItems()

    def _start_of_calls(
        self, kind: StartKind, statement: FailedStatement, numbers: tuple[int, ...]
    ) -> HistoryStart:
        """Return a start at what calls read, or what they wrote if they read nothing; and at what equal
        requests had read before.
        """
        accesses = [use.access for use in self.uses if use.row.number in numbers]
        reads = list(_with_data(access for access in accesses if not access.writes))
        sought = _unique(_sought_of(reads or accesses))
        earlier = [read for read in _unique(self._read_earlier(numbers)) if read not in sought]
        return HistoryStart(
            kind, (*sought, *earlier), statement.place, (), numbers,
            earlier=tuple(earlier), is_read=bool(reads),
        )  # fmt: skip

    def _made_from(self, group: LineGroup) -> tuple[int, ...]:
        """Return the numbers of the calls and requests that were made from lines or functions of a
        group, and of the calls that these requests made.
        """
        shown = {number: places for number, places in self._places.items() if number in self._rows}
        # Other statements may call the same functions, so the lines of the group itself come first.
        numbers = {
            number for number, places in shown.items() if any(map(group.spans_have, places))
        } or {number for number, places in shown.items() if any(map(group.has, places))}
        caused = (number for number, row in self._rows.items() if row.cause in numbers)
        return tuple(sorted(numbers.union(caused)))

    def _sought(self, looks: Iterable[Look]) -> Iterator[Sought]:
        for look in looks:
            part = report_part(getattr(self._fakes.get(look.fake), "fixture", ""), "accesses")
            if part is not None:
                yield from part.sought(self._fakes[look.fake], look.method, look.arguments)

    def _shown(self, look: Look) -> str:
        return self._lookups.mask.text(
            f"{look.fake}.{look.method}({_shown_arguments(look.arguments)})"
        )

    def _read_earlier(self, numbers: Sequence[int]) -> Iterator[Sought]:
        """Yield what requests that equal calls had read before."""
        for number in numbers:
            request = _request_of(self._rows[number])
            earlier = [use for use in self.uses
                       if request and use.row.number not in numbers and not use.access.writes
                       and use.order < number and _request_of(use.row) == request]  # fmt: skip
            newest = max((use.row.number for use in earlier), default=0)
            yield from _sought_of(use.access for use in earlier if use.row.number == newest)

    # -- the history -----------------------------------------------------------------------------

    def history(self, start: HistoryStart) -> ValueHistory:
        rows: list[HistoryRow] = []
        runs_of_sought: list[list[TimedAccess]] = []
        self._failed_at = start.place
        expected = self._as_expected(start)
        shows_reads = start.kind != "last_call" and bool(start.looks or start.is_read)
        for sought in start.sought:
            if sought in expected:
                continue
            writes = self._of_named_parts(self._writes_of(sought))
            until = self._read_until(start, sought)
            if start.kind == "called":
                # What the same request wrote after its read did not change what was compared.
                writes = [use for use in writes if use.order <= until
                          or use.row.number not in start.rows or self._is_event(use)]  # fmt: skip
            runs = self._runs(writes)
            runs_of_sought += runs
            read = {(use.access.subject, use.access.part): use for use in writes
                    if use.access.succeeded is not False and use.order <= until
                    and use.access.subject.kind in _WITH_PARTS}  # fmt: skip
            runs = runs[-_OF_SUBJECT:] + self._elsewhere(sought, runs)
            for run in runs:
                is_read = shows_reads and any(use in read.values() for use in run)
                rows.append(self._row(run, 0, is_read=is_read))
        rows = _first_uses(rows)
        unwritten: dict[Sought, UnwrittenKind] = {}
        if not rows:
            unwritten = {sought: self._unwritten_kind(sought) for sought in start.sought}
            writes = [use for use in self.uses if use.access.writes]
            kinds = {(sought.subject.kind, sought.subject.fake) for sought in start.sought}
            alike = [use for use in writes
                     if (use.access.subject.kind, use.access.subject.fake) in kinds]  # fmt: skip
            last = self._runs(alike or writes)[-_UNWRITTEN:]
            rows = _first_uses([self._row(run, 0, is_read=False) for run in last])
            # They are other data, so that only sources of their values tell something.
            rows = [replace(row, origins=tuple(origin for origin in row.origins if origin.has_value))
                    for row in rows]  # fmt: skip
        reads = self._reads(start, expected)
        most = MOST_ROWS - len(reads)
        rows = _in_order(rows)[-most:] if len(rows) > most else rows
        rows = [*self._with_repeated_reads(rows), *self._idle(rows)]
        rows = _in_order(self._with_origins(rows, most) + reads)
        activities = {self._activity(self._rows[row.number]) for row in rows}
        activities |= {self._activity(self._rows[number]) for number in start.rows}
        used = {(origin.number, origin.access.subject) for row in rows for origin in row.origins}
        gaps = [*self._gaps(start, activities, used)]
        # What a listed write was made after tells more than what the same request did for other data.
        gaps = [gap for gap in gaps if (gap.row, gap.access.subject) in used] or gaps
        gaps = [*gaps, *self._undeleted(rows), *self._unsent(rows)][:_GAPS]
        rows = _with_callers(_in_order([*rows, *self._missed(gaps, rows)]))
        written = {(use.row.number, use.access.subject, use.access.what) for use in self.uses
                   if use.access.writes}  # fmt: skip
        rows = with_losses(self._cloud, rows, written, self._pure_reads())
        causes = [self._rows[row.cause] for row in rows if self._is_activity(row.cause)]
        addresses = set(map(_target, causes))
        subjects_read = frozenset(
            use.access.subject for cause in self._rows.values()
            if self._is_activity(cause.number) and _target(cause) in addresses
            for use in self._by_activity.get(cause.number, ()) if not use.access.writes
        )  # fmt: skip
        return ValueHistory(
            start, tuple(rows), tuple(gaps), _left_out(runs_of_sought, rows), unwritten,
            tuple(self._expected_items(expected)), subjects_read,
            frozenset(self._touched(start, rows)),
        )  # fmt: skip

    def _touched(self, start: HistoryStart, rows: Sequence[HistoryRow]) -> Iterator[int]:
        """Yield the numbers of the rows that accessed the data of a history: what the statement
        compared, what the rows wrote, and what this was made from.
        """
        accesses = [row.access for row in rows]
        accesses += [origin.access for row in rows for origin in row.origins]
        parts: dict[ReportSubject, set[str]] = {}
        for access in _with_data(accesses):
            parts.setdefault(access.subject, set()).add(access.part)
        for sought in start.sought:
            parts.setdefault(sought.subject, set()).add(sought.part)
        patterns = [sought for sought in start.sought if "*" in sought.subject.name]
        for use in self.uses:
            own = parts.get(use.access.subject, set())
            is_same = bool(own) and (not use.access.part or bool(own & {"", use.access.part}))
            if is_same or any(sought.covers(use.access) for sought in patterns):
                yield use.row.number

    def _is_event(self, use: TimedAccess) -> bool:
        """Return whether an access is an event that its call caused, and thus precedes the answer."""
        event = self._rows.get(use.order)
        return event is not None and event.follows == use.row.number

    def _as_expected(self, start: HistoryStart) -> dict[Sought, str]:
        """Map sought data to the item that was as expected and is its name or a value read from it, if
        other sought data has the name or a value of an item that was not as expected.
        """
        keys, elements, differing = map(_names_in, self._items)
        expected: dict[Sought, str] = {}
        is_other = False
        for sought in start.sought:
            values = {value for use in self.uses if not use.access.writes
                      and use.row.number in start.rows and sought.covers(use.access)
                      for value in _scalars(use.access.value) if len(value) > 2}  # fmt: skip
            names = words_of(f"{sought.subject.name} {sought.part}")
            if (names | values) & differing:
                is_other = True
            elif common := sorted(names & (keys | elements) | values & elements):
                expected[sought] = common[0]
        return expected if is_other else {}

    def _expected_items(self, expected: Mapping[Sought, str]) -> Iterator[ExpectedItem]:
        items = {
            str(item).casefold(): str(item) for item in (*self._items.keys, *self._items.elements)
        }
        for item in dict.fromkeys(expected.values()):
            writes = [
                self._writes_of(sought)[-1:] for sought in expected if expected[sought] == item
            ]
            yield ExpectedItem(
                items.get(item, item), tuple(use.access for last in writes for use in last)
            )

    def _read_until(self, start: HistoryStart, sought: Sought) -> int:
        """Return the journal number at which the failing statement last looked at data or its calls read
        it; that of the last access of its calls to this data if they read none of it; 0 without any.
        """
        uses = [use for use in self.uses
                if use.row.number in start.rows and sought.covers(use.access)]  # fmt: skip
        reads = [use for use in uses if not use.access.writes]
        orders = [use.order for use in reads or uses]
        if start.until is not None:
            orders.append(start.until)
        return max(orders, default=0)

    def _writes_of(self, sought: Sought) -> list[TimedAccess]:
        writes = self._writes.get((sought.subject.kind, sought.subject.fake), ())
        return [use for use in writes if sought.covers(use.access)]

    def _unwritten_kind(self, sought: Sought) -> UnwrittenKind:
        """Return why a history has no write of data."""
        if self._writes_of(sought):
            return "later"
        fake = self._fakes.get(sought.subject.fake)
        if fake is None:
            return "never"
        baseline = self._stored_in(fake, of_baseline=True)
        if baseline is not None and _contains(baseline, sought):
            return "baseline"
        # Entries of the journal may have been forgotten.
        current = self._stored_in(fake, of_baseline=False)
        is_stored = current is not None and _contains(current, sought)
        may_be_stored = baseline is None and current is None and fake._baseline.number > 0
        return "unrecorded" if is_stored or may_be_stored else "never"

    def _stored_in(self, fake: Fake, *, of_baseline: bool) -> _Stored | None:
        """Return the data in a fake, or in its baseline, that a history may be about; None if it is not
        known.
        """
        at = fake.name, of_baseline
        if at not in self._stored:
            self._stored[at] = None
            if (stored := report_part(fake.fixture, "stored")) is not None:
                state = None
                with suppress(FakecloudError, OSError):  # of a real server
                    state = baseline_of(self._cloud, fake) if of_baseline else state_of(fake)
                if state is not None:
                    parts = self._stored[at] = {}
                    for sought in stored(state, fake.name):
                        parts.setdefault(sought.subject, set()).add(sought.part)
        return self._stored[at]

    def _elsewhere(
        self, sought: Sought, runs: Sequence[Sequence[TimedAccess]]
    ) -> list[list[TimedAccess]]:
        """Return the last write of a vector to another namespace, if it is newer than these writes: the
        vector may have been moved, and not deleted here.
        """
        if sought.subject.kind != "namespace" or not sought.part or not runs:
            return []
        newer = [use for use in self._writes["namespace", sought.subject.fake]
                 if use.access.part == sought.part and not sought.has(use.access.subject)
                 and use.order > runs[-1][-1].order]  # fmt: skip
        return [newer[-1:]] if newer else []

    def _of_named_parts(self, writes: list[TimedAccess]) -> list[TimedAccess]:
        """Return the writes of the parts that the failing statement names, and of those that it found
        although it does not name them; all if it names none.
        """
        parts = {use.access.part for use in writes}
        named = {part for part in parts for text in self._texts if part
                 and (f'"{part}"' in text or f"'{part}'" in text)}  # fmt: skip
        shown = {"", *named, *map(str, self._items.differing)}
        return [use for use in writes if not named or use.access.part in shown]

    def _runs(self, uses: Iterable[TimedAccess]) -> list[list[TimedAccess]]:
        """Return accesses with those of one command, and equal ones in succession, in one list each."""
        runs: list[list[TimedAccess]] = []
        for _, equal in groupby(uses, self._repeated):
            run = list(equal)
            if len({(use.row.number, use.at_us) for use in run}) >= _COUNTED:
                runs.append(run)
            else:
                runs += [list(same) for _, same in groupby(run, lambda use: use.access.result)]
        return runs

    def _repeated(self, use: TimedAccess) -> object:
        """Return what is equal in accesses that repeat each other, whatever they returned."""
        cause = self._rows.get(use.row.cause)
        kind = cause and (cause.kind, cause.peer, _target(cause))
        return use.access.subject, use.access.what, use.access.succeeded, kind

    def _row(self, run: Sequence[TimedAccess], step: int, *, is_read: bool) -> HistoryRow:
        use = run[-1]
        row, is_expiry = use.row, use.at_us != use.row.at_us
        times = len({(other.row.number, other.at_us) for other in run})
        origins = () if is_expiry else self._origins(use)
        caller = self._caller(row) if use.access.writes and not is_expiry else None
        return HistoryRow(
            row.number, use.at_us, use.access, step, 0 if is_expiry else row.cause, is_read,
            self._place(row), origins, times, run[0].at_us,
            order=use.order, first_result=run[0].access.result, caller=caller,
            failed=None if is_expiry else self._failed_after(use),
        )  # fmt: skip

    def _failed_after(self, write: TimedAccess) -> Origin | None:
        """Return the write that failed as the last call of the failed request or delivery that made
        another one.
        """
        cause = self._rows.get(write.row.cause)
        if cause is None or cause.kind not in ("attempt", "request") or cause.ok:
            return None
        last = [use for use in self._by_activity[cause.number] if use.row is not cause][-1]
        is_failed = last.access.writes and last.access.succeeded is not True
        is_later = last.row.number > write.row.number
        return self._origin(last, last, has_value=False) if is_failed and is_later else None

    def _place(self, row: ReportRow) -> Place | None:
        if row.where is not None:
            return row.where
        places = self._places.get(row.number) or self._places.get(row.follows, ())
        return Place(**place_at(places[0])) if places else None  # type: ignore[arg-type]

    def _caller(self, row: ReportRow) -> Place | None:
        """Return the line that called the function that made a row, unless the test itself called it."""
        places = self._places.get(row.number, ())[:2]
        if len(places) < 2:
            return None
        own, caller = (Place(**place_at(place)) for place in places)  # type: ignore[arg-type]
        test = self._failed_at
        is_test = (
            test is not None
            and test.file == caller.file
            and (own.file != caller.file or test.function == caller.function)
        )
        return None if is_test else caller

    def _with_origins(self, rows: Sequence[HistoryRow], most: int) -> list[HistoryRow]:
        """Return rows, each followed by the writes of the value from which it was made. A write that is
        a source of several rows follows the first of those whose value it gave, if any.
        """
        complete = list(rows)
        for step in range(_STEPS):
            shown = [row for row in _in_order(complete) if row.step == step]
            sources: dict[object, HistoryRow] = {}
            owners: dict[object, tuple[bool, int]] = {}
            for row in [row for row in complete if row.step == step][::-1]:
                for origin in row.origins:
                    owner = not origin.has_value, shown.index(row)
                    for run in _newest(self._runs(self._writes_before(origin, row.access))):
                        source = self._row(run, step + 1, is_read=True)
                        write = _of_write(source)
                        owners[write] = min(owner, owners.get(write, owner))
                        is_listed = write in {*sources, *map(_of_write, complete)}
                        if not is_listed and len(complete) + len(sources) < most:
                            sources[write] = source
            for at, row in enumerate(shown):
                own = [source for write, source in sources.items() if owners[write][1] == at]
                place = complete.index(row) + 1
                complete[place:place] = _in_order(own)
        return complete

    def _with_repeated_reads(self, rows: Sequence[HistoryRow]) -> Iterator[HistoryRow]:
        """Yield rows; one that repeats a write, from a record that was read again, also has what the
        same request read before this record.
        """
        written: set[object] = set()
        for row in rows:
            for origin in row.origins:
                record = origin.access.subject, origin.access.part
                write = row.access.subject, row.access.what, *record
                if origin.access.subject.kind == "topic" and write in written:
                    reads = self._reads_before(self._rows[origin.number], origin.order)
                    read = TimedAccess(
                        origin.order, self._rows[origin.number], origin.access, row.at_us
                    )
                    before = self._nearest(reads, read)[:1]
                    row = replace(row, origins=(*before, *row.origins))
                written.add(write)
            yield row

    def _idle(self, rows: Sequence[HistoryRow]) -> list[HistoryRow]:
        """Return a row for each delivery or request that wrote nothing, although others to the same URL
        made these rows: its last access, or that it failed.
        """
        listed_rows = {row.number for row in rows}
        causes = [self._rows[row.cause] for row in rows if self._is_activity(row.cause)]
        targets = {(cause.kind, _target(cause)) for cause in causes}
        messages = {_message(cause) for cause in self._rows.values() if self._wrote(cause.number)}
        idle: list[HistoryRow] = []
        for cause in reversed(self._rows.values()):
            uses = self._by_activity.get(cause.number, ())
            if (cause.kind, _target(cause)) not in targets or self._wrote(cause.number):
                continue
            if cause.kind == "attempt" and not cause.ok:
                own = [use for use in uses if use.row is cause and use.access.writes][:1]
                # The next attempt may have written.
                if own and cause.number not in listed_rows and _message(cause) not in messages:
                    idle.append(self._row(own, 0, is_read=False))
                continue
            last = next((use for use in reversed(uses) if use.row is not cause), None)
            if last is not None and last.row.number not in listed_rows:
                origins = (self._origin(last, last, has_value=False),)
                if self._writes_before(origins[0], last.access):
                    row = self._row([last], 0, is_read=False)
                    idle.append(replace(row, origins=origins, is_idle=True))
        # Those of an item that the compared value lacks, or has too much, tell more than others.
        differing = _names_in(self._items.differing)
        named = [row for row in idle
                 if differing & (_names_of(row.access) | set(_scalars(row.access.value)))]  # fmt: skip
        return (named or idle)[:_IDLE][::-1]

    def _wrote(self, activity: int) -> bool:
        """Return whether a delivery or a request wrote data."""
        return any(use.access.writes and use.access.succeeded is not False and use.row.number != activity
                   for use in self._by_activity.get(activity, ()))  # fmt: skip

    def _reads(self, start: HistoryStart, expected: Iterable[Sought]) -> list[HistoryRow]:
        """Return the reads of the calls from which the compared value was made."""
        reads: dict[object, TimedAccess] = {}
        results: dict[object, dict[str, None]] = {}
        for use in self.uses if start.kind in ("called", "changed") else ():
            is_of_data = use.access.subject.kind != "request" and not use.access.writes
            # A query of vectors says more than the name of the vector that it returned.
            is_expected = use.access.subject.kind == "key" and any(
                sought.covers(use.access) for sought in expected
            )
            # The row of a delivery is among the writes of its message.
            is_delivery = use.row.kind == "attempt"
            if is_of_data and use.row.number in start.rows and not (is_expected or is_delivery):
                command = use.row.number, use.access.what
                reads.setdefault(command, use)
                results.setdefault(command, {})[use.access.result] = None
        return [
            self._row([_with_result(use, list(results[command]))], 0, is_read=False)
            for command, use in list(reads.items())[-_READS:]
        ]

    def _writes_before(self, origin: Origin, write: DataAccess) -> list[TimedAccess]:
        """Return the writes of the data that an origin of a write has read."""
        read = origin.access
        sought = Sought(read.subject, read.part)
        writes = [use for use in self._writes_of(sought) if use.order < origin.order
                  or (read.writes and use.order == origin.order)]  # fmt: skip
        if read.subject.kind == "message":
            return [use for use in writes if use.row.kind != "attempt"][:1]
        if read.subject.kind == "topic":
            # The test's own actions do not know where their records are.
            common = {at: 0 if use.access.part else _common(use.access, read)
                      for at, use in enumerate(writes)}  # fmt: skip
            most = max(common.values(), default=0)
            return [use for use in writes if use.access.part == read.part] or [
                writes[at] for at in common if most and common[at] == most
            ]
        # Of a whole value, the parts with the name of the written data were used.
        names = _names_of(write)
        is_named = any(use.access.part.casefold() in names for use in writes)
        return [use for use in writes
                if not is_named or use.access.part.casefold() in {"", *names}]  # fmt: skip

    def _activity(self, row: ReportRow) -> object:
        """Return what all rows of one request, delivery, or line of the test have in common."""
        if self._is_activity(row.cause):
            return row.cause
        places = self._places.get(row.number, ())
        return ("client", places[-1] if places else row.number)

    def _is_activity(self, number: int) -> bool:
        return number in self._rows and self._rows[number].kind in ("attempt", "request")

    def _reads_before(self, row: ReportRow, order: int) -> list[TimedAccess]:
        """Return what the request, delivery or line of the test that made a row read before it."""
        activity = self._by_activity[self._activity(row)]
        return [other for other in activity if not other.access.writes
                and other.order < order and not other.row.library]  # fmt: skip

    def _origins(self, write: TimedAccess) -> tuple[Origin, ...]:
        """Return the access with which the request of a write read the value that it wrote; if there is
        none, or it is of the same data, its last reads before the write, from which it may have
        computed the value. A test's own actions and writes without a value have none.
        """
        if write.row.kind in ("attempt", "action") or not write.access.writes:
            return ()
        reads = self._reads_before(write.row, write.order)
        uses = self._by_activity[self._activity(write.row)]
        # Some writes return the value that they have written.
        sources = reads + [
            use._replace(access=replace(use.access, value=use.access.returned)) for use in uses
            if use.order < write.order and use.access.writes and use.access.returned is not None
        ]  # fmt: skip
        sources = [use for use in sources if not _is_unchanged(write.access, use.access)]
        scored = [
            (_common(write.access, use.access), use.order, at) for at, use in enumerate(sources)
        ]
        best = max(scored, default=(0, 0, 0))
        origins: tuple[Origin, ...] = ()
        if best[0]:
            source = sources[best[2]]
            origins = (self._origin(source, write, has_value=True),)
            if not _is_same_data(source.access, write.access):
                return origins
        if not set(_scalars(write.access.value)) - _names_of(write.access) - _TRIVIAL:
            return origins
        rounds = [use.order for use in uses if use.order < write.order and use.access.writes
                  and _verb(use.access) == _verb(write.access)]  # fmt: skip
        begin = max(rounds, default=0)
        of_round = [use for use in reads if use.order > begin]
        return origins + self._nearest(of_round or reads, write)[:_READ_BEFORE]

    def _origin(self, read: TimedAccess, write: TimedAccess, *, has_value: bool) -> Origin:
        """Return a read before a write, with the last write of its data by others between the two."""
        changed: DataAccess | None = None
        if read.access.subject.kind in _WITH_PARTS and not read.access.writes:
            for use in self._writes_of(Sought(read.access.subject, read.access.part)):
                # An interruption of the write has a later number than the write.
                is_other = (
                    self._activity(use.row) != self._activity(write.row)
                    or use.row.number > write.row.number
                )
                is_between = read.order < use.order < write.order
                if is_between and is_other and use.access.succeeded is not False:
                    changed = use.access
        return Origin(read.access, read.row.number, read.order, has_value, changed)

    def _nearest(self, reads: Sequence[TimedAccess], write: TimedAccess) -> tuple[Origin, ...]:
        """Return the reads of other data before an access, the last first. A call that read several
        records or vectors is none of them: which one was used is not known.
        """
        counts = Counter(use.row.number for use in reads)
        origins: dict[object, Origin] = {}
        for use in reversed(reads):
            if counts[use.row.number] == 1 and not _is_same_data(use.access, write.access):
                data = use.access.subject, use.access.part
                origins.setdefault(data, self._origin(use, write, has_value=False))
        named = [origin for origin in origins.values() if origin.access.subject.kind in _NAMED]
        return tuple(named or origins.values())

    # -- missing writes and reads ----------------------------------------------------------------

    def _gaps(
        self, start: HistoryStart, activities: Set[object], used: Set[tuple[int, ReportSubject]]
    ) -> Iterator[Gap]:
        """Yield the gaps in requests of the history; ``used`` are the rows and subjects of the reads
        before its writes.
        """
        read: dict[ReportSubject, TimedAccess] = {}
        written: dict[ReportSubject, TimedAccess] = {}
        for use in self.uses:
            if use.access.subject.kind in _NAMED and use.access.succeeded is not False:
                (written if use.access.writes else read).setdefault(use.access.subject, use)
        looked = {sought.subject for sought in start.sought}
        both = [subject for subject in read if subject in written]
        # Data from before the first recorded call is not missing.
        unwritten = {subject: use for subject, use in read.items() if subject not in written
                     and self._unwritten_kind(Sought(subject)) in ("never", "later")}  # fmt: skip
        unread = {subject: use for subject, use in written.items()
                  if subject not in read and subject not in looked}  # fmt: skip
        for subject, use in (*unwritten.items(), *unread.items()):
            if self._activity(use.row) not in activities:
                continue
            reverse = unread if subject in unwritten else unwritten
            missed = next(
                (reverse[other].access for other in reverse if _alike(subject, other)), None
            )
            is_known = subject in looked or (use.row.number, subject) in used
            neighbour = next((other for other in both if _alike(subject, other)
                              and not self._writes_too(use, other, is_known)), None)  # fmt: skip
            # Many keys with numbers in their names are written, and few of them are read.
            is_usual = subject in unread and subject.kind == "key" and missed is None
            if (missed is not None and subject in unwritten) or (neighbour and not is_usual):
                yield Gap(use.access, use.row.number, neighbour, missed)

    def _writes_too(self, use: TimedAccess, neighbour: ReportSubject, is_known: bool) -> bool:
        """Return whether the call that read data also writes a neighbour, or its request does, unless
        the read is known to be one of the history: it means both, such as the windows of a rate limiter.
        """
        writes = [] if use.access.writes else self._writes_of(Sought(neighbour))
        activity = None if is_known else self._activity(use.row)
        return any(
            write.row.number == use.row.number or self._activity(write.row) == activity
            for write in writes
        )

    def _missed(self, gaps: Sequence[Gap], rows: Sequence[HistoryRow]) -> Iterator[HistoryRow]:
        """Yield the last writes of data with a name similar to that of data that nothing wrote, unless
        the rows have them.
        """
        for gap in gaps:
            if gap.missed is None or gap.is_deletion or gap.access.writes:
                continue
            writes = [use for use in self._writes_of(Sought(gap.missed.subject))
                      if _verb(use.access) == _verb(gap.missed)]  # fmt: skip
            row = self._row(self._runs(writes)[-1], 0, is_read=False)
            if _of_write(row) not in set(map(_of_write, rows)):
                yield row

    def _pure_reads(self) -> set[int]:
        """Return the numbers of the requests that only read. On a connection, a read may be part of a
        transaction.
        """
        reads = {use.row.number for use in self.uses if isinstance(use.row.entry, Call)
                 and not on_connection(use.row.entry)}  # fmt: skip
        return reads - {use.row.number for use in self.uses if use.access.writes}

    def _undeleted(self, rows: Sequence[HistoryRow]) -> Iterator[Gap]:
        """Yield compared vectors that were written to another namespace later and not deleted here, if
        other vectors were deleted.
        """
        writes = [row for row in rows if row.access.subject.kind == "namespace" and row.step == 0]
        last = {row.access.part: row for row in writes if row.access.writes}
        for row in writes:
            other = last.get(row.access.part)
            is_moved = (
                row.is_read and other is not None and row.access.subject != other.access.subject
            )
            if not is_moved or row.access.value is None:
                continue
            # The write of one vector without a value is its deletion.
            deletions = [use.access for use in self._writes["namespace", row.access.subject.fake]
                         if use.access.part and use.access.value is None
                         and use.access.succeeded]  # fmt: skip
            if deletions:
                yield Gap(row.access, row.number, None, deletions[-1], is_deletion=True)

    def _unsent(self, rows: Sequence[HistoryRow]) -> Iterator[Gap]:
        """Yield destinations that the test prepared and that received nothing, unlike others of the same
        host that messages of the history were sent to.
        """
        sent = {row.access.subject.name: row.number for row in rows
                if row.access.subject.kind == "message"}  # fmt: skip
        for fake in self._fakes.values():
            unsent = report_part(fake.fixture, "unsent")
            for prefix, messages in unsent(fake) if unsent is not None else ():
                number = next((sent[message] for message in sent if message in messages), 0)
                if number:
                    yield Gap(
                        DataAccess(ReportSubject("message", prefix, fake.name), False, prefix),
                        number, neighbour=None,
                    )  # fmt: skip


def _newest(runs: Sequence[list[TimedAccess]]) -> list[list[TimedAccess]]:
    """Return the newest writes of a value; refused ones only if they were to follow."""
    last = max(
        (at for at, run in enumerate(runs) if run[-1].access.succeeded is not False), default=-1
    )
    relevant = [run for at, run in enumerate(runs)
                if at > last or run[-1].access.succeeded is not False]  # fmt: skip
    return relevant[-_OF_ORIGIN:]


def _with_scripts(test: ObservedTest) -> Lookups:
    """Return the lookups of a test with what its scripts executed, if a replay shows it."""
    runs: dict[int, Sequence[ReplayedScript]] = {}
    for fake in test.fakes:
        script_runs = report_part(fake.fixture, "script_runs")
        if script_runs is not None:
            runs |= script_runs(test, fake)
    return replace(test.lookups, script_runs=runs) if runs else test.lookups


def _uses_of(row: ReportRow, lookups: Lookups, caller: ReportRow | None) -> Iterator[TimedAccess]:
    """Yield the accesses of a row; those of an event as accesses of its ``caller``, the row of the call
    that caused it, if any.
    """
    services = dict.fromkeys((row.service, row.delivery.service if row.delivery else row.service))
    made_by = caller or row
    order = executed_at(row.entry) if isinstance(row.entry, Call) else row.number
    accesses: list[DataAccess] = []
    for service in services:
        part = report_part(service, "accesses")
        if part is not None:
            # The body may be malformed, such as that of a rejected request.
            with suppress(ValueError, LookupError, TypeError, AttributeError):
                accesses += part.accesses(row, lookups)
    for access in accesses:
        is_delivery = row.kind == "attempt" and not access.writes
        yield TimedAccess(row.began if is_delivery else order, made_by, access, made_by.at_us)
    if isinstance(row.entry, ServedRequest):
        served = row.entry
        body = readable(served.body, served.body_type)
        subject = ReportSubject("request", served.target, row.peer)
        value = [served.target, parsed(served.body) or body]
        result = shortened_json(body, 120)
        yield TimedAccess(
            row.began,
            row,
            DataAccess(subject, False, served.target, result, value=value),
            row.at_us,
        )


_Stored: TypeAlias = dict[ReportSubject, set[str]]
"""The data of a fake: the parts of each subject, of which one is empty if it has none."""


def _contains(stored: _Stored, sought: Sought) -> bool:
    if "*" in sought.subject.name:
        every = [parts for subject, parts in stored.items() if sought.has(subject)]
    else:
        every = [stored.get(sought.subject, set())]
    return any(parts & {"", sought.part} if sought.part else parts for parts in every)


def _sought_of(accesses: Iterable[DataAccess]) -> Iterator[Sought]:
    for access in _with_data(accesses):
        yield Sought(access.subject, access.part if access.subject.kind in _WITH_PARTS else "")


def _request_of(row: ReportRow) -> object:
    """Return what is equal in calls that ask the same; None for any other row."""
    call = row.entry
    return (call.fake, call.target, call.request_body) if isinstance(call, Call) else None


def _with_data(accesses: Iterable[DataAccess]) -> Iterator[DataAccess]:
    return (access for access in accesses if access.subject.kind != "request")


_WITH_PARTS = ("key", "namespace")
"""The kinds of subjects of which the failing statement may have compared a part."""


_NAMED = ("key", "topic", "namespace")
"""The kinds of subjects that applications name; services choose the ids of the others."""


def _unique(sought: Iterable[Sought]) -> tuple[Sought, ...]:
    return tuple(dict.fromkeys(sought))


def _left_out(runs: Iterable[Sequence[TimedAccess]], rows: Iterable[HistoryRow]) -> int:
    """Return the number of writes in runs of which no row is in a history."""
    shown = set(map(_of_write, rows))
    left_out: set[object] = set()
    for run in runs:
        writes = [(use.row.number, use.access.what, use.access.result) for use in run]
        left_out |= set() if writes[-1] in shown else {*writes} - shown
    return len(left_out)


def _with_result(use: TimedAccess, results: Sequence[str]) -> TimedAccess:
    """Return a read with everything that its request read."""
    shown = shortened(listed(list(filter(None, results))), 160)
    return use._replace(access=replace(use.access, result=shown))


def _of_write(row: HistoryRow) -> tuple[object, ...]:
    """Return what the rows of several subjects and parts have in common if one write accessed them."""
    return row.number, row.access.what, row.access.result


def _first_uses(rows: Sequence[HistoryRow]) -> list[HistoryRow]:
    """Return a row for each write, of those for its subjects and parts."""
    unique: dict[object, HistoryRow] = {}
    for row in rows:
        first = unique.setdefault(_of_write(row), row)
        if row.is_read and not first.is_read:
            unique[_of_write(row)] = replace(first, is_read=True)
    return list(unique.values())


def _with_callers(rows: Sequence[HistoryRow]) -> list[HistoryRow]:
    """Return rows with the lines that called their functions, if one of the rows that such a call made
    has no origin: its value may have been an argument.
    """
    callers = {row.caller for row in rows if not row.origins}
    return [replace(row, caller=row.caller if row.caller in callers else None) for row in rows]


def _in_order(rows: Sequence[HistoryRow]) -> list[HistoryRow]:
    """Return rows in the order of the journal, each still followed by those of later steps."""
    blocks: list[list[HistoryRow]] = []
    for row in rows:
        if row.step == rows[0].step:
            blocks.append([])
        blocks[-1].append(row)
    blocks.sort(key=lambda block: block[0].order)
    return [row for block in blocks for row in block]


def _message(row: ReportRow) -> object:
    """Return the id of the message that a row delivered; None for other rows."""
    return None if row.delivery is None else row.delivery.data.get("message_id")


def _target(row: ReportRow) -> str:
    """Return the URL of a delivery, or the name of another row."""
    url = row.delivery.data.get("url") if row.delivery is not None else None
    return str(url or row.operation)


def _is_same_data(access: DataAccess, other: DataAccess) -> bool:
    return Sought(other.subject, other.part).covers(access) or Sought(
        access.subject, access.part
    ).covers(other)


def _verb(access: DataAccess) -> tuple[str, str, str]:
    return access.what.split(" ")[0], access.subject.kind, NUMBER.sub("#", access.subject.name)


def _names_of(access: DataAccess) -> set[str]:
    """Return the words in the name of data, in lower case."""
    return words_of(f"{access.subject.name} {access.part}")


def _alike(subject: ReportSubject, other: ReportSubject) -> bool:
    """Return whether two names differ only in numbers and in upper and lower case."""
    names = [NUMBER.sub("#", name).casefold() for name in (subject.name, other.name)]
    same = (subject.kind, subject.fake) == (other.kind, other.fake) and names[0] == names[1]
    return same and subject != other


# -- values ----------------------------------------------------------------------------------------

_TRIVIAL = {"", "0", "1", "true", "false", "none", "nx", "xx", "ex", "px", "ok"}
"""Values that are equal by chance, in lower case."""


def _common(write: DataAccess, read: DataAccess) -> int:
    """Return how much of a written value is in a value that was read; 0 if that may be chance."""
    read_values = set(_scalars(read.value))
    values = {value for value in _scalars(write.value) if value in read_values}
    values -= _TRIVIAL
    names = _names_of(write)
    # The name of a field is not its value, unlike the member of a set.
    values = values - names if set(_scalars(write.value)) - names - _TRIVIAL else values
    names &= read_values
    if not any(len(value) > 2 for value in values):
        return 0
    return 2 * len(values) + len(names)


def _names_in(items: Iterable[Any]) -> set[str]:
    """Return the strings and numbers in compared items that may name data; short numbers are chance."""
    scalars = set(_scalars(list(items))) - _TRIVIAL
    return {scalar for scalar in scalars if len(scalar) > 2 or not scalar.isdigit()}


def _is_unchanged(write: DataAccess, read: DataAccess) -> bool:
    """Return whether a write wrote what was read of the same data before: it may have been computed from
    other data, and be equal by chance.
    """
    others = _names_of(write) | _TRIVIAL
    written, returned = set(_scalars(write.value)) - others, set(_scalars(read.value)) - others
    return _is_same_data(write, read) and written == returned


def _scalars(value: Any) -> Iterator[str]:
    """Yield the numbers and strings in a JSON value, also in strings that contain JSON."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple | set):
        for item in value:
            yield from _scalars(item)
    elif isinstance(value, str):
        inner = parsed(value) if value[:1] in '{["' and value else None
        if isinstance(inner, dict | list | str):
            yield from _scalars(inner)
        else:
            yield value.removeprefix("-").casefold()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield f"{abs(value):g}"


def _shown_arguments(arguments: Arguments) -> str:
    positional, named = arguments
    texts = [shortened(repr(value), 60) for value in positional]
    return ", ".join(
        [*texts, *(f"{name}={shortened(repr(value), 60)}" for name, value in named.items())]
    )
