"""Server-sent events: subscriptions and MONITOR as unending HTTP responses."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

from .engine.sessions import Session
from .engine.statistics import monitor_line
from .model import AnyEngine, AnySession
from .reply import EACH_BYTE

EVENTS_LIMIT = 32 * 1024 * 1024
"""Maximum number of unread bytes of events, above which a client is disconnected."""
_PER_EVENT = 64
"""Estimated size in bytes of an event apart from its contents."""
HEARTBEAT_US = 15_000_000
"""Microseconds without an event after which a comment line shows that the stream is alive."""


class EventStream:
    """A queue of server-sent events for one client, which ``chunks()`` yields: the ``ClientConnection``
    through which the engine reaches the client.
    """

    def __init__(self, engine: AnyEngine, session: AnySession) -> None:
        self._engine = engine
        self._session = session
        self._clock = engine.clock
        self._events: deque[bytes] = deque()
        self._lock = threading.Lock()  # With a real server, each subscription has a thread.
        self._unread_bytes = 0
        self._signal = self._clock.signal()

    def put(self, text: bytes) -> None:
        """Add an event. If the client has too many unread bytes, close the stream instead."""
        if self._signal.closed:
            return
        # Send each line of the payload as a data line of the event.
        payload = text.decode("utf-8", EACH_BYTE).replace("\r\n", "\n").replace("\r", "\n")
        event = "".join(f"data: {line}\n" for line in payload.split("\n")).encode() + b"\n"
        with self._lock:
            self._events.append(event)
            self._unread_bytes += len(event) + _PER_EVENT
            is_full = self._unread_bytes > EVENTS_LIMIT
            if is_full:
                self._events.clear()
        if is_full:
            self.cut()
        else:
            self._signal.notify()

    def push(self, message: list[Any]) -> None:
        """Add a message of pub/sub as an event."""
        self.put(b",".join(part if isinstance(part, bytes) else b"%d" % part for part in message))

    def chunks(self) -> Iterator[bytes]:
        """Yield an empty chunk when the stream receives events, then each event until ``cut()``, and a
        comment line whenever none arrives for a while.
        """
        engine = self._engine
        session = self._session
        with engine.lock:
            engine.streaming.add(session)
            session.connection = self
            self._begin()
        try:
            yield b""
            while not self._signal.closed:
                until_us = self._clock.now_us() + HEARTBEAT_US
                yield self._clock.wait(self._signal, self._take, until_us) or b": heartbeat\n\n"
        finally:
            with engine.lock:
                engine.streaming.discard(session)
                session.connection = None
                self._end()

    def _begin(self) -> None:
        """Begin to receive events, under the engine's lock."""
        raise NotImplementedError

    def _end(self) -> None:
        raise NotImplementedError

    def _take(self) -> bytes | None:
        with self._lock:
            if not self._events:
                return None
            event = self._events.popleft()
            self._unread_bytes -= len(event) + _PER_EVENT
            return event

    def reserve(self) -> None:
        """Do nothing, because a stream has no replies."""

    def has_left(self) -> bool:
        return self._signal.closed

    def cut(self) -> None:
        """End the stream. Can be called from any thread, and more than once."""
        self._signal.close()


class SubscriptionStream(EventStream):
    """A stream of the messages to channels (``kind="channel"``) or patterns (``"pattern"``).

    The first event for each name is ``subscribe,<channel>,<count>``. Further events are
    ``message,<channel>,<payload>`` or ``pmessage,<pattern>,<channel>,<payload>``.
    """

    def __init__(
        self, engine: AnyEngine, session: AnySession, *, kind: str, names: list[bytes]
    ) -> None:
        super().__init__(engine, session)
        self._kind = kind
        self._names = names

    def _begin(self) -> None:
        for name in self._names:
            self._engine.pubsub.subscribe(self._session, self._kind, name)

    def _end(self) -> None:
        self._engine.pubsub.drop(self._session)


class MonitorStream(EventStream):
    """A stream of every command that the server runs. The first event is ``"OK"``."""

    def _begin(self) -> None:
        self._engine.monitors.append(self._see)
        self.put(b'"OK"')

    def _see(self, at_us: int, client: Session, line: list[bytes]) -> None:
        self.put(monitor_line(at_us, client, line))

    def _end(self) -> None:
        self._engine.monitors.remove(self._see)
