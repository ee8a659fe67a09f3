"""Sends replies and pushes to one client of the database port, in order."""

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
    """The messages to send over a connection, which the engine adds and one thread at a time sends."""

    def __init__(
        self, connection: Connection, clock: Timekeeper, buffer_limits_text: Callable[[], str]
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._buffer_limits_text = buffer_limits_text
        self._lock = threading.Lock()
        """The lock of the messages and of the attributes that describe them."""
        self._messages: deque[bytes] = deque()
        self.waiting_bytes = 0
        self._over_since_us: int | None = None
        self.sending = threading.Lock()
        """The lock that a thread holds while it uses the socket."""
        self._pushing = False
        """Whether a thread of the pool is sending pushes. At most one thread does so at a time."""
        self.owner_will_send = False
        """Whether the connection's own thread will soon send, so that other threads need not.

        Only that thread writes this attribute.
        """

    def has_unsent(self) -> bool:
        return bool(self._messages) or self._pushing

    @property
    def is_full(self) -> bool:
        return self.waiting_bytes > SEND_BYTES

    def put(self, *parts: bytes) -> None:
        """Add messages, or the parts of a message."""
        with self._lock:
            self._messages += parts
            for part in parts:
                self.waiting_bytes += len(part) + _PER_MESSAGE

    def send(self) -> None:
        """Send all messages. Afterwards, other threads may send new ones."""
        # Clear `owner_will_send` before sending. A thread that pushes adds its message before it
        # reads the attribute, so one of the two threads sends the message.
        self.owner_will_send = False
        self._flush()

    def exceeds_limits(self) -> bool:
        """Return whether the bytes that wait to be sent exceed ``client-output-buffer-limit``.

        Call this method after each push, because the soft limit depends on how long the waiting
        bytes have exceeded it.

        A client that runs MONITOR has the limits of a subscriber (decided here: real servers do not
        limit it).
        """
        hard, soft, seconds = _pubsub_limits(self._buffer_limits_text())
        if hard and self.waiting_bytes > hard:
            return True
        if not soft or self.waiting_bytes <= soft:
            self._over_since_us = None
            return False
        now_us = self._clock.now_us()
        if self._over_since_us is None:
            self._over_since_us = now_us
        return now_us - self._over_since_us > seconds * 1_000_000

    def send_later(self) -> None:
        """Send the messages in a thread of the pool, unless one is already sending."""
        with self._lock:
            if self._pushing:
                return
            self._pushing = True
        self._connection.mount.hub.workers.submit(self._send_pushes, self._abandon_pushes)

    def _send_pushes(self) -> None:
        # Ignore the error of a disconnected client, because the connection's own thread handles it.
        with suppress(OSError):
            while True:
                self._flush()
                with self._lock:
                    if not self._messages:
                        self._pushing = False
                        return

    def _abandon_pushes(self) -> None:
        self._pushing = False

    def _flush(self) -> None:
        with self.sending:
            while self._messages:
                if data := self._next():
                    self._connection.sock.sendall(data)

    def _next(self) -> bytes:
        """Remove and return the bytes to send next: many small messages, or a single large one."""
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
def _pubsub_limits(text: str) -> tuple[int, int, int]:
    """Return the limits of subscribers: hard and soft bytes, and the seconds above the soft one."""
    words = text.split()
    hard, soft, seconds = map(int, words[words.index("pubsub") + 1 :][:3])
    return hard, soft, seconds
