"""Threads that receive messages from a real server."""

from __future__ import annotations

import queue
import threading

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from pytest_fakecloud.kv.redis import feeds
from pytest_fakecloud.kv.redis.engine import RedisSession
from pytest_fakecloud.kv.redis.rewriting import Prefixes


def test_only_errors_of_the_connection_are_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [RedisConnectionError(), OSError(), TypeError("a bug"), TypeError("not reached")]
    raised: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    monkeypatch.setattr(feeds, "RECONNECT", 0)
    monkeypatch.setattr(threading, "excepthook", lambda failure: raised.put(failure.exc_value))

    class Link:
        def dedicated(self, login: object) -> None:
            raise failures.pop(0)

    feed = feeds.Feed(Link(), None, [b"MONITOR"], lambda line: None, "feed")  # type: ignore[arg-type]
    feed.start()
    assert str(raised.get(timeout=30)) == "a bug"
    assert len(failures) == 1
    feed.stop()


def test_no_subscription_is_left_after_a_close() -> None:
    opened: list[object] = []

    class Link:
        def dedicated(self, login: object) -> None:
            opened.append(login)
            raise OSError

    prefixes = Prefixes(b"", b"", b"", shared=False)
    subscriptions = feeds.Subscriptions(Link(), prefixes)  # type: ignore[arg-type]
    session = RedisSession(None, "rest", "")
    subscriptions.subscribe(session, "pattern", b"n*")
    assert subscriptions.patterns() == 1
    (feed,) = subscriptions._feeds[session]
    subscriptions.close()
    feed._thread.join(30)
    assert not feed._thread.is_alive()
    before = len(opened)
    subscriptions.subscribe(session, "pattern", b"n*")
    assert (subscriptions.patterns(), subscriptions._feeds, len(opened)) == (0, {}, before)


def test_no_monitor_is_left_after_a_close() -> None:
    prefixes = Prefixes(b"", b"", b"", shared=False)
    monitors = feeds.MonitorFeed(None, prefixes)  # type: ignore[arg-type]
    monitors.close()
    monitors.append(print)
    assert monitors._feed is None
