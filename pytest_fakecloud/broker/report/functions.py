"""The functions of brokers that reports call."""

from __future__ import annotations

from ...reporting.contract import ReportFunctions
from . import accesses, background, findings, wording

FUNCTIONS = ReportFunctions(
    accesses=accesses.accesses,
    sought=accesses.sought,
    subjects=accesses.subjects,
    subjects_of_event=accesses.subjects_of_event,
    subjects_of_action=accesses.subjects_of_action,
    background=background.background,
    findings=findings.FINDINGS,
    callers=findings.callers,
    unfinished=findings.unfinished,
    summary=wording.summary,
    event_text=wording.event_text,
    effect=wording.effect,
    sentences=wording.SENTENCES,
)
