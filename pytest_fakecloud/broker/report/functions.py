"""The functions of brokers that reports call."""

from __future__ import annotations

from ...reporting.contract import ReportFunctions
from . import accesses, background, events, findings, lookups, wording

FUNCTIONS = ReportFunctions(
    accesses=accesses.accesses,
    sought=accesses.sought,
    subjects=accesses.subjects,
    lookups=lookups.lookups,
    background=background.background,
    findings=findings.FINDINGS,
    callers=events.callers,
    results_from=events.results_from,
    unfinished=findings.unfinished,
    summary=wording.summary,
    effect=events.effect,
    sentences=wording.SENTENCES,
)
