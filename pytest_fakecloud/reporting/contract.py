"""What reports call of a service: the `ReportFunctions` in its ``report/functions.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ..cloud.services import imported, named
from ..core.calls import Arguments, Call, Entry, Event

if TYPE_CHECKING:
    from ..cloud.base import BaseCloud
    from .findings import ObservedTest
    from .lookups import Exchanged, Lookups, ServiceLookups
    from .mask import Mask
    from .model import DataAccess, Finding, ReportRow, ReportSubject, Sentences, Sought, Summary

Detector: TypeAlias = "Callable[[ObservedTest, Any], Iterable[Finding]]"
"""A function that finds facts about a fake in the journal of a test."""
CommandExchange: TypeAlias = "tuple[Sequence[str], Any, Sequence[DataAccess]]"
"""A command, its result, and what it accessed."""


def _nothing(*arguments: object) -> tuple[()]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFunctions:
    """The functions of one service that reports call. Those with a default are needed only if the
    service does what their description says. They may raise the exceptions of ``MALFORMED`` for a
    request that was rejected, and for one that the journal cut; others are shown in the report.
    """

    accesses: Callable[[ReportRow, Lookups], Iterable[DataAccess]]
    """The data that a row read and wrote, and whether it did something."""
    sought: Callable[[Any, str, Arguments], Iterable[Sought]]
    """The data that the test looked at with a method of a fake, given the method's name."""
    summary: Callable[[Entry, Lookups], Summary | None]
    """The words of a request and its answer, of an event, or of an action of the test. None lets the row
    show the entry as it is: the request, the kind and the text of the event, the call of the method.
    """
    subjects: Callable[[Entry, Lookups], Iterable[ReportSubject]] = _nothing
    """What a call, an event or an action is about: needed if the page should filter rows by it."""
    findings: Sequence[Detector] = ()
    """The detectors: needed if mistakes are possible that no row shows."""
    sentences: Sentences = field(default_factory=dict)
    """The sentence of each kind of finding, also of unfinished work: needed if it has any."""
    unfinished: Callable[[Any, Lookups], Iterable[Finding]] = _nothing
    """Findings about the pending work of a fake: needed if work goes on after an answer."""
    lookups: Callable[[BaseCloud, Sequence[Entry], Mask], ServiceLookups] | None = None
    """What is looked up in several entries, and in the data of its fakes: needed if one entry does not
    have all words of its row.
    """
    background: Callable[[Any, Iterable[Entry], Lookups], Mapping[int, Mapping[Any, Any]]] = (
        lambda fake, entries, lookups: {}
    )
    """What a fake knows about calls, by their numbers: needed if that is not in their answers."""
    exchanges: Callable[[Call, Lookups], Iterable[CommandExchange]] | None = None
    """The commands of a call: needed if a call can have several."""
    may_wait: Callable[[Call], bool] = lambda call: False
    """Whether a call may have waited: needed if that depends on more than its route."""
    command_text: Callable[[Sequence[str]], str] = " ".join
    """A command as one line: needed if clients send commands on connections."""
    callers: Callable[[Iterable[ReportRow]], Mapping[int, ReportRow]] = lambda rows: {}
    """The rows of the calls that caused events, by the events' numbers: needed if calls do."""
    results_from: Callable[[Event, Event], bool] = lambda event, before: False
    """Whether an event results from the event before it: needed if events cause events."""
    effect: Callable[[Event, Call | None, Lookups], str] = lambda event, call, lookups: ""
    """What an event adds to the row of its cause, empty if nothing: needed with ``callers`` and
    ``results_from``.
    """
    handlers: Callable[[Any], Iterable[tuple[Iterable[object], set[str]]]] = _nothing
    """The functions of the application that received messages, with the ids of these: needed if a fake
    calls functions of the application.
    """
    attempts: Callable[[Any], Iterable[tuple[int, Exchanged]]] = _nothing
    """What the recent delivery attempts of a fake sent and received, with the number at which each
    began: needed if it delivers.
    """
    attempt_summary: Callable[[ReportRow, ReportRow, Lookups, Summary | None], Summary] | None = (
        None
    )
    """The words of a delivery attempt, and of the last of equal ones, given those of the call if a fake
    received it: needed if it delivers.
    """


_NONE = ReportFunctions(accesses=_nothing, sought=_nothing, summary=lambda entry, lookups: None)


def functions_of(service_name: str) -> ReportFunctions:
    """Return the functions of a service, given by fixture or ``word``, which are imported once a report
    is made; functions that return nothing for a service without reports.
    """
    service = named(service_name)
    if service is None or not service.report:
        return _NONE
    functions: ReportFunctions = imported(service.report)
    return functions
