"""The functions of brokers that reports call."""

from __future__ import annotations

from ...reporting import contract
from . import accesses, background, events, findings, lookups, wording

_SPANS = contract.SpanNames("messaging", "kafka", [
    ("messaging.operation.name", "route"),
    ("messaging.destination.name", "topic"),
    ("messaging.consumer.group.name", "group"),
])  # fmt: skip
FUNCTIONS = contract.ReportFunctions(
    calls=contract.CallFunctions(summary=wording.summary, accesses=accesses.of_call),
    events=contract.EventFunctions(
        summary=events.summary, accesses=accesses.of_event, effect=events.effect
    ),
    actions=contract.ActionFunctions(accesses=accesses.of_action),
    sought=accesses.sought,
    lookups=lookups.make,
    background=background.background,
    detectors=findings.DETECTORS,
    unfinished=findings.unfinished,
    sentences=wording.SENTENCES,
    spans=_SPANS,
)
