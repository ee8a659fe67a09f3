"""Findings about the key-value store, and similar cases without a finding.

Cases that consist only of commands are in ``../scenarios/commands.txt``.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import httpx
import pytest
import redis
import redis.asyncio

from pytest_fakecloud import Cloud
from pytest_fakecloud.reporting.lookups import Lookups
from pytest_fakecloud.reporting.render.as_json import as_json
from pytest_fakecloud.reporting.render.text import text
from pytest_fakecloud.reporting.render.wording import sentence
from pytest_fakecloud.reporting.report import report_of
from pytest_fakecloud.reporting.select import MOST_FINDINGS

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
    assert len(report_of(cloud).findings) == MOST_FINDINGS


def test_findings_that_differ_in_the_numbers_of_their_keys_are_one(cloud: Cloud) -> None:
    commands("SET u:1 a EX 9 | SET u:1 b | SET u:2 a EX 9 | SET u:2 b")(cloud)
    (finding,) = found(cloud)
    assert (finding.values["key"], finding.values["likewise"]) == ("u:2", ["u:1"])


def test_equal_findings_are_one_about_several_rows(cloud: Cloud) -> None:
    commands("SET s 1 PX 60 | SET s 1 PX 60 | SET s 1 PX 60")(cloud)
    (finding,) = found(cloud)
    assert len(finding.row_numbers) == 3


def test_a_detector_that_raises_costs_a_line(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    commands("fault 503 EXPIRE | SET a 1 | EXPIRE a 9 | SET b 1")(cloud)

    def broken(key: str) -> int:
        raise RuntimeError("no ttl")

    monkeypatch.setattr(cloud.fakes()[0], "_ttl_ms", broken)
    report = report_of(cloud)
    [error] = as_json(report)["errors"]
    assert error.startswith("of_keys failed: RuntimeError: no ttl")
    assert text(report).startswith(error)
    assert "SET b 1 <-- OK" in text(report)


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
