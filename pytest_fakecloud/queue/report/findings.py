"""Findings about rejected signatures, exceptions of workflow functions, and delays in another unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ...cloud.fake import core_of
from ...core.bodies import items_of
from ...core.calls import Call
from ...reporting.accesses import ReportSubject
from ...reporting.calls import has_full_answer
from ...reporting.lookups import Lookups
from ...reporting.model import Finding
from ...reporting.observed import ObservedTest
from ..attempt_reports import dead_letter_lines, schedule_lines, unfinished_lines
from ..fake import Queue
from ..rest.app import PUBLISHING_OR_SCHEDULING
from .accesses import MESSAGE, of_call
from .lookups import message_name


def _headers_of_message(call: Call) -> Mapping[str, Any]:
    """Return the headers of the message in a request; empty if there are several."""
    if call.route != "batch":
        return call.request_headers
    items = items_of(call.request_body)
    return items[0].get("headers") or {} if len(items) == 1 else {}


def wrong_signature(test: ObservedTest, queue: Queue) -> Iterator[Finding]:
    """Find deliveries that the application rejected for their signature, with the reasons."""
    for row, delivery in test.deliveries_of(queue):
        signature = delivery.event.data.get("signature")
        # The row of the delivery already shows a fault that changed the signature.
        if not isinstance(signature, dict) or delivery.faults:
            continue
        if reasons := _reasons(signature):
            subject = ReportSubject(MESSAGE, delivery.message_id, queue.name)
            values = {"message": delivery.message_id, "status": delivery.status, "reasons": reasons}
            yield Finding("wrong_signature", queue.name, (row.number,), (subject,), values)


def _reasons(signature: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the reasons why a signature check failed; an empty list if they are unknown."""
    if signature["missing"]:
        return [{"reason": "unsigned"}]
    if signature["invalid"]:
        return [{"reason": "invalid", "got": signature["invalid"]}]
    reasons: list[dict[str, Any]] = []
    if signature["verified_url"] is not None:
        url = {"got": signature["verified_url"], "signed": signature["url"]}
        reasons.append({"reason": "url", **url})
    if signature["verified_body"] is not None:
        same = signature["verified_body_same_json"]
        reasons.append({"reason": "json" if same else "body", "size": signature["verified_size"]})
    if signature["verified_key"] is False:
        former = "former_key" if signature["former_key"] else "key"
        reasons.append({"reason": "next_key" if signature["next_key_missing"] else former})
    if signature["claim"]:
        reasons.append({"reason": "claim", "got": signature["claim"]})
    if not reasons and signature["environment"] == "other":
        reasons.append({"reason": "environment"})
    return reasons


def raised_outside_step(test: ObservedTest, queue: Queue) -> Iterator[Finding]:
    """Find exceptions of workflow functions outside of their steps."""
    for row, delivery in test.deliveries_of(queue):
        raised = delivery.event.data.get("raised_outside_step")
        if raised and delivery.kind == "message":
            message = ReportSubject(MESSAGE, delivery.message_id, queue.name)
            values = {"message": delivery.message_id, **raised}
            yield Finding("raised_outside_step", queue.name, (row.number,), (message,), values)


def unlikely_duration(test: ObservedTest, queue: Queue) -> Iterator[Finding]:
    """Find delays that are likely in another unit."""
    for call in test.calls_of(queue):
        if call.route not in PUBLISHING_OR_SCHEDULING or not has_full_answer(call):
            continue
        headers = {name.lower(): value for name, value in _headers_of_message(call).items()}
        for setting in ("retry-delay", "delay", "timeout"):
            duration, is_ms = str(headers.get(f"upstash-{setting}") or ""), setting == "retry-delay"
            digits = duration.removesuffix("s")
            number = int(digits) if digits.isascii() and digits.isdigit() else 0
            if 0 < number < 1000 if is_ms else number >= 10_000 and number % 1000 == 0:
                means = f"{number} ms" if is_ms else f"{number / 3600:.3g} h"
                values = {"setting": setting.replace("-", " "), "given": duration, "means": means}
                accesses = of_call(call, test.lookups)
                about = tuple(dict.fromkeys(access.subject for access in accesses))
                yield Finding("unlikely_duration", queue.name, (call.number,), about, values)


def rejection(call: Call, queue: Queue) -> dict[str, str] | None:
    """Return the reason why a queue rejected its read-only token; None for other credentials."""
    token = f"Bearer {queue.read_only_token}"
    return {"kind": "read_only"} if call.request_headers.get("Authorization") == token else None


DETECTORS = (wrong_signature, raised_outside_step, unlikely_duration)


def unfinished(queue: Queue, lookups: Lookups) -> Iterator[Finding]:
    """Yield findings about messages and schedules that wait, and dead letters."""
    core_of(queue).timekeeper.settle()
    engine, name = core_of(queue).engine, partial(message_name, lookups=lookups)
    for line in unfinished_lines(engine, name):
        yield Finding("message_waits", values={"line": line})
    for line in dead_letter_lines(engine, name):
        yield Finding("dead_letter", values={"line": line}, failed=True)
    for line in schedule_lines(engine, lookups.short):
        yield Finding("schedule_waits", values={"line": line})
