"""Findings: facts about what happened that may explain a failure, and never guesses.

A detector yields findings, given an `ObservedTest` and in most cases also one fake. Services have
their own in ``report/findings.py``; those about all services are in this module.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..cloud.base import BaseCloud, context_of
from ..cloud.fake import Fake, core_of
from ..core.calls import Action, Call, Entry
from ..core.violations import Violation, without_message
from .accesses import OrderedAccess
from .asserted import UnequalValues
from .calls import calls_in, collected
from .contract import functions_of
from .lookups import Lookups, records_of
from .model import Delivery, Finding, Marks, ReportRow, ReportSubject
from .reading import ReadByStatement

MOST_UNFINISHED = 4
"""Maximum number of findings about unfinished work; further ones are only counted."""
MOST_FINDINGS = 6
"""Maximum number of findings in one report."""


def find(test: ObservedTest, errors: list[str]) -> list[Finding]:
    """Return the findings about a cloud, the newest first; those of a detector that raises an exception
    are missing, and the exception becomes a line of ``errors``.
    """
    findings: list[Finding] = []
    for fake in test.fakes:
        for detector in functions_of(fake.service).findings:
            findings += collected(f"{detector.__name__} failed", errors, detector, test, fake)
    findings += collected("clock_frozen failed", errors, clock_frozen, test)
    findings.sort(key=lambda finding: -max(finding.rows, default=0))
    return _once(findings)


def concerning(
    statement: ReadByStatement,
    marks: Marks,
    rows: Sequence[ReportRow],
    accesses: Sequence[OrderedAccess],
    findings: Iterable[Finding],
) -> list[Finding]:
    """Return the findings about the data that a statement read, about the rows that are connected with
    it and what these accessed, and about the whole test. Those that a touched row decided come first.
    """
    connected = marks.touched | marks.linked
    by_number = {row.number: row for row in rows}
    # A delivery to the same URL that did nothing, for example, is why an item is missing.
    addresses = {_address(row) for row in rows if row.number in connected} - {""}
    accessed = {
        ordered.access.subject for ordered in accesses
        if ordered.row.number in connected
        or (ordered.row.cause and _address(by_number[ordered.row.cause]) in addresses)
    }  # fmt: skip

    def concerns(finding: Finding) -> bool:
        return (
            not connected  # Nothing is known that the others could be told from.
            or not finding.subjects
            or not accessed.isdisjoint(finding.subjects)
            or any(
                sought.has(subject) for sought in statement.sought for subject in finding.subjects
            )
            or not connected.isdisjoint(finding.rows)
        )

    def order(finding: Finding) -> tuple[bool, bool]:
        return marks.touched.isdisjoint(finding.rows[:1]), not finding.is_hidden

    return sorted(filter(concerns, findings), key=order)


def _address(row: ReportRow) -> str:
    """Return the URL of a delivery or of a request to the application; empty for other rows."""
    if row.source.delivery is not None:
        return row.source.delivery.url
    return row.operation if row.kind == "request" else ""


def _once(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings, with those merged that differ only in the names of their subjects, such as
    ``user:1`` and ``user:2``; the other subjects are ``likewise``.
    """
    merged: dict[object, Finding] = {}
    for finding in findings:
        names = [subject.name for subject in finding.subjects]
        facts = {name: value for name, value in finding.values.items() if value not in names}
        same = finding.kind, finding.fake, repr(facts)
        first = merged.setdefault(same, finding)
        if first is finding:
            continue
        subjects = tuple(dict.fromkeys((*first.subjects, *finding.subjects)))
        others = [subject.name for subject in finding.subjects[:1] if subject not in first.subjects]
        others = [*first.values.get("likewise", ()), *others]
        merged[same] = replace(
            first, rows=tuple(dict.fromkeys((*first.rows, *finding.rows))), subjects=subjects,
            values={**first.values, "likewise": others} if others else first.values,
        )  # fmt: skip
    return list(merged.values())


def about(
    kind: str,
    decisive: Call | Action,
    subject: ReportSubject,
    evidence: Iterable[int] = (),
    /,
    **values: Any,
) -> Finding:
    """Return a finding about a subject, whose name is one of its values. The ``decisive`` call or action
    has the number of its row; ``evidence`` are the numbers of other rows.
    """
    rows = tuple(dict.fromkeys((decisive.number, *evidence)))
    values = {subject.kind.name: subject.name, **values}
    return Finding(kind, decisive.fake, rows, (subject,), values)


def _as_known(entry: Entry) -> Entry:
    """Return a copy of a call without its answer, if a fault altered it and it shows no data."""
    if not isinstance(entry, Call) or entry.outcome != "altered":
        return entry
    copied_call = copy.copy(entry)
    copied_call.response_body = b""
    return copied_call


@dataclass
class ObservedTest:
    """A test as the detectors see it: the open fakes of its cloud, the journal and its rows, the
    wall-clock time in seconds that it waited, its exception, and the last values that it found unequal.
    """

    cloud: BaseCloud
    lookups: Lookups
    rows: Sequence[ReportRow] = ()
    idle_s: float | None = None
    raised: BaseException | None = None
    compared: UnequalValues | None = None
    computed: dict[Hashable, Any] = field(default_factory=dict, init=False)
    """Results that the detectors of a service share, by its function and the arguments of this."""

    @cached_property
    def fakes(self) -> list[Any]:
        return list(context_of(self.cloud).fakes)

    @cached_property
    def entries(self) -> list[Entry]:
        # Leave out calls before a restored snapshot, which do not explain the current data.
        rewound = {fake.name: core_of(fake).rewound for fake in self.fakes}
        return [
            _as_known(entry)
            for entry in self.cloud.journal.entries
            if entry.number > rewound.get(entry.fake, 0)
        ]

    @cached_property
    def calls(self) -> list[Call]:
        return calls_in(self.entries)

    def calls_of(self, fake: Any) -> list[Call]:
        return [call for call in self.calls if call.fake == fake.name]

    def actions_on(self, fake: Any) -> list[Action]:
        return [action for action in records_of(self.cloud).actions if action.fake == fake.name]

    def deliveries_of(self, fake: Any) -> Iterator[tuple[ReportRow, Delivery]]:
        """Yield the row and the delivery of each attempt of a fake."""
        for row in self.rows:
            delivery = row.source.delivery
            if delivery is None or delivery.event.fake != fake.name:
                continue
            if delivery.event.number > core_of(fake).rewound:
                yield row, delivery


# -- detectors of all services ----------------------------------------------------------------------


def clock_frozen(test: ObservedTest) -> Iterator[Finding]:
    """Find wall-clock time that the process slept while the fake clock did not move."""
    if test.idle_s is None or test.idle_s < 1.0 or test.cloud.clock.mode != "frozen":
        return
    # A call that waits for data waits in the fake, in wall-clock time.
    waiting = {r.name for fake in test.fakes for r in core_of(fake).app.table.routes if r.lingers}
    if any(
        call.route in waiting
        or call.outcome != "answered"
        or functions_of(call.service).calls.may_wait(call)
        for call in test.calls
    ):
        return
    if test.entries and len({entry.at_us for entry in test.entries}) == 1:
        yield Finding("clock_frozen", values={"seconds": f"{test.idle_s:.1f}"})


# -- violations and unfinished work -------------------------------------------------------------------


def violations(cloud: BaseCloud) -> list[Finding]:
    """Return the strict-mode violations, counted if identical, and the rejected credentials."""
    groups: dict[object, list[Violation]] = {}
    for violation in cloud.violations():
        groups.setdefault(without_message(violation), []).append(violation)
    violations = []
    for first, *others in groups.values():
        values = {"violation": first.kind, "text": first.text, "times": 1 + len(others)}
        violations.append(Finding("violation", str(first.facts.get("fake") or ""), values=values))
    return [*violations, *rejected(cloud)]


def rejected(
    cloud: BaseCloud,
    *,
    every_call: bool = False,
    meant: Callable[[Call], bool] = lambda call: False,
) -> Iterator[Finding]:
    """Yield a finding for each fake that answered 401, with the reasons; ``every_call``: and nothing
    else. ``meant`` calls are ignored.
    """
    all_calls = calls_in(cloud.journal.entries)
    for fake in context_of(cloud).fakes:
        calls = [call for call in all_calls if call.fake == fake.name]
        wrong = [call for call in calls if call.status == 401 and call.fault is None]
        if every_call and len(wrong) < len(calls):
            continue
        wrong = [call for call in wrong if not meant(call)]
        if wrong:
            reasons: list[dict[str, str]] = []
            for call in wrong:
                if (reason := _credentials(call, cloud, fake)) not in reasons:
                    reasons.append(reason)
            values = {"rejected": len(wrong), "calls": len(calls), "reasons": reasons}
            yield Finding("rejected", fake.name, (wrong[-1].number,), values=values)


def _credentials(call: Call, cloud: BaseCloud, rejecting: Fake) -> dict[str, str]:
    if (rejection := functions_of(call.service).calls.rejection(call, rejecting)) is not None:
        return dict(rejection)
    credentials = call.request_headers.get("Authorization")
    if credentials is None:
        return {"kind": "query" if "_token=" in call.target else "none"}
    for fake in cloud.fakes():
        if fake is not rejecting and fake.headers.get("Authorization") == credentials:
            return {"kind": "other", "other": fake.name}
    return {"kind": "unknown"}


def unfinished(cloud: BaseCloud, lookups: Lookups, errors: list[str]) -> list[Finding]:
    """Return the unfinished work, that of each fake in turn; that which cannot be read becomes a line of
    ``errors``.
    """
    findings: list[Finding] = []
    for fake in context_of(cloud).fakes:
        read = functions_of(fake.service).unfinished
        findings += collected(
            f"{fake.name}: what waits cannot be shown", errors, read, fake, lookups
        )
    if (more := len(findings) - MOST_UNFINISHED) > 0:
        findings[MOST_UNFINISHED:] = [Finding("more", values={"count": more})]
    return findings
