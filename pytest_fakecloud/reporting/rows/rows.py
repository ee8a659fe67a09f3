"""The rows of a cloud: its journal, the actions of the test, and requests to the application.

Each follows the row in which it is nested, and has its accesses to data. Rows are data; `wording`
describes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from ...cloud.base import BaseCloud, context_of
from ...core.calls import (
    CREATED,
    Action,
    Call,
    Entry,
    Event,
    began,
    executed_at,
    faults_end,
    set_facts,
)
from ...core.frames import CodePlace, place_at
from ...core.hosts import parts_of_url
from ...core.libraries import outside_libraries
from ...core.recorder import CallStack, SharedRecords
from ...core.traces import TRACEPARENT, TraceParent, trace_parent
from ...process.applications import ServedRequest
from ..accesses import EVERY_KIND, DataAccess, JournalNumber, ReportSubject
from ..calls import events_in, has_full_answer
from ..contract import functions_of
from ..errors import collected, contained
from ..lookups import Lookups, records_of
from ..model import (
    APPLICATION,
    CLIENT,
    CONSOLE,
    TEST,
    AppliedFault,
    Delivery,
    MaskedEvent,
    OrderedAccess,
    Place,
    ReportRow,
)
from . import sources
from .nesting import IsWithin, nested

_AccessesOf = Callable[..., Iterable[DataAccess]]
_VOLATILE = {"began", "alone", "number", "traceback", "exception"}
"""Details that may differ between two otherwise equal events, whatever their service."""


def rows(
    cloud: BaseCloud,
    entries: Iterable[Entry] | None = None,
    served: Iterable[ServedRequest] = (),
    *,
    lookups: Lookups,
    is_within: IsWithin = lambda delivery, row: True,
    errors: list[str] | None = None,
) -> list[ReportRow]:
    """Return the journal of a cloud as rows, with credentials masked.

    A delivery to one of the cloud's own fakes is a single row: the received call, with the delivering
    fake as its sender. A row follows its parent. ``served`` are the requests to the
    application; successful requests in which no row stands are left out. Actions of the test have rows
    only without ``entries``, which are otherwise all of the journal. ``lookups`` contain the calls
    without a row of their own, and what the recent deliveries exchanged.

    ``is_within`` returns whether the handler of a delivery made a call, given the rows of the delivery
    and of a call that arrived during it. In a test, nothing else calls, so the default returns True.
    Exceptions of services become lines of ``errors``.
    """
    journal = list(cloud.journal.entries if entries is None else entries)
    builder = _Builder(cloud, journal, lookups, [] if errors is None else errors)
    actions = records_of(cloud).actions if entries is None else []
    entry_rows = builder.entry_rows([*journal, *actions])
    return nested([*entry_rows, *builder.served_rows(served, entry_rows)], is_within)


def ordered_accesses(rows: Sequence[ReportRow]) -> list[OrderedAccess]:
    """Return what rows read and wrote, in the order in which that happened. The accesses of an event
    with a cause are among those of the row that it follows. What is only named is left out.
    """
    ordered = [
        OrderedAccess(row, access)
        for row in rows for access in row.accesses
        if not row.first_cause and not access.is_named
    ]  # fmt: skip
    return sorted(ordered, key=attrgetter("order"))


# -- rows of each kind -----------------------------------------------------------------------------


class _Builder:
    """Makes the rows of a cloud, with credentials masked."""

    def __init__(
        self, cloud: BaseCloud, entries: Sequence[Entry], lookups: Lookups, errors: list[str]
    ) -> None:
        self._lookups, self._mask, self._errors = lookups, lookups.mask, errors
        self._background = [
            began(event) for event in events_in(entries) if event.data.get("alone") is False
        ]
        self._stacks = records_of(cloud).stacks
        self._from_console = records_of(cloud).from_console
        self._places = places_of(records_of(cloud))
        fakes = *context_of(cloud).closed_fakes.values(), *context_of(cloud).fakes
        self._names = {fake.url: fake.name for fake in fakes}
        services = {fake.service for fake in cloud.fakes()} | {entry.service for entry in entries}
        self._received: dict[int, Event] = {}
        """The events of deliveries that fakes of the cloud received, by the numbers of their calls."""
        for service in sorted(services):
            with contained("which calls are deliveries cannot be shown", errors):
                self._received |= functions_of(service).deliveries.received(entries)

    def entry_rows(self, entries: Iterable[Entry]) -> list[ReportRow]:
        """Return a row for each entry or action that is not shown in the row of another entry."""
        in_others = self._lookups.without_row | {own.number for own in self._received.values()}
        return [self._row(entry) for entry in entries if entry.number not in in_others]

    def _row(self, entry: Entry) -> ReportRow:
        """Return the row of an entry; one that raises an exception must not prevent those of others."""
        errors: list[str] = []
        with contained("this entry cannot be shown", errors):
            if isinstance(entry, Call):
                return self._call_row(entry)
            if isinstance(entry, Action):
                return self._action_row(entry)
            return self._event_row(entry)
        return ReportRow(
            entry.number, entry.at_us, kind="event", actor=entry.fake, peer=entry.fake,
            operation="", service=entry.service, ok=False, took_us=_took_us(entry),
            source=sources.UnshownSource(error=self._mask.text(errors[0])),
            began=entry.number, same=entry.number,
        )  # fmt: skip

    def _call_row(self, call: Call) -> ReportRow:
        masked, faults = self._mask.call(call), _faults_of(call)
        functions = functions_of(call.service).calls
        command = functions_of(call.service).protocol.command(masked)
        again_of = self._from_console.get(call.number)
        if again_of:
            set_facts(masked, {**masked.facts, "again_of": again_of})
        # Leave out the error of a fault's function, which is reported as a violation of the test.
        note = "" if call.violation == "bug" else masked.note
        steps = self._lookups.grouped_calls.get(call.number, ())
        is_streamed = call.outcome == "streamed" and (call.status or 400) < 400
        request = (masked.target, masked.request_body)
        row = ReportRow(
            call.number, call.at_us, kind="call", actor=CLIENT if again_of is None else CONSOLE,
            peer=call.fake, operation=command or call.route or f"{call.method} {masked.path}",
            service=call.service, source=sources.CallSource(call=masked),
            address=functions.address(masked),
            trace=trace_parent(masked.request_headers.get(TRACEPARENT)),
            accesses=self._accesses(call.fake, executed_at(call), functions.accesses, masked),
            status=call.status, outcome=call.outcome, ok=is_streamed or has_full_answer(call),
            expects_error=call.number in self._lookups.expected_errors, faults=faults,
            took_us=_took_us(call), began=call.number,
            ended=faults_end(call) if any(fault.kind == "call" for fault in faults) else 0,
            where=_place_of(self._places.get(call.number, ())),
            library=_library_of(self._stacks.get(call.number), call.service),
            same=(masked.method, call.route, request, masked.response_body, call.outcome,
                  note, *(step.request_body for step in steps)),
        )  # fmt: skip
        if (event := self._received.get(call.number)) is None:
            return row
        delivery = Delivery.of(self._mask.event(event))
        received = replace(
            row, kind="delivery", actor=event.fake, address=delivery.url,
            source=sources.DeliverySource(call=masked, delivery=delivery),
            attempt=delivery.attempt or 0, faults=row.faults or delivery.faults,
            began=min(row.number, delivery.began), ended=row.ended or delivery.ended,
        )  # fmt: skip
        return self._delivering(received, delivery, executed_at(call))

    def _event_row(self, event: Event) -> ReportRow:
        masked = self._mask.event(event)
        if event.kind == "attempt":
            return self._sent_row(Delivery.of(masked))
        accesses = functions_of(event.service).events.accesses
        return ReportRow(
            event.number, event.at_us, kind="event", peer=event.fake, operation=event.kind,
            actor=CONSOLE if event.kind in ("restored", "changed") else event.fake,
            service=event.service, source=sources.EventSource(event=masked),
            accesses=self._accesses(event.fake, event.number, accesses, masked),
            took_us=_took_us(event), began=event.number, same=(masked.text, _constant_details(masked)),
        )  # fmt: skip

    def _sent_row(self, delivery: Delivery) -> ReportRow:
        """Return the row of a delivery that no fake of the cloud received."""
        event, status, peer = delivery.event, delivery.status, delivery.event.fake
        if delivery.url:
            parts = parts_of_url(delivery.url)
            peer = self._names.get(f"{parts.scheme}://{parts.netloc}", delivery.url)
        row = ReportRow(
            event.number, event.at_us, kind="delivery", actor=event.fake, peer=peer,
            operation=event.kind, service=event.service,
            source=sources.DeliverySource(delivery=delivery), address=delivery.url,
            trace=self._sent_trace(delivery), status=status if delivery.url else None,
            ok=not delivery.url or 200 <= (status or 0) < 300, faults=delivery.faults,
            took_us=_took_us(event), began=min(event.number, delivery.began), ended=delivery.ended,
            attempt=delivery.attempt or 0, same=_constant_details(event),
        )  # fmt: skip
        return self._delivering(row, delivery, event.number)

    def _delivering(self, row: ReportRow, delivery: Delivery, order: JournalNumber) -> ReportRow:
        """Return a row with the accesses of its delivery. The receiver reads when it begins."""
        function = functions_of(delivery.event.service).deliveries.accesses
        accesses = self._accesses(row.peer, order, function, row, delivery)
        own = (access if access.writes else replace(access, order=row.began) for access in accesses)
        return replace(row, accesses=(*row.accesses, *own))

    def _sent_trace(self, delivery: Delivery) -> TraceParent | None:
        exchanged = self._lookups.exchanges.get(delivery.began)
        in_event: Iterable[tuple[str, str]] = delivery.event.data.get("sent_headers") or ()
        headers = in_event if exchanged is None else exchanged.headers
        values = (str(value) for name, value in headers if str(name).lower() == TRACEPARENT)
        return trace_parent(next(values, None))

    def _action_row(self, action: Action) -> ReportRow:
        masked = self._mask.action(action)
        details = {name: value for name, value in masked.data.items() if name != CREATED}
        words = details.pop("arguments", None) or []
        where = masked.data["where"]
        if action.kind in ("reset", "restore"):
            every = ReportSubject.all_of(EVERY_KIND, action.fake)
            accesses: tuple[DataAccess, ...] = (DataAccess(every, True, order=action.number),)
        else:
            function = functions_of(action.service).actions.accesses
            accesses = self._accesses(action.fake, action.number, function, masked)
        return ReportRow(
            action.number, action.at_us, kind="action", actor=TEST, peer=action.fake,
            operation=action.kind, service=action.service,
            source=sources.ActionSource(action=masked), accesses=accesses,
            took_us=_took_us(action), began=action.number, where=where and Place(**where),
            same=(action.kind, repr(details), tuple(words)),
        )  # fmt: skip

    def served_rows(
        self, served: Iterable[ServedRequest], entry_rows: Sequence[ReportRow]
    ) -> Iterator[ReportRow]:
        """Yield the rows of the requests that failed, or during which something happened. The
        consequences of one are only known if it ran alone: without a request that overlaps, except of a
        fault's function, and without a delivery in the background. Of requests 1 to 5 and 3 to 8, a call
        4 can be in either, so both have ``ended`` 0: unknown.
        """
        with_faults = [row for row in entry_rows if row.kind == "call" and row.ended]
        for request in served:
            # The row of a delivery already shows this request.
            if any(_is_delivery_of(row, request) for row in entry_rows):
                continue
            ok = (request.status or 0) < 400 and not request.raised
            if ok and not any(request.began < row.began < request.ended for row in entry_rows):
                continue
            is_alone = all(
                _is_during(request, other, with_faults) for other in request.overlaps
            ) and not any(request.began < start < request.ended for start in self._background)
            masked = self._mask.request(request)
            yield ReportRow(
                request.began, request.at_us, kind="request", actor=CLIENT, peer=APPLICATION,
                operation=masked.target, status=request.status, ok=ok,
                source=sources.RequestSource(request=masked),
                trace=trace_parent(dict(masked.headers).get(TRACEPARENT.title())),
                outcome="answered" if request.status is not None else "",
                began=request.began, ended=request.ended if is_alone else 0,
                took_us=_took_us(request),
                same=(masked.target, masked.body, request.status, masked.raised),
            )  # fmt: skip

    def _accesses(
        self, peer: str, order: JournalNumber, function: _AccessesOf, *arguments: object
    ) -> tuple[DataAccess, ...]:
        """Return the accesses that a function of a service returns, with the order of their entry."""
        failed = f"what a row of {peer} accessed cannot be shown"
        accesses = collected(failed, self._errors, function, *arguments, self._lookups)
        return tuple(replace(access, order=order) for access in accesses)


def _constant_details(event: MaskedEvent) -> str:
    """Return the details of an event that are the same in otherwise equal ones."""
    volatile = {*_VOLATILE, *functions_of(event.service).events.volatile}
    return repr({name: value for name, value in event.data.items() if name not in volatile})


def places_of(records: SharedRecords) -> dict[int, tuple[CodePlace, ...]]:
    """Return the places outside libraries that made each call, the innermost first, by its number."""
    stacks = {number: outside_libraries(stack.places) for number, stack in records.stacks.items()}
    return stacks | {number: site.places for number, site in records.sites.items()}


_COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>"}
"""The functions that Python 3.11 has for comprehensions, which belong to the function around them."""


def _place_of(code_places: Sequence[CodePlace]) -> Place | None:
    """Return the place that made a call, with its callers; None if it is not known."""
    place_values: list[Any] = [place_at(code_place) for code_place in code_places]
    places = [Place(**own) for own in place_values if own["function"] not in _COMPREHENSIONS]
    return replace(places[0], callers=tuple(places[1:])) if places else None


_CLIENTS = {
    "aiohttp", "django", "flask", "httpcore", "httpcore2", "httpx", "httpx2", "requests", "starlette",
    "urllib3", "werkzeug",
}  # fmt: skip
"""Packages that make a call for the application that called them, to any service."""


def _library_of(stack: CallStack | None, service: str) -> str:
    """Return the package that made a call of its own, such as a task queue; empty for a client."""
    parts = [] if stack is None else Path(stack.library).parts
    if "site-packages" not in parts:
        return ""
    name = parts[parts.index("site-packages") + 1].removesuffix(".py")
    return "" if name in {*_CLIENTS, *functions_of(service).calls.clients} else name


def _took_us(entry: Entry | ServedRequest) -> int | None:
    """Return a duration; None if it is not known. A reset of the clock does not make it negative."""
    return None if entry.ended_us is None else max(0, entry.ended_us - entry.at_us)


def _is_during(request: ServedRequest, other: ServedRequest, calls: Iterable[ReportRow]) -> bool:
    """Return whether a fault's function made one of two overlapping requests during the other: of
    requests 1 to 9 and 4 to 6, if a call 3 whose function ended at 7 is between their beginnings.
    """
    outer, inner = (request, other) if request.began < other.began else (other, request)
    around = [call for call in calls if outer.began < call.began < inner.began]
    return any(0 < inner.ended <= call.ended for call in around)


def _is_delivery_of(row: ReportRow, request: ServedRequest) -> bool:
    delivery = row.source.delivery
    if delivery is None or not row.attempt or not row.began < request.began < row.ended:
        return False
    path = parts_of_url(delivery.url).path or "/"
    return path.endswith(request.path)


def _faults_of(call: Call) -> tuple[AppliedFault, ...]:
    # The entry of a fault can have further fields, which only a replay reads.
    names = [own_field.name for own_field in fields(AppliedFault)]
    return tuple(AppliedFault(*(fault.get(name, "") for name in names)) for fault in call.faults)
