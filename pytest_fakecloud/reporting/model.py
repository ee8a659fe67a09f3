"""The data of a report: rows, findings and the circumstances of the test.

A report is made in one direction: journal, rows, findings, selection, renderers. The steps pass the
values of this module to each other. The values contain no sentences: `wording` writes those, and
only the renderers (`text`, `page`, `as_json`) call it. The types of its results are at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from ..core.calls import Call, Event
from .applications import ServedRequest
from .calls import Lookups

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
IN_FULL = 3
"""Number of findings that are shown in full; the others have a line each."""


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
    that caused an event. ``attempt`` is the number of the delivery attempt (0: not a delivery).
    Rows that differ only in time, attempt and the numbers in their ``words`` have equal values of
    ``same``; ``took_us`` is the duration of a call, request or delivery on the cloud's clock (None
    until it has ended, and for other rows). ``words`` are the arguments of an action or of a single
    command. ``entry`` is the masked journal entry, ``delivery`` the queue's event of an attempt.
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
    attempt: int = 0
    where: Place | None = None
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
    severity: Severity = "cause"


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
    report that could not be made, ``lookups`` are for the wording.
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


# -- words -----------------------------------------------------------------------------------------

Values: TypeAlias = Mapping[str, Any]
"""The values of a finding, and the name of its ``fake``."""
Sentences: TypeAlias = Mapping[str, str | Callable[[Values, Lookups], str]]
"""The sentence of each kind of finding: a template filled with its values, or a function."""


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
