"""The timeline of a message as text, with the time, the status and the wait of each step."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from ..core.timeparse import to_datetime
from .handler_errors import raised_text
from .model import (
    Attempt,
    LogEntry,
    Message,
)
from .wire.text import as_text


def span(us: int) -> str:
    """Return a duration as text, such as ``12.182 s`` or ``6 h 7 m 6.466 s``."""
    # Round first, so that 59.9996 s does not become 60 s without a carry to the minutes.
    seconds, ms = divmod(round(us / 1000), 1000)
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    parts = [f"{n} {unit}" for n, unit in ((days, "d"), (hours, "h"), (minutes, "m")) if n]
    tail = f"{seconds}.{ms:03}".rstrip("0").rstrip(".")
    if tail != "0" or not parts:
        parts.append(f"{tail} s")
    return " ".join(parts)


def timeline(message: Message, now_us: int | None = None, *, driven: bool = True) -> str:
    """Return the timeline of a message, one line per step.

    If the message is unfinished, the last line says what it waits for.
    """
    head = f"{message.public_id} {message.settings.method} {as_text(message.url)}"
    if message.kind != "message":
        head += f" ({message.kind.replace('_', ' ')} about {message.source_id})"
    lines = [head]
    attempts = iter(message.attempts)
    for entry in message.log:
        text = _step(message, entry, attempts)
        if text:
            moment = to_datetime(entry.time_us).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
            after = span(entry.time_us - message.created_us)
            lines.append(f"  {moment}  +{after:<20}  {text}")
    lines += [f"  a callback was not published: {text}" for text in message.lost_callbacks]
    if not message.finished and message.state != "CANCEL_REQUESTED":
        lines.append(f"  {waiting_text(message, now_us, driven=driven)}")
    return "\n".join(lines)


def _step(message: Message, entry: LogEntry, attempts: Iterator[Attempt]) -> str:
    """Describe a log entry. Each ACTIVE entry belongs to the next of the attempts."""
    if entry.state == "CREATED":
        delay = message.not_before_us - message.created_us
        queue = f" in queue {message.queue_name}" if message.queue_name else ""
        return f"CREATED{queue}" + (f", delayed for {span(delay)}" if delay else "")
    if entry.state == "ACTIVE":
        return _attempt_text(next(attempts))
    if entry.state == "RETRY" and entry.next_us is not None:
        return f"RETRY   in {span(entry.next_us - entry.time_us)} ({_retry_reason(message, entry)})"
    if entry.state == "ERROR":
        return ""
    if entry.state == "FAILED":
        return f"FAILED  {entry.error or ''} (dead letter {message.dlq_id})"
    return entry.state


def _attempt_text(attempt: Attempt) -> str:
    waited = f"after {span(attempt.waited_us)} ({attempt.wait_reason})"
    answer = attempt.state if attempt.status is None else f"status {attempt.status}"
    if attempt.exception is not None and attempt.status is None:
        answer = f"{attempt.state}: {type(attempt.exception).__name__}: {attempt.exception}"
    where = f" from {attempt.where}" if attempt.where else ""
    if attempt.exception is not None and attempt.status is not None:
        where += f", {raised_text(attempt.exception)}"
    faults = f" [fault: {', '.join(attempt.faults)}]" if attempt.faults else ""
    return f"ACTIVE  attempt {attempt.number} {waited} -> {answer}{where}{faults}"


def _retry_reason(message: Message, entry: LogEntry) -> str:
    """Return the reason for the wait before a retry."""
    for attempt in message.attempts:
        if attempt.at_us >= (entry.next_us or 0) and attempt.sequence > entry.number:
            return attempt.wait_reason
    return message.wait_reason


def waiting_text(message: Message, now_us: int | None = None, *, driven: bool = True) -> str:
    """Return what an unfinished message waits for.

    ``now_us`` is the current time. With it, the text says how long until the message is due, or
    what is missing to deliver it. ``driven`` is True if calls of the test deliver messages.
    """
    if message.state == "ACTIVE":
        return "in flight: the destination has not answered yet on the queue's clock"
    if message.due_us is not None:
        due = to_datetime(message.due_us)
        if now_us is None:
            return f"due {_instant(due)} ({message.wait_reason})"
        if message.due_us > now_us:
            return f"due {due_text(message.due_us, now_us)} ({message.wait_reason})"
        if driven:
            return "due now, but not delivered yet; call queue.run_until_idle()"
        return "due now, but not delivered yet in the background"
    if message.queue_name is not None and not message.attempts:
        return f"waits in queue {message.queue_name} (behind others, or the queue is paused)"
    return f"waits: {message.wait_reason}"


def due_text(due_us: int, now_us: int) -> str:
    """Return a due time and the time left until then, as text. The date is included on another day."""
    due = to_datetime(due_us)
    same_day = due.date() == to_datetime(now_us).date()
    at = _instant(due).partition(" ")[2] if same_day else _instant(due)
    # Round before subtracting, because the times are shown in milliseconds.
    return f"{at} in {span((due_us // 1000 - now_us // 1000) * 1000)}"


def _instant(at: datetime) -> str:
    part = at.microsecond // 1000
    return f"{at:%Y-%m-%d %H:%M:%S}{f'.{part:03}' if part else ''}Z"
