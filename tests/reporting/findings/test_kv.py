"""Findings about the key-value store, and similar cases without a finding.

Cases that consist only of commands are in ``../scenarios/commands.txt``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, cast

import httpx
import pytest
import redis
import redis.asyncio

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.recorder import CallSite
from pytest_fakecloud.reporting.calls import Lookups
from pytest_fakecloud.reporting.report import MOST, report_of
from pytest_fakecloud.reporting.text import section
from pytest_fakecloud.reporting.wording import sentence

from ...notations import scenarios
from .cases import SCENES, Scene, check, commands, found, judge, kinds, scene

SCENARIOS = scenarios(SCENES / "commands.txt")


@pytest.mark.parametrize("name", SCENARIOS)
def test_findings_about_commands(cloud: Cloud, name: str) -> None:
    settings, lines = SCENARIOS[name]
    scene(lines, **settings)(cloud)
    judge("commands", name, cloud)


CASES: dict[str, Scene] = {
    "an answer of which not all was kept": commands(f"~a: SET big {'x' * 200_000} | ~a: GET big")
}
test_findings = check("kv", CASES)


def test_the_newest_finding_comes_first_and_there_are_ten_at_most(cloud: Cloud) -> None:
    # Their durations differ, so that they are not the same finding about several keys.
    lines = [f"SET {key} 1 PX {60 * at}" for at, key in enumerate("abcdefghijklmno", 1)]
    commands(" | ".join(lines))(cloud)
    assert [finding.values["key"] for finding in found(cloud)] == list("onmlkjihgfedcba")
    assert len(report_of(cloud).findings) == MOST


def test_findings_that_differ_in_the_numbers_of_their_keys_are_one(cloud: Cloud) -> None:
    commands("SET u:1 a EX 9 | SET u:1 b | SET u:2 a EX 9 | SET u:2 b")(cloud)
    (finding,) = found(cloud)
    assert (finding.values["key"], finding.values["likewise"]) == ("u:2", ["u:1"])


def test_equal_findings_are_one_about_several_rows(cloud: Cloud) -> None:
    commands("SET s 1 PX 60 | SET s 1 PX 60 | SET s 1 PX 60")(cloud)
    (finding,) = found(cloud)
    assert len(finding.rows) == 3


def test_a_detector_that_raises_costs_a_line(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    commands("SET a 1 EX 9 | SET a 2 | SET b 1")(cloud)

    def broken(key: str) -> int:
        raise RuntimeError("no ttl")

    monkeypatch.setattr(cloud.fakes()[0], "_ttl_ms", broken)
    text = section(cloud)
    assert "ttl_removed failed: RuntimeError: no ttl" in text
    assert "SET b 1 <-- OK" in text


@pytest.mark.parametrize("words", ["SET k 1 EXAT", "SET k 1 PXAT", "EXPIREAT k"])
def test_a_ttl_computed_from_the_wall_clock(cloud: Cloud, words: str) -> None:
    at = int(time.time()) + 60
    commands(f"SET k 1 | {words} {at * 1000 if 'PXAT' in words else at}")(cloud)
    assert "expires_by_wall_clock" in kinds(cloud)


def test_calls_before_a_restored_snapshot_are_ignored(cloud: Cloud) -> None:
    server = cloud.kv_server()
    before = cloud.snapshot()
    httpx.post(server.url, json=["SET", "a", "1", "PX", "60"], headers=server.headers)
    assert len(found(cloud)) == 1
    cloud.restore(before)
    httpx.post(server.url, json=["GET", "lock:b"], headers=server.headers)
    assert found(cloud) == []


def search(text: str, steps: str, **settings: Any) -> Scene:
    """Create an index, run steps, and search for a word."""
    index = "SEARCH.CREATE i ON HASH PREFIX 1 p. SCHEMA t TEXT"
    return commands(f'{index} | {steps} | SEARCH.QUERY i \'{{"t":"{text}"}}\'', **settings)


SLOW: dict[str, Any] = {"search_ready_after": "1s"}
SEARCHES: dict[str, Scene] = {
    "a search before a change is indexed": search("red", "HSET p.1 t red", **SLOW),
    "a search that counts its reads": search("red", "HSET p.1 t red", search_ready_after_reads=2),
    "a search of a change that is indexed later": commands(
        "SEARCH.CREATE i ON HASH PREFIX 1 p. SCHEMA t TEXT | HSET p.1 t red | "
        'SEARCH.COUNT i \'{"t":"red"}\' | @ 2s | SEARCH.COUNT i \'{"t":"red"}\'',
        **SLOW,
    ),
    "a search with a hit": search("red", "HSET p.1 t red | @ 2s | HSET p.2 t red", **SLOW),
    "a search of an indexed word": search("blue", "HSET p.1 t red | @ 2s", **SLOW),
    "a search after SEARCH.WAITINDEXING": search(
        "red", "HSET p.1 t red | SEARCH.WAITINDEXING i", **SLOW
    ),
    "a search of another prefix": search("red", "HSET q:1 t red", **SLOW),
}
test_findings_about_searches = check("kv", SEARCHES)


GUARDS: dict[str, list[str]] = {
    "SET NX": ["SET", "KEY", "ada", "NX"], "SETNX": ["SETNX", "KEY", "ada"],
    "HSETNX": ["HSETNX", "KEY", "by", "ada"], "INCR": ["INCR", "KEY"],
}  # fmt: skip


@pytest.mark.parametrize("failure", ["drop", "respond", "lost_request", "rejected", "port"])
@pytest.mark.parametrize("expire", ["EXPIRE", "PEXPIRE"])
@pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS)
def test_a_guard_stays_because_its_expire_was_not_executed(
    cloud: Cloud, guard: list[str], expire: str, failure: str
) -> None:
    server, key = cloud.kv_server(), "job 7/ä"
    line = [key if word == "KEY" else word for word in guard]
    seconds = "soon" if failure == "rejected" else "60000"

    def send(*words: str) -> None:
        if failure == "port":
            with redis.Redis.from_url(server.database_url) as client, suppress(redis.RedisError):
                client.execute_command(*words)
            return
        with suppress(httpx.TransportError):
            httpx.post(server.url, json=words, headers=server.headers)

    faults = {"drop": server.faults.drop, "lost_request": server.faults.down}
    send(*line)
    if failure in faults:
        faults[failure](command=expire, times=1)
    elif failure in ("respond", "port"):
        server.faults.respond(503, command=expire, times=1)
    send(expire, key, seconds)
    every = [finding for finding in found(cloud) if finding.kind == "expire_not_executed"]
    (said,) = [sentence(finding, Lookups()) for finding in every]
    assert said == f"kv_server: {key} has no TTL: the {expire} was not executed"
    # It is not so any more if the TTL is set, or if the key is removed or written again.
    for repair in ([expire, key, "60000"], ["DEL", key], ["SET", key, "new"]):
        saved = cloud.snapshot()
        send(*repair)
        assert "expire_not_executed" not in kinds(cloud)
        cloud.restore(saved)


@pytest.mark.parametrize("initial", [None, "5"])
@pytest.mark.parametrize("protocol", ["rest", "resp"])
def test_tasks_that_share_a_pool_of_connections_race(
    cloud: Cloud, protocol: str, initial: str | None
) -> None:
    server = cloud.kv_server()
    if initial is not None:
        server.load({"k": initial})

    async def run() -> None:
        http = httpx.AsyncClient(headers=server.headers)
        native = redis.asyncio.Redis.from_url(server.database_url)
        both_read, readers = asyncio.Event(), 0

        async def send(*words: str) -> None:
            if protocol == "rest":
                await http.post(server.url, json=words)
            else:
                await native.execute_command(*words)

        async def task(value: str) -> None:
            nonlocal readers
            await send("GET", "k")
            readers += 1
            if readers == 2:
                both_read.set()
            await both_read.wait()
            await send("SET", "k", value)

        await asyncio.gather(send("PING"), send("PING"))  # so that the pool has two connections
        await asyncio.gather(task("6"), task("7"))
        await http.aclose()
        await native.aclose()

    asyncio.run(run())
    assert kinds(cloud) == ["check_then_set" if initial is None else "lost_update"]


def test_a_call_of_an_unknown_task_may_be_one_of_a_task_that_is_known(cloud: Cloud) -> None:
    """Its task could be the one whose read is then outdated, so nothing was lost for certain."""
    server, sites = cloud.kv_server(), [(1, "GET k"), (0, "SET k 1"), (2, "GET k"), (1, "SET k 2")]
    server.load({"k": "0"})
    shared = cloud.journal._recorder.shared
    with httpx.Client(headers=server.headers) as client:
        for task, line in sites:
            shared.find_site = lambda _, task=task: CallSite(task=task)  # type: ignore[misc]
            client.post(server.url, json=line.split())
    assert kinds(cloud) == []


Send = Callable[..., Awaitable[object]]


async def interleaved(send: Send) -> None:
    """Two tasks both read before they write."""
    have_read = [asyncio.Event(), asyncio.Event()]

    async def task(number: int) -> None:
        if number:
            await have_read[0].wait()
        await send("GET", "k")
        have_read[number].set()
        await have_read[1].wait()
        await asyncio.sleep(0)
        if number:
            await has_written.wait()
        await send("SET", "k", number, "EX", 60)
        has_written.set()

    has_written = asyncio.Event()
    await asyncio.gather(task(0), task(1))


async def a_write_between(send: Send) -> None:
    """A task writes between the read and the write of another."""
    await send("GET", "k")
    await asyncio.create_task(read_and_write(send, 6))
    await send("SET", "k", 7)


async def in_turn(send: Send) -> None:
    """Two tasks, of which one begins when the other has ended."""
    for number in range(2):
        await asyncio.create_task(read_and_write(send, number))


async def one_task(send: Send) -> None:
    await send("GET", "k")
    await send("GET", "k")
    await send("SET", "k", 6)
    await send("SET", "k", 7)


async def one_command_each(send: Send) -> None:
    """Each command has a task of its own, as with ``asyncio.wait_for()`` of Python 3.11."""
    for words in (("GET", "k"), ("SET", "k", 6), ("GET", "k"), ("SET", "k", 7)):
        await asyncio.create_task(cast("Coroutine[Any, Any, object]", send(*words)))


async def read_and_write(send: Send, value: int) -> None:
    await send("GET", "k")
    await send("SET", "k", value)


@pytest.mark.parametrize("initial", [None, "5"])
@pytest.mark.parametrize("protocol", ["rest", "resp"])
@pytest.mark.parametrize(
    ("work", "races"),
    [
        (interleaved, True),
        (a_write_between, True),
        (in_turn, False),
        (one_task, False),
        (one_command_each, False),
    ],
)
def test_tasks_that_share_one_connection_race_if_their_calls_interleave(
    cloud: Cloud, work: Callable[[Send], Any], races: bool, protocol: str, initial: str | None
) -> None:
    server, senders = cloud.kv_server(), [0]
    # `tests/process/test_call_sites.py` has tests of the search for the task that sent a call.
    cloud.journal._recorder.shared.find_site = lambda client: CallSite(task=senders[-1])
    if initial is not None:
        server.load({"k": initial})

    async def run() -> None:
        limits = httpx.Limits(max_connections=1)
        http = httpx.AsyncClient(headers=server.headers, limits=limits)
        url = server.database_url
        native = redis.asyncio.Redis.from_url(url, single_connection_client=True)

        async def send(*words: Any) -> None:
            task = asyncio.current_task()
            assert task is not None
            senders.append(int(task.get_name().rpartition("-")[2]))
            if protocol == "rest":
                await http.post(server.url, json=words)
            else:
                await native.execute_command(*words)

        await work(send)
        await http.aclose()
        await native.aclose()

    asyncio.run(run())
    assert len({call.client for call in server.journal.calls()}) == 1
    every = found(cloud)
    kind = "check_then_set" if initial is None else "lost_update"
    assert [finding.kind for finding in every] == [kind] * races
    if kind == "lost_update" and every:
        assert "another task had written after this task's GET" in sentence(every[0], Lookups())
