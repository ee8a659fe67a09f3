"""Findings about requests that the server rejected in whole or in part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ...model import Finding
from ..look import Look
from .commands import commands


def accept_missing(look: Look, handle: Any) -> Iterator[Finding]:
    """Find subscriptions that were rejected because the request does not accept a stream."""
    for call in look.calls_of(handle):
        if call.route not in ("subscribe", "psubscribe", "monitor") or call.status != 400:
            continue
        accepted = call.headers.get("Accept")
        if call.fault is None and "text/event-stream" not in (accepted or ""):
            values = {"command": call.route, "accept": accepted or "none"}
            yield Finding("accept_missing", handle.name, (call.number,), values=values)


def commands_failed(look: Look, handle: Any) -> Iterator[Finding]:
    """Find pipelines and transactions in which some commands failed and the others were executed."""
    executed = Counter(command.entry.number for command in commands(look, handle))
    for call in look.calls_of(handle):
        steps = look.scene.grouped_calls.get(call.number, ())
        lines = [step.facts["words"][0] for step in steps] or call.facts.get("words") or []
        has_several = call.route in ("pipeline", "multi-exec") or bool(steps)
        failed = len(lines) - executed[call.number]
        if has_several and call.status == 200 and executed[call.number] and failed > 0:
            what = "transaction" if call.route == "multi-exec" or steps else "pipeline"
            values = {
                "failed": failed, "executed": executed[call.number], "commands": len(lines),
                "what": what,
            }  # fmt: skip
            yield Finding("commands_failed", handle.name, (call.number,), values=values)
