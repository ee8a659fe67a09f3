"""Text about messages: timelines, and lines about what is unfinished, for reports and assertions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from ..core.timeparse import clock_time, to_datetime
from ..core.wording import counted, listed, plural
from .engine.engine import Engine
from .handler_errors import raised_text
from .model import MESSAGE, Attempt, LogEntry, Message
from .wire.values import as_text

_MAX_LINES = 5
"""Maximum number of lines in a text."""
_MAX_IDS_PER_LINE = 3
"""Maximum number of messages listed in one line."""
_MAX_EXAMINED = 50
"""Maximum number of messages to examine, because the text is built whenever the clock moves."""
Naming = Callable[[str], str]


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


def timeline(engine: Engine, message: Message) -> str:
    """Return the timeline of a message. The last line says what an unfinished message waits for."""
    head = f"{message.public_id} {message.settings.method} {as_text(message.url)}"
    if message.kind != MESSAGE:
        head += f" ({message.kind.replace('_', ' ')} about {message.source_id})"
    lines = [head]
    attempts = iter(message.attempts)
    for entry in message.log:
        text = _step(message, entry, next(attempts) if entry.state == "ACTIVE" else None)
        if text:
            moment = to_datetime(entry.time_us).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
            after = span(entry.time_us - message.created_us)
            lines.append(f"  {moment}  +{after:<20}  {text}")
    lines += [f"  a callback was not published: {text}" for text in message.lost_callbacks]
    if not message.finished and message.state != "CANCEL_REQUESTED":
        lines.append(f"  {waiting_text(engine, message, engine.clock.now_us())}")
    return "\n".join(lines)


def _step(message: Message, entry: LogEntry, attempt: Attempt | None) -> str:
    """Describe a log entry; ``attempt`` is the attempt that it began, if any."""
    if entry.state == "CREATED":
        delay = message.not_before_us - message.created_us
        queue = f" in queue {message.queue_name}" if message.queue_name else ""
        return f"CREATED{queue}" + (f", delayed for {span(delay)}" if delay else "")
    if attempt is not None:
        return _attempt_text(attempt)
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
    for attempt in message.attempts:
        if attempt.at_us >= (entry.next_us or 0) and attempt.sequence > entry.number:
            return attempt.wait_reason
    return message.wait_reason


def waiting_text(engine: Engine, message: Message, now_us: int) -> str:
    """Return what an unfinished message waits for."""
    if message.state == "ACTIVE":
        return "in flight: the destination has not answered yet on the queue's clock"
    if message.due_us is not None:
        if message.due_us > now_us:
            return f"due {due_text(message.due_us, now_us)} ({message.wait_reason})"
        if engine.lane == "driven":
            return "due now, but not delivered yet; call queue.run_until_idle()"
        return "due now, but not delivered yet in the background"
    if message.queue_name is not None and not message.attempts:
        return f"waits in queue {message.queue_name} (behind others, or the queue is paused)"
    return f"waits: {message.wait_reason}"


def due_text(due_us: int, now_us: int) -> str:
    """Return a due time and the time left until then, as text. The date is included on another day."""
    # Round before subtracting, because the times are shown in milliseconds.
    left = span((due_us // 1000 - now_us // 1000) * 1000)
    return f"{clock_time(due_us, now_us)} in {left}"


def unfinished_lines(engine: Engine, name: Naming = str, most: int | None = None) -> Iterator[str]:
    """Yield lines about at most ``most`` unfinished messages; ``name`` formats an id."""
    # Describe all messages at the same time, so that those that are due together share a line.
    now_us = engine.clock.now_us()
    ids_by_text: dict[str, list[str]] = {}
    for one in list(islice(engine.pending.values(), most)):
        why = _why_held(engine, one, name, now_us) or waiting_text(engine, one, now_us)
        text = f"{one.settings.method} {as_text(one.url)}{_attempts_text(one)}: {why}"
        ids_by_text.setdefault(text, []).append(name(one.public_id))
    for text, ids in ids_by_text.items():
        yield f"{listed(ids, _MAX_IDS_PER_LINE)} {text}"


def dead_letter_lines(engine: Engine, name: Naming = str) -> Iterator[str]:
    """Yield lines about the dead letters that have not expired; ``name`` formats an id."""
    letters_by_text: dict[str, list[tuple[str, str]]] = {}
    for letter in engine.all_dead_letters():
        message = engine.messages.get(letter.message_id)
        if message is None:
            continue
        made, outcome = len(message.attempts), message.last_outcome
        status = None if outcome is None else outcome.status
        last = "no answer" if status is None else f"status {status}"
        text = f"failed after {counted(made, 'attempt')}, last {last}"
        letters_by_text.setdefault(text, []).append((name(message.public_id), letter.id))
    for text, several in letters_by_text.items():
        ids, letters = zip(*several, strict=True)
        dead = f"{plural('dead letter', len(ids))} {listed(letters, _MAX_IDS_PER_LINE)}"
        yield f"{listed(ids, _MAX_IDS_PER_LINE)} {text}; {dead}"


def schedule_lines(engine: Engine, name: Naming = str) -> Iterator[str]:
    """Yield a line for each schedule that will run again; ``name`` formats its id."""
    now_us = engine.clock.now_us()
    for schedule in list(engine.schedules.by_id.values()):
        at_us = None if schedule.paused else schedule.first_run_after(now_us)
        if at_us is not None:
            destination = as_text(schedule.destination)
            due = due_text(at_us, now_us)
            yield f"schedule {name(schedule.id)} of {destination}: next {due} ({schedule.cron})"


def unfinished_text(engine: Engine) -> str:
    lines = list(unfinished_lines(engine, most=_MAX_EXAMINED))
    if not lines:
        return "nothing"
    parts = [
        f"{counted(len(engine.pending), 'undelivered message')}:",
        *(f"  {line}" for line in lines[:_MAX_LINES]),
    ]
    if len(lines) > _MAX_LINES:
        parts.append(f"  and {len(lines) - _MAX_LINES} more")
    if len(engine.pending) > _MAX_EXAMINED:
        parts.append(
            f"  of the first {_MAX_EXAMINED}; {len(engine.pending) - _MAX_EXAMINED} are behind them"
        )
    return "\n".join(parts)


def _why_held(engine: Engine, message: Message, name: Naming, now_us: int) -> str:
    """Return why a message is not due: its ordered queue or its flow-control key; or nothing."""
    queue = engine.queue_of(message)
    if queue is None or message.id in queue.active:
        return _held_by_flow(engine, message, now_us)
    if queue.paused:
        return f"waits: queue {queue.name} is paused"
    ahead = sorted((engine.messages[one] for one in queue.active), key=lambda one: one.number)
    ids = [name(one.public_id) for one in ahead]
    return f"waits in queue {queue.name} behind {listed(ids, _MAX_IDS_PER_LINE)}" if ids else ""


def _held_by_flow(engine: Engine, message: Message, now_us: int) -> str:
    """Return when flow control admits the next message; empty unless the message waits for it."""
    flow = message.settings.flow
    key = None if flow is None else engine.flow.keys.get(flow.key)
    if key is None or message.id not in key.waiting:
        return ""
    # Use a copy, because reopens_us() may start the next period.
    opens = key.copy().reopens_us(now_us)
    due = "" if opens is None else f": the key opens {due_text(opens, now_us)}"
    return f"waits: {message.wait_reason}{due}"


def _attempts_text(message: Message) -> str:
    made = len(message.attempts)
    if not made:
        return ""
    callback = (
        "; its failure callback follows the last" if message.settings.failure_callback else ""
    )
    return f" (tried {made} of {message.max_retries + 1}{callback})"
