"""Threads that receive messages from a real server."""

from __future__ import annotations

import queue
import threading

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from pytest_fakecloud.kv.redis import pubsub


def test_only_errors_of_the_connection_are_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [RedisConnectionError(), OSError(), TypeError("a bug"), TypeError("not reached")]
    raised: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    monkeypatch.setattr(pubsub, "RECONNECT", 0)
    monkeypatch.setattr(threading, "excepthook", lambda failure: raised.put(failure.exc_value))

    class Link:
        def dedicated(self, login: object) -> None:
            raise failures.pop(0)

    feed = pubsub._Feed(Link(), None, [b"MONITOR"], lambda line: None, "feed")  # type: ignore[arg-type]
    assert str(raised.get(timeout=30)) == "a bug"
    assert len(failures) == 1
    feed.stop()
