"""The parts that connect fakes with a real server, without a server: claims, replies and feeds."""

from __future__ import annotations

import queue
import threading
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import ConnectionError as RedisConnectionError

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.real_redis import engine, namespace, rewriting
from pytest_fakecloud.kv.real_redis.engine import RedisSession
from pytest_fakecloud.kv.real_redis.links import RawParser, Unreachable
from pytest_fakecloud.kv.real_redis.rewriting import _REWRITTEN, Prefixes, Prepared
from pytest_fakecloud.kv.sse import MonitorStream
from pytest_fakecloud.kv.table.registry import COMMANDS
from tests.harness import check_each
from tests.kv.conftest import pushing_to
from tests.notations import complete

pytest.importorskip("redis")


def test_a_lost_claim_stays_lost_and_an_error_extends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace, "_EXTEND_SECONDS", 0)
    replies: list[Any] = [Unreachable("here", "it hangs"), 0, None]

    class Registry:
        def call(self, argv: list[bytes]) -> Any:
            if isinstance(reply := replies.pop(0), Exception):
                raise reply
            return reply

    claim = namespace.Claim(Registry(), 1)  # type: ignore[arg-type]
    with pytest.raises(Unreachable):
        claim.check()
    for _ in range(2):
        with pytest.raises(ContractError, match="has claimed database 1"):
            claim.check()
    assert replies == []


@pytest.mark.parametrize("rejected", [0, 1, 2])
def test_a_rejected_command_of_a_copy_is_raised(rejected: int) -> None:
    error = CommandError(b"NOPERM no permission")

    class Namespace:
        def full_names(self) -> list[bytes]:
            return [b"k"]

        @property
        def link(self) -> Namespace:
            return self

        def many(self, lines: list[list[bytes]]) -> list[Any]:
            replies: list[Any] = [b"payload", -1, [b"1", b"0"]]
            replies[rejected] = error
            return replies

    with pytest.raises(CommandError, match="NOPERM"):
        namespace.Namespace._dumped(Namespace())  # type: ignore[arg-type]


@pytest.mark.parametrize("reply", [[b"databases", b"4"], [], CommandError(b"ERR unknown command")])
def test_a_server_that_hides_its_configuration_has_sixteen_databases(reply: Any) -> None:
    class Server:
        def call(self, argv: list[bytes]) -> Any:
            if isinstance(reply, Exception):
                raise reply
            return reply

    server: Any = Server()
    assert namespace._databases(server) == (4 if reply == [b"databases", b"4"] else 16)


class Buffer(BytesIO):
    """The interface of redis-py's buffer: lines and strings without their line ends."""

    def readline(self, size: int | None = None) -> bytes:
        return super().readline().removesuffix(b"\r\n")

    def read(self, size: int | None = None) -> bytes:
        assert size is not None
        data = super().read(size)
        assert super().read(2) == b"\r\n"
        return data


def parsed(data: bytes) -> Any:
    parser = RawParser(socket_read_size=65536)  # type: ignore[no-untyped-call]
    parser._buffer = Buffer(data)
    return parser._read_response()


def test_types_are_kept() -> None:
    assert parsed(b"*4\r\n$2\r\nOK\r\n+OK\r\n:-5\r\n$-1\r\n") == [b"OK", b"OK", -5, None]


def test_what_is_not_resp2_ends_the_connection() -> None:
    def check(data: bytes) -> None:
        with pytest.raises(LostConnection):
            parsed(data)

    check_each(
        check,
        [
            (b"$-5\r\n",), (b"$536870913\r\n",), (b"$x\r\n",), (b"*-5\r\n",), (b":\r\n",),
            (b"%1\r\n",), (b"",), (b"*1\r\n" * 102 + b"*-2\r\n",), (b"*1\r\n" * 102 + b"$-2\r\n",),
        ],
    )  # fmt: skip


def test_a_deeply_nested_reply_is_an_error() -> None:
    reply = parsed(b"*1\r\n" * 101 + b"*2\r\n$-1\r\n*-1\r\n")
    while isinstance(reply, list):
        (reply,) = reply
    assert reply.line == b"ERR reached lua stack limit"


def test_only_errors_of_the_connection_are_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [RedisConnectionError(), OSError(), TypeError("a bug"), TypeError("not reached")]
    raised: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    monkeypatch.setattr(engine, "RECONNECT", 0)
    monkeypatch.setattr(threading, "excepthook", lambda failure: raised.put(failure.exc_value))

    class Link:
        def dedicated(self, login: object) -> None:
            raise failures.pop(0)

    feed = engine.Feed(Link(), None, [b"MONITOR"], lambda line: None, name="feed")  # type: ignore[arg-type]
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
    subscriptions = engine.Subscriptions(Link(), prefixes)  # type: ignore[arg-type]
    session = RedisSession(None, "rest", "")
    subscriptions.subscribe(session, "pattern", b"n*")
    assert subscriptions.patterns() == 1
    (feed,) = subscriptions._feeds[session].values()
    subscriptions.close()
    feed.join(30)
    assert not feed.is_alive()
    before = len(opened)
    subscriptions.subscribe(session, "pattern", b"n*")
    assert (subscriptions.patterns(), subscriptions._feeds, len(opened)) == (0, {}, before)


class Connection:
    """A connection that records the commands sent, and returns replies from a queue until None."""

    def __init__(self, sent: list[object], replies: queue.SimpleQueue[Any]) -> None:
        self._sent, self._replies = sent, replies

    def send_command(self, *argv: bytes, check_health: bool) -> None:
        self._sent.append(argv)

    def read_response(self, disable_decoding: bool) -> Any:
        if (reply := self._replies.get()) is None:
            raise OSError
        return reply

    def disconnect(self) -> None:
        self._replies.put(None)


class Link:
    def __init__(self, sent: list[object], replies: queue.SimpleQueue[Any]) -> None:
        self._connection = Connection(sent, replies)

    def dedicated(self, login: object) -> Connection:
        return self._connection


def test_a_repeated_subscription_is_confirmed_but_receives_messages_once() -> None:
    connections: list[object] = []
    replies: queue.SimpleQueue[Any] = queue.SimpleQueue()
    pushed: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
    prefixes = Prefixes(b"", b"c:", b"", shared=True)
    subscriptions = engine.Subscriptions(Link(connections, replies), prefixes)  # type: ignore[arg-type]
    session = RedisSession(None, "rest", "", connection=pushing_to(pushed.put))
    for _ in range(2):
        subscriptions.subscribe(session, "channel", b"n")
    replies.put([b"subscribe", b"c:n", 1])
    replies.put([b"message", b"c:n", b"text"])
    received = [pushed.get(timeout=30) for _ in range(3)]
    subscriptions.subscribe(session, "channel", b"n")
    confirmation = [b"subscribe", b"n", 1]
    assert [*received, pushed.get(timeout=30)] == [
        confirmation, confirmation, [b"message", b"n", b"text"], confirmation,
    ]  # fmt: skip
    assert connections == [(b"SUBSCRIBE", b"c:n")]
    subscriptions.close()


def test_selectors_in_several_arguments_are_confined() -> None:
    prefixes = Prefixes(b"k:", b"c:", b"u-", shared=True)
    line = [b"ACL", b"SETUSER", b"ann", b"(~*", b"+@all", b"&news)", b"(allkeys)"]
    prepare = _REWRITTEN["ACL SETUSER"]
    prepared = prepare(prefixes, line)
    assert isinstance(prepared, Prepared)
    assert prepared.argv == [b"ACL", b"SETUSER", b"u-ann", b"(~k:* +@all &c:news)", b"(~k:*)"]
    with pytest.raises(CommandError, match=r"Unmatched parenthesis .* starting at '\(~\*'"):
        prepare(prefixes, line[:5])


def test_monitor_ends_with_its_last_stream() -> None:
    replies: queue.SimpleQueue[Any] = queue.SimpleQueue()
    replies.put(b"OK")
    prefixes = Prefixes(b"", b"", b"", shared=False)
    monitors = engine.MonitorFeed(Link([], replies), prefixes)  # type: ignore[arg-type]
    server: Any = SimpleNamespace(clock=Timekeeper(), monitors=monitors)
    stream = MonitorStream(server, None)
    stream._begin()
    stream._end()
    assert (monitors._monitors, monitors._feed) == ((), None)


def test_no_monitor_is_left_after_a_close() -> None:
    prefixes = Prefixes(b"", b"", b"", shared=False)
    monitors = engine.MonitorFeed(None, prefixes)  # type: ignore[arg-type]
    monitors.close()
    monitors.append(print)
    assert monitors._feed is None


@pytest.mark.completeness
def test_commands_that_must_be_rewritten_have_a_function() -> None:
    """Options can name a database or block, and key specs cannot locate every key."""
    special = {
        spec.name
        for spec in COMMANDS.values()
        if {"DB", "BLOCK"} & set(spec.options) or any(key.unknown for key in spec.keys)
        if spec.only_in != "vendor"
    }
    missing = sorted(special - _REWRITTEN.keys())
    complete(
        Path(rewriting.__file__), (f'to _REWRITTEN: "{name}": <function>,' for name in missing)
    )
