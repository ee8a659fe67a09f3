"""The functions of queues, and of the servers that receive their deliveries, that reports call."""

from __future__ import annotations

from ...reporting.contract import (
    ActionFunctions,
    CallFunctions,
    DeliveryFunctions,
    EventFunctions,
    ReportFunctions,
    SpanNames,
)
from . import accesses, findings, lookups, wording

_SPANS = SpanNames(
    "messaging",
    "qstash",
    [("messaging.operation.name", "route"), ("messaging.destination.name", "url")],
)
FUNCTIONS = ReportFunctions(
    calls=CallFunctions(
        summary=wording.summary,
        accesses=accesses.of_call,
        subjects=accesses.subjects_of_call,
        clients=("qstash", "upstash_workflow"),
    ),
    events=EventFunctions(subjects=accesses.subjects_of_event, volatile=("dlq_id", "ahead_s")),
    actions=ActionFunctions(accesses=accesses.of_action),
    deliveries=DeliveryFunctions(
        summary=wording.attempt_summary,
        accesses=accesses.of_delivery,
        received=accesses.received,
        subjects=accesses.subjects_of_received,
        exchanges=lookups.exchanges,
        handlers=accesses.handlers,
    ),
    sought=accesses.sought,
    lookups=lookups.lookups,
    findings=findings.FINDINGS,
    unfinished=findings.unfinished,
    sentences=wording.SENTENCES,
    spans=_SPANS,
)
OF_RECEIVERS = ReportFunctions(
    calls=CallFunctions(summary=wording.callback_summary, accesses=lambda call, lookups: ()),
    actions=ActionFunctions(accesses=accesses.of_action),
    sought=accesses.sought,
)
