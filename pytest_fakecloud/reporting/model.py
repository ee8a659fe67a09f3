"""The data of a report: rows, findings, and what the failing statement read.

A report is made in one direction: journal, rows, findings, selection, renderers. The steps pass the
values of this module to each other. The values contain no sentences but those of violations and
hints: `wording` writes the others when a report is rendered. The types of its results are at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, TypeAlias

from ..core.calls import Action, Call, Event, began
from ..process.applications import ServedRequest

APPLICATION = "application"
CLIENT = "client"
CONSOLE = "console"
TEST = "test"
VERSION = 3
"""The version of the JSON form. It increases when a field is removed, renamed or redefined."""

JournalNumber: TypeAlias = int
"""A position on the axis of a report: the counter of the cloud's journal, from 1; 0 if it is unknown, or
if there is none. Entries, actions and the beginnings of requests count up. An attempt whose receiver
made a call that caused an event::

    10 ········ 11 ········ 12 ········ 13
    began                               ended, number    attempt
                number                                   call, cause=13
                            number                       event, cause=11, follows=11
"""
Kind: TypeAlias = Literal["call", "attempt", "request", "event", "action"]
"""The kind of a row.

``call``: a request to a fake. ``attempt``: a delivery by a fake. ``request``: a request to the
application. ``event``: an event inside a fake. ``action``: an action of the test on a fake.
"""


@dataclass(frozen=True, slots=True)
class SubjectKind:
    """A kind of data, such as ``key``, and how its subjects mark rows. Services define their own."""

    name: str
    _: KW_ONLY
    has_value: bool = False
    """A statement reads a value, whole or in parts."""
    has_id: bool = False
    """The name of a subject is an id that others repeat, so it links the rows that have it."""
    parts_have_ids: bool = False
    """The same of its parts, such as vectors."""
    links_accesses: bool = False
    """Rows that access it are linked with those that a request, delivery or line made with it."""
    is_delivered: bool = False
    """Deliveries bring it to the application."""
    unnamed: str = ""
    """The words for a subject without a name; by default, the name of the kind."""


EVERY_KIND = SubjectKind("data")


@dataclass(frozen=True, slots=True)
class ReportSubject:
    """The subject of a row or a finding; the page filters rows by it."""

    kind: SubjectKind
    name: str
    """Empty if it is unknown, or if the default one has none."""
    fake: str
    is_all: bool = False
    """Whether it stands for all data of its kind; that of ``EVERY_KIND``, for all data of the fake."""

    @classmethod
    def all_of(cls, kind: SubjectKind, fake: str) -> ReportSubject:
        return cls(kind, "*", fake, is_all=True)

    def includes(self, other: ReportSubject) -> bool:
        is_same_kind = self.kind in (other.kind, EVERY_KIND)
        return self == other or (self.is_all and self.fake == other.fake and is_same_kind)


@dataclass(frozen=True, slots=True)
class Place:
    """A line of code; ``callers`` are the places that called its function, the nearest first."""

    file: str
    line: int
    function: str
    callers: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class AppliedFault:
    """An injected fault that was applied; ``call`` faults have a ``function`` and a ``moment``."""

    kind: str
    description: str
    function: str = ""
    moment: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery attempt, read from its event. What is unknown is empty, 0 or None."""

    event: Event
    data: Mapping[str, Any]
    """All details of the event; those that have no field here are only shown."""
    kind: str
    """``message``, or the kind of a callback."""
    message_id: str
    about: str
    """The message that a callback is about."""
    run: str
    """The workflow run that the message belongs to."""
    url: str
    status: int | None
    number: int | None
    """How many attempts of the message there were, with this one."""
    began: JournalNumber
    ended: JournalNumber
    """The number by which all its consequences had ended."""
    faults: tuple[AppliedFault, ...]

    @classmethod
    def of(cls, event: Event) -> Delivery:
        data = event.data
        message_id, about, run, url = (
            str(data.get(name) or "") for name in ("message_id", "about", "run", "url")
        )
        return cls(
            event, data, str(data.get("message_kind", "message")), message_id, about, run, url,
            data.get("status"), data.get("number"), began(event),
            event.number if data.get("alone") is True else 0,
            tuple(AppliedFault(str(kind), str(kind)) for kind in data.get("faults") or ()),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSource:
    """What a row was made from, masked: one of these by its kind, or both ``delivery`` and ``call`` for
    an attempt that a fake of the cloud received.
    """

    call: Call | None = None
    delivery: Delivery | None = None
    request: ServedRequest | None = None
    event: Event | None = None
    action: Action | None = None
    error: str = ""
    """Why the entry cannot be shown."""


@dataclass(frozen=True, slots=True)
class ReportRow:
    """A call, delivery, request, event or action."""

    number: JournalNumber
    """Identifies the row: the number of its entry, or that at which a request began."""
    at_us: int
    kind: Kind
    actor: str
    """The sender."""
    peer: str
    """The receiver; equal to ``actor`` for an event inside a fake."""
    operation: str
    """The command or route of a call, the URL of a request, the kind of an event or action."""
    service: str = ""
    source: RowSource = RowSource()
    accesses: tuple[DataAccess, ...] = ()

    # The answer to a call, a delivery or a request. An event and an action only have faults.
    status: int | None = None
    outcome: str = ""
    """How a call ended, as in `Call`; ``answered`` also of a request that has a response."""
    ok: bool = True
    """Whether the answer is complete and no error."""
    faults: tuple[AppliedFault, ...] = ()
    took_us: int | None = None
    """The duration on the cloud's clock; None until it has ended."""

    # The position in the timeline, and the row in which this one is nested.
    began: JournalNumber = 0
    """Its consequences have higher numbers."""
    ended: JournalNumber = 0
    """Its consequences have lower numbers."""
    cause: JournalNumber = 0
    """The row around it: the request or delivery during which it happened, or the call it follows."""
    depth: int = 0
    """How deep it is nested."""
    follows: JournalNumber = 0
    """The call that caused an event."""

    # What tells it from similar rows.
    attempt: int = 0
    """The number of the delivery attempt; 0 if it is no delivery."""
    where: Place | None = None
    """The line that made a call or an action, if it is known."""
    library: str = ""
    """The package that made a call of its own, such as a task queue."""
    same: object = None
    """Rows that differ only in time and attempt have equal values."""

    @property
    def subjects(self) -> tuple[ReportSubject, ...]:
        """What the row is about: that of its accesses, each once."""
        subjects = dict.fromkeys(access.subject for access in self.accesses)
        return tuple(
            subject for subject in subjects
            if not subject.is_all and (subject.name or not subject.kind.has_id)
        )  # fmt: skip

    @property
    def arguments(self) -> Sequence[str]:
        """The arguments of an action, as the test wrote them."""
        action = self.source.action
        return () if action is None else tuple(action.data.get("arguments") or ())


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact about what happened that may explain the failure.

    ``kind`` determines its sentence, ``rows`` are the numbers of the rows it is about, the decisive
    one first, ``values`` are the JSON values in its sentence.
    """

    kind: str
    fake: str = ""
    rows: tuple[int, ...] = ()
    subjects: tuple[ReportSubject, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    is_hidden: bool = False
    """Whether no answer shows the fact, so that nobody looks for it. It comes before others."""
    failed: bool = False
    """Whether unfinished work has failed; otherwise, it still waits."""


@dataclass(frozen=True, slots=True)
class DataAccess:
    """A read or a write of a subject or of a part of it."""

    subject: ReportSubject
    writes: bool
    part: str = ""
    """A field, a member, a partition or a vector; empty for the whole."""
    succeeded: bool | None = True
    """False if a write was rejected or changed nothing, or if a read found nothing; None if the answer
    does not say that (see `success_of()`).
    """
    returns_value: bool = False
    """Whether a write returned the value before it."""
    is_named: bool = False
    """Whether the subject was only named, and its data neither read nor written (see `named()`)."""

    @property
    def reads(self) -> bool:
        return self.returns_value or not (self.writes or self.is_named)


def named(kind: SubjectKind, name: object, fake: str) -> DataAccess:
    """Return what only tells which subject a row is about, and by whose id it is linked."""
    return DataAccess(ReportSubject(kind, str(name), fake), False, succeeded=None, is_named=True)


@dataclass(frozen=True, slots=True)
class Sought:
    """Data that a test looked at: a subject or a part of it, or all subjects that match a ``pattern``
    of shells, which is then also the name of the subject.
    """

    subject: ReportSubject
    part: str = ""
    pattern: str = ""

    def has(self, subject: ReportSubject) -> bool:
        sought = self.subject
        return (
            sought.includes(subject)
            or subject.includes(sought)
            or (
                bool(self.pattern)
                and (sought.kind, sought.fake) == (subject.kind, subject.fake)
                and fnmatchcase(subject.name, self.pattern)
            )
        )

    def covers(self, access: DataAccess) -> bool:
        return self.has(access.subject) and (not self.part or access.part in ("", self.part))


Mark: TypeAlias = Literal["touched", "linked", "refused"]
"""What a row has to do with a failure (see `marks_of_rows()`)."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The numbers of the rows with each mark."""

    touched: frozenset[int] = frozenset()
    linked: frozenset[int] = frozenset()
    refused: frozenset[int] = frozenset()
    writers: frozenset[int] = frozenset()
    """The rows that wrote the values which the failing statement read."""
    undone: JournalNumber = 0
    """The last write of what it read that was refused, if no later one was effective; 0 without one."""

    def of(self, number: int) -> tuple[Mark, ...]:
        kinds: tuple[tuple[Mark, frozenset[int]], ...] = (
            ("touched", self.touched), ("linked", self.linked), ("refused", self.refused)
        )  # fmt: skip
        return tuple(mark for mark, numbers in kinds if number in numbers)


# -- words -----------------------------------------------------------------------------------------

Values: TypeAlias = Mapping[str, Any]
"""The values of a finding, and the name of its ``fake``."""
Sentences: TypeAlias = Mapping[str, str | Callable[[Values], str]]
"""The sentence of each kind of finding: a template with the names of its values, whose strings are
shortened, or a function.
"""


class ScriptSource(NamedTuple):
    """A Lua script; ``sha`` is the beginning of the hash of its source."""

    sha: str
    source: str


class Repeated(NamedTuple):
    """The ``end`` of a description that is left out below rows that have all of ``shown_by``."""

    end: str
    shown_by: Sequence[str]


@dataclass(frozen=True, slots=True)
class Summary:
    """The description of a row.

    ``what`` describes the request or event, ``answer`` a response without error; the row of an error
    shows that instead. ``below`` are lines of explanation, ``remarks`` are short explanations that may
    share a line.
    """

    what: str
    answer: str = ""
    below: Sequence[str] = ()
    script: ScriptSource | None = None
    remarks: Sequence[str] = ()
    note: str = ""
    repeated: Repeated | None = None
