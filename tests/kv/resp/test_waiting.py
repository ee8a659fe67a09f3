"""Blocked clients and their keys, compared with a real server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from tests.harness import wait_until
from tests.kv.comparison.faces import Port
from tests.kv.comparison.servers import running
from tests.kv.comparison.wire import Error

GONE = Error(b"UNBLOCKED the stream key no longer exists")
GROUP = ("XADD s 1-1 f v", "XGROUP CREATE s g $")
READ = "XREADGROUP GROUP g ann BLOCK 0 STREAMS s >"
STORIES: dict[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "the target of a move is not a list": (
        ("SET to x",), "BLMOVE from to LEFT LEFT 0", ("RPUSH from a",),
    ),
    "a key becomes something else": ((), "BLPOP a b 0", ("SET a x", "RPUSH b 1")),
    "a key is made, deleted and made": (
        (), "BLPOP a 0", ("MULTI", "RPUSH a 1", "DEL a", "EXEC", "RPUSH a 2"),
    ),
    "a sorted set becomes something else": ((), "BZPOPMIN a b 0", ("SET a x", "ZADD b 1 m")),
    "a list where sorted sets are waited for": (
        (), "BZMPOP 0 1 a MIN", ("RPUSH a 1", "DEL a", "ZADD a 1 m"),
    ),
    "a stream is deleted": (GROUP, READ, ("DEL s",)),
    "a stream becomes something else": (GROUP, READ, ("SET s x",)),
    "a stream becomes something else at once": (GROUP, READ, ("MULTI", "DEL s", "SADD s a", "EXEC")),
    "a stream is flushed": (GROUP, READ, ("FLUSHALL",)),
    "a stream is renamed": (GROUP, READ, ("RENAME s t",)),
    "a stream expires at once": (GROUP, READ, ("PEXPIREAT s 1",)),
    "a group is destroyed": (GROUP, READ, ("XGROUP DESTROY s g",)),
    "entries that come to a group": (GROUP, READ, ("XADD s 2-1 f w",)),
    "a plain read waits on": (GROUP[:1], "XREAD BLOCK 0 STREAMS s $", ("DEL s", "XADD s 9-1 f w")),
    "a plain read of what becomes a text": (GROUP[:1], "XREAD BLOCK 0 STREAMS s $",
                                            ("SET s x", "DEL s", "XADD s 9-1 f w")),
}  # fmt: skip


def story(connect: Any, name: str) -> tuple[Any, Any]:
    """Return a blocked client's reply, and all keys afterwards."""
    before, waits, then = STORIES[name]
    one, other = connect(), connect()
    got: list[Any] = []

    def call(client: Any, line: str) -> Any:
        return client.call([word.encode() for word in line.split()])

    def blocked() -> bool:
        return b"blocked_clients:1" in call(other, "INFO clients")

    for line in ("FLUSHALL", *before):
        call(other, line)
    waiting = threading.Thread(target=lambda: got.append(call(one, waits)))
    waiting.start()
    wait_until(blocked)
    for line in then:
        call(other, line)
    waiting.join(10)
    assert got, "the client still waits"
    keys = sorted(call(other, "KEYS *"))
    state = {key: call(other, f"TYPE {key.decode()}") for key in keys}
    one.close()
    other.close()
    return got[0], state


@pytest.fixture
def port() -> Iterator[Any]:
    with Cloud(seed=1) as cloud:
        kv = cloud.kv_server(dialect="redis")
        yield lambda: Port(kv.database_url)


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with running() as server:
        yield server.again


@pytest.mark.parametrize("name", STORIES)
def test_a_blocked_client_gets_the_same(port: Any, server: Any, name: str) -> None:
    assert story(port, name) == story(server, name)


FLAGGED = b"#!lua flags=no-writes\nreturn 1"
PLAIN = b"#!lua\nreturn 1"
LINES: dict[str, tuple[list[bytes], ...]] = {
    "a read": ([b"GET", b"k"],),
    "a write": ([b"SET", b"k", b"v"],),
    "a count that may write": ([b"PFCOUNT", b"hll"],),
    "a message": ([b"PUBLISH", b"c", b"m"],),
    "a write without its value": ([b"SET", b"k"],),
    "a command that is none": ([b"NOSUCH"],),
    "a script": ([b"EVAL", b"return 1", b"0"],),
    "a script that says nothing of itself": ([b"EVAL", PLAIN, b"0"],),
    "a script that only reads": ([b"EVAL", FLAGGED, b"0"],),
    "a script run as one that reads": ([b"EVAL_RO", b"return 1", b"0"],),
    "a script that is not there": ([b"EVALSHA", b"0" * 40, b"0"],),
    "a function that is not there": ([b"FCALL", b"f", b"0"],),
    "loading a script": ([b"SCRIPT", b"LOAD", b"return 1"],),
    "a transaction that reads": ([b"MULTI"], [b"GET", b"k"], [b"EVAL", FLAGGED, b"0"], [b"EXEC"]),
    "a write in a transaction": ([b"MULTI"], [b"SET", b"k", b"v"], [b"EXEC"]),
}


def paused(connect: Any, name: str, mode: bytes, early: bool) -> tuple[Any, list[bytes]]:
    """Return a client's reply during a pause, and what other clients see of it."""
    one, other = connect(), connect()
    got: list[Any] = []
    *first, last = LINES[name]
    other.call([b"FLUSHALL"])
    other.call([b"PFADD", b"hll", b"a"])
    if early:
        for line in first:
            one.call(line)
        first = []
    other.call([b"MULTI"])
    for line in ([b"CLIENT", b"PAUSE", b"60000", mode], [b"SET", b"together", b"v"], [b"EXEC"]):
        other.call(line)

    def ask() -> None:
        got.extend(one.call(line) for line in (*first, last))

    def held() -> bool:
        return b"blocked_clients:1" in other.call([b"INFO", b"clients"])

    waiting = threading.Thread(target=ask)
    waiting.start()
    wait_until(lambda: held() or not waiting.is_alive())
    seen = [b"held" if held() else b"let through", *other.call([b"KEYS", b"k"])]
    other.call([b"CLIENT", b"UNPAUSE"])
    waiting.join(10)
    one.close()
    other.close()
    return got, seen


@pytest.mark.parametrize("name", LINES)
def test_a_pause_delays_the_same_commands(port: Any, server: Any, name: str) -> None:
    early = name.endswith("transaction")
    ours, theirs = paused(port, name, b"WRITE", early), paused(server, name, b"WRITE", early)
    assert ours == theirs


def test_a_pause_lets_errors_and_readers_through(port: Any) -> None:
    assert paused(port, "a write", b"WRITE", False)[1] == [b"held"]
    assert paused(port, "a write in a transaction", b"WRITE", True)[1] == [b"held"]
    assert paused(port, "a write without its value", b"WRITE", False)[1] == [b"let through"]
    assert paused(port, "a script that only reads", b"WRITE", False)[1] == [b"let through"]


PAUSES: dict[str, tuple[str, ...]] = {
    "a shorter one": ("CLIENT PAUSE 60000 WRITE", "CLIENT PAUSE 1 WRITE"),
    "a weaker one": ("CLIENT PAUSE 60000 ALL", "CLIENT PAUSE 60000 WRITE"),
    "a stronger one that is shorter": ("CLIENT PAUSE 60000 WRITE", "CLIENT PAUSE 1 ALL"),
    "none at all": ("CLIENT PAUSE 60000 WRITE", "CLIENT PAUSE 0"),
    "its end": ("CLIENT PAUSE 60000 ALL", "CLIENT UNPAUSE", "CLIENT PAUSE 60000 WRITE"),
}


def held_by(connect: Any, name: str) -> tuple[bool, bool]:
    """Return whether a read and a write wait after these pauses, one after the other."""
    other, reader, writer = connect(), connect(), connect()
    # In one transaction, because a pause of all commands would delay the next request for one.
    other.call([b"MULTI"])
    for line in PAUSES[name]:
        other.call(line.encode().split())
    other.call([b"EXEC"])
    # The reads that wait here could be answered at once: a pause that is over does not count.
    reads = reader.answers([b"GET", b"k"], 0.05)
    writes = writer.answers([b"SET", b"k", b"v"], 0.05)
    for client in (other, reader, writer):
        client.close()
    return reads, writes


@pytest.mark.parametrize("name", PAUSES)
def test_of_two_pauses_the_later_end_and_the_stronger_kind_count(port: Any, name: str) -> None:
    # A pause of all commands ends only with its server.
    with running() as alone:
        ours, theirs = held_by(port, name), held_by(alone.again, name)
    assert ours == theirs
    assert not ours[1]


def test_a_removed_stream_ends_the_wait(port: Any) -> None:
    assert story(port, "a stream is deleted")[0] == GONE


def test_errors_of_blocked_readers_since_7_2() -> None:
    """Since 7.2, and so in the vendor's dialect, a blocked client gets the errors of a new one."""
    with Cloud(seed=1) as cloud:
        kv = cloud.kv_server()
        got, _ = story(lambda: Port(kv.database_url), "a stream is deleted")
        assert got.text.startswith(b"NOGROUP No such key 's' or consumer group 'g'")
        got, _ = story(lambda: Port(kv.database_url), "a stream becomes something else")
        assert got.text.startswith(b"WRONGTYPE")
