"""The report of a test, assembled from the results of the other modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..cloud.base import BaseCloud, context_of
from ..process.applications import ServedRequest
from .contract import functions_of
from .errors import collected, contained
from .findings import find, unfinished
from .lookups import Lookups, lookups_of, records_of
from .marks import marks_of_rows
from .mask import Mask
from .model import Comparison, Finding, Marks, ReportRow
from .observed import ObservedTest
from .rows.replaced import replaced_values
from .rows.rows import ordered_accesses, rows
from .select import MOST_FINDINGS, concerning, selected
from .statement.failed import UnequalValues
from .statement.read_data import ReadData
from .statement.search import read_by_other_process, read_by_statement
from .violations import violations


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
    """Work that is pending, or has failed."""
    violations: Sequence[Finding] = ()
    """Strict-mode violations and rejected credentials."""
    errors: Sequence[str] = ()
    """Parts of the report that could not be made."""
    hints: Sequence[str] = ()
    """Sentences about mistakes in the test, and about requests that did not reach their fake."""
    log: str = ""
    """What the test logged."""
    lookups: Lookups = field(default_factory=Lookups)
    read_data: ReadData | None = None
    """What the failing statement read; None without a failure to explain, or if nothing was found."""
    marks: Marks = field(default_factory=Marks)
    listed: frozenset[int] = frozenset()
    """The numbers of the rows that a text lists."""
    beside: Mapping[str, Any] | None = None
    """The other run of a `Comparison`, which the page shows beside this one."""


def report_of(
    cloud: BaseCloud,
    *,
    test: str = "",
    failure: str = "",
    served: Sequence[ServedRequest] = (),
    idle_s: float | None = None,
    raised: BaseException | None = None,
    read: Sequence[object] | None = None,
    unequal: UnequalValues | None = None,
    hints: Sequence[str] = (),
    log: str = "",
    compare: Callable[[ObservedTest], Comparison | None] = lambda test: None,
) -> Report:
    """Return the report of a test about one cloud, with credentials masked, given the values of a
    `Report` and an `ObservedTest`. A part that cannot be made becomes a line in ``errors``. ``read``
    are names and values that the failing statement of a test in another process has compared.
    ``compare`` returns the difference from the last passing run, if there is one.
    """
    errors = list(dict.fromkeys(records_of(cloud).failures))
    lookups = _lookups(cloud, errors)
    mask, line = lookups.mask, "the calls cannot be shown"
    report_rows = collected(
        line, errors, rows, cloud, served=served, lookups=lookups, errors=errors
    )
    line = "what the rows accessed cannot be shown"
    accesses = collected(line, errors, ordered_accesses, report_rows)
    with contained("what the rows replaced cannot be shown", errors):
        lookups = replace(lookups, replaced=replaced_values(report_rows, accesses))
    observed = ObservedTest(cloud, lookups, report_rows, accesses, idle_s, raised, unequal, errors)
    read_data = _read_data(observed, read)
    marks = Marks()
    with contained("the marks cannot be shown", errors):
        marks = marks_of_rows(observed, read_data)
    findings, comparison = _findings(observed, read_data, marks), None
    with contained("the last passing run cannot be shown", errors):
        comparison = compare(observed)
    if comparison is not None and comparison.finding is not None:
        findings.append(mask.finding(comparison.finding))
    evidence = {number for finding in findings for number in finding.row_numbers}
    line = "what is unfinished cannot be shown"
    pending = collected(line, errors, unfinished, cloud, lookups, errors)
    found_violations = collected("the violations cannot be shown", errors, violations, cloud)
    shared, closed = context_of(cloud), [*context_of(cloud).closed_fakes.values()]
    return Report(
        now_us=shared.clock.now_us(), clock=shared.clock.mode, seed=cloud.seed, test=test,
        failure=mask.text(failure),
        fakes=[ReportedFake(fake.name, fake.service, fake.url, fake in closed)
               for fake in (*shared.fakes, *closed)],
        rows=report_rows, findings=findings, unfinished=list(map(mask.finding, pending)),
        violations=list(map(mask.finding, found_violations)),
        errors=list(dict.fromkeys(map(mask.text, errors))), hints=list(map(mask.text, hints)),
        log=mask.text(log), lookups=lookups, read_data=read_data, marks=marks,
        listed=selected(report_rows, marks, evidence), beside=comparison and comparison.beside,
    )  # fmt: skip


def _lookups(cloud: BaseCloud, errors: list[str]) -> Lookups:
    """Return the lookups of a cloud, with the background of its calls."""
    with contained("the lookups failed", errors):
        entries, background = list(cloud.journal.entries), dict[int, Any]()
        lookups = lookups_of(cloud, entries, errors)
        for fake in cloud.fakes():
            with contained(f"what {fake.name} knows of calls cannot be shown", errors):
                background |= functions_of(fake.service).background(fake, entries, lookups)
        return replace(lookups, background=background)
    return Lookups(mask=Mask(cloud))


def _read_data(test: ObservedTest, read: Sequence[object] | None) -> ReadData | None:
    with contained("what the failing statement read cannot be shown", test.errors):
        if test.raised is not None:
            return read_by_statement(test)
        if read is not None:
            return read_by_other_process(test, read)
    return None


def _findings(test: ObservedTest, read_data: ReadData | None, marks: Marks) -> list[Finding]:
    """Return the findings to show. The detectors compare raw values, so their findings are masked."""
    lookups = test.lookups
    raw = collected("the findings failed", test.errors, find, test)
    findings = list(map(lookups.mask.finding, raw))
    if read_data is not None:
        findings = concerning(test, read_data, marks, findings)
    return findings[:MOST_FINDINGS]
