"""Findings: facts about what happened that may explain a failure, and never guesses.

A detector yields findings, given an `ObservedTest` and one fake. Services have their own in
``report/findings.py``; that of all services, `clock_frozen` in this module, gets the test alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ..cloud.base import BaseCloud, context_of
from ..cloud.fake import core_of
from ..core.calls import Action, Call
from .accesses import ReportSubject
from .contract import functions_of
from .errors import collected
from .lookups import Lookups
from .model import Finding
from .observed import ObservedTest

MOST_UNFINISHED = 4
"""Maximum number of findings about unfinished work; further ones are only counted."""


def find(test: ObservedTest) -> list[Finding]:
    """Return the findings about a cloud, the newest first; of a detector that raises an exception, those
    that it yielded before. The exception becomes a line of ``test.errors``.
    """
    findings, errors = list[Finding](), test.errors
    for fake in test.fakes:
        for detector in functions_of(fake.service).detectors:
            findings += collected(f"{detector.__name__} failed", errors, detector, test, fake)
    findings += collected("clock_frozen failed", errors, clock_frozen, test)
    findings.sort(key=lambda finding: -max(finding.row_numbers, default=0))
    return _once(findings)


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
            first, subjects=subjects,
            row_numbers=tuple(dict.fromkeys((*first.row_numbers, *finding.row_numbers))),
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


def unfinished(cloud: BaseCloud, lookups: Lookups, errors: list[str]) -> list[Finding]:
    """Return the unfinished work of each fake. Exceptions become lines of ``errors``."""
    findings: list[Finding] = []
    for fake in context_of(cloud).fakes:
        read = functions_of(fake.service).unfinished
        failed = f"{fake.name}: what waits cannot be shown"
        findings += collected(failed, errors, read, fake, lookups)
    if (more := len(findings) - MOST_UNFINISHED) > 0:
        findings[MOST_UNFINISHED:] = [Finding("more", values={"count": more})]
    return findings
