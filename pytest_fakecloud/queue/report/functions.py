"""The functions of queues, and of the servers that receive their deliveries, that reports call."""

from __future__ import annotations

from dataclasses import replace

from ...reporting.contract import ReportFunctions
from . import accesses, findings, lookups, wording

OF_RECEIVERS = ReportFunctions(
    accesses=accesses.accesses, sought=accesses.sought, summary=wording.summary
)
FUNCTIONS = replace(
    OF_RECEIVERS,
    subjects=accesses.subjects,
    handlers=accesses.handlers,
    findings=findings.FINDINGS,
    unfinished=findings.unfinished,
    lookups=lookups.lookups,
    attempts=lookups.attempts,
    attempt_summary=wording.attempt_summary,
    sentences=wording.SENTENCES,
)
