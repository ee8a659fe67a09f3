"""The data of a report: rows, findings and the circumstances of the test.

A report is made in one direction: journal, rows, findings, selection, renderers. Values of this
module pass between the steps. They contain no sentences: `wording` writes those, and only the
renderers (`text`, `page`, `as_json`) call it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..core.calls import Call, Event
from .scene import Scene

if TYPE_CHECKING:
    from .applications import Served

APPLICATION = "application"
CLIENT = "client"
TEST = "test"
VERSION = 1
"""The version of the JSON form. It changes when a field is removed, renamed or given another meaning."""

Kind: TypeAlias = Literal["call", "attempt", "request", "event", "action"]
"""The kind of a row.

``call``: a request to a fake. ``attempt``: a delivery by a queue. ``request``: a request to the
application. ``event``: something that a fake did. ``action``: something that the test did on a fake.
"""
Severity: TypeAlias = Literal["cause", "hint", "context"]
"""``cause`` explains a wrong result, ``hint`` often does, ``context`` is expected in many tests."""
WEIGHT: Mapping[Severity, int] = {"cause": 0, "hint": 1, "context": 2}
"""The order in which findings are shown."""
SEVERITIES: Mapping[str, Severity] = {
    **dict.fromkeys(
        ("metadata_not_included", "upsert_replaced", "several_callbacks", "no_order", "never_called",
         "received_again", "continued_after_error", "error_not_seen", "message_waits",
         "group_behind", "signature_valid", "read_after_expiry",
         "delivered_late", "shared_group", "pages_overlap", "limit_shared", "hit_not_used",
         "instances_used_once"),
        "hint",
    ),
    **dict.fromkeys(("dead_letter", "schedule_waits"), "context"),
}  # fmt: skip
"""The severity of each kind of finding that is not a cause."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing that a row or a finding is about, by which rows can be followed.

    ``kind`` is ``key``, ``channel``, ``message``, ``schedule``, ``queue``, ``topic``, ``group``,
    ``record``, ``namespace`` or ``vector``.
    """

    kind: str
    name: str
    fake: str


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the application's or the test's code."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class AppliedFault:
    """An injected fault that fired.

    ``function`` and ``moment`` (``before`` or ``after``) are set for ``call`` faults.
    """

    kind: str
    description: str
    function: str = ""
    moment: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that happened.

    ``number`` identifies it, ``began`` and ``ended`` delimit the journal numbers of what it
    caused (``ended`` is 0 where that is unknown). ``actor`` did it and ``peer`` received it; they
    are equal for an event inside a fake. ``cause`` is the number of the row it is nested in (0:
    none) and ``depth`` how deep. ``follows`` is the number of the call that an event resulted
    from. ``attempt`` counts the attempts of the message (0: not a delivery). ``same`` is equal for
    rows that differ only in time and attempt. ``entry`` is the masked journal entry, ``delivery``
    the queue's event of an attempt.
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
    entry: Call | Event | Served | None = None
    delivery: Event | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact about what happened that may explain the failure.

    ``kind`` names it (each has its wording), ``rows`` are the numbers of the rows it is about,
    the decisive one first, ``values`` what its sentence contains, as JSON.
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
    """Everything that a renderer needs.

    ``findings``, ``unfinished`` (what still waits) and ``problems`` (strict-mode violations and
    rejected credentials) are findings. ``hints`` are sentences about requests that did not reach
    their fake, ``log`` is what the test logged. ``failures`` are descriptions of parts of the
    report that could not be made, ``scene`` is what the wording looks up.
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
    scene: Scene = field(default_factory=Scene)
