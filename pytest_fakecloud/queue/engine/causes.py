"""The causes of messages, and endless loops of messages that publish each other.

A message that a handler publishes is caused by the message that the handler received.
``Message.depth`` is the number of causes of a message at the same time, ``Message.chain`` the number of
its causes within one call that delivers. For example, if the handler of message A publishes B, and the
handler of B publishes C with a delay, then C has a chain of 2 and a depth of 0. Handlers that publish
two messages each make many short chains; so deliveries to a URL that is among their causes are
counted, too.
"""

from __future__ import annotations

from contextvars import ContextVar

from ..model import Message
from .data import QueueData

CALL_FACTOR = 10
"""The limit of deliveries within one call, as a multiple of the loop limit. It applies to chains and
to deliveries that return to one of their causes.
"""
FAN_FACTOR = 5
"""The limit of deliveries that return to one of their causes at one time, as a multiple of the loop
limit. Decided here: trees of some thousand messages are not endless.
"""
_MOST_CAUSES = 64
"""Maximum number of URLs that are recorded as causes of a message; loops have fewer."""
causing: ContextVar[Message | None] = ContextVar("causing", default=None)
"""The message whose delivery runs in this context, including its threads and tasks."""


def _loop(message: Message, why: str) -> str:
    return (
        f"endless loop: {why}, the next one would be {message.public_id} to {message.url}. Let the"
        " handlers stop publishing at some point, publish with a delay and advance the clock step by"
        " step, or raise the setting loop_limit. The message stays pending"
    )


class Causes:
    """Records what caused each message, and recognizes endless loops."""

    def __init__(self, data: QueueData) -> None:
        self._data = data
        self._returned_at: tuple[tuple[int, int], int] = ((0, 0), 0)
        """A span and a time, and how many deliveries there returned to one of their causes."""
        self._returned_in: tuple[int, int] = (0, 0)
        """A span, and how many deliveries of it returned to one of their causes."""
        self._pauses = 0
        """How often a message was published while no delivery was being performed."""

    @property
    def span(self) -> int:
        """The number of the span in which deliveries that cause each other are counted.

        It is the call that delivers. In the background, where no call does, it is the time since a
        message was last published while no delivery was being performed.
        """
        return self._data.clock.moving_calls + (self._pauses if self._data.in_background else 0)

    def record(self, message: Message, source: Message | None, now: int) -> None:
        """Record that ``source`` caused a new message. None means a delivery that is being performed,
        if there is one.
        """
        if source is not None or self._data.under_way:
            message.span = self.span
            self._trace(message, source, now)
        else:
            self._pauses += 1
            message.span = self.span

    def _trace(self, message: Message, source: Message | None, now: int) -> None:
        """Record that ``source`` caused a new message. None means the delivery that publishes now."""
        source, certain = (source, True) if source else self._publishing_delivery()
        if source.attempts[-1].at_us == now:
            message.depth = max(message.depth, source.depth + 1)
        if source.span != self.span:
            return
        # While no call moves the clock, count only certain causes, and those of messages without a
        # delay. Otherwise, a client that publishes for hours would look like an endless loop.
        if certain or not self._data.in_background or self._data.clock.is_moving:
            message.chain = max(message.chain, source.chain + 1)
        elif message.not_before_us > now:
            return
        message.causes, message.caused_at = source.causes, source.url
        if source.url not in source.causes and len(source.causes) < _MOST_CAUSES:
            message.causes |= {source.url}

    def _publishing_delivery(self) -> tuple[Message, bool]:
        """Return the message whose delivery is publishing now, and whether that is certain."""
        message = causing.get()
        if message is not None and self._data.under_way.get(message.id) is message:
            return message, True
        # A request over HTTP may be sent by the handler of any delivery in progress, or by none.
        # Return the message that is least likely to be part of a loop.
        return min(
            self._data.under_way.values(), key=lambda message: (message.chain, message.depth)
        ), False

    def endless_loop(self, message: Message, now: int) -> str | None:
        """Return a description of the endless loop that a due message is part of, or None.

        An attempt that follows another at the same time counts as a cause.
        """
        if message.attempts and message.attempts[-1].at_us == now:
            message.depth += 1
        elif message.created_us < now:
            message.depth = 0
        limit = self._data.settings.loop_limit
        if message.depth > limit:
            count, extent = limit, "at the same time"
        elif message.span == self.span and message.chain > limit * CALL_FACTOR:
            count, extent = limit * CALL_FACTOR, "in one call"
        elif message.url in message.causes and message.span == self.span:
            return self._fan(message, now)
        else:
            return None
        return _loop(message, f"{count} deliveries caused each other {extent}")

    def _fan(self, message: Message, now: int) -> str | None:
        """Count a delivery that returns to one of its causes; return a description of too many."""
        time, at_once = self._returned_at
        span, in_call = self._returned_in
        at_once = at_once + 1 if time == (message.span, now) else 1
        in_call = in_call + 1 if span == message.span else 1
        self._returned_at = (message.span, now), at_once
        self._returned_in = message.span, in_call
        limit = self._data.settings.loop_limit
        if at_once > limit * FAN_FACTOR:
            count, extent = at_once - 1, "at the same time"
        elif in_call > limit * CALL_FACTOR:
            count, extent = in_call - 1, "in one call"
        else:
            return None
        if not self._data.in_background:
            # The next call of the test may go on. In the background, all further ones are stopped.
            self._returned_at, self._returned_in = ((0, 0), 0), (0, 0)
        urls = " and ".join(dict.fromkeys((message.caused_at, message.url)))
        return _loop(
            message, f"{count} deliveries {extent} because handlers of {urls} publish each other"
        )
