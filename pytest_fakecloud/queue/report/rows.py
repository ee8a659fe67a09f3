"""The queues, messages and schedules of requests, for the rows of a report."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.calls import Call
from ...reporting.calls import has_full_answer
from ...reporting.model import Subject
from ...reporting.values import items_of


def subjects(call: Call) -> Iterator[Subject]:
    """Yield the queue of a request, and the messages and schedules that it created."""
    if call.facts.get("queue"):
        yield Subject("queue", str(call.facts["queue"]), call.handle)
    for one in items_of(call.response_body) if has_full_answer(call) else ():
        for name, kind in (("messageId", "message"), ("scheduleId", "schedule")):
            if isinstance(one.get(name), str):
                yield Subject(kind, one[name], call.handle)
