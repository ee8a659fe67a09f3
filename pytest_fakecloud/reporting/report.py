"""The report of a test, assembled from the results of the other modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..cloud.base import BaseCloud, context_of
from ..process.applications import ServedRequest
from .accesses import OrderedAccess, ordered_accesses
from .asserted import UnequalValues
from .calls import collected, contained
from .contract import functions_of
from .findings import MOST_FINDINGS, ObservedTest, concerning, find, unfinished, violations
from .lookups import Background, Lookups, lookups_of, records_of
from .marks import marks_of_rows
from .mask import Mask
from .model import Finding, Marks, ReportRow
from .reading import ReadByStatement
from .rows import rows
from .select import selected
from .statement import places_of_rows, places_of_test, read_by_other_process, read_by_statement


@dataclass(frozen=True, slots=True)
class ReportedFake:
    """One fake of the cloud, open or closed."""

    name: str
    service: str
    url: str
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """The input of the renderers."""

    now_us: int
    clock: str
    seed: object
    test: str = ""
    failure: str = ""
    fakes: Sequence[ReportedFake] = ()
    rows: Sequence[ReportRow] = ()
    findings: Sequence[Finding] = ()
    unfinished: Sequence[Finding] = ()
    """Work that is still pending."""
    violations: Sequence[Finding] = ()
    """Strict-mode violations and rejected credentials."""
    errors: Sequence[str] = ()
    """Parts of the report that could not be made."""
    hints: Sequence[str] = ()
    """Sentences about requests that did not reach their fake."""
    log: str = ""
    """What the test logged."""
    lookups: Lookups = field(default_factory=Lookups)
    statement: ReadByStatement | None = None
    """None if no test failed, or nothing was called."""
    marks: Marks = field(default_factory=Marks)
    listed: frozenset[int] = frozenset()
    """The numbers of the rows that a text has."""


def report_of(
    cloud: BaseCloud,
    *,
    test: str = "",
    failure: str = "",
    served: Sequence[ServedRequest] = (),
    idle_s: float | None = None,
    raised: BaseException | None = None,
    read: Sequence[object] | None = None,
    compared: UnequalValues | None = None,
    hints: Sequence[str] = (),
    log: str = "",
) -> Report:
    """Return the report of a test about one cloud, with credentials masked, given the values of a
    `Report` and an `ObservedTest`. A part that cannot be made becomes a line in ``errors``. ``read``
    are names and values that the failing statement of a test in another process has compared.
    """
    mask = Mask(cloud)
    masked = partial(_masked, mask=mask)
    errors = list(dict.fromkeys(records_of(cloud).failures))
    lookups = Lookups(mask=mask, errors=errors)
    with contained("the lookups failed", errors):
        lookups = lookups_of(cloud, list(cloud.journal.entries), mask)
        errors += lookups.errors
        lookups = replace(lookups, errors=errors)
        lookups = replace(lookups, background=_background(cloud, lookups))
    read_rows = partial(rows, cloud, served=served, lookups=lookups, mask=mask)
    report_rows = collected("the calls cannot be shown", errors, read_rows)
    test_data = ObservedTest(cloud, lookups, report_rows, idle_s, raised, compared)
    # A detector sees what is not masked.
    findings = list(map(masked, collected("the findings failed", errors, find, test_data, errors)))
    statement, marks, accesses = None, Marks(), list[OrderedAccess]()
    with contained("what the rows accessed cannot be shown", errors):
        accesses = ordered_accesses(report_rows)
        if raised is not None:
            statement = read_by_statement(test_data, accesses)
        elif read is not None:
            statement = read_by_other_process(test_data, accesses, read)
        places = places_of_test(places_of_rows(records_of(cloud), report_rows))
        marks = marks_of_rows(report_rows, accesses, statement, places)
    unfinished_findings = collected(
        "what is unfinished cannot be shown", errors, unfinished, cloud, lookups, errors
    )
    found_violations = collected("the violations cannot be shown", errors, violations, cloud)
    shared = context_of(cloud)
    if statement is not None:
        findings = concerning(statement, marks, report_rows, accesses, findings)
    findings = findings[:MOST_FINDINGS]
    evidence = {number for finding in findings for number in finding.rows}
    return Report(
        now_us=shared.clock.now_us(),
        clock=shared.clock.mode,
        seed=cloud.seed,
        test=test,
        failure=mask.text(failure),
        fakes=[
            *(ReportedFake(fake.name, fake.service, fake.url) for fake in shared.fakes),
            *(
                ReportedFake(name, fake.service, fake.url, closed=True)
                for name, fake in shared.closed_fakes.items()
            ),
        ],
        rows=report_rows,
        findings=findings,
        unfinished=list(map(masked, unfinished_findings)),
        violations=list(map(masked, found_violations)),
        errors=list(dict.fromkeys(map(mask.text, errors))),
        hints=list(map(mask.text, hints)),
        log=mask.text(log),
        lookups=lookups,
        statement=statement,
        marks=marks,
        listed=selected(report_rows, marks, evidence),
    )


def _background(cloud: BaseCloud, lookups: Lookups) -> dict[int, Background]:
    """Return what the fakes of a cloud know about calls beside their answers, by the calls' numbers."""
    entries = list(cloud.journal.entries)
    background: dict[int, Background] = {}
    for fake in cloud.fakes():
        with contained(f"what {fake.name} knows of calls cannot be shown", lookups.errors):
            background |= functions_of(fake.service).background(fake, entries, lookups)
    return background


def _masked(finding: Finding, mask: Mask) -> Finding:
    values: dict[str, Any] = mask.value(finding.values)
    return replace(finding, values=values, subjects=tuple(map(mask.subject, finding.subjects)))
