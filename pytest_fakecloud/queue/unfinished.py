"""Lines of text about unfinished messages, dead letters and schedules, for reports and assertions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from ..core.timeparse import instant_us
from ..core.wording import counted, listed, plural
from .engine.engine import Engine
from .model import Message
from .timeline import due_text, waiting_text
from .wire.text import as_text

_MAX_LINES = 5
"""Maximum number of lines in a text."""

_MAX_IDS_PER_LINE = 3
"""Maximum number of messages listed in one line."""

_MAX_EXAMINED = 50
"""Maximum number of messages to examine, because the text is built whenever the clock moves."""

Naming = Callable[[str], str]


def unfinished_lines(engine: Engine, name: Naming = str, most: int | None = None) -> Iterator[str]:
    """Yield lines about the unfinished messages. ``name`` formats a message id.

    Messages with the same text share a line. At most ``most`` messages are examined.
    """
    now, driven = engine.clock.now_us(), engine.lane == "driven"
    ids_by_text: dict[str, list[str]] = {}
    for one in list(islice(engine.pending.values(), most)):
        why = _why_held(engine, one, name) or waiting_text(one, now, driven=driven)
        text = f"{one.settings.method} {as_text(one.url)}{_attempts_text(one)}: {why}"
        ids_by_text.setdefault(text, []).append(name(one.public_id))
    for text, ids in ids_by_text.items():
        yield f"{listed(ids, _MAX_IDS_PER_LINE)} {text}"


def dead_letter_lines(engine: Engine, name: Naming = str) -> Iterator[str]:
    """Yield lines about the dead letters that have not expired. ``name`` formats a message id.

    Dead letters with the same text share a line.
    """
    ids_by_text: dict[str, list[tuple[str, str]]] = {}
    for letter in engine.dead_letters.all():
        message = engine.messages.get(letter.message_id)
        if message is None:
            continue
        made, outcome = len(message.attempts), message.last_outcome
        status = None if outcome is None else outcome.status
        last = "no answer" if status is None else f"status {status}"
        text = f"failed after {counted(made, 'attempt')}, last {last}"
        ids_by_text.setdefault(text, []).append((name(message.public_id), letter.id))
    for text, several in ids_by_text.items():
        ids, letters = zip(*several, strict=True)
        dead = f"{plural('dead letter', len(ids))} {listed(letters, _MAX_IDS_PER_LINE)}"
        yield f"{listed(ids, _MAX_IDS_PER_LINE)} {text}; {dead}"


def schedule_lines(engine: Engine, name: Naming = str) -> Iterator[str]:
    """Yield a line for each schedule that will run again; ``name`` formats its id."""
    now_us = engine.clock.now_us()
    for schedule in list(engine.schedules.by_id.values()):
        upcoming = [] if schedule.paused else schedule.next_runs(1, now_us)
        for at in upcoming:
            due = due_text(instant_us(at), now_us)
            yield (
                f"schedule {name(schedule.id)} of {as_text(schedule.destination)}: next {due} "
                f"({schedule.cron})"
            )


def unfinished_text(engine: Engine) -> str:
    """Return a text about the undelivered messages, or ``nothing`` if there are none."""
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


def _why_held(engine: Engine, message: Message, name: Naming) -> str:
    """Return why a message is not due: its ordered queue or its flow-control key; or nothing."""
    queue = engine.queues.by_name.get(message.queue_name or "")
    if queue is None or message.id in queue.active:
        return _held_by_flow(engine, message)
    if queue.paused:
        return f"waits: queue {queue.name} is paused"
    ahead = sorted((engine.messages[one] for one in queue.active), key=lambda one: one.number)
    ids = [name(one.public_id) for one in ahead]
    return f"waits in queue {queue.name} behind {listed(ids, _MAX_IDS_PER_LINE)}" if ids else ""


def _held_by_flow(engine: Engine, message: Message) -> str:
    """Return a text about when the flow-control key of a waiting message admits the next message.

    The text is empty if the message does not wait for flow control.
    """
    flow = message.settings.flow
    key = None if flow is None else engine.flow.keys.get(flow.key)
    if key is None or message.id not in key.waiting:
        return ""
    now = engine.clock.now_us()
    # Use a copy, because reopens_us() may start the next period.
    opens = key.copy().reopens_us(now)
    due = "" if opens is None else f": the key opens {due_text(opens, now)}"
    return f"waits: {message.wait_reason}{due}"


def _attempts_text(message: Message) -> str:
    made = len(message.attempts)
    if not made:
        return ""
    callback = ""
    if message.settings.failure_callback:
        callback = "; its failure callback follows the last"
    return f" (tried {made} of {message.max_retries + 1}{callback})"
