"""The functions of brokers that reports call."""

from __future__ import annotations

from ...reporting.contract import (
    ActionFunctions,
    CallFunctions,
    EventFunctions,
    ReportFunctions,
    SpanNames,
)
from . import accesses, background, events, findings, lookups, wording

_SPANS = SpanNames("messaging", "kafka", [
    ("messaging.operation.name", "route"),
    ("messaging.destination.name", "topic"),
    ("messaging.consumer.group.name", "group"),
])  # fmt: skip
FUNCTIONS = ReportFunctions(
    calls=CallFunctions(
        summary=wording.summary, accesses=accesses.of_call, subjects=accesses.subjects_of_call
    ),
    events=EventFunctions(
        summary=events.summary,
        accesses=accesses.of_event,
        subjects=accesses.subjects_of_event,
        callers=events.callers,
        results_from=events.results_from,
        effect=events.effect,
    ),
    actions=ActionFunctions(accesses=accesses.of_action, subjects=accesses.subjects_of_action),
    sought=accesses.sought,
    lookups=lookups.lookups,
    background=background.background,
    findings=findings.FINDINGS,
    unfinished=findings.unfinished,
    sentences=wording.SENTENCES,
    spans=_SPANS,
)
