"""Blocked clients, pauses, statistics and logs, compared with a real server."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from tests.harness import wait_until
from tests.kv.comparison.faces import Port
from tests.kv.comparison.servers import running
from tests.kv.comparison.wire import Error, words
from tests.notations import sections

HERE = Path(__file__).parent
GONE = Error(b"UNBLOCKED the stream key no longer exists")


@pytest.fixture
def port() -> Iterator[Any]:
    with Cloud(seed=1) as cloud:
        kv = cloud.kv_server(dialect="redis")
        yield lambda: Port(kv.database_url)


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with running() as server:
        yield server.again


def closed(*clients: Any) -> None:
    for client in clients:
        client.close()


def sent(client: Any, *lines: str) -> list[Any]:
    return [client.call(words(line)) for line in lines]


class Wait:
    """A client that waits for the reply to lines, while another one sends lines."""

    def __init__(self, connect: Any, lines: list[str]) -> None:
        """``waiting: LINE`` among the lines waits. The lines before it come first."""
        at = next(at for at, line in enumerate(lines) if line.startswith("waiting: "))
        self.before, self.line, self.then = (
            lines[:at],
            lines[at].removeprefix("waiting: "),
            lines[at + 1 :],
        )
        self.one, self.other = connect(), connect()

    def reply(self) -> Any:
        got: list[Any] = []
        waiting = threading.Thread(target=lambda: got.append(self.one.call(words(self.line))))
        waiting.start()
        if self.then:
            wait_until(lambda: b"blocked_clients:1" in self.other.call([b"INFO", b"clients"]))
        sent(self.other, *self.then)
        waiting.join(10)
        assert got, "the client still waits"
        return got[0]


# -- blocked clients -------------------------------------------------------------------------------

WAITS = sections(HERE / "waits.txt")


def story(connect: Any, name: str) -> tuple[Any, Any]:
    wait = Wait(connect, WAITS[name])
    other = wait.other
    sent(other, "FLUSHALL", *wait.before)
    got = wait.reply()
    keys = sorted(other.call([b"KEYS", b"*"]))
    state = {key: other.call([b"TYPE", key]) for key in keys}
    closed(wait.one, other)
    return got, state


@pytest.mark.parametrize("name", WAITS)
def test_a_blocked_client_gets_the_same(port: Any, server: Any, name: str) -> None:
    assert story(port, name) == story(server, name)


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


def test_messages_during_a_script_have_the_protocol_of_their_client(port: Any, server: Any) -> None:
    def received(connect: Any) -> list[Any]:
        client = connect()
        sent(client, "HELLO 3", "FLUSHALL", "CLIENT TRACKING ON", "GET k", "SUBSCRIBE c")
        script = (
            "redis.call('ping') redis.call('set', 'k', 'v') return redis.call('publish', 'c', 'm')"
        )
        replies = [client.call([b"EVAL", script.encode(), b"0"]), client.next(), client.next()]
        closed(client)
        return replies

    assert received(port) == received(server)


@pytest.mark.parametrize("protocol", ["2", "3"])
@pytest.mark.parametrize(
    "lines",
    [
        "SUBSCRIBE a|PING|SUBSCRIBE b",
        "SUBSCRIBE a b|SET k v|PSUBSCRIBE c|GET k|UNSUBSCRIBE a|UNSUBSCRIBE",
        "SUBSCRIBE a|HELLO 3",
        "HELLO 2|SUBSCRIBE a",
        "SET k 1|SSUBSCRIBE a|GET k",
        "SUBSCRIBE a|PUBLISH a m|PING|PUBLISH a n|UNSUBSCRIBE a|PUBLISH a o",
        "PSUBSCRIBE *|EVAL \"redis.call('PUBLISH', 'a', 'm') return {1, 2}\" 0|PING",
    ],
)
def test_a_transaction_has_its_messages_in_their_places(
    port: Any, server: Any, protocol: str, lines: str
) -> None:
    def received(connect: Any) -> str:
        client = connect()
        sent(client, f"HELLO {protocol}", "MULTI", *lines.split("|"))
        client.send([b"EXEC"])
        stream, data = client.send([b"PING", b"the end"]), b""
        while not data.endswith(b"the end\r\n"):
            data += stream.readline()
        closed(client)
        # The reply to HELLO tells the version and the number of the connection.
        return re.sub(rb"(version\r\n\$\d+|id)\r\n\S+", b"", data).decode()

    assert received(port) == received(server)


def test_swapping_databases_invalidates_nothing(port: Any, server: Any) -> None:
    def received(connect: Any) -> list[Any]:
        client, other = connect(), connect()
        sent(other, "SET swapped 1")
        sent(client, "HELLO 3", "CLIENT TRACKING ON", "GET swapped")
        sent(other, "SWAPDB 0 1", "SWAPDB 0 1", "SET swapped 2")
        replies = [client.next(), client.call([b"PING"])]
        closed(client, other)
        return replies

    assert received(port) == received(server)


# -- pauses ----------------------------------------------------------------------------------------

PAUSED = sections(HERE / "paused.txt")


def paused(connect: Any, name: str, mode: str, early: bool) -> tuple[Any, list[bytes]]:
    client, other = connect(), connect()
    got: list[Any] = []
    *first, last = PAUSED[name]
    sent(other, "FLUSHALL", "PFADD hll a")
    if early:
        sent(client, *first)
        first = []
    sent(other, "MULTI", f"CLIENT PAUSE 60000 {mode}", "SET together v", "EXEC")

    def ask() -> None:
        got.extend(sent(client, *first, last))

    def held() -> bool:
        return b"blocked_clients:1" in other.call([b"INFO", b"clients"])

    waiting = threading.Thread(target=ask)
    waiting.start()
    wait_until(lambda: held() or not waiting.is_alive())
    seen = [b"held" if held() else b"let through", *other.call([b"KEYS", b"k"])]
    sent(other, "CLIENT UNPAUSE")
    waiting.join(10)
    closed(client, other)
    return got, seen


@pytest.mark.parametrize("name", PAUSED)
def test_a_pause_delays_the_same_commands(port: Any, server: Any, name: str) -> None:
    early = name.endswith("transaction")
    ours, theirs = paused(port, name, "WRITE", early), paused(server, name, "WRITE", early)
    assert ours == theirs


def test_a_pause_lets_errors_and_readers_through(port: Any) -> None:
    assert paused(port, "a write", "WRITE", False)[1] == [b"held"]
    assert paused(port, "a write in a transaction", "WRITE", True)[1] == [b"held"]
    assert paused(port, "a write without its value", "WRITE", False)[1] == [b"let through"]
    assert paused(port, "a script that only reads", "WRITE", False)[1] == [b"let through"]


PAUSES: dict[str, tuple[str, ...]] = {
    "a shorter one": ("CLIENT PAUSE 60000 WRITE", "CLIENT PAUSE 1 WRITE"),
    "a weaker one": ("CLIENT PAUSE 60000 ALL", "CLIENT PAUSE 60000 WRITE"),
    "a stronger one that is shorter": ("CLIENT PAUSE 60000 WRITE", "CLIENT PAUSE 1 ALL"),
    "none at all": ("CLIENT PAUSE 60000 WRITE", "CLIENT PAUSE 0"),
    "its end": ("CLIENT PAUSE 60000 ALL", "CLIENT UNPAUSE", "CLIENT PAUSE 60000 WRITE"),
}


def held_by(connect: Any, name: str) -> tuple[bool, bool]:
    other, reader, writer = connect(), connect(), connect()
    # In one transaction, because a pause of all commands would delay the next request for one.
    sent(other, "MULTI", *PAUSES[name], "EXEC")
    # The reads that wait here could be answered at once: a pause that is over does not count.
    reads = reader.answers([b"GET", b"k"], 0.05)
    writes = writer.answers([b"SET", b"k", b"v"], 0.05)
    closed(other, reader, writer)
    return reads, writes


@pytest.mark.parametrize("name", PAUSES)
def test_of_two_pauses_the_later_end_and_the_stronger_kind_count(port: Any, name: str) -> None:
    # A pause of all commands ends only with its server.
    with running() as alone:
        ours, theirs = held_by(port, name), held_by(alone.again, name)
    assert ours == theirs
    assert not ours[1]


# -- statistics and logs ---------------------------------------------------------------------------

COUNTS = sections(HERE / "counts.txt")
LOGGED_WAITS = sections(HERE / "logged_waits.txt")
LINES = sections(HERE / "lines.txt")
LIMITS = "maxmemory 0 min-replicas-to-write 0 min-replicas-max-lag 10 slowlog-log-slower-than 10000"
FIGURES = re.compile(rb"(calls|rejected_calls|failed_calls)=(\d+)")


def counted(client: Any) -> dict[bytes, Any]:
    figures: dict[bytes, Any] = {}
    for section in (b"commandstats", b"errorstats"):
        for line in client.call([b"INFO", section]).splitlines():
            name, colon, value = line.partition(b":")
            if colon and not name.startswith((b"cmdstat_info", b"cmdstat_config")):
                figures[name] = FIGURES.findall(value) or value
    total = re.search(rb"total_error_replies:(\d+)", client.call([b"INFO", b"stats"]))
    assert total is not None
    figures[b"all errors"] = total[1]
    return figures


def reset(client: Any) -> None:
    sent(client, f"CONFIG SET {LIMITS}", "FLUSHALL", "CONFIG RESETSTAT")


def told(connect: Any, name: str) -> Any:
    client = connect()
    reset(client)
    replies = sent(client, *COUNTS[name])
    figures = counted(client)
    reset(client)
    closed(client)
    return replies, figures


@pytest.mark.parametrize("name", COUNTS)
def test_errors_are_counted_as_a_real_server_counts_them(port: Any, server: Any, name: str) -> None:
    ours, theirs = told(port, name), told(server, name)
    assert ours == theirs


def waited(connect: Any, name: str) -> Any:
    wait = Wait(connect, LOGGED_WAITS[name])
    other = wait.other
    reset(other)
    sent(other, *wait.before, "CONFIG SET slowlog-log-slower-than 0", "SLOWLOG RESET")
    got = wait.reply()
    logged = [entry[3] for entry in other.call([b"SLOWLOG", b"GET", b"-1"])]
    figures = counted(other)
    figures.pop(b"cmdstat_slowlog|reset")
    reset(other)
    closed(wait.one, other)
    return got, logged.count(words(wait.line)), figures


@pytest.mark.parametrize("name", LOGGED_WAITS)
def test_a_command_that_waited_is_logged_when_it_is_over(port: Any, server: Any, name: str) -> None:
    ours, theirs = waited(port, name), waited(server, name)
    assert ours == theirs


def test_a_command_that_waited_took_as_long_as_it_waited() -> None:
    with Cloud(clock="frozen", seed=1) as cloud:
        kv = cloud.kv_server(dialect="redis")
        client, got = Port(kv.database_url), []
        waiting = threading.Thread(target=lambda: got.append(client.call(words("BLPOP l 0"))))
        waiting.start()
        wait_until(lambda: "blocked_clients:1" in kv.execute("INFO", "clients"))
        cloud.clock.advance(3)
        kv.execute("LPUSH", "l", "x")
        waiting.join(10)
        assert got == [[b"l", b"x"]]
        ((_, _, micros, line, _, _),) = kv.execute("SLOWLOG", "GET")
        assert (micros, line) == (3_000_000, ["BLPOP", "l", "0"])
        client.close()


def logged(connect: Any) -> tuple[Any, Any]:
    client, watcher = connect(), connect()
    sent(client, "CONFIG SET slowlog-log-slower-than 0", "SLOWLOG RESET")
    sent(watcher, "MONITOR")
    sent(client, *LINES["secrets"])
    entries = [entry[3] for entry in client.call([b"SLOWLOG", b"GET", b"-1"])]
    sent(client, "ECHO 'the end'")
    shown: list[bytes] = []
    while not shown or b"the end" not in shown[-1]:
        shown.append(watcher.next().text.partition(b"] ")[2])
    sent(client, "CONFIG SET slowlog-log-slower-than 10000", "ACL DELUSER tom")
    closed(client, watcher)
    return entries, shown


def test_secrets_are_left_out_of_logs_as_on_a_real_server(server: Any) -> None:
    # The lines change the password of the port.
    with Cloud(seed=1) as cloud:
        url = cloud.kv_server(dialect="redis").database_url
        ours, theirs = logged(lambda: Port(url)), logged(server)
    assert ours == theirs
    assert [b"ACL", b"SETUSER", *[b"(redacted)"] * 5] in ours[0]


def looked_up(client: Any) -> dict[str, tuple[int, int]]:

    def figures() -> tuple[int, int]:
        info = client.call([b"INFO", b"stats"])
        numbers = re.findall(rb"keyspace_(?:hits|misses):(\d+)", info)
        return int(numbers[0]), int(numbers[1])

    counts = {}
    for line in LINES["reads"]:
        sent(client, "FLUSHALL", *LINES["data"])
        wait_until(lambda: client.call([b"PTTL", b"gone"]) == -2)
        before = figures()
        sent(client, line)
        after = figures()
        counts[line] = (after[0] - before[0], after[1] - before[1])
    return counts


@pytest.mark.slow
def test_keys_are_found_and_missed_as_on_a_real_server(port: Any, server: Any) -> None:
    mine, theirs = port(), server()
    ours, real = looked_up(mine), looked_up(theirs)
    different = [line for line in LINES["reads"] if ours[line] != real[line]]
    assert [(line, ours[line], real[line]) for line in different] == []
    assert sum(map(sum, ours.values())) > 80
    closed(mine, theirs)
