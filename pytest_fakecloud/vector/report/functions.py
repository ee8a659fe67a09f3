"""The functions of vector indexes that reports call."""

from __future__ import annotations

from ...reporting.contract import ReportFunctions
from . import accesses, background, findings, wording

FUNCTIONS = ReportFunctions(
    accesses=accesses.accesses,
    sought=accesses.sought,
    subjects=accesses.subjects,
    background=background.background,
    findings=findings.FINDINGS,
    unfinished=findings.unfinished,
    summary=wording.summary,
    sentences=wording.SENTENCES,
)
