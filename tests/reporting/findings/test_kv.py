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
from pytest_fakecloud.reporting.applications import ServedRequest
from pytest_fakecloud.reporting.calls import Lookups
from pytest_fakecloud.reporting.report import MOST
from pytest_fakecloud.reporting.text import section
from pytest_fakecloud.reporting.wording import sentence

from ...notations import scenarios
from .cases import SCENES, Scene, check, commands, found, judge, kinds, loses_answer, scene

SCENARIOS = scenarios(SCENES / "commands.txt")


@pytest.mark.parametrize("name", SCENARIOS)
def test_findings_about_commands(cloud: Cloud, name: str) -> None:
    settings, lines = SCENARIOS[name]
    scene(lines, **settings)(cloud)
    judge("commands", name, cloud)


def answer_lost(path: str, *bodies: Any) -> Scene:
    """Send requests of which the first is carried out although its answer is lost."""

    def run(cloud: Cloud) -> None:
        server = cloud.kv_server()
        loses_answer(server.faults)
        for body in bodies:
            with suppress(httpx.TransportError):
                httpx.post(f"{server.url}/{path}", json=body, headers=server.headers)

    return run


def vector_read_only(cloud: Cloud) -> None:
    index = cloud.vector_index()
    headers = {"Authorization": f"Bearer {index.read_only_token}"}
    httpx.post(f"{index.url}/upsert", json={"id": "a", "vector": [1, 0]}, headers=headers)


def queue_read_only(cloud: Cloud) -> None:
    queue = cloud.queue()
    headers = {"Authorization": f"Bearer {queue.read_only_token}"}
    httpx.delete(f"{queue.url}/v2/messages/msg_none", headers=headers)


CASES: dict[str, Scene] = {
    "a write of vectors": vector_read_only,
    "a write of the queue": queue_read_only,
    "an increment repeated after its answer was lost": answer_lost("", *[["INCR", "n"]] * 2),
    "a pipeline repeated after its answer was lost": answer_lost(
        "pipeline", *[[["SET", "a", "1"], ["RPUSH", "l", "x"]]] * 2
    ),
    "a write repeated after its answer was lost": answer_lost("", *[["SET", "n", "1"]] * 2),
    "another increment after an answer was lost": answer_lost("", ["INCR", "n"], ["INCR", "m"]),
    "an answer of which not all was kept": commands(f"~a: SET big {'x' * 200_000} | ~a: GET big"),
}
test_findings = check("kv", CASES)


@pytest.mark.parametrize(
    ("then", "count"),
    [("", 1), (" | SCRIPT LOAD 'return 1'", 0), (" | EVAL 'return 1' 0", 0), (" | PING", 1)],
    ids=["nothing", "load", "eval", "other"],
)
def test_a_script_that_is_sent_after_its_unknown_hash_is_not_an_error(
    cloud: Cloud, then: str, count: int
) -> None:
    commands(f"EVALSHA {'0' * 40} 0{then}")(cloud)
    assert kinds(cloud, raised=AssertionError()).count("error_not_seen") == count


def test_the_newest_finding_comes_first_and_there_are_ten_at_most(cloud: Cloud) -> None:
    late = [
        f"SET {key} 1 EX {at} | @ {at}s | GET {key}" for at, key in enumerate("abcdefghijklmno", 1)
    ]
    commands(" | ".join(late))(cloud)
    every = found(cloud)
    assert len(every) == MOST
    assert every[0].values["key"] == "o"


def test_findings_that_differ_in_the_numbers_of_their_keys_are_one(cloud: Cloud) -> None:
    commands("SET lock:1 me NX | SET lock:2 me NX")(cloud)
    (one,) = found(cloud)
    assert (one.values["key"], one.values["likewise"]) == ("lock:2", ["lock:1"])


def test_a_finding_is_a_cause_before_it_is_a_hint(cloud: Cloud) -> None:
    commands("SET lock:a me NX | SET k 1 EX 9 | @ 10s | GET k")(cloud)
    assert kinds(cloud) == ["lock_without_ttl", "read_after_expiry"]


def test_equal_findings_are_one_about_several_rows(cloud: Cloud) -> None:
    commands("SET s None | SET s None | SET s None")(cloud)
    (one,) = found(cloud)
    assert len(one.rows) == 3


def test_a_detector_that_raises_costs_a_line(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    commands("SET lock:a me NX | SET b 1")(cloud)

    def broken(key: str) -> int:
        raise RuntimeError("no ttl")

    monkeypatch.setattr(cloud.fakes()[0], "_ttl_ms", broken)
    text = section(cloud)
    assert "lock_without_ttl failed: RuntimeError: no ttl" in text
    assert "SET b 1 <-- OK" in text


@pytest.mark.parametrize("words", ["SET k 1 EXAT", "SET k 1 PXAT", "EXPIREAT k"])
def test_a_ttl_computed_from_the_wall_clock(cloud: Cloud, words: str) -> None:
    at = int(time.time()) + 60
    commands(f"SET k 1 | {words} {at * 1000 if 'PXAT' in words else at}")(cloud)
    assert "expires_by_wall_clock" in kinds(cloud)


def test_calls_before_a_restored_snapshot_are_ignored(cloud: Cloud) -> None:
    server = cloud.kv_server()
    before = cloud.snapshot()
    httpx.post(server.url, json=["SET", "lock:a", "me", "NX"], headers=server.headers)
    assert len(found(cloud)) == 1
    cloud.restore(before)
    httpx.post(server.url, json=["GET", "lock:b"], headers=server.headers)
    assert found(cloud) == []


@pytest.mark.parametrize(
    ("path", "body", "count"),
    [
        ("", ["HSET", "h", "mail", False], 1),
        ("", ["SET", "k", True], 1),
        ("pipeline", [["GET", "a"], ["SADD", "s", True]], 1),
        ("", ["SET", "k", "false"], 0),
        ("", ["SET", "k", 0], 0),
        ("pipeline", [["GET", "false"], ["SADD", "s", "true"]], 0),
    ],
)
def test_booleans_of_json_are_values_of_another_kind(
    cloud: Cloud, path: str, body: Any, count: int
) -> None:
    server = cloud.kv_server()
    httpx.post(f"{server.url}/{path}", json=body, headers=server.headers)
    assert kinds(cloud).count("value_of_other_kind") == count


# -- commands during requests to the application ---------------------------------------------------


def serve(cloud: Cloud, *requests: tuple[str, dict[str, Any]]) -> list[ServedRequest]:
    """Send a command during each request to the application; return the requests."""
    server = cloud.kv_server()
    reserve = cloud.journal._recorder.reserve
    served = []
    for command, how in requests:
        began = reserve()
        httpx.post(server.url, json=command.split(), headers=server.headers)
        usual: dict[str, Any] = {"target": "POST /pay", "framework": "Flask", "environ": None}
        usual |= {"thread": 0, "began": began, "at_us": 0, "ended": reserve()}
        served.append(ServedRequest(**{**usual, **how}))
    return served


@pytest.mark.parametrize(
    ("first", "count"),
    [
        ({"status": 500}, 1),
        ({"status": 200, "raised": "KeyError"}, 1),
        ({"status": None}, 1),
        ({"status": 429}, 0),
        ({"status": 500, "body": "another"}, 0),
        ({"status": 500, "headers": (("HTTP_COOKIE", "bob"),)}, 0),
        ({"status": 500, "overlaps": [ServedRequest(0, 0, "GET /", "Flask", None, 1)]}, 0),
        ({"status": 500, "ended": 0}, 0),
        ({"status": 500, "target": "POST /other"}, 0),
    ],
)
def test_a_write_is_repeated_only_by_the_same_request_after_a_failure(
    cloud: Cloud, first: dict[str, Any], count: int
) -> None:
    served = serve(cloud, ("INCR n", first), ("INCR n", {"status": 200}))
    assert kinds(cloud, served=served) == ["repeated_after_failure"] * count


def test_a_write_is_repeated_by_an_attempt_in_which_a_framework_served_a_request(
    cloud: Cloud,
) -> None:
    commands("attempts 503 200: RPUSH log a")(cloud)
    shared: dict[str, Any] = {"at_us": 0, "framework": "Flask", "environ": None, "thread": 0}
    served = [
        ServedRequest(event.data["began"], target="POST /job", ended=event.number, status=status,
                      headers=(("HTTP_UPSTASH_RETRIED", str(status)),), **shared)
        for event, status in zip(cloud.journal.events("attempt"), (503, 200), strict=True)
    ]  # fmt: skip
    assert "repeated_after_failure" in kinds(cloud, served=served)


def test_commands_of_the_test_itself_are_part_of_the_history(cloud: Cloud) -> None:
    server = cloud.kv_server()

    def send(line: str) -> None:
        httpx.post(server.url, json=line.split(), headers=server.headers)

    send("SET k 1 EX 60")
    send("SET n 1 EX 60")
    server.execute("DEL", "k")
    server.reset()
    send("SET k 2")
    cloud.clock.advance("61s")
    send("GET k")
    send("GET n")
    assert kinds(cloud) == []


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
    every = [one for one in found(cloud) if one.kind == "expire_not_executed"]
    (said,) = [sentence(one, Lookups()) for one in every]
    assert said == f"kv_server: {key} has no TTL: the {expire} was not executed"
    assert every[0].severity == "cause"
    assert "lock_without_ttl" not in kinds(cloud)
    # It is not so any more if the TTL is set, or if the key is removed or written again.
    for repair in ([expire, key, "60000"], ["DEL", key], ["SET", key, "new"]):
        saved = cloud.snapshot()
        send(*repair)
        assert "expire_not_executed" not in kinds(cloud)
        cloud.restore(saved)


@pytest.mark.parametrize("known", [None, "5"])
@pytest.mark.parametrize("protocol", ["rest", "resp"])
def test_tasks_that_share_a_pool_of_connections_race(
    cloud: Cloud, protocol: str, known: str | None
) -> None:
    server = cloud.kv_server()
    if known is not None:
        server.load({"k": known})

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
    assert kinds(cloud) == ["check_then_set" if known is None else "lost_update"]


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


@pytest.mark.parametrize("known", [None, "5"])
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
    cloud: Cloud, work: Callable[[Send], Any], races: bool, protocol: str, known: str | None
) -> None:
    server, senders = cloud.kv_server(), [0]
    # `tests/process/test_call_sites.py` has tests of the search for the task that sent a call.
    cloud.journal._recorder.shared.find_site = lambda client: CallSite(task=senders[-1])
    if known is not None:
        server.load({"k": known})

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
    kind = "check_then_set" if known is None else "lost_update"
    assert [one.kind for one in every] == [kind] * races
    if kind == "lost_update" and every:
        assert "another task had written after this task's GET" in sentence(every[0], Lookups())
