"""The functions of key-value servers that reports call."""

from __future__ import annotations

from ...reporting.contract import ReportFunctions
from . import accesses, background, findings, wording

FUNCTIONS = ReportFunctions(
    accesses=accesses.accesses,
    sought=accesses.sought,
    subjects=accesses.subjects,
    exchanges=accesses.exchanges,
    background=background.background,
    findings=findings.FINDINGS,
    may_wait=findings.may_wait,
    summary=wording.summary,
    command_text=wording.command_text,
    sentences=wording.SENTENCES,
)
