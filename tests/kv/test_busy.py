"""Other clients while a script runs: which commands stop it, are rejected, or are answered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.timers import monotonic
from pytest_fakecloud.kv import routes
from pytest_fakecloud.kv.engine.limits import LONGEST_WAIT_SECONDS
from pytest_fakecloud.kv.engine.turns import CommandTurns
from pytest_fakecloud.kv.fake import KVServer
from pytest_fakecloud.kv.resp import port
from pytest_fakecloud.kv.scripting import errors, scripts
from pytest_fakecloud.kv.scripting.errors import ScriptLimits
from tests.harness import wait_until
from tests.kv.comparison.wire import Error, Status
from tests.kv.resp.test_port import Client

OK = Status(b"OK")
FOR_EVER = "while true do end"
LIBRARY = f"""#!lua name=lib
redis.register_function{{
  function_name='read', callback=function() {FOR_EVER} end, flags={{'no-writes'}}
}}
redis.register_function('write', function() redis.call('SET', 'k', 'v') {FOR_EVER} end)
"""
KILLED = b"ERR Script killed by user with SCRIPT KILL..."


@pytest.fixture
def connect(context: Context) -> Iterator[Callable[..., list[Client]]]:
    with ExitStack() as stack:

        @cache
        def serve(dialect: Any) -> KVServer:
            server = stack.enter_context(KVServer(context, dialect=dialect))
            server._engine.scripting.limits = ScriptLimits(instructions=2**53, seconds=20)
            return server

        def clients(count: int, dialect: str = "redis") -> list[Client]:
            made = [Client(serve(dialect)) for _ in range(count)]
            for client in made:
                stack.callback(client.close)
            return made

        yield clients
        assert context.violations == []


def runs(client: Client) -> None:
    wait_until(lambda: client.server._engine.scripting.running, 10)


def busy_after(client: Client, milliseconds: int) -> None:
    assert client("CONFIG", "SET", "lua-time-limit", milliseconds) == OK
    assert client("CONFIG", "GET", "busy-reply-threshold")[1] == b"%d" % milliseconds


@pytest.mark.parametrize(
    "script",
    [
        FOR_EVER,
        f"while true do pcall(function() {FOR_EVER} end) end",
        f"coroutine.wrap(function() {FOR_EVER} end)()",
        "while true do redis.call('GET', 'k') end",
        "while true do string.rep('x', 1e6) end",
    ],
)
def test_a_script_is_killed(connect: Any, script: str) -> None:
    first, second = connect(2)
    first.send("EVAL", script, 0)
    runs(second)
    start = monotonic()
    assert second("SCRIPT", "KILL") == OK
    reply = first.read()
    assert isinstance(reply, Error)
    assert reply.text.startswith(KILLED + b" script: ")
    assert monotonic() - start < 3
    assert first("PING") == Status(b"PONG")
    assert second("SCRIPT", "KILL") == Error(b"NOTBUSY No scripts in execution right now.")


def test_function_stats_and_function_kill(connect: Any) -> None:
    first, second = connect(2)
    first("FUNCTION", "LOAD", LIBRARY)
    busy_after(first, 20)
    first.send("fcall", "read", 1, "key", "word")
    runs(second)
    stats = second("FUNCTION", "STATS")
    running = dict(zip(stats[1][::2], stats[1][1::2], strict=True))
    assert running.pop(b"duration_ms") >= 20
    assert running == {b"name": b"read", b"command": [b"fcall", b"read", b"1", b"key", b"word"]}
    refused = (
        b"BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOS"
    )
    assert second("SCRIPT", "KILL").text.startswith(refused)
    assert second("FUNCTION", "KILL") == OK
    assert first.read() == Error(KILLED + b" script: read, on @user_function:3.")
    assert second("FUNCTION", "STATS")[1] is None


@pytest.mark.parametrize(
    ("line", "kill"),
    [
        (("EVAL", f"redis.call('SET', 'k', 'v') {FOR_EVER}", 0), "SCRIPT KILL"),
        (("FCALL", "write", 0), "FUNCTION KILL"),
    ],
)
@pytest.mark.slow
def test_a_script_that_wrote_cannot_be_killed(
    connect: Any, line: tuple[Any, ...], kill: str
) -> None:
    first, second = connect(2)
    first.server._engine.scripting.limits = ScriptLimits(instructions=2**53, seconds=0.4)
    first("FUNCTION", "LOAD", LIBRARY)
    first.send(*line)
    runs(second)
    # Between its start and its write, the script can be killed.
    while not first.server._engine.databases[0].values:
        pass
    assert second(*kill.split()).text == errors.UNKILLABLE
    assert b"Script stopped: it ran for more than 0.4 seconds" in first.read().text
    assert second("GET", "k") == b"v"


@pytest.mark.parametrize("threshold", [0, 10**6])
def test_nobody_waits_longer_than_the_bound(
    connect: Any, monkeypatch: pytest.MonkeyPatch, threshold: int
) -> None:
    first, second = connect(2)
    busy_after(first, threshold)
    first.send("EVAL", FOR_EVER, 0)
    runs(second)
    second.send("PING")
    monkeypatch.setattr(scripts, "monotonic", lambda: monotonic() + LONGEST_WAIT_SECONDS)
    assert second.read().text.startswith(b"BUSY Redis is busy running a script.")
    assert second("SCRIPT", "KILL") == OK
    assert first.read().text.startswith(KILLED)


@pytest.mark.slow
def test_the_vendor_kills_nothing(connect: Any) -> None:
    first, second = connect(2, "vendor")
    first.server._engine.scripting.limits = ScriptLimits(instructions=2**53, seconds=0.5)
    first.send("EVAL", FOR_EVER, 0)
    runs(second)
    for kill in ("SCRIPT KILL", "FUNCTION KILL"):
        assert second(kill) == Error(b"NOTBUSY No scripts in execution right now.")
    assert second.server._engine.scripting.running is not None  # the replies did not wait
    assert second("PING") == Status(b"PONG")  # waits for the end
    assert b"it ran for more than 0.5 seconds" in first.read().text


def test_a_tester_and_a_client_of_rest_can_kill(connect: Any) -> None:
    [client] = connect(1)
    with client.server._make_client() as redis:
        for kill in (client.server.execute, lambda *words: redis.execute(list(words))):
            client.send("EVAL", FOR_EVER, 0)
            runs(client)
            assert kill("SCRIPT", "KILL") == "OK"
            assert client.read().text.startswith(KILLED)


def test_a_client_that_waits_runs_before_the_next_command_of_another(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_fakecloud.kv.engine.turns._GIVE_WAY_TIMEOUT", 30)
    with KVServer(context) as server:
        engine = server._engine
        with engine.lock:
            thread = threading.Thread(target=server.execute, args=("RPUSH", "l", "waited"))
            thread.start()
            while not engine.turns.waiting:
                pass
        engine.give_way()
        server.execute("RPUSH", "l", "next")
        thread.join(10)
        assert server.value("l") == ["waited", "next"]


@pytest.mark.parametrize("over", ["rest", "port"])
def test_a_long_pipeline_gives_way_between_its_commands(
    context: Context, monkeypatch: pytest.MonkeyPatch, over: str
) -> None:
    turns: list[object] = []
    with KVServer(context) as server:
        for module in (port, routes):
            monkeypatch.setattr(module, "TURN_SECONDS", -1)
        monkeypatch.setattr(server._engine, "give_way", lambda: turns.append(server.value("n")))
        if over == "rest":
            with server._make_client() as redis:
                pipeline = redis.pipeline()
                for _ in range(3):
                    pipeline.incr("n")
                assert pipeline.exec() == [1, 2, 3]
        else:
            client = Client(server)
            client.raw(b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n" * 3)
            assert [client.read() for _ in range(3)] == [1, 2, 3]
            client.close()
    assert {"1", "2"} <= set(turns)


def test_an_interruption_ends_the_wait_for_a_script() -> None:
    def interrupt(line: list[bytes]) -> bool:
        raise KeyboardInterrupt

    turns, has_ended = CommandTurns([], interrupt), threading.Event()

    def wait() -> None:
        with pytest.raises(KeyboardInterrupt):
            turns.in_turn([b"GET", b"k"], lambda: None)
        has_ended.set()

    with turns.lock:
        thread = threading.Thread(target=wait)
        thread.start()
        assert has_ended.wait(10)
    thread.join(10)
    assert turns.lock.acquire(blocking=False)
    turns.lock.release()
