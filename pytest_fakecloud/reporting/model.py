"""The data of a report: rows, findings and the circumstances of the test.

A report is made in one direction: journal, rows, findings, selection, renderers. The steps pass the
values of this module to each other. The values contain no sentences: `wording` writes those, and
only the renderers (`text`, `page`, `as_json`) call it. The types of its results are at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, TypeAlias

from ..core.calls import Call, Event
from .applications import ServedRequest
from .calls import Lookups

APPLICATION = "application"
CLIENT = "client"
TEST = "test"
VERSION = 2
"""The version of the JSON form. It increases when a field is removed, renamed or redefined."""

Kind: TypeAlias = Literal["call", "attempt", "request", "event", "action"]
"""The kind of a row.

``call``: a request to a fake. ``attempt``: a delivery by a queue. ``request``: a request to the
application. ``event``: an event inside a fake. ``action``: an action of the test on a fake.
"""


@dataclass(frozen=True, slots=True)
class ReportSubject:
    """The subject of a row or a finding; the page filters rows by it.

    ``kind`` is ``key``, ``channel``, ``message``, ``schedule``, ``queue``, ``topic``, ``group``,
    ``record``, ``namespace`` or ``vector``.
    """

    kind: str
    name: str
    fake: str


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

    ``what`` describes the command or the request and ``result`` its effect or answer. ``value`` is
    the value that was read or written, as JSON. ``succeeded`` is False if the write was rejected
    or changed nothing, and None if the answer does not say that. ``returned`` is the value that a
    write returned.
    """

    subject: ReportSubject
    writes: bool
    what: str
    result: str = ""
    part: str = ""
    value: Any = None
    succeeded: bool | None = True
    returned: Any = None


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


StartKind: TypeAlias = Literal["looked", "called", "changed", "last_call"]
"""How the start of a history was found.

``looked``: the failing statement looked at the data of a fake. ``called``: it compared what calls of
the application had read or written. ``changed``: it compared an object of the process that a function
changed, which also made calls. ``last_call``: none of these, so it is the last call.
"""


@dataclass(frozen=True, slots=True)
class HistoryStart:
    """The start of a history: the data that the statement at ``place`` compared. ``looks`` are the
    methods with which it looked at data, ``rows`` the calls, and ``by`` the functions that changed
    what it compared. ``until`` is the journal number of the last entry before its last look.
    ``earlier`` is the sought data that only equal requests before had read. ``is_read``: the calls
    read data, unlike calls that only wrote. ``is_of_statement``: a statement failed, unlike in a test
    that passed with strict-mode violations.
    """

    kind: StartKind
    sought: tuple[Sought, ...]
    place: Place | None = None
    looks: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    by: tuple[str, ...] = ()
    until: int | None = None
    earlier: tuple[Sought, ...] = ()
    is_read: bool = True
    is_of_statement: bool = True


class Origin(NamedTuple):
    """What a request read before a write, in the row of this ``number``; ``has_value`` if this read has
    returned the written value. ``order`` is the journal number at which it happened. ``changed`` is
    the last write of the same data by others between this read and the write.
    """

    access: DataAccess
    number: int
    order: int
    has_value: bool
    changed: DataAccess | None = None


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """A write of a value, or its expiry, in the row of this ``number``.

    ``cause`` is the number of the delivery or request during which it was made, 0 if of none.
    ``is_read``: the failing statement, or a later row, read the value of this write. ``step`` counts
    the steps from the start: 0 for what the statement read, 1 for what a write of step 0 was made
    from. ``origins`` are the accesses with which the same request read what it wrote, or what it
    wrote after. ``times`` counts equal writes in succession, the first of which was at ``since_us``
    and had the ``first_result``.
    ``is_idle``: the row is the last access of a delivery or request that wrote nothing. ``order`` is
    the journal number at which it happened. ``lost`` is data that the write removed without naming it.
    ``caller`` is the line that called the function with ``where``, if there is no origin.
    ``failed`` is the write that failed at the end of the failed request or delivery that made this
    one.
    """

    number: int
    at_us: int
    access: DataAccess
    step: int
    cause: int = 0
    is_read: bool = False
    where: Place | None = None
    origins: tuple[Origin, ...] = ()
    times: int = 1
    since_us: int = 0
    is_idle: bool = False
    order: int = 0
    first_result: str = ""
    lost: tuple[str, ...] = ()
    caller: Place | None = None
    failed: Origin | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """Data that a request of the history read and no request wrote, or the reverse, although a
    ``neighbour`` with a similar name was read and written; or ``missed`` is the write of data with a
    similar name that no request read. ``row`` has the read or the write. With ``is_deletion``,
    nothing deleted the data, although ``missed`` deleted other data. A gap whose subject is a message
    has the URL of a destination as its name, to which nothing was sent.
    """

    access: DataAccess
    row: int
    neighbour: ReportSubject | None
    missed: DataAccess | None = None
    is_deletion: bool = False


@dataclass(frozen=True, slots=True)
class ExpectedItem:
    """An item of the compared values that was as expected, unlike others, and the last write of the data
    of each Sought with its name or value, whose rows are left out.
    """

    item: str
    writes: tuple[DataAccess, ...]


UnwrittenKind: TypeAlias = Literal["never", "later", "baseline", "unrecorded"]
"""Why a history has no write of the data that the failing statement compared.

``never``: nothing wrote it. ``later``: it was only written after the statement had read it.
``baseline``: it was in the baseline of its fake. ``unrecorded``: it was, or may have been, in the fake
before the first recorded call.
"""


@dataclass(frozen=True, slots=True)
class ValueHistory:
    """The writes of the data that a failing statement compared, and of what they were made from.

    ``left_out`` is the number of further writes of the compared data. If there is no write of it, the
    rows are the last writes of the test, and ``unwritten`` has the reason for all sought data.
    ``read`` is what requests and deliveries to the addresses of those that wrote have read.
    ``touched`` are the numbers of all rows that accessed data of the history, listed or not.
    """

    start: HistoryStart
    rows: tuple[HistoryRow, ...] = ()
    gaps: tuple[Gap, ...] = ()
    left_out: int = 0
    unwritten: Mapping[Sought, UnwrittenKind] = field(default_factory=dict)
    expected: tuple[ExpectedItem, ...] = ()
    read: frozenset[ReportSubject] = frozenset()
    touched: frozenset[int] = frozenset()

    def has(self, subjects: Iterable[ReportSubject]) -> bool:
        """Return whether data is part of the history: the statement compared it, or it was written, or
        a request to the same address as one that wrote has read it.
        """
        own = {*self.read, *(row.access.subject for row in self.rows)}
        return any(
            subject in own or any(sought.has(subject) for sought in self.start.sought)
            for subject in subjects
        )

    @property
    def calls(self) -> frozenset[int]:
        """The numbers of the rows of this history, and of those that its values were read in."""
        own = {row.number for row in self.rows}
        own |= {origin.number for row in self.rows for origin in row.origins}
        return frozenset(own | set(self.start.rows))


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
    report that could not be made, ``lookups`` are for the wording. ``history`` is None if no test
    has failed, or nothing was called.
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
    history: ValueHistory | None = None


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
