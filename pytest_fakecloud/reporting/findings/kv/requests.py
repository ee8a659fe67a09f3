"""Findings about requests that the server rejected in whole or in part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...model import Finding
from ..look import Look
from .commands import commands


def not_streamed(look: Look, handle: Any) -> Iterator[Finding]:
    """Find subscriptions that were rejected because the request does not accept a stream."""
    for call in look.calls_of(handle):
        if call.route not in ("subscribe", "psubscribe", "monitor") or call.status != 400:
            continue
        accepted = call.headers.get("Accept")
        if call.fault is None and "text/event-stream" not in (accepted or ""):
            values = {"command": call.route, "accept": accepted or "none"}
            yield Finding("accept_missing", handle.name, (call.number,), values=values)


def failed_inside(look: Look, handle: Any) -> Iterator[Finding]:
    """Find pipelines and transactions in which some commands failed and the others were executed."""
    done: dict[int, int] = {}
    for call, _, _ in commands(look, handle):
        done[call.number] = done.get(call.number, 0) + 1
    for call in look.calls_of(handle):
        steps = look.scene.gathered.get(call.number, ())
        lines = [step.facts["words"][0] for step in steps] or call.facts.get("words") or []
        several = call.route in ("pipeline", "multi-exec") or bool(steps)
        well = done.get(call.number, 0)
        failed = len(lines) - well
        if several and call.status == 200 and well and failed > 0:
            what = "transaction" if call.route == "multi-exec" or steps else "pipeline"
            values = {
                "failed": failed, "executed": well, "commands": len(lines), "what": what
            }  # fmt: skip
            yield Finding("commands_failed", handle.name, (call.number,), values=values)
