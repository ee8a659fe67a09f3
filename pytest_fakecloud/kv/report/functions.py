"""The functions of key-value servers that reports call."""

from __future__ import annotations

from ...reporting import contract
from . import accesses, background, calls, connections, findings, lookups, wording

FUNCTIONS = contract.ReportFunctions(
    calls=contract.CallFunctions(
        summary=wording.summary, accesses=accesses.of_call, may_wait=calls.may_wait,
        rejection=connections.rejection, hides_body=calls.hides_words,
        shown_facts=calls.shown_facts, decoded_answer=calls.decoded_answer,
        clients=("redis", "upstash_redis", "valkey"),
    ),
    protocol=contract.CommandFunctions(
        command=calls.single_command, commands=accesses.exchanges,
        connection_exchange=connections.exchange, connection_error=connections.error_of,
    ),
    events=contract.EventFunctions(accesses=accesses.of_event),
    actions=contract.ActionFunctions(accesses=accesses.of_action),
    sought=accesses.sought,
    lookups=lookups.make,
    background=background.background,
    detectors=findings.DETECTORS,
    sentences=wording.SENTENCES,
    spans=contract.SpanNames("db", "redis", [("db.operation.name", "command")]),
)  # fmt: skip
