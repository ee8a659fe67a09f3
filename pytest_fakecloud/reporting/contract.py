"""What reports call of a service: the `ReportFunctions` in its ``report/functions.py``.

Those about one call, event, action or delivery, from which a row is made, are grouped; the others are
about a fake or the whole journal. The code of this folder depends on no single service.

In rows, and in what has a type such as `MaskedCall`, credentials are masked; only the story of an
exploration passes raw calls to ``summary``. What has another type, such as `Call`, `Arguments` or
`ObservedTest` (but for its rows), may be raw, so a report masks what a function returns for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..cloud import services
from ..core.calls import Arguments, Call, Entry, Event
from .accesses import DataAccess, Sought
from .errors import FunctionGroup, iterates_over_call, nothing, reads_call, tolerant
from .model import (
    Delivery,
    Finding,
    MaskedAction,
    MaskedCall,
    MaskedEvent,
    ReportRow,
    Sentences,
    Summary,
)

if TYPE_CHECKING:
    from ..cloud.base import BaseCloud
    from .lookups import DeliveryExchange, Lookups
    from .mask import Mask
    from .observed import ObservedTest

OwnFake: TypeAlias = Any
"""A fake of the service, whose functions have its class here, such as ``Queue``."""
Detector: TypeAlias = "Callable[[ObservedTest, OwnFake], Iterable[Finding]]"
"""A function that finds facts about a fake in the journal of a test."""


class ExchangedValues(NamedTuple):
    """The values that a command, request or delivery sent and got back, and what it accessed."""

    sent: Sequence[Any]
    returned: Sequence[Any]
    accesses: Sequence[DataAccess]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLookups:
    """Lookups that a service contributes (`ReportFunctions`). A service with further ones than these,
    which all modules use, has a class of its own for them.
    """

    ids: Mapping[str, str] = field(default_factory=dict)
    """The short forms of the ids that fakes made, which applications may store."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The short forms of other long names, such as those of consumers."""
    grouped_calls: Mapping[int, Sequence[MaskedCall]] = field(default_factory=dict)
    """The calls in the row of another one, by that one's number, such as those of a transaction."""
    without_row: Set[int] = frozenset()
    """The numbers of the calls without a row of their own: those in another one's row, or in none."""
    expected_errors: Set[int] = frozenset()
    """The numbers of the calls whose error their client expects, and answers itself."""
    details: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What an entry does not say about an ID in it, for words and the console: of a message, the step of
    a workflow run whose result it has.
    """


class ConnectionExchange(NamedTuple):
    """A call that is no HTTP request, as text; ``answer`` is None if it is unknown."""

    request: str
    answer: str | None
    content: bytes
    """The bytes of the answer, which are shown in hexadecimal if they are not UTF-8."""


class SpanNames(NamedTuple):
    """The names of a service in traces of OpenTelemetry."""

    kind: str
    """The beginning of its attributes: ``db`` or ``messaging``."""
    system: str
    attributes: Sequence[tuple[str, str]]
    """The attributes of a call, each with the fact of the call that is its value, or ``route``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFunctions(FunctionGroup):
    """The functions about calls to the fakes of a service."""

    summary: Callable[[MaskedCall, Lookups], Summary | None] = reads_call(if_malformed=None)
    """The words of a request and its answer. None lets the row show the request as it is."""
    accesses: Callable[[MaskedCall, Lookups], Iterable[DataAccess]] = iterates_over_call()
    """The data that a call read and wrote, whether it did something, and what it only names
    (`DataAccess.named()`), such as a channel. The page filters rows by these subjects.
    """
    may_wait: Callable[[Call], bool] = reads_call(if_malformed=False)
    """Whether a call may have waited: needed if ``lingers`` of its route does not say it."""
    rejection: Callable[[Call, OwnFake], Mapping[str, str] | None] = reads_call(if_malformed=None)
    """Why a fake rejected the credentials of a call, None if they are just missing, wrong, or those of
    another fake: needed for other reasons. The sentence of its ``kind`` has the key ``rejected_{kind}``.
    """
    address: Callable[[MaskedCall], str] = reads_call(if_malformed="")
    """The URL of the application that a call is about, which its words contain: needed if calls have
    one. A text shortens it where an earlier row has shown it.
    """
    hides_body: Callable[[Call], bool] = reads_call(if_malformed=True, absent=lambda call: False)
    """Whether the body of a request may contain a password at any place: needed if it can."""
    shown_facts: Callable[[MaskedCall], Mapping[str, Any]] = reads_call(
        if_malformed={}, absent=lambda call: call.facts
    )
    """The facts of a call that are shown: needed if not all are."""
    decoded_answer: Callable[[MaskedCall, Any], Any] = reads_call(
        if_malformed=None, absent=lambda call, answer: answer
    )
    """The JSON value of an answer, decoded: needed if clients can ask for another encoding."""
    clients: Collection[str] = ()
    """The packages that applications use to call the service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFunctions(FunctionGroup):
    """The functions about calls that contain commands, in the body of a request or on a connection."""

    command: Callable[[MaskedCall], str] = reads_call(if_malformed="")
    """The name of the only command of a call, which is the operation of its row; empty if it has none or
    several. Without it, the operation is the route.
    """
    commands: Callable[[MaskedCall, Lookups], Iterable[ExchangedValues]] | None = (
        iterates_over_call(absent=None)
    )
    """The commands of a call: needed if a call can have several."""
    connection_exchange: Callable[[MaskedCall, Lookups], ConnectionExchange | None] = reads_call(
        if_malformed=None
    )
    """A call that is no HTTP request, None for any other: needed if the fakes have such calls."""
    connection_error: Callable[[Call], str | None] = reads_call(if_malformed=None)
    """The error in the answer to such a call, None without one: needed with ``connection_exchange``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFunctions(FunctionGroup):
    """The functions about events inside the fakes of a service."""

    summary: Callable[[MaskedEvent, Lookups], Summary | None] = lambda event, lookups: None
    """The words of an event. None lets the row show the kind and the text of the event."""
    accesses: Callable[[MaskedEvent, Lookups], Iterable[DataAccess]] = nothing
    """The data that an event changed, and what it only names. The row of its first cause has these
    accesses, too.
    """
    effect: Callable[[MaskedEvent, MaskedCall | None, Lookups], str] = reads_call(if_malformed="")
    """What an event adds to the row of its cause, empty if nothing: needed if events are recorded with
    what they are ``caused_by``.
    """
    volatile: Collection[str] = ()
    """The details that may differ between two events that are otherwise equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFunctions(FunctionGroup):
    """The functions about actions of the test on the fakes of a service."""

    summary: Callable[[MaskedAction, Lookups], Summary | None] = lambda action, lookups: None
    """The words of an action. None lets the row show the call of the method."""
    accesses: Callable[[MaskedAction, Lookups], Iterable[DataAccess]] = nothing
    """The data that an action changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFunctions(FunctionGroup):
    """The functions about deliveries, which the fakes of a service send to the application or to other
    fakes: events of the kind ``attempt`` (`Delivery`). The row of one to a fake has its call, too.
    """

    summary: Callable[[ReportRow, ReportRow, Lookups, Summary | None], Summary | None] = reads_call(
        if_malformed=None
    )
    """The words of the row of a delivery, given the last of equal ones, and the words of the call if a
    fake received it. None lets the row show these words, or the URL.
    """
    accesses: Callable[[ReportRow, Delivery, Lookups], Iterable[DataAccess]] = iterates_over_call()
    """The data that a delivery read and wrote, given its row."""
    received: Callable[[Iterable[Entry]], Mapping[int, Event]] = lambda entries: {}
    """The events of deliveries that fakes of the cloud received, by the numbers of their calls."""
    exchanges: Callable[[OwnFake], Iterable[tuple[int, DeliveryExchange]]] = nothing
    """What the recent deliveries of a fake sent and received, with the number at which each began."""
    handlers: Callable[
        [OwnFake, Sequence[ReportRow]], Iterable[tuple[Iterable[object], Sequence[int]]]
    ] = nothing
    """The functions of the application that received deliveries of a fake, with the numbers of the rows
    of these, given the rows of all its deliveries.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFunctions(FunctionGroup):
    """The functions of one service that reports call. Those with a default are needed only if the
    service does what their description says. `errors` says where the exceptions of each end.
    """

    calls: CallFunctions = CallFunctions()
    sought: Callable[[OwnFake, str, Arguments], Iterable[Sought]] = nothing
    """The data at which the test looked with a ``@look`` of a fake, given its name and raw arguments."""
    protocol: CommandFunctions = CommandFunctions()
    """Needed if calls contain commands."""
    events: EventFunctions = EventFunctions()
    """Needed if a fake records events, such as the end of a wait or of a TTL."""
    actions: ActionFunctions = ActionFunctions()
    """Needed if the test can change the data of a fake, with methods that are an ``@action``."""
    deliveries: DeliveryFunctions = DeliveryFunctions()
    """Needed if a fake sends requests itself."""
    lookups: Callable[[BaseCloud, Sequence[Entry], Mask], ServiceLookups] = (
        lambda cloud, entries, mask: ServiceLookups()
    )
    """What is looked up in several entries, and in the data of its fakes: needed if one entry does not
    have all words of its row.
    """
    background: Callable[[OwnFake, Iterable[Entry], Lookups], Mapping[int, Any]] = (
        lambda fake, entries, lookups: {}
    )
    """What a fake knows about calls, by their numbers, which ``summary`` finds in ``background`` of the
    lookups: needed if that is not in their answers. Its class is the service's own.
    """
    detectors: Sequence[Detector] = ()
    """What finds mistakes: needed if mistakes are possible that no row shows."""
    unfinished: Callable[[OwnFake, Lookups], Iterable[Finding]] = nothing
    """Findings about the pending work of a fake: needed if work goes on after an answer."""
    sentences: Sentences = field(default_factory=dict)
    """The sentence of each kind of finding, also of unfinished work: needed if it has any."""
    spans: SpanNames | None = None
    """Its names in traces of OpenTelemetry."""


IN_USE: dict[str, ReportFunctions] = {}
"""The functions of the services that a report of this process has asked for something."""


def functions_of(service_name: str) -> ReportFunctions:
    """Return the functions of a service, given by fixture or ``word``, which are imported once a report
    is made; functions that return nothing for a service without reports.
    """
    service = services.named(service_name)
    if service is None or not service.report:
        return ReportFunctions()
    if service.fixture not in IN_USE:
        IN_USE[service.fixture] = tolerant(services.imported(service.report))
    return IN_USE[service.fixture]
