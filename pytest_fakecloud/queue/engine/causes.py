"""Detect messages that publish each other endlessly, by recording what caused each message."""

from __future__ import annotations

from contextvars import ContextVar

from ..model import Message
from .state import State

CHAIN_FACTOR = 10
"""The loop limit within one call, as a multiple of the limit at a single point in time."""
causing: ContextVar[Message | None] = ContextVar("causing", default=None)
"""The message whose delivery runs in this context, including its threads and tasks."""


class Causes:
    """Records the causes of an engine's messages. The lock must be held.

    ``under_way`` are the messages whose deliveries are being performed. ``Message.depth`` is the
    number of causes of a message at the same time, ``Message.chain`` the number of its causes
    within one call that delivers.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.under_way: dict[str, Message] = {}

    def trace(self, message: Message, now: int) -> None:
        source, certain = self._publishing_delivery()
        self.trace_back(message, source, now, certain=certain)

    def trace_back(
        self, message: Message, source: Message | None, now: int, *, certain: bool
    ) -> None:
        """Record which message caused a new message, and whether that is certain."""
        state = self._state
        message.drive = state.drive
        if source is None or not source.attempts:
            return
        if source.attempts[-1].at_us == now:
            message.depth = max(message.depth, source.depth + 1)
        # Count only certain causes with background delivery. Otherwise, a client that publishes for
        # hours would look like an endless loop.
        if source.drive == state.drive and (certain or state.lane != "background"):
            message.chain = max(message.chain, source.chain + 1)

    def _publishing_delivery(self) -> tuple[Message | None, bool]:
        """Return the message whose delivery is publishing now, and whether that is certain.

        It is certain if the handler runs in this process. A request over HTTP may be sent by the
        handler of any delivery in progress, or by none of them. In that case, the message that is
        least likely to be part of a loop is returned.
        """
        message = causing.get()
        if message is not None and self.under_way.get(message.id) is message:
            return message, True
        found = self.under_way.values()
        return min(found, key=lambda one: (one.chain, one.depth), default=None), False

    def note_attempt(self, message: Message, now: int) -> None:
        """Count an attempt that follows another at the same time as a cause."""
        if message.attempts and message.attempts[-1].at_us == now:
            message.depth += 1
        elif message.created_us < now:
            message.depth = 0

    def endless_loop(self, message: Message) -> str | None:
        """Return a description of the endless loop that a message is part of, or None."""
        limit = self._state.settings.loop_limit
        if message.depth > limit:
            count, span = limit, "at the same time"
        elif message.drive == self._state.drive and message.chain > limit * CHAIN_FACTOR:
            count, span = limit * CHAIN_FACTOR, "in one call"
        else:
            return None
        return (
            f"endless loop: {count} deliveries caused each other {span}, the next one would be"
            f" {message.public_id} to {message.url}. Let the handlers stop publishing at some point,"
            " or publish with a delay and advance the clock step by step. The message stays pending"
        )
