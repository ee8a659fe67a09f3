"""The data of a report: rows, findings and the circumstances of the test.

A report is made in one direction: journal, rows, findings, selection, renderers. The steps pass the
values of this module to each other. The values contain no sentences: `wording` writes those, and
only the renderers (`text`, `page`, `as_json`) call it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..core.calls import Call, Entry, Event
from ..core.errors import report_failure
from ..core.recorder import SharedRecords
from ..core.timers import instant_us
from .applications import ServedRequest
from .calls import PUBLISHING, executed_but_lost, gathered, has_full_answer, items_of, lines_of
from .masking import Mask

if TYPE_CHECKING:
    from ..base_cloud import BaseCloud
    from ..queue.model import Delivery, Outcome


_SENT = 2_000
"""Maximum number of characters of a body that an attempt's event keeps."""
_DETAILS = attrgetter("_reports.finished")
"""Returns the number, request and outcome of each recent attempt of a queue."""
_LONG = 16
"""Maximum length of a consumer's name that is shown in full."""


@dataclass(frozen=True, slots=True)
class Lookups:
    """Lookups of one cloud and its journal.

    - ``ids``: the short forms of ids: messages, schedules, and long names of consumers.
    - ``published``: when each message was first published, in microseconds; ``bodies``: the
      beginning of its body.
    - ``end_offsets``: the end offsets of the partitions, by fake and topic.
    - ``attempts``: the request and the outcome of each attempt, by the number at which it began.
    - ``created_by_lost_call``: the message that a request created whose answer was lost, by the
      request's number.
    - ``grouped_calls``: calls that are shown in the row of another call (the steps of a transaction
      in its ``EXEC``), by that call's number; ``without_row`` contains the numbers of these calls.
    - ``scripts``: the sources of Lua scripts, by the first eight characters of their hash.
    - ``mask``: masks credentials that become visible when values are decoded.
    """

    ids: Mapping[str, str] = field(default_factory=dict)
    published: Mapping[str, int] = field(default_factory=dict)
    bodies: Mapping[str, str] = field(default_factory=dict)
    end_offsets: Mapping[tuple[str, str], Sequence[int]] = field(default_factory=dict)
    attempts: Mapping[int, tuple[Delivery, Outcome]] = field(default_factory=dict)
    created_by_lost_call: Mapping[int, str] = field(default_factory=dict)
    grouped_calls: Mapping[int, Sequence[Call]] = field(default_factory=dict)
    without_row: Set[int] = frozenset()
    scripts: Mapping[str, str] = field(default_factory=dict)
    mask: Mask = field(default_factory=Mask)

    def short(self, name: object) -> str:
        """Return the short form of an id or name; the name itself if it has none."""
        return self.ids.get(str(name), str(name))

    def header(self, began: int | None, name: str) -> str:
        """Return a header of the delivery that began at a journal number; empty if it is unknown."""
        sent = self.attempts.get(began or 0)
        headers = sent[0].headers if sent is not None else ()
        return next((value for one, value in headers if one.lower() == name), "")


def lookups_of(cloud: BaseCloud, entries: Sequence[Entry]) -> Lookups:
    """Return the lookups of a cloud and its journal, with credentials in grouped calls masked.

    A fake that raises an exception contributes nothing.
    """
    queues: list[Any] = [one for one in cloud.fakes() if one.service == "queue"]
    brokers: list[Any] = [one for one in cloud.fakes() if one.service == "broker"]
    messages = [message for queue in queues for message in _tried(queue.messages)]
    schedules = [schedule.id for queue in queues for schedule in _tried(queue.schedules)]
    attempts = [each for queue in queues for each in _tried(_DETAILS, queue)]
    calls = [one for one in entries if isinstance(one, Call)]
    created = list(_created(calls))
    published: dict[str, int] = {}
    for message_id, call in created:
        published.setdefault(message_id, call.at_us)
    published.update((one.id, instant_us(one.created)) for one in messages)
    instances = {str(one.facts.get("instance")) for one in calls if one.service == "broker"}
    ids = [*_named_by_events(entries), *(one.id for one in messages), *schedules]
    groups, without_row = gathered(entries)
    mask = Mask(cloud)
    return Lookups(
        ids=_abbreviated(ids) | _abbreviated_names(instances),
        published=published,
        bodies={message_id: _beginning(call) for message_id, call in created
                if call.route != "batch"},
        end_offsets={(broker.name, topic.name): topic.end_offsets
                     for broker in brokers for topic in _tried(broker.topics)},
        attempts={number: (sent, outcome) for number, sent, outcome in attempts},
        created_by_lost_call=_messages_of_lost_calls(cloud, entries),
        grouped_calls={
            number: [mask.call(one) for one in grouped] for number, grouped in groups.items()
        },
        without_row=without_row,
        scripts={hash_of(source)[:8]: source for call in calls if call.service == "kv"
                 for source in _scripts_of(call)},
        mask=mask,
    )  # fmt: skip


def records_of(cloud: BaseCloud) -> SharedRecords:
    """Return the actions and call sites of a cloud; none if it runs in another process."""
    recorder = getattr(cloud.journal, "_recorder", None)
    return SharedRecords() if recorder is None else recorder.shared


def _tried(read: Callable[..., Iterable[Any]], *given: Any) -> list[Any]:
    """Return the values that a function of a fake returns; none if it raises an exception."""
    with report_failure("", lambda line: None):
        return list(read(*given))
    return []


def _created(calls: Iterable[Call]) -> Iterator[tuple[str, Call]]:
    """Yield the ID of each message that a publish request created, with the request."""
    for call in calls:
        if call.route in PUBLISHING and has_full_answer(call):
            for one in items_of(call.response_body):
                if "messageId" in one and not one.get("deduplicated"):
                    yield str(one["messageId"]), call


def _beginning(call: Call) -> str:
    """Return as much of a call's body as the event of a delivery attempt keeps."""
    return call.request_body[: 4 * _SENT].decode("utf-8", "replace")[:_SENT]


def _named_by_events(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the IDs of the messages of the events, and of those that callbacks are about."""
    for event in entries:
        if isinstance(event, Event) and "message_id" in event.data:
            for name in ("message_id", "about"):
                if event.data.get(name):
                    yield str(event.data[name])


def _scripts_of(call: Call) -> Iterator[str]:
    for name, *arguments in lines_of(call):
        yield from {"EVAL": arguments[:1], "SCRIPT": arguments[1:2]}.get(name.upper(), ())


def hash_of(script: str) -> str:
    """Return the hash that EVALSHA uses to refer to a script."""
    text = script.encode("utf-8", "surrogatepass")
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()


def _messages_of_lost_calls(cloud: BaseCloud, entries: Sequence[Entry]) -> dict[int, str]:
    """Return the messages that requests with a lost response created, by the requests' numbers.

    This is the only message with that URL and time that is not in any response. If there are
    several such messages, the request is left out.
    """
    calls = [one for one in entries if isinstance(one, Call) and one.service == "queue"]
    lost = [call for call in calls if executed_but_lost(call)]
    if not lost:
        return {}
    named = b"".join(call.response_body for call in calls if call not in lost)
    queues: dict[str, Any] = {one.name: one for one in cloud.fakes() if one.service == "queue"}
    found = {}
    for call in lost:
        alike = [
            one.id
            for one in (queues[call.handle].messages() if call.handle in queues else ())
            if (one.url, one.created) == (call.facts.get("url"), call.at)
            and one.id.encode() not in named
        ]
        if len(alike) == 1:
            found[call.number] = alike[0]
    return found


def _abbreviated(ids: Iterable[str]) -> dict[str, str]:
    """Return the IDs shortened to a common length at which they still differ."""
    whole = set(ids)
    length = 8  # of a message ID, "msg_" and four characters
    while len({one[:length] for one in whole}) < len(whole):
        length += 2
    return {one: one[:length] for one in whole}


def _abbreviated_names(names: Iterable[str]) -> dict[str, str]:
    """Return long names shortened to their two ends, with a length at which they still differ."""
    whole = {one for one in names if len(one) > _LONG}
    length = 6  # the ends of generated names differ, such as "worker-7f9c5d-x2kqp"
    while len({one[-length:] for one in whole}) < len(whole):
        length += 2
    return {one: f"{one[:3]}…{one[-length:]}" for one in whole if length + 4 < len(one)}


APPLICATION = "application"
CLIENT = "client"
TEST = "test"
VERSION = 1
"""The version of the JSON form. It increases when a field is removed, renamed or redefined."""

Kind: TypeAlias = Literal["call", "attempt", "request", "event", "action"]
"""The kind of a row.

``call``: a request to a fake. ``attempt``: a delivery by a queue. ``request``: a request to the
application. ``event``: an event inside a fake. ``action``: an action of the test on a fake.
"""
Severity: TypeAlias = Literal["cause", "hint", "context"]
"""The severity of a finding.

A ``cause`` explains a wrong result, a ``hint`` often does, ``context`` is expected in many tests.
"""
WEIGHT: Mapping[Severity, int] = {"cause": 0, "hint": 1, "context": 2}
"""The order in which findings are shown."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a row or a finding; the page filters rows by it.

    ``kind`` is ``key``, ``channel``, ``message``, ``schedule``, ``queue``, ``topic``, ``group``,
    ``record``, ``namespace`` or ``vector``.
    """

    kind: str
    name: str
    fake: str


@dataclass(frozen=True, slots=True)
class Place:
    """A line in the code of the application or of the test."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class AppliedFault:
    """An injected fault that was applied.

    ``function`` and ``moment`` (``before`` or ``after``) are set for ``call`` faults.
    """

    kind: str
    description: str
    function: str = ""
    moment: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A call, delivery, request, event or action.

    ``number`` identifies the row. ``began`` and ``ended`` delimit the journal numbers of its
    consequences (``ended`` is 0 if that is unknown). ``actor`` is the sender and ``peer`` the
    receiver; they are equal for an event inside a fake. ``cause`` is the number of the row in which
    it is nested (0: none) and ``depth`` the nesting depth. ``follows`` is the number of the call
    that caused an event. ``attempt`` is the number of the delivery attempt (0: not a delivery).
    Rows that differ only in time and attempt have equal values of ``same``. ``entry`` is the masked
    journal entry, ``delivery`` the queue's event of an attempt.
    """

    number: int
    at_us: int
    kind: Kind
    actor: str
    peer: str
    operation: str
    service: str = ""
    subjects: tuple[Subject, ...] = ()
    status: int | None = None
    outcome: str = ""
    ok: bool = True
    faults: tuple[AppliedFault, ...] = ()
    began: int = 0
    ended: int = 0
    cause: int = 0
    depth: int = 0
    follows: int = 0
    attempt: int = 0
    where: Place | None = None
    same: object = None
    entry: Call | Event | ServedRequest | None = None
    delivery: Event | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact about what happened that may explain the failure.

    ``kind`` determines its sentence, ``rows`` are the numbers of the rows it is about, the most
    important one first, ``values`` are the JSON values in its sentence.
    """

    kind: str
    fake: str = ""
    rows: tuple[int, ...] = ()
    subjects: tuple[Subject, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    severity: Severity = "cause"


@dataclass(frozen=True, slots=True)
class Fake:
    """One fake of the cloud, open or closed."""

    name: str
    service: str
    url: str
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """The input of the renderers.

    ``findings``, ``unfinished`` (work that is still pending) and ``problems`` (strict-mode
    violations and rejected credentials) are findings. ``hints`` are sentences about requests that
    did not reach their fake, ``log`` is the test's captured log. ``failures`` describe parts of the
    report that could not be made, ``lookups`` are for the wording.
    """

    now_us: int
    clock: str
    seed: object
    test: str = ""
    failure: str = ""
    fakes: Sequence[Fake] = ()
    rows: Sequence[Row] = ()
    findings: Sequence[Finding] = ()
    unfinished: Sequence[Finding] = ()
    problems: Sequence[Finding] = ()
    failures: Sequence[str] = ()
    hints: Sequence[str] = ()
    log: str = ""
    lookups: Lookups = field(default_factory=Lookups)
