"""Replies and pushes to one client of the database port, in the order in which they are sent."""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...core.timekeeper import Timekeeper
    from ...http.connection import Connection

SEND_BYTES = 256 * 1024
"""Maximum number of bytes of small replies that are sent together."""
_PER_MESSAGE = 64


class Outbox:
    """Messages to be sent over a connection. They are added under the engine's lock.

    Only one thread sends at a time. ``limits`` returns the parameter
    ``client-output-buffer-limit``.
    """

    def __init__(
        self, connection: Connection, clock: Timekeeper, limits: Callable[[], str]
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._limits = limits
        self._messages: deque[bytes] = deque()
        self.waiting_bytes = 0
        self._lock = threading.Lock()
        self._over_since_us: int | None = None
        self.sending = threading.Lock()
        """A lock that is held by the thread that uses the socket."""
        self._flushing = False
        """Whether a thread of the pool is sending pushes; at most one does at a time."""
        self.held = False
        """Whether the connection's own thread will send soon, so that no other thread needs to."""

    def has_unsent(self) -> bool:
        """Return whether any message has not been sent completely."""
        return bool(self._messages) or self._flushing

    @property
    def is_full(self) -> bool:
        """Whether more bytes are waiting than are sent together."""
        return self.waiting_bytes > SEND_BYTES

    def put(self, *parts: bytes) -> None:
        """Add one or more messages, or the parts of a message."""
        with self._lock:
            self._messages += parts
            for part in parts:
                self.waiting_bytes += len(part) + _PER_MESSAGE

    def send(self) -> None:
        """Send all messages, and let other threads send later ones."""
        # Clear `held` before sending: a thread that pushes adds its message before it reads `held`,
        # so one of the two threads sends the message.
        self.held = False
        self._flush()

    def exceeds_limits(self) -> bool:
        """Return whether the waiting bytes exceed ``client-output-buffer-limit``.

        A client that runs MONITOR is limited like a subscriber (decided here: a real server does
        not limit it).
        """
        most, soft, seconds = _of_listeners(self._limits())
        if most and self.waiting_bytes > most:
            return True
        if not soft or self.waiting_bytes <= soft:
            self._over_since_us = None
            return False
        now_us = self._clock.now_us()
        if self._over_since_us is None:
            self._over_since_us = now_us
        return now_us - self._over_since_us > seconds * 1_000_000

    def send_later(self) -> None:
        """Send from a thread of the pool, unless one is already sending."""
        with self._lock:
            if self._flushing:
                return
            self._flushing = True
        self._connection.mount.hub.workers.submit(self._flush_pushes, self._flushed)

    def _flush_pushes(self) -> None:
        # Ignore a disconnected client: nothing can be sent any more, and its own thread will
        # notice.
        with suppress(OSError):
            while True:
                self._flush()
                with self._lock:
                    if not self._messages:
                        self._flushing = False
                        return

    def _flushed(self) -> None:
        self._flushing = False

    def _flush(self) -> None:
        with self.sending:
            while self._messages:
                if data := self._next():
                    self._connection.sock.sendall(data)

    def _next(self) -> bytes:
        """Remove and return the messages to send next: many small ones together, or a large one
        alone.
        """
        messages = self._messages
        with self._lock:
            data = messages.popleft()
            self.waiting_bytes -= len(data) + _PER_MESSAGE
            if not messages:
                return data
            parts, size = [data], len(data)
            while messages and size + len(messages[0]) <= SEND_BYTES:
                parts.append(messages.popleft())
                size += len(parts[-1])
            self.waiting_bytes -= size - len(data) + _PER_MESSAGE * (len(parts) - 1)
        return b"".join(parts)


@functools.lru_cache(maxsize=16)
def _of_listeners(text: str) -> tuple[int, int, int]:
    """Return the limits for subscribers: the hard limit, the soft limit, and the seconds for which
    the soft limit may be exceeded.
    """
    words = text.split()
    most, soft, seconds = map(int, words[words.index("pubsub") + 1 :][:3])
    return most, soft, seconds
