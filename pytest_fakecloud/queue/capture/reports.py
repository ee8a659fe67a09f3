"""Lines of the error of a failed wait or assertion about callbacks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...core.matching import Query
from ...core.timeparse import to_datetime
from ...core.wording import counted
from ..timeline import dead_letter_lines, unfinished_lines
from .waiting import LONGEST_DRIVE_US

if TYPE_CHECKING:
    from ..handle import Queue
    from ..views import PublishedMessage
    from .handle import CallbackCapture, Inbox

_LISTED = 5
"""Maximum number of messages of each queue that the error lists."""


def undelivered_lines(capture: CallbackCapture) -> list[str]:
    """Return lines about the unfinished and dead-lettered messages of the cloud's queues."""
    lines: list[str] = []
    for queue in capture._waiter.queues():
        lines += [*unfinished_lines(queue._engine), *dead_letter_lines(queue._engine)]
    more = len(lines) - _LISTED
    return lines[:_LISTED] + ([f"and {more} more"] if more > 0 else [])


def wait_report(
    capture: CallbackCapture, inbox: Inbox, asked: Query, *, missing: bool
) -> list[str]:
    """Return lines about the callbacks at both URLs and the messages of the queues.

    If too few callbacks are there (``missing``), also list what may still produce callbacks.
    """
    lines: list[str] = []
    received = inbox.results()
    if received and not asked.given.keys() - {"callback"}:
        lines.append("  payload of the last callback:")
        text = json.dumps(received[-1].payload, indent=2, ensure_ascii=False)
        lines += [f"    {line}" for line in text.splitlines()]
    other = capture._callbacks if inbox.failure else capture._failures
    if others := other.results():
        where = f"{capture.url}{other.path}"
        lines.append(f"  {counted(len(others), other.kind)} arrived at {where} instead:")
        lines += [f"    {item!r}" for item in others[-3:]]
    lines += _message_lines(capture, inbox)
    return lines + (_pending_lines(capture) if missing else [])


def _message_lines(capture: CallbackCapture, inbox: Inbox) -> list[str]:
    url = capture.url + inbox.path

    def concerns(message: PublishedMessage) -> bool:
        """Return whether the URL is the message's destination, or its callback URL."""
        settings = message._record.settings
        wanted = settings.failure_callback if inbox.failure else settings.callback
        return any(one.startswith(url) for one in (message.url, wanted or ""))

    lines: list[str] = []
    for queue in capture._waiter.queues():
        messages = list(queue.messages())
        # Prefer messages that concern this URL, then the newest, but list them as published.
        ranked = sorted(messages, key=concerns)[-_LISTED:]
        for message in messages:
            if message in ranked:
                lines += [f"  {line}" for line in message.timeline.splitlines()]
        if len(messages) > _LISTED:
            lines.append(
                f"  and {counted(len(messages) - _LISTED, 'more message')} of {queue.name}"
            )
    return lines or ["  no message was published to a queue of this cloud"]


def _pending_lines(capture: CallbackCapture) -> list[str]:
    if capture.closed:
        return [f"  {capture.name} is closed and cannot receive callbacks any more"]
    due = capture.clock.next_due()
    if not capture._waiter.may_arrive() and due is None:
        return ["  nothing is left to deliver, so no further callback can arrive"]
    now_us = capture._time.now_us()
    return [text for queue in capture._waiter.queues() for text in _later_lines(queue, now_us)]


def _later_lines(queue: Queue, now_us: int) -> Iterator[str]:
    due = queue._engine.next_due_us() if queue._engine.pending else None
    if due is not None and due > now_us + LONGEST_DRIVE_US:
        yield (
            f"  the next message is due at {to_datetime(due).isoformat()}, more than 30 days ahead:"
            " move the clock with clock.advance()"
        )
    elif due is not None:
        advice = "run the queue" if queue.delivery == "driven" else "pass a longer timeout="
        yield (
            f"  {counted(len(queue._engine.pending), 'message')} still to be delivered, the next at "
            f"{to_datetime(due).isoformat()}: {advice}"
        )
    for schedule in queue.schedules():
        if not schedule.paused and (runs := schedule.next_runs(1)):
            yield (
                f"  the schedule {schedule.id} to {schedule.url} is due at "
                f"{runs[0].isoformat()}; waiting does not run schedules: move the clock with"
                " clock.advance()"
            )
