"""The functions of vector indexes that reports call."""

from __future__ import annotations

from ...reporting.contract import (
    ActionFunctions,
    CallFunctions,
    EventFunctions,
    ReportFunctions,
    SpanNames,
)
from . import accesses, background, findings, wording

_SPANS = SpanNames(
    "db", "upstash.vector", [("db.operation.name", "route"), ("db.namespace", "namespace")]
)
FUNCTIONS = ReportFunctions(
    calls=CallFunctions(
        summary=wording.summary,
        accesses=accesses.of_call,
        subjects=accesses.subjects_of_call,
        clients=("upstash_vector",),
    ),
    events=EventFunctions(subjects=accesses.subjects_of_event),
    actions=ActionFunctions(summary=wording.summary_of_action, accesses=accesses.of_action),
    sought=accesses.sought,
    background=background.background,
    findings=findings.FINDINGS,
    unfinished=findings.unfinished,
    sentences=wording.SENTENCES,
    spans=_SPANS,
)
