"""The timeline of a message as text, with the time, the status and the wait of each step."""

from __future__ import annotations

import json
import os
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import PurePath

from ..core.timeparse import to_datetime
from .model import (
    Attempt,
    LogEntry,
    Message,
    Outcome,
)
from .wire.callback import failure_text
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
    if entry.state == "CREATED":
        delay = message.not_before_us - message.created_us
        queue = f" in queue {message.queue_name}" if message.queue_name else ""
        return f"CREATED{queue}" + (f", delayed for {span(delay)}" if delay else "")
    if entry.state == "ACTIVE":
        attempt: Attempt = next(attempts)
        waited = f"after {span(attempt.waited_us)} ({attempt.wait_reason})"
        answer = attempt.state if attempt.status is None else f"status {attempt.status}"
        if attempt.exception is not None and attempt.status is None:
            answer = f"{attempt.state}: {type(attempt.exception).__name__}: {attempt.exception}"
        where = f" from {attempt.where}" if attempt.where else ""
        if attempt.exception is not None and attempt.status is not None:
            where += f", {raised_text(attempt.exception)}"
        faults = f" [fault: {', '.join(attempt.faults)}]" if attempt.faults else ""
        return f"ACTIVE  attempt {attempt.number} {waited} -> {answer}{where}{faults}"
    if entry.state == "RETRY" and entry.next_us is not None:
        return (
            f"RETRY   in {span(entry.next_us - entry.time_us)} ({message_reason(message, entry)})"
        )
    if entry.state == "ERROR":
        return ""
    if entry.state == "FAILED":
        return f"FAILED  {entry.error or ''} (dead letter {message.dlq_id})"
    return entry.state


_OURS = str(PurePath(__file__).parent.parent)
_SHORT = 60
"""Maximum length of a value shown next to a source line."""


def raised_text(exception: BaseException, did: str = "the handler raised") -> str:
    """Describe a handler's exception, with the last source line in the test or the application.

    The text begins with ``did``. The source line is left out if it is long or repeats the
    exception.
    """
    text = f"{did} {type(exception).__name__}"
    if str(exception):
        text += f": {exception}"
    frames = traceback.extract_tb(exception.__traceback__)
    if not frames:
        return text
    own = [one for one in frames if not _is_library(one.filename)]
    last = (own or frames)[-1]
    source = f": {last.line}" if own and _is_informative(last.line or "") else ""
    if source and isinstance(exception, LookupError):
        *_, (frame, _) = (
            each
            for each, told in zip(traceback.walk_tb(exception.__traceback__), frames, strict=True)
            if told is last
        )
        source += _values(frame.f_locals, last.line or "")
    return f"{text} ({PurePath(last.filename).name}:{last.lineno} in {last.name}{source})"


def _values(names: Mapping[str, object], line: str) -> str:
    """Return the dicts and lists that are indexed in a source line, as JSON."""
    told = []
    for name in dict.fromkeys(re.findall(r"\b([A-Za-z_]\w*)\[", line)):
        value = names.get(name)
        if type(value) not in (dict, list):
            continue
        with suppress(TypeError, ValueError, RecursionError):
            text = json.dumps(value, ensure_ascii=False)
            told += [f"{name} is {text}"] if len(text) <= _SHORT else []
    return "".join(f"; {one}" for one in told)


def _is_informative(line: str) -> bool:
    return 0 < len(line) <= 80 and not line.startswith("raise ")


@cache
def _libraries() -> tuple[str, ...]:
    import sysconfig

    paths = sysconfig.get_paths()
    folders = paths["stdlib"], paths["platstdlib"], paths["purelib"], _OURS
    return tuple(folder + os.sep for folder in folders)


def _is_library(filename: str) -> bool:
    return (
        filename.startswith((*_libraries(), "<frozen"))
        or "site-packages" in PurePath(filename).parts
    )


def attempt_note(outcome: Outcome) -> str | None:
    """Return why an attempt failed, or None if its status shows it."""
    if outcome.exception is None or outcome.unstubbed is not None:
        return None
    if outcome.status is None:
        return failure_text(outcome)
    if 200 <= outcome.status < 300:
        # The exception came after the response. Otherwise, the status would be 500.
        return raised_text(outcome.exception, "after the response, a background task raised")
    return raised_text(outcome.exception)


def handler_traceback(outcome: Outcome) -> str | None:
    if outcome.exception is None or outcome.status is None:
        return None
    return "".join(traceback.format_exception(outcome.exception))


def message_reason(message: Message, entry: LogEntry) -> str:
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
