"""What of a queue has not come to an end or was given up: a line for each message.

The same lines stand in reports and in failed assertions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .engine.engine import Engine
from .model import Message
from .timeline import waiting_text
from .wire.headers import as_text

__all__ = ["given_up", "pending", "waiting"]

_TOLD = 5
"""How many messages a sentence tells of."""

Naming = Callable[[str], str]


def pending(engine: Engine, name: Naming = str) -> Iterator[str]:
    """Yield a line for each message that has not come to an end; ``name`` writes its id."""
    now, driven = engine.clock.now_us(), engine.lane == "driven"
    for one in list(engine.pending.values()):
        why = waiting_text(one, now, driven=driven)
        yield f"{name(one.public_id)} {one.settings.method} {as_text(one.url)}{_tried(one)}: {why}"


def given_up(engine: Engine, name: Naming = str) -> Iterator[str]:
    """Yield a line for each dead letter that has not expired; ``name`` writes the message's id."""
    for letter in engine.dead_letters.all():
        message = engine.messages.get(letter.message_id)
        if message is None:
            continue
        made, outcome = len(message.attempts), message.last_outcome
        status = None if outcome is None else outcome.status
        last = "no answer" if status is None else f"status {status}"
        yield (
            f"{name(message.public_id)} given up after {made} attempt{'s' * (made != 1)}, "
            f"last {last}; dead letter {letter.id}"
        )


def waiting(engine: Engine) -> str:
    """Return what the undelivered messages of a queue wait for; ``nothing`` without any."""
    lines = list(pending(engine))
    if not lines:
        return "nothing"
    told = [f"{len(lines)} undelivered message(s):", *(f"  {line}" for line in lines[:_TOLD])]
    if len(lines) > _TOLD:
        told.append(f"  and {len(lines) - _TOLD} more")
    return "\n".join(told)


def _tried(message: Message) -> str:
    made = len(message.attempts)
    return f" (tried {made} of {message.max_retries + 1})" if made else ""
