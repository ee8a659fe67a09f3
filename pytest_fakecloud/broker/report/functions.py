"""The functions of brokers that reports call."""

from __future__ import annotations

from ...reporting.contract import ReportFunctions
from . import accesses, facts, findings, wording

FUNCTIONS = ReportFunctions(
    accesses=accesses.accesses,
    sought=accesses.sought,
    facts=facts.facts,
    findings=findings.FINDINGS,
    subjects=findings.subjects,
    callers=findings.callers,
    unfinished=findings.unfinished,
    summary=wording.summary,
    event_text=wording.event_text,
    effect=wording.effect,
    sentences=wording.SENTENCES,
)
