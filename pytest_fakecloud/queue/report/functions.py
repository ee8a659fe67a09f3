"""The functions of queues, and of the servers that receive their deliveries, that reports call."""

from __future__ import annotations

from ...reporting import contract
from . import accesses, deliveries, findings, lookups, wording

_SPANS = contract.SpanNames("messaging", "qstash", [
    ("messaging.operation.name", "route"), ("messaging.destination.name", "url"),
])  # fmt: skip
FUNCTIONS = contract.ReportFunctions(
    calls=contract.CallFunctions(
        summary=wording.summary, accesses=accesses.of_call, address=accesses.address,
        rejection=findings.rejection, clients=("qstash", "upstash_workflow"),
    ),
    events=contract.EventFunctions(accesses=accesses.of_event, volatile=("dlq_id", "ahead_s")),
    actions=contract.ActionFunctions(accesses=accesses.of_action),
    deliveries=contract.DeliveryFunctions(
        summary=wording.delivery_summary, accesses=deliveries.accesses,
        received=deliveries.received, exchanges=lookups.exchanges, handlers=deliveries.handlers,
    ),
    sought=accesses.sought,
    lookups=lookups.make,
    detectors=findings.DETECTORS,
    unfinished=findings.unfinished,
    sentences=wording.SENTENCES,
    spans=_SPANS,
)  # fmt: skip
OF_RECEIVERS = contract.ReportFunctions(
    calls=contract.CallFunctions(summary=wording.callback_summary),
    actions=contract.ActionFunctions(accesses=accesses.of_action),
    sought=accesses.sought,
)
