"""The functions of vector indexes that reports call."""

from __future__ import annotations

from ...reporting import contract
from . import accesses, background, findings, lookups, wording

_SPANS = contract.SpanNames(
    "db", "upstash.vector", [("db.operation.name", "route"), ("db.namespace", "namespace")]
)
FUNCTIONS = contract.ReportFunctions(
    calls=contract.CallFunctions(
        summary=wording.summary, accesses=accesses.of_call, clients=("upstash_vector",)
    ),
    events=contract.EventFunctions(accesses=accesses.of_event),
    actions=contract.ActionFunctions(
        summary=wording.summary_of_action, accesses=accesses.of_action
    ),
    sought=accesses.sought,
    lookups=lookups.make,
    background=background.background,
    detectors=findings.DETECTORS,
    unfinished=findings.unfinished,
    sentences=wording.SENTENCES,
    spans=_SPANS,
)
