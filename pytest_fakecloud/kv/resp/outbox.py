"""Replies and pushes to one client of the database port, sent in order."""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ...core.clock import Timekeeper
from ...http.connection import Connection
from ..engine.engine import Engine
from ..engine.session import Session
from ..reply import NO_REPLY, Encoded, Push, Reply, Status, to_resp

SEND_BYTES = 256 * 1024
"""Maximum number of bytes of small replies that are sent together."""
_PER_MESSAGE = 64
"""Estimated size in bytes of a message apart from its contents."""


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

        Call this method after each push, because the soft limit depends on the time since it was
        exceeded. Clients that run MONITOR have the limits of subscribers, too (decided here).
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
        # `_pushing` then stays set: nothing can be sent any more.
        with suppress(OSError):
            while True:
                self._flush()
                with self._lock:
                    if not self._messages:
                        self._pushing = False
                        return

    def _abandon_pushes(self) -> None:
        with self._lock:
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
            parts = [messages.popleft()]
            size = len(parts[0])
            while messages and size + len(messages[0]) <= SEND_BYTES:
                parts.append(messages.popleft())
                size += len(parts[-1])
            self.waiting_bytes -= size + _PER_MESSAGE * len(parts)
        return parts[0] if len(parts) == 1 else b"".join(parts)


@functools.lru_cache(maxsize=16)
def _pubsub_limits(text: str) -> tuple[int, int, int]:
    """Return the limits of subscribers: hard and soft bytes, and the seconds above the soft one."""
    words = text.split()
    hard, soft, seconds = map(int, words[words.index("pubsub") + 1 :][:3])
    return hard, soft, seconds


# -- pushes ----------------------------------------------------------------------------------------

_INVALIDATIONS = frozenset({b"invalidate", b"tracking-redir-broken"})
_MESSAGES = _INVALIDATIONS | {b"message", b"pmessage", b"smessage"}
"""Kinds of pushes that confirm no SUBSCRIBE or UNSUBSCRIBE."""


@dataclass(eq=False, repr=False)
class Pushes:
    """The pushed messages of one connection.

    Most messages are sent immediately. A message that the client's own command causes follows its
    reply, and in a transaction the confirmations of SUBSCRIBE are part of the reply to EXEC.
    ``is_replying`` returns whether the calling thread is running a command of the client, and
    ``cut`` closes the connection.
    """

    engine: Engine
    session: Session
    outbox: Outbox
    is_replying: Callable[[], bool]
    cut: Callable[[], None]
    _confirmations: list[Push] = field(default_factory=list, init=False)
    _after_reply: list[bytes] = field(default_factory=list, init=False)

    def push(self, message: list[Any]) -> None:
        """Add a message to the outbox. Called under the engine's lock, from any thread."""
        session = self.session
        if session.in_exec and isinstance(message, Push) and message[0] not in _MESSAGES:
            self._confirmations.append(message)
            return
        if session.closing:
            return
        if isinstance(message, Push):
            data = to_resp(message, session.connection_resp)
        else:
            data = b"".join(to_resp(Status(line)) for line in message)
        if self.is_replying() and not self.engine.tracking.evicting and _follows_reply(message):
            self._after_reply.append(data)
            return
        self.outbox.put(data)
        if self.outbox.exceeds_limits():
            self.cut()
        elif not self.outbox.owner_will_send:
            self.outbox.send_later()

    def with_confirmations(self, reply: Reply) -> Reply:
        """Return the reply to EXEC with the confirmations in place of the replies to SUBSCRIBE."""
        if not self._confirmations:
            return reply
        confirmations, self._confirmations = self._confirmations, []
        if not isinstance(reply, list):
            return reply
        # The first SUBSCRIBE carries the confirmations of all.
        data = b"".join(to_resp(push, self.session.resp) for push in confirmations)
        first = reply.index(NO_REPLY)
        return [*reply[:first], Encoded(data), *reply[first + 1 :]]

    def take_after_reply(self) -> bytes:
        data = b"".join(self._after_reply)
        self._after_reply.clear()
        return data


def _follows_reply(message: list[Any]) -> bool:
    """Return whether a message that the client itself caused is sent after the reply."""
    if not isinstance(message, Push):
        return True  # A list of strings consists of lines of MONITOR.
    return message[0] in _INVALIDATIONS or message[1:2] == [b"__redis__:invalidate"]
