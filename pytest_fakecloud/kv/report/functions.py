"""The functions of key-value servers that reports call."""

from __future__ import annotations

from ...reporting.contract import ReportFunctions
from . import accesses, background, calls, findings, lookups, wording

FUNCTIONS = ReportFunctions(
    accesses=accesses.accesses,
    sought=accesses.sought,
    subjects=accesses.subjects,
    exchanges=accesses.exchanges,
    lookups=lookups.lookups,
    background=background.background,
    findings=findings.FINDINGS,
    may_wait=calls.may_wait,
    summary=wording.summary,
    command_text=wording.command_text,
    sentences=wording.SENTENCES,
)
