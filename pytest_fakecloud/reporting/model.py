"""The data of a report: rows, findings and the circumstances of the test.

A report is made in one direction: journal, rows, findings, selection, renderers. The steps pass the
values of this module to each other. The values contain no sentences: `wording` writes those, and
only the renderers (`text`, `page`, `as_json`) call it. The types of its results are at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, TypeAlias

from ..core.calls import Call, Event
from .applications import ServedRequest
from .lookups import Lookups

APPLICATION = "application"
CLIENT = "client"
TEST = "test"
VERSION = 3
"""The version of the JSON form. It increases when a field is removed, renamed or redefined."""

Kind: TypeAlias = Literal["call", "attempt", "request", "event", "action"]
"""The kind of a row.

``call``: a request to a fake. ``attempt``: a delivery by a queue. ``request``: a request to the
application. ``event``: an event inside a fake. ``action``: an action of the test on a fake.
"""


SubjectKind: TypeAlias = Literal[
    "key",
    "channel",
    "namespace",
    "topic",
    "group",
    "message",
    "schedule",
    "run",
    "queue",
    "callback",
]


@dataclass(frozen=True, slots=True)
class SubjectRules:
    """How a kind of subjects marks rows."""

    has_value: bool = False
    """A statement reads a value, whole or in parts."""
    has_id: bool = False
    """Its name is an id that others repeat, so it links the rows that have it."""
    parts_have_ids: bool = False
    """The same of its parts: vectors, and the positions of records."""
    links_accesses: bool = False
    """Rows that access it are linked with those that a request, delivery or line made with it."""
    unnamed: str = ""
    """The words for one without a name; by default, its kind."""


SUBJECT_KINDS: Mapping[SubjectKind, SubjectRules] = {
    "key": SubjectRules(has_value=True, links_accesses=True),
    "channel": SubjectRules(),
    "namespace": SubjectRules(has_value=True, parts_have_ids=True, unnamed="the default namespace"),
    "topic": SubjectRules(parts_have_ids=True),
    "group": SubjectRules(),
    "message": SubjectRules(has_id=True),
    "schedule": SubjectRules(has_id=True),
    "run": SubjectRules(has_id=True),
    "queue": SubjectRules(),
    "callback": SubjectRules(),
}
"""The rules of each kind of subjects."""


@dataclass(frozen=True, slots=True)
class ReportSubject:
    """The subject of a row or a finding; the page filters rows by it."""

    kind: SubjectKind
    name: str
    fake: str

    @property
    def rules(self) -> SubjectRules:
        return SUBJECT_KINDS[self.kind]


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
class ReportRow:
    """A call, delivery, request, event or action.

    ``number`` identifies the row. ``began`` and ``ended`` delimit the journal numbers of its
    consequences (``ended`` is 0 if that is unknown). ``actor`` is the sender and ``peer`` the
    receiver; they are equal for an event inside a fake. ``cause`` is the number of the row in which
    it is nested (0: none) and ``depth`` the nesting depth. ``follows`` is the number of the call
    that caused an event, and ``call`` this call, masked. ``attempt`` is the number of the delivery
    attempt (0: not a delivery). Rows that differ only in time and attempt have equal values of
    ``same``; ``took_us`` is the duration of a call, request or delivery on the cloud's clock (None
    until it has ended, and for other rows). ``words`` are the arguments of an action. ``library`` is
    the package that made a call of its own, such as a task queue. ``entry`` is the masked journal
    entry, ``delivery`` the queue's event of an attempt.
    """

    number: int
    at_us: int
    kind: Kind
    actor: str
    peer: str
    operation: str
    service: str = ""
    subjects: tuple[ReportSubject, ...] = ()
    status: int | None = None
    outcome: str = ""
    ok: bool = True
    faults: tuple[AppliedFault, ...] = ()
    began: int = 0
    ended: int = 0
    cause: int = 0
    depth: int = 0
    follows: int = 0
    call: Call | None = None
    attempt: int = 0
    where: Place | None = None
    library: str = ""
    same: object = None
    took_us: int | None = None
    words: tuple[str, ...] = ()
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
    subjects: tuple[ReportSubject, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DataAccess:
    """A read or a write of a subject, or of a ``part`` of it: a field, a member, a partition, a vector.

    ``succeeded`` is False if a write was rejected or changed nothing, or if a read found nothing, and
    None if the answer does not say that (see `success_of()`). ``returns_value``: a write that returned
    the value before it.
    """

    subject: ReportSubject
    writes: bool
    part: str = ""
    succeeded: bool | None = True
    returns_value: bool = False

    @property
    def reads(self) -> bool:
        return self.returns_value or not self.writes


@dataclass(frozen=True, slots=True)
class Sought:
    """Data that a test looked at: a subject, or with ``*`` in its name all that match, and a part."""

    subject: ReportSubject
    part: str = ""

    def has(self, subject: ReportSubject) -> bool:
        own = self.subject
        return (own.kind, own.fake) == (subject.kind, subject.fake) and (
            subject.name in (own.name, "*") or _matches(own.name, subject.name)
        )

    def covers(self, access: DataAccess) -> bool:
        return self.has(access.subject) and (not self.part or access.part in ("", self.part))


def _matches(pattern: str, name: str) -> bool:
    return "*" in pattern and fnmatchcase(name, pattern)


StatementKind: TypeAlias = Literal["looked", "called", "changed", "compared", "last_call"]
"""How it was found what a failing statement read.

``looked``: it looked at the data of a fake. ``called``: it compared what calls of the application had
read or written. ``changed``: it compared an object of the process, such as a list, that a function
changed which received deliveries or made calls. ``compared``: the runner of a test in another process
named the data, or sent values that rows returned or wrote. ``last_call``: none of these, so it is the
last call.
"""
UnwrittenKind: TypeAlias = Literal["never", "later"]
"""Why no row wrote data that a failing statement read: none did, or only after the statement."""


@dataclass(frozen=True, slots=True)
class ReadByStatement:
    """What the failing statement at ``place`` read.

    ``looks`` are the methods with which it looked at data, ``rows`` the calls or deliveries, and ``by``
    the functions that changed what it compared. ``until`` is the journal number of the last read of
    each. ``earlier`` is the sought data that only equal requests before had read, ``unwritten`` the
    data that no row wrote. ``is_read``: the calls read data, unlike calls that only wrote.
    ``is_of_statement``: a statement failed, unlike in a test that passed with strict-mode violations.
    """

    kind: StatementKind
    sought: tuple[Sought, ...]
    place: Place | None = None
    looks: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    by: tuple[str, ...] = ()
    until: Mapping[Sought, int] = field(default_factory=dict)
    earlier: tuple[Sought, ...] = ()
    is_read: bool = True
    is_of_statement: bool = True
    unwritten: Mapping[Sought, UnwrittenKind] = field(default_factory=dict)

    @property
    def has_value(self) -> bool:
        """Whether it read values, and not only what calls wrote."""
        return self.kind != "last_call" and bool(self.looks or self.is_read)

    def covers(self, access: DataAccess) -> bool:
        return any(sought.covers(access) for sought in self.sought)

    def read_until(self, access: DataAccess) -> int:
        """Return the journal number of the last read of the data of an access; 0 without any.

        A query reads the vectors that it returns, although all of a namespace determine which.
        """
        covering = [sought for sought in self.sought if sought.covers(access)]
        if access.subject.rules.parts_have_ids:
            parts = {sought.part for sought in self.sought if sought.has(access.subject)}
            covering = [sought for sought in covering if sought.part or parts == {""}]
        return max((self.until.get(sought, 0) for sought in covering), default=0)


Mark: TypeAlias = Literal["touched", "linked", "refused"]
"""What a row has to do with a failure (see `touched`)."""


@dataclass(frozen=True, slots=True)
class Touched:
    """The numbers of the rows that touched what the failing statement read (``direct``), of those that
    are ``linked`` with them, and of those that were ``refused``. ``read`` wrote the values that it read.
    """

    direct: frozenset[int] = frozenset()
    linked: frozenset[int] = frozenset()
    refused: frozenset[int] = frozenset()
    read: frozenset[int] = frozenset()

    def marks_of(self, number: int) -> tuple[Mark, ...]:
        kinds: tuple[tuple[Mark, frozenset[int]], ...] = (
            ("touched", self.direct), ("linked", self.linked), ("refused", self.refused)
        )  # fmt: skip
        return tuple(mark for mark, numbers in kinds if number in numbers)


@dataclass(frozen=True, slots=True)
class ReportedFake:
    """One fake of the cloud, open or closed."""

    name: str
    service: str
    url: str
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """The input of the renderers.

    ``findings``, ``unfinished`` (work that is still pending) and ``violations`` (strict-mode
    violations and rejected credentials) are findings. ``hints`` are sentences about requests that
    did not reach their fake, ``log`` is the test's captured log. ``failures`` describe parts of the
    report that could not be made, ``lookups`` are for the wording. ``statement`` is None if no test has
    failed, or nothing was called. ``touched`` are the marks of the rows, and ``listed`` the numbers of
    those that a text has.
    """

    now_us: int
    clock: str
    seed: object
    test: str = ""
    failure: str = ""
    fakes: Sequence[ReportedFake] = ()
    rows: Sequence[ReportRow] = ()
    findings: Sequence[Finding] = ()
    unfinished: Sequence[Finding] = ()
    violations: Sequence[Finding] = ()
    failures: Sequence[str] = ()
    hints: Sequence[str] = ()
    log: str = ""
    lookups: Lookups = field(default_factory=Lookups)
    statement: ReadByStatement | None = None
    touched: Touched = field(default_factory=Touched)
    listed: frozenset[int] = frozenset()


# -- words -----------------------------------------------------------------------------------------

Values: TypeAlias = Mapping[str, Any]
"""The values of a finding, and the name of its ``fake``."""
Sentences: TypeAlias = Mapping[str, Callable[[Values, Lookups], str]]
"""The function that returns the sentence of each kind of finding."""


class ScriptSource(NamedTuple):
    """A Lua script; ``sha`` is the beginning of the hash of its source."""

    sha: str
    source: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The description of a row.

    ``what`` describes the request or event, ``answer`` the response. ``below`` are lines of
    explanation, ``remarks`` are short explanations that may share a line.
    """

    what: str
    answer: str = ""
    below: Sequence[str] = ()
    script: ScriptSource | None = None
    remarks: Sequence[str] = ()
    note: str = ""
