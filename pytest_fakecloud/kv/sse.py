"""Server-sent events: subscriptions and MONITOR as unending HTTP responses."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from .engine.sessions import Session
from .engine.statistics import monitor_line
from .model import AnyEngine, AnySession

EVENTS_LIMIT = 32 * 1024 * 1024
"""Maximum number of unread bytes of events, above which a client is disconnected."""
_PER_EVENT = 64
"""Estimated size in bytes of an event apart from its contents."""
HEARTBEAT_US = 15_000_000
"""Microseconds without an event after which a comment line shows that the stream is alive."""


class EventStream:
    """A queue of server-sent events for one client, which ``chunks()`` yields.

    ``opened`` and ``closed`` are called, under the engine's lock, when the stream begins and ends.
    """

    def __init__(
        self,
        engine: AnyEngine,
        session: AnySession,
        opened: Callable[[], None],
        closed: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._session = session
        self._clock = engine.clock
        self._events: deque[bytes] = deque()
        self._lock = threading.Lock()  # With a real server, each subscription has a thread.
        self._unread_bytes = 0
        self._signal = self._clock.signal()
        self._opened = opened
        self._closed = closed
        session.wake = self.close

    def put(self, text: bytes) -> None:
        """Add an event. If the client has too many unread bytes, close the stream instead."""
        if self._signal.closed:
            return
        event = _event(text)
        with self._lock:
            self._events.append(event)
            self._unread_bytes += len(event) + _PER_EVENT
            is_full = self._unread_bytes > EVENTS_LIMIT
            if is_full:
                self._events.clear()
        if is_full:
            self.close()
        else:
            self._signal.notify()

    def chunks(self) -> Iterator[bytes]:
        """Yield events until ``close()``, and a comment line whenever none arrives for a while."""
        engine = self._engine
        with engine.lock:
            engine.streaming.add(self._session)
            self._opened()
        try:
            while not self._signal.closed:
                until_us = self._clock.now_us() + HEARTBEAT_US
                event = self._clock.wait(self._signal, self._take, until_us)
                yield event or b": heartbeat\n\n"
        finally:
            with engine.lock:
                engine.streaming.discard(self._session)
                self._closed()

    def _take(self) -> bytes | None:
        with self._lock:
            if not self._events:
                return None
            event = self._events.popleft()
            self._unread_bytes -= len(event) + _PER_EVENT
            return event

    def close(self) -> None:
        """End the stream. Can be called from any thread, and more than once."""
        self._signal.close()


def _event(text: bytes) -> bytes:
    # Send each line of the payload as a data line of the event.
    lines = text.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "".join(f"data: {line}\n" for line in lines).encode() + b"\n"


def subscription_stream(
    engine: AnyEngine, session: AnySession, kind: str, names: list[bytes]
) -> EventStream:
    """Return a stream of the messages to channels (``kind="channel"``) or patterns (``"pattern"``).

    The first event for each name is ``subscribe,<channel>,<count>``. Further events are
    ``message,<channel>,<payload>`` or ``pmessage,<pattern>,<channel>,<payload>``.
    """

    def opened() -> None:
        for name in names:
            engine.pubsub.subscribe(session, kind, name)

    stream = EventStream(engine, session, opened, lambda: engine.pubsub.drop(session))

    def deliver(message: list[Any]) -> None:
        parts = [part if isinstance(part, bytes) else b"%d" % part for part in message]
        stream.put(b",".join(parts))

    session.deliver = deliver
    return stream


def monitor_stream(engine: AnyEngine, session: AnySession) -> EventStream:
    """Return a stream of every command that the server runs. The first event is ``"OK"``."""

    def see(at_us: int, client: Session, argv: list[bytes]) -> None:
        stream.put(monitor_line(at_us, client, argv))

    def opened() -> None:
        engine.monitors.append(see)
        stream.put(b'"OK"')

    stream = EventStream(engine, session, opened, lambda: engine.monitors.remove(see))
    return stream
