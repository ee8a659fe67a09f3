"""Endpoints for the data of a fake, as a view and as lists in pages, and for the journal.

Requests to these endpoints are not recorded, get no faults, and do not count as use of the fake.
"""

from __future__ import annotations

import gzip
import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter, itemgetter
from typing import Any, cast
from urllib.parse import unquote

from ...cloud.base import context_of
from ...cloud.cloud import Cloud, archive_of
from ...cloud.fake import Fake
from ...cloud.services import data_module, find, imported
from ...core.calls import Call, Entry, Event, began
from ...core.characters import printable
from ...core.errors import ContractError, unknown_name
from ...core.signals import Signal
from ...core.timers import monotonic
from ...core.violations import Violation
from ...faults.plan import possible_kinds
from ...http.messages import Answer, Request, Stream
from ...http.routing import Route
from ...inspect.data import (
    LARGEST_PAGE,
    PAGE,
    PAGING,
    AttemptView,
    DeadLetter,
    Listing,
    MessageView,
    NotFound,
    OpenLetter,
    PageQuery,
    whole_number,
)
from ...reporting.lookups import DeliveryExchange, Lookups, exchanges_of
from ...reporting.mask import Mask
from ...reporting.model import ReportRow, RowSource
from ...reporting.render.as_json import row_json
from ...reporting.rows.rows import rows
from ...reporting.rows.sources import error_of
from ..state_file import checked_state, stub
from . import problems, shapes
from .advice import advice_of, advice_of_violation, advice_on_message, expected_of, place_of
from .endpoints import PREFIX, Part, Refused, compressed, contract, fields, named
from .resends import repeated, with_resends

_OF_MESSAGES = ("messages", "callbacks", "dead-letters")
"""The lists of messages, which can be sent again."""


class DataRoutes(Part):
    """Endpoints that return the data of a fake, run what waits in a queue, and return the journal, as
    a list or as a stream, and the violations.
    """

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._streams: set[Signal] = set()
        self._dismissed: set[int] = set()
        """The numbers of the failed rows that were dismissed."""

    @classmethod
    def routes(cls) -> list[Route]:
        base = f"{PREFIX}/fakes/{{name}}"
        return [
            cls.route("GET", f"{base}/view", "view", cls.get_view),
            cls.route("GET", f"{base}/lists", "lists", cls.lists),
            cls.route("GET", f"{base}/lists/{{list}}", "list", cls.page),
            cls.route("GET", f"{base}/lists/{{list}}/{{id}}", "item", cls.item),
            cls.route("POST", f"{base}/messages/{{id}}/deliver", "deliver_now", cls.deliver_now),
            cls.route("POST", f"{base}/schedules/{{id}}/run", "run_schedule", cls.run_schedule),
            cls.route("POST", f"{base}/runs/{{id}}/rerun", "rerun", cls.rerun),
            cls.route("GET", f"{base}/destinations", "destinations", cls.get_destinations),
            cls.route("POST", f"{base}/destinations", "set_destination", cls.set_destination),
            cls.route(
                "DELETE", f"{base}/destinations", "remove_destination", cls.remove_destination
            ),
            cls.route("GET", f"{base}/attempts", "attempts", cls.get_attempts),
            cls.route("GET", f"{base}/dead-letters", "dead_letters", cls.get_dead_letters),
            cls.route("POST", f"{base}/dead-letters/{{id}}", "retry", cls.retry_dead_letter),
            cls.route("GET", f"{PREFIX}/journal", "journal", cls.journal_rows),
            cls.route(
                "GET", f"{PREFIX}/journal/stream", "journal_stream", cls.stream, lingers=True
            ),
            cls.route("GET", f"{PREFIX}/archive", "archive", cls.get_archive),
            cls.route("GET", f"{PREFIX}/violations", "violations", cls.get_violations),
            cls.route("GET", f"{PREFIX}/problems", "problems", cls.get_problems),
            cls.route("POST", f"{PREFIX}/violations/dismiss", "dismiss", cls.dismiss_violations),
        ]

    def get_view(self, request: Request) -> dict[str, Any]:
        """Return the data of a fake as plain JSON."""
        fake = named(self._cloud, request)
        if (module := data_module(fake.fixture)) is not None:
            content = module.content(fake)
        else:  # Of a service without a view, return only the identity.
            show = find(fake.fixture).view
            content = {} if show is None else imported(show)(fake)
        return {
            "name": fake.name,
            "service": fake.service,
            "fixture": fake.fixture,
            "fault_kinds": possible_kinds(fake.faults),
            **content,
        }

    # -- lists -----------------------------------------------------------------------------------

    def lists(self, request: Request) -> object:
        """Return the lists of a fake, each with its number of items.

        ``open-dead-letters`` of a queue are those whose messages were not delivered since.
        """
        fake, module = self._browsed(request)
        counts = module.counts(fake)
        if "dead-letters" in counts:
            counts["open-dead-letters"] = len(problems.open_letters_of(self._cloud, fake))
        return counts

    def page(self, request: Request) -> object:
        """Return a page of a list: ``items``, counts (``total`` and ``matching``) and two cursors.

        ``?search=`` finds text, ``?sort=`` orders by a field (``-`` before it: descending),
        ``?limit=`` is at most 500, ``?after=`` and ``?before=`` take the ``next`` and ``previous``
        cursors of another page, and ``?around=`` the id of an item, of which the page is returned if it
        matches. Each list has its own filters. Pages of ``vectors`` with
        the filter ``points=all`` have the places of all vectors on a plane, each with whether it
        matches and with the value of the metadata field that the filter ``colour`` names. With ``/``
        at its end, the path is that of the item whose id is empty. Pages of messages and of dead letters
        have ``resends``, the ids of messages that were sent again, each with those of the messages that
        repeat it. The state of a message whose dead letter was retried, deleted or
        removed by its age is ``failed``.
        """
        if request.path.endswith("/"):
            return self.item(request)
        fake, listing = self._listing(request)
        with _advised():
            page = listing.page(fake, _page_query(request, listing))
        if request.params["list"] in _OF_MESSAGES and find(fake.fixture).delivers:
            page["resends"] = repeated(self._cloud, fake)
        return page

    def item(self, request: Request) -> object:
        """Return one item of a list in full. The elements of a key's value are paged.

        A workflow run has its ``steps``, each with spans of time (``kind``, ``start``, ``end``,
        ``failed``), and a consumer group has its ``lag_over_time`` by partition. Binary values have
        their hexadecimal digits in ``hex``. A stream has its ``groups`` with their consumers; the list
        ``pending`` has the entries that these have not acknowledged. An item that does not exist is a
        404, or with ``?absent=ok`` an object with the reason in ``gone``.
        """
        fake, listing = self._listing(request)
        if listing.item is None:
            raise NotFound(
                f"the list {request.params['list']} has no views of single items: its pages are complete"
            )
        id = unquote(request.params.get("id", ""), errors="surrogateescape")
        try:
            item = listing.item(fake, id, _page_query(request, listing))
            if request.params["list"] in _OF_MESSAGES and find(fake.fixture).delivers:
                item = with_resends(item, self._cloud, fake)
            return item
        except NotFound as error:
            if request.query("absent") != "ok":
                raise
            return {"gone": str(error)}

    def _listing(self, request: Request) -> tuple[Fake, Listing]:
        fake, module = self._browsed(request)
        name = request.params["list"]
        if name not in module.LISTS:
            raise NotFound(unknown_name("list", name, module.LISTS))
        return fake, module.LISTS[name]

    def _browsed(self, request: Request) -> tuple[Fake, Any]:
        fake = named(self._cloud, request)
        module = data_module(fake.fixture)
        if module is None:
            raise NotFound(f"{fake.name} has no lists: use its `view`")
        return fake, module

    # -- queues ----------------------------------------------------------------------------------

    def deliver_now(self, request: Request) -> object:
        """Make a pending message of a queue due now."""
        queue, module = self._queue(request)
        return module.deliver_now(queue, request.segment("id"))

    def run_schedule(self, request: Request) -> object:
        """Run a schedule now; its next planned run does not change."""
        queue, module = self._queue(request)
        return module.run_schedule(queue, request.segment("id"))

    def rerun(self, request: Request) -> shapes.Rerun:
        """Start a new run of a workflow that goes on at a step of an earlier run.

        ``{"message": the step's message, "result", "input", "again"}``. The new run has the results
        of the steps before, and goes on with the step's own result, or with another one (``result``).
        With ``"again": true``, the step itself runs again. ``input`` replaces the input of the run, and
        ``results`` the results of steps before it, by their messages: what the step gets from them.
        """
        body = fields(request)
        queue, module = self._queue(request)
        with contract():
            new_id = module.rerun(queue, request.segment("id"), **body)
        return {"id": new_id}

    def get_destinations(self, request: Request) -> list[shapes.DestinationData]:
        """Return the destinations of a queue: who answers deliveries to which URLs."""
        queue, _ = self._queue(request)
        return [
            {"url": str(route.prefix), "answer": route._written()}
            for route in queue.destinations.routes()
        ]

    def set_destination(self, request: Request) -> list[shapes.DestinationData]:
        """Answer or forward deliveries: ``{"url": "https://app.example", "answer": 200}``.

        The answer is that of ``destinations`` in a state file: a status, an object, ``"hang"``,
        ``"refuse"``, a list of these, or ``{"forward": "http://127.0.0.1:3000"}``. It replaces that
        of the same URL.
        """
        body = fields(request)
        queue, _ = self._queue(request)
        with contract():
            checked_state({"destinations": {body["url"]: body["answer"]}}, "the body")
            stub(queue.destinations, body["url"], body["answer"])
        return self.get_destinations(request)

    def remove_destination(self, request: Request) -> list[shapes.DestinationData]:
        """Remove the destination with ``?url=``."""
        queue, _ = self._queue(request)
        url = request.query("url")
        for route in queue.destinations.routes():
            if str(route.prefix) == url:
                route.remove()
                return self.get_destinations(request)
        raise Refused(404, f"there is no destination {url!r:.200}")

    def get_attempts(self, request: Request) -> list[AttemptView]:
        """Return the attempts of all messages, or of the message with ``?id=``."""
        queue, module = self._queue(request)
        message_id = request.query("id")
        attempts = queue.attempts(**({"id": message_id} if message_id else {}))
        return [module.attempt_view(attempt) for attempt in attempts]

    def get_dead_letters(self, request: Request) -> list[DeadLetter]:
        """Return the dead letters of a queue."""
        queue, module = self._queue(request)
        return [module.dead_letter_view(letter) for letter in queue.dead_letters()]

    def retry_dead_letter(self, request: Request) -> MessageView:
        """Retry a dead letter."""
        queue, module = self._queue(request)
        with contract():
            view: MessageView = module.retry_dead_letter(queue, request.segment("id"))
        return view

    def _queue(self, request: Request) -> tuple[Any, Any]:
        fake = named(self._cloud, request)
        if not find(fake.fixture).delivers:
            raise Refused(422, f"{fake.name} is not a queue")
        return self._browsed(request)

    # -- the journal -----------------------------------------------------------------------------

    def journal_rows(self, request: Request) -> Answer:
        """Return the rows of the journal, oldest first.

        ``?after=N`` leaves out the rows up to number N, ``?limit=N`` reads at most N entries of the
        journal, so that it can be read in parts. A delivery has two entries and one row. The response
        is compressed if the client accepts gzip.
        """
        after, limit = (whole_number(name, request.query(name)) or 0 for name in ("after", "limit"))
        ordered_rows = sorted(_rows_from(self._cloud, after + 1, limit), key=itemgetter("number"))
        body = _json(ordered_rows)
        return compressed(request, body, lambda: gzip.compress(body, 1), "application/json")

    def stream(self, request: Request) -> Stream:
        """Stream the rows of the journal after ``?after=N`` as server-sent events.

        A row is sent again under the same number when it changes: a call in progress has ``"done":
        false`` until it is answered, and calls whose headers name the trace, the run or the message
        of a delivery have it as their parent when it has finished. ``Last-Event-ID`` resumes the stream.
        """
        resumed = whole_number("last-event-id", request.fields.get("last-event-id")) or 0
        after = max(whole_number("after", request.query("after")) or 0, resumed)
        # The signal only wakes the stream. No data accumulates for a client that does not read.
        signal = Signal()
        self._streams.add(signal)
        listeners = context_of(self._cloud).recorder.shared.listeners
        unwatch = listeners.add(lambda entry: signal.notify())

        def end() -> None:
            unwatch()
            self._streams.discard(signal)
            signal.close()

        return Stream(self._events(signal, after), on_close=end)

    def _events(self, signal: Signal, after: int) -> Iterator[bytes]:
        unsent = _UnsentRows(self._cloud, signal, after)
        while not signal.closed:
            seen = signal.version
            for row in unsent.take():
                yield b"id: %d\ndata: %s\n\n" % (row["number"], _json(row))
            signal.sleep(seen, HEARTBEAT_SECONDS)
            if signal.version == seen:
                yield b": still here\n\n"

    def end_streams(self) -> None:
        """Close every open journal stream. Called before the server closes."""
        for signal in list(self._streams):
            signal.close()

    def get_archive(self, request: Request) -> dict[str, Any]:
        """Return the calls and deliveries of the journal as an HTTP archive (HAR), masked."""
        return archive_of(self._cloud)

    def dismiss_violations(self, request: Request) -> list[shapes.ViolationData]:
        """Remove violations, ``{"texts": [their texts]}``, and return the others.

        A violation that occurs again is reported again. What a fault or a prepared answer has left
        undone cannot be dismissed. ``rows`` are the numbers of failed calls that are ``dismissed`` in
        ``GET /problems`` from then on.
        """
        body = fields(request)
        context_of(self._cloud).violations.dismiss(body.get("texts", ()))
        first = self._cloud.journal.entries[0].number if self._cloud.journal.entries else 0
        rows = {*self._dismissed, *body.get("rows", ())}
        self._dismissed = {number for number in rows if number >= first}
        return self.get_violations(request)

    def get_problems(self, request: Request) -> shapes.Problems:
        """Return the violations by cause, the dead letters, and the failures that count no more.

        A cause has the rows and dead letters that it caused. ``settled`` are attempts whose message was
        delivered in the end, if need be by another message that repeats it, ``dismissed`` the rows that
        were dismissed. ``dead_letters`` are those whose message was not delivered since.
        """
        letters = problems.open_letters(self._cloud)
        return {
            "causes": [
                {
                    "violations": [_violation_data(violation) for violation in cause.violations],
                    "advice": _advice_on(cause),
                    "unanswered": cause.origin if cause.kind == "unstubbed" else None,
                    "is_answered": problems.is_answered(self._cloud, cause),
                    "rows": list(cause.rows),
                    "dead_letters": list(map(_letter_data, cause.letters)),
                }
                for cause in problems.causes(self._cloud, letters)
            ],
            "dead_letters": list(map(_letter_data, letters)),
            "settled": list(problems.settled(self._cloud)),
            "dismissed": sorted(self._dismissed),
        }

    def get_violations(self, request: Request) -> list[shapes.ViolationData]:
        """Return the strict-mode violations."""
        return [_violation_data(violation) for violation in self._cloud.violations()]


def _letter_data(letter: OpenLetter) -> shapes.OpenLetterData:
    return {
        "fake": letter.fake, "id": letter.id, "message_id": letter.message_id,
        "run_id": letter.run_id,
    }  # fmt: skip


def _violation_data(violation: Violation) -> shapes.ViolationData:
    return {
        "kind": violation.kind,
        "what": violation.what,
        "text": violation.text,
        "facts": {k: str(v) for k, v in violation.facts.items()},
    }


def _advice_on(cause: problems.Cause) -> list[shapes.AdviceData]:
    violation = cause.violations[0]
    fake = str(violation.facts.get("fake", ""))
    return [
        {"text": advice.text, "code": advice.code, "at": place_of(advice, fake)}
        for advice in advice_of_violation(violation, cause.origin)
    ]


def _page_query(request: Request, listing: Listing) -> PageQuery:
    parameters = {name: value for name, value in request.query_items() if name != "absent"}
    known_names = {*PAGING, *listing.filters}
    if unknown := [name for name in parameters if name not in known_names]:
        raise ContractError(unknown_name("parameter of this list", unknown[0], sorted(known_names)))
    limit = whole_number("limit", parameters.get("limit"))
    if limit is not None and not 1 <= limit <= LARGEST_PAGE:
        raise ContractError(f"limit must be from 1 to {LARGEST_PAGE}, got {limit}")
    search, after, before, sort, around = (
        parameters.get(name, "") for name in ("search", "after", "before", "sort", "around")
    )
    filters = {name: parameters[name] for name in listing.filters if name in parameters}
    return PageQuery(search, after, before, PAGE if limit is None else limit, filters, sort, around)


@contextmanager
def _advised() -> Iterator[None]:
    """Add to an error that a service raises for a filter what to do about it."""
    try:
        yield
    except ContractError as error:
        advice = advice_on_message(str(error))
        if advice is None:
            raise
        raise Refused(422, f"{error}. {advice.text}") from error


# -- the journal -----------------------------------------------------------------------------------

HEARTBEAT_SECONDS = 15.0
"""Real seconds without a new row after which a stream sends a comment, so that it stays open."""
GRACE_SECONDS = 0.1
"""Real seconds that a stream waits for the response to a call before it sends a row without one."""
CONTEXT = 50
"""Number of entries before the first requested entry that are searched for the causes of rows."""


class _UnsentRows:
    """The rows that a stream has not sent yet, or that have changed since.

    ``signal`` is notified of each new entry and of each response.
    """

    def __init__(self, cloud: Cloud, signal: Signal, after: int) -> None:
        self._cloud = cloud
        self._signal = signal
        self._last = after
        self._open_calls: list[Entry] = []
        """The calls whose rows were sent without a response."""

    def take(self) -> list[shapes.RowData]:
        """Return the rows of calls answered since the last call, and those of new entries."""
        answered = [entry for entry in self._open_calls if _is_done(entry)]
        self._open_calls = [entry for entry in self._open_calls if entry not in answered]
        new = _entries_from(self._cloud, self._last + 1)
        for entry in new:
            self._last = entry.number
            if not self._wait_for_response(entry):
                self._open_calls.append(entry)
        new_rows = _rows_of(self._cloud, answered)
        return new_rows + (_rows_from(self._cloud, min(map(began, new))) if new else [])

    def _wait_for_response(self, entry: Entry) -> bool:
        """Wait a moment until an entry is complete; return whether it is.

        Most calls are answered a moment after they are recorded. If another call is still open, do
        not wait, because a slow call must not delay the calls after it.
        """
        signal = self._signal
        deadline = monotonic() + (0 if self._open_calls else GRACE_SECONDS)
        seen = signal.version
        while (
            not _is_done(entry)
            and not signal.closed
            and (seconds_left := deadline - monotonic()) > 0
        ):
            signal.sleep(seen, seconds_left)
            seen = signal.version
        return _is_done(entry)


def _is_done(entry: Entry) -> bool:
    return not isinstance(entry, Call) or entry.outcome != "open"


def _entries_from(cloud: Cloud, first: int) -> list[Entry]:
    entries = cloud.journal.entries
    return entries[bisect_left(entries, first, key=attrgetter("number")) :]


def row_numbered(cloud: Cloud, number: int) -> shapes.RowData:
    """Return the row of the journal with a number; raise ``Refused`` without one."""
    for row in _rows_from(cloud, number, 1):
        if row["number"] == number:
            return row
    raise Refused(404, f"the journal has no row {number}")


def _rows_from(cloud: Cloud, first: int, limit: int = 0) -> list[shapes.RowData]:
    """Return the rows of the journal from a number on, in causal order.

    ``limit`` is the maximum number of entries, 0 for no limit. A delivery has two entries.
    """
    entries = _entries_from(cloud, first - CONTEXT)
    if limit:
        entries = entries[: bisect_left(entries, first, key=attrgetter("number")) + limit]
    return _rows_of(cloud, entries, first)


def _rows_of(cloud: Cloud, entries: Iterable[Entry], first: int = 0) -> list[shapes.RowData]:
    """Return the rows of entries, from a number on."""
    mask = Mask(cloud)
    entries = list(entries)
    exchanges = exchanges_of(cloud)
    results = mask.value(_results(cloud, entries, exchanges))
    lookups = Lookups(exchanges=exchanges, details=results, mask=mask)
    # The entries of rows are masked, and one that cannot be shown has none.
    by_number = {entry.number: entry for entry in entries}
    journal_rows: list[shapes.RowData] = []
    for row in rows(cloud, entries, lookups=lookups, is_within=_names_delivery):
        if row.number >= first:
            entry = by_number[row.number]
            progress = {"fake": entry.fake, "done": _is_done(entry)}
            fields = cast("shapes.RowData", row_json(row, (), lookups) | progress)
            named = _with_owner_of_token(cloud, entry, _in_neutral_words(fields))
            journal_rows.append(_with_advice(row.source, named))
    return journal_rows


def _names_delivery(delivery: ReportRow, row: ReportRow) -> bool:
    """Return whether the headers of a call name the trace, the run or the message of a delivery.

    Other clients of a server call at any time, also during a delivery.
    """
    call, event = row.source.call, delivery.source.delivery
    if call is None or event is None:
        return False
    names = {event.run, event.message_id} - {""}
    is_same_trace = row.trace and delivery.trace and row.trace.trace_id == delivery.trace.trace_id
    return bool(is_same_trace) or any(value in names for _, value in call.request_headers.pairs)


def _in_neutral_words(row: shapes.RowData) -> shapes.RowData:
    """Return a row that says without a name of Python why a delivery got no response."""
    if row["rules"]["is_sent"] and row["status"] is None and (error := row["data"].get("error")):
        failure_words = getattr(data_module(row["service"]), "failure_words", None)
        if failure_words is not None and (words := failure_words(error)) is not None:
            row["text"] = {**row["text"], "answer": words}
    return row


def _with_advice(source: RowSource, row: shapes.RowData) -> shapes.RowData:
    """Return a row with what to do about its failure, if there is something to say."""
    error = "" if source.call is None else error_of(source.call)[1]
    if row["done"] and (reason := expected_of(row, error)):
        row["advice"], row["expected"] = reason, True
    elif row["done"] and (advice := advice_of(row, error)):
        row["advice"] = advice.text
        if (place := place_of(advice, row["fake"])) is not None:
            row["advice_at"] = place
    return row


def _with_owner_of_token(cloud: Cloud, entry: Entry, row: shapes.RowData) -> shapes.RowData:
    """Return a row that names the fake whose credentials a rejected call has sent to another one."""
    if isinstance(entry, Call) and entry.status == 401:
        sent = entry.request_headers.get("Authorization")
        for fake in cloud.fakes():
            if fake.name != entry.fake and sent and sent == fake.headers.get("Authorization"):
                row["data"] = {**row["data"], "token_of": fake.name}
    return row


def _results(
    cloud: Cloud, entries: Iterable[Entry], exchanges: Mapping[int, DeliveryExchange]
) -> dict[str, dict[str, Any]]:
    """Return the steps of workflow runs after which deliveries continue, by the messages' IDs."""
    results: dict[str, dict[str, Any]] = {}
    for fake in cloud.fakes():
        if find(fake.fixture).delivers:
            sent = {
                str(entry.data.get("message_id")): exchange.body if exchange else b""
                for entry in entries
                if isinstance(entry, Event) and entry.fake == fake.name and entry.data.get("run")
                for exchange in [exchanges.get(entry.data.get("began", 0))]
            }
            results |= data_module(fake.fixture).results_of_messages(fake, sent)
    return results


def _json(value: object) -> bytes:
    return printable(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()
