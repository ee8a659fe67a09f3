"""Findings about keys and commands, and similar cases without a finding."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
import pytest
import requests

from pytest_fakecloud import Cloud
from pytest_fakecloud.reporting.findings import MOST, vector
from pytest_fakecloud.reporting.text import section

from .cases import HOOK, Scene, check, found, kinds, kv, query, read_only, timed, two_clients


def publishes_after_loss(headers: dict[str, str]) -> Scene:
    """One publish request that is sent again after its answer was lost."""

    def run(cloud: Cloud) -> None:
        queue = cloud.queue()
        queue.faults.lose_answer(times=1)
        url = f"{queue.url}/v2/publish/{HOOK}"
        for _ in range(2):
            with suppress(httpx.TransportError):
                httpx.post(url, content=b"{}", headers={**queue.headers, **headers})

    return run


def counts(step: str, times: int) -> Scene:
    """A counter that gets a TTL of a minute at each increment."""
    steps: list[list[Any] | str] = [["INCR", "hits"], ["EXPIRE", "hits", 60], step]
    return timed(*steps * times)


def upserts(*records: tuple[str, dict[str, Any]], forgets: bool = False) -> Scene:
    def run(cloud: Cloud) -> None:
        index = cloud.vector_index()
        for id, metadata in records:
            if forgets:
                httpx.post(f"{index.url}/delete", json=[id], headers=index.headers)
            body = {"id": id, "vector": [1, 0], "metadata": metadata}
            httpx.post(f"{index.url}/upsert", json=body, headers=index.headers)

    return run


def reads(keys: list[str | None], partitions: int) -> Scene:
    """A group that consumes records with these keys in one call."""

    def run(cloud: Cloud) -> None:
        broker = cloud.broker(topics={"t": partitions})
        for key in keys:
            broker.produce("t", "v", key=key)
        requests.get(
            f"{broker.url}/consume/g/i/t",
            auth=(broker.username, broker.password),
            headers={"Kafka-Auto-Offset-Reset": "earliest"},
            timeout=5,
        )

    return run


def subscribes(headers: dict[str, str]) -> Scene:
    def run(cloud: Cloud) -> None:
        server = cloud.kv_server()
        url = f"{server.url}/subscribe/news"
        with httpx.stream("POST", url, headers={**server.headers, **headers}):
            pass

    return run


def deleted(owners: list[str], wait: str) -> Scene:
    def run(cloud: Cloud) -> None:
        server = cloud.kv_server()
        for owner in owners:
            command = ["SET", "lock:a", owner, "NX", "EX", 30]
            httpx.post(server.url, json=command, headers=server.headers)
            cloud.clock.advance(wait)
        httpx.post(server.url, json=["DEL", "lock:a"], headers=server.headers)

    return run


def query_in(namespace: str) -> Scene:
    def run(cloud: Cloud) -> None:
        index = cloud.vector_index()
        index.load([{"id": "a", "vector": [1, 0]}], namespace="full")
        path = f"{index.url}/query/{namespace}"
        httpx.post(path, json={"vector": [1, 0]}, headers=index.headers)

    return run


def a_broker(cloud: Cloud) -> tuple[Any, Callable[..., Any]]:
    made = cloud.broker(topics={"t": 1})
    auth = (made.username, made.password)

    def ask(path: str, body: Any = None, **headers: str) -> Any:
        sent = {f"Kafka-{name.replace('_', '-')}": value for name, value in headers.items()}
        return requests.post(
            f"{made.url}/{path}", json=body, auth=auth, headers=sent, timeout=5
        ).json()

    return made, ask


def commits(offset: int) -> Scene:
    def run(cloud: Cloud) -> None:
        made, ask = a_broker(cloud)
        made.produce("t", "v")
        ask("consume/g/i", {"topic": "t"}, auto_offset_reset="earliest")
        ask("commit/g/i", {"topic": "t", "partition": 0, "offset": offset})

    return run


def consumes(reset: str, auto: str, *, leaves: bool = False, produced_first: bool = True) -> Scene:
    def run(cloud: Cloud) -> None:
        made, ask = a_broker(cloud)
        headers = {"auto_offset_reset": reset, "enable_auto_commit": auto}
        if not produced_first:
            ask("consume/g/i", {"topic": "t"}, **headers)
        made.produce("t", "v")
        ask("consume/g/i", {"topic": "t"}, **headers)
        if leaves:
            made.leave("g", "i")
            ask("consume/g/other", {"topic": "t"}, **headers)

    return run


def publishes(*ids: str) -> Scene:
    def run(cloud: Cloud) -> None:
        queue = cloud.queue()
        for one in ids:
            headers = {**queue.headers, "Upstash-Deduplication-Id": one}
            httpx.post(f"{queue.url}/v2/publish/{HOOK}", headers=headers)

    return run


def answered(*answers: int, callback: bool = False) -> Scene:
    def run(cloud: Cloud) -> None:
        queue = cloud.queue()
        queue.destinations.answers(HOOK, *answers)
        queue.destinations.accept("https://app.example.com/callback")
        asked = {"callback": "https://app.example.com/callback"} if callback else {}
        queue.publish(HOOK, retries=len(answers) - 1, **asked)
        queue.run_until_idle()

    return run


def unknown_message(*, goes_on: bool) -> Scene:
    def run(cloud: Cloud) -> None:
        queue = cloud.queue()
        httpx.get(f"{queue.url}/v2/messages/msg_none", headers=queue.headers)
        if goes_on:
            httpx.get(f"{queue.url}/v2/keys", headers=queue.headers)

    return run


def loses_expire(cloud: Cloud) -> None:
    server = cloud.kv_server()
    server.faults.answer(503, command="EXPIRE")
    for command in (["INCR", "n"], ["EXPIRE", "n", 60], ["INCR", "n"]):
        httpx.post(server.url, json=command, headers=server.headers)


CASES: dict[str, Scene] = {
    "another id of the only key of a kind": kv(
        ["HSET", "order:5ad6", "a", 1], ["HGET", "order:f71e", "a"]
    ),
    "another id among several": kv(
        ["SET", "order:5ad6", 1], ["SET", "order:99ab", 1], ["GET", "order:f71e"]
    ),
    "two checks of a field before two writes": kv(
        ["HEXISTS", "seats", "4A"],
        ["HEXISTS", "seats", "4A"],
        ["HSET", "seats", "4A", "ada"],
        ["HSET", "seats", "4A", "bob"],
    ),
    "two checks of different fields": kv(
        ["HEXISTS", "h", "a"], ["HEXISTS", "h", "b"], ["HSET", "h", "a", 1], ["HSET", "h", "b", 1]
    ),
    "a key read after its TTL": timed(["SET", "a", 1, "EX", 9], "10s", ["GET", "a"]),
    "a key written again after its TTL": timed(
        ["SET", "a", 1, "EX", 9], "10s", ["SET", "a", 2], ["GET", "a"]
    ),
    "published to another channel": kv(["PUBLISH", "cache:a", "x"], ["SUBSCRIBE", "cache.a"]),
    "none in a key": kv(["SET", "once:None", 1, "EX", 9]),
    "NX on a key": timed(["SETEX", "s", 9, 1], ["SET", "s", 2, "NX"]),
    "XX": kv(["SET", "s", 2, "XX"]),
    "NX on a field": kv(["HSETNX", "h", "f", 1], ["HSETNX", "h", "f", 2]),
    "NX on members": kv(["ZADD", "z", 1, "a", 1, "b"], ["ZADD", "z", "CH", "nx", 2, "a", 3, "b"]),
    "another counter": kv(["SET", "open", 2], ["DECR", "left"]),
    "none in an id": upserts(("doc-None", {})),
    "published again": publishes_after_loss({}),
    "published again with an id": publishes_after_loss({"Upstash-Deduplication-Id": "a"}),
    "a lost update": two_clients("shop GET w", "phone GET w", "phone SET w 7", "shop SET w 6"),
    "two reads before two writes": two_clients(
        "shop GET k", "phone GET k", "phone SET k 7", "shop SET k 6"
    ),
    "two writes, the second after a read": two_clients(
        "shop GET k", "phone GET k", "phone SET k 7", "shop GET k", "shop SET k 6"
    ),
    "two reads before two writes with NX": two_clients(
        "shop GET k", "phone GET k", "phone SET k 7 NX", "shop SET k 6 NX"
    ),
    "two reads before one write": two_clients("shop GET k", "phone GET k", "phone SET k 7"),
    "a lock of another": timed(
        ["SET", "lock:a", "one", "NX", "EX", 30],
        "31s",
        ["SET", "lock:a", "two", "NX", "EX", 30],
        ["DEL", "lock:a"],
    ),
    "a TTL from the fake clock": kv(["SET", "k", 1, "EXAT", 1772366460]),
    "EXPIRE was dropped": loses_expire,
    "lock by SET": kv(["SET", "lock:a", "me", "NX"]),
    "idempotency by SETNX": kv(["SETNX", "idempotency:order:7", "1"]),
    "another name": kv(["HSET", "cart:ada", "tea", 1], ["HGETALL", "carts:ada"]),
    "read-only": read_only(["SET", "k", "v"]),
    "a subscription without a stream": subscribes({}),
    "filter": query('n = "1"'),
    "filter on what is absent": query("m = 1"),
    "no metadata": query("", includeMetadata=False),
    "namespace": query_in("empty"),
    "commit": commits(4),
    "twice": consumes("earliest", "false", leaves=True),
    "at the end": consumes("latest", "true"),
    "no commit": consumes("earliest", "false"),
    "redirect": answered(302),
    "callbacks": answered(500, 200, callback=True),
    "deduplicated": publishes("a", "a"),
    "expiry taken": timed(["SET", "s", "a", "EX", 60], "30s", ["SET", "s", "b"]),
    "expiry of a span taken": timed(["SETEX", "s", 60, "a"], ["SET", "s", "b", "XX"]),
    "renewed": counts("30s", 3),
    "replaced": upserts(("a", {"n": 1}), ("a", {"n": 2})),
    "order": reads([None] * 4, 2),
    "404": unknown_message(goes_on=True),
    "a name with None in it": kv(["SET", "NoneSuch", 1], ["SET", "a:none", 1]),
    "a lock that is held": kv(*[["SET", "lock:a", "me", "NX", "EX", 9]] * 2),
    "an NX that answers the value": kv(["SET", "s", 1, "NX", "GET"]),
    "a score that was raised": kv(["ZADD", "z", 1, "a"], ["ZADD", "z", "GT", 2, "a"]),
    "a counter that was set": kv(["SET", "left", 2], ["SET", "open", 2], ["DECR", "left"]),
    "a number that was used": kv(["SET", "open", 2], ["INCR", "open"], ["DECR", "left"]),
    "updates one by one": two_clients("a GET w", "a SET w 7", "b GET w", "b SET w 6"),
    "an update of its own": two_clients("a GET w", "a SET w 7", "a SET w 6"),
    "writes without a read": two_clients("a SET w 7", "b SET w 6"),
    "a lock that expires": kv(["SET", "lock:a", "me", "NX", "EX", 30]),
    "a lock that gets its expiry later": kv(["SETNX", "lock:a", "1"], ["EXPIRE", "lock:a", 30]),
    "a lock that is let go": kv(["SET", "lock:a", "me", "NX"], ["DEL", "lock:a"]),
    "a key that is no lock": kv(["SET", "block:a", "me", "NX"]),
    "a value without NX": kv(["SET", "lock:a", "me"]),
    "two things of a kind": kv(["SET", "user:1", "a"], ["GET", "user:2"]),
    "a key that is read and written": kv(["SET", "a:key", "1"], ["GET", "a:key"]),
    "a key nobody wrote": kv(["GET", "cart:ada"]),
    "a reader with the read-only token": read_only(["GET", "k"]),
    "a subscription": subscribes({"Accept": "text/event-stream"}),
    "a lock of one owner": deleted(["one"], "1s"),
    "an expiry that is kept": timed(["SET", "s", "a", "EX", 60], ["SET", "s", "b", "KEEPTTL"]),
    "an expiry that is given anew": timed(["SET", "s", 1, "EX", 60], ["SET", "s", 2, "PX", 9]),
    "an expiry that came": timed(["SET", "s", "a", "EX", 60], "61s", ["SET", "s", "b"]),
    "an expiry that follows": timed(["SETEX", "s", 9, 1], ["SET", "s", 2], ["EXPIRE", "s", 9]),
    "a counter that ended between": counts("61s", 4),
    "a counter within its span": counts("10s", 4),
    "a record as it was": upserts(("a", {"n": 1}), ("a", {"n": 1})),
    "a record that was deleted": upserts(("a", {"n": 1}), ("a", {"n": 2}), forgets=True),
    "a lock that was let go and written": timed(
        ["SET", "lock:a", 1, "NX"],
        ["DEL", "lock:a"],
        ["SET", "lock:a", 2],
    ),
    "a key that was deleted": kv(["SET", "carts:a", 1], ["DEL", "cart:a"], ["GET", "cart:a"]),
    "records of keys": reads(["a", "b", "c", "d"], 2),
    "records of one partition": reads([None] * 4, 1),
    "a filter that takes it": query("n = 1"),
    "a namespace that is full": query_in("full"),
    "a commit at the end": commits(1),
    "a group that began at the start": consumes("earliest", "true"),
    "a group that began before the records": consumes("latest", "true", produced_first=False),
    "a delivery": answered(200),
    "a delivery with its callback": answered(200, callback=True),
    "two publishings": publishes("a", "b"),
    "a 404 at the end": unknown_message(goes_on=False),
}


def test_the_findings_of_queries_know_every_write(cloud: Cloud) -> None:
    index = cloud.vector_index(dimension=2)
    httpx.post(index.url + "/info", headers=index.headers)
    app: Any = index._app
    assert app.writes == {*vector._WRITES, *vector._FORGETS}


def test_later_writes_do_not_explain_an_earlier_query(cloud: Cloud) -> None:
    index = cloud.vector_index()

    def ask(path: str, body: Any) -> None:
        httpx.post(f"{index.url}/{path}", json=body, headers=index.headers)

    ask("upsert", {"id": "a", "vector": [1, 0], "metadata": {"n": "1"}})
    ask("query", {"vector": [1, 0], "topK": 1, "filter": "n = 1"})
    assert kinds(cloud) == ["filter_rejected"]
    ask("update", {"id": "a", "metadata": {"n": "2"}})
    assert kinds(cloud) == []
    ask("upsert/other", {"id": "b", "vector": [1, 0]})
    ask("query/none", {"vector": [1, 0], "topK": 1})
    assert kinds(cloud) == ["empty_namespace"]
    ask("delete/other", ["c"])
    assert kinds(cloud) == []


@pytest.mark.parametrize(
    ("then", "count"),
    [([], 1), (["SCRIPT", "LOAD", "return 1"], 0), (["EVAL", "return 1", "0"], 0), (["PING"], 1)],
    ids=["nothing", "load", "eval", "other"],
)
def test_a_script_that_is_sent_after_its_unknown_hash_is_not_an_error(
    cloud: Cloud, then: list[str], count: int
) -> None:
    kv(["EVALSHA", "0" * 40, "0"])(cloud)
    server = cloud.handles.only()
    if then:
        httpx.post(server.url, json=then, headers=server.headers)
    assert kinds(cloud, raised=AssertionError()).count("error_not_seen") == count


def test_the_newest_finding_comes_first_and_there_are_ten_at_most(cloud: Cloud) -> None:
    kv(*(["SET", f"lock:{number}", "me", "NX"] for number in range(15)))(cloud)
    every = found(cloud)
    assert len(every) == MOST
    assert every[0].values["key"] == "lock:14"


def test_a_finding_is_a_cause_before_it_is_a_hint(cloud: Cloud) -> None:
    kv(["SET", "lock:a", "me", "NX"])(cloud)
    upserts(("a", {"n": 1}), ("a", {"n": 2}))(cloud)
    assert kinds(cloud) == ["lock_without_ttl", "upsert_replaced"]


def test_equal_findings_are_one_about_several_rows(cloud: Cloud) -> None:
    kv(["SETEX", "s", 9, 1], *[["SET", "s", 2, "NX"]] * 3)(cloud)
    (one,) = found(cloud)
    assert len(one.rows) == 3


def test_a_detector_that_raises_costs_a_line(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    kv(["SET", "lock:a", "me", "NX"], ["SET", "b", "1"])(cloud)

    def broken(key: str) -> int:
        raise RuntimeError("no ttl")

    monkeypatch.setattr(cloud.handles[0], "ttl", broken)
    text = section(cloud)
    assert "never_expires failed: RuntimeError: no ttl" in text
    assert "SET b 1 <-- OK" in text


@pytest.mark.parametrize(
    "words", [["SET", "k", 1, "EXAT"], ["SET", "k", 1, "PXAT"], ["EXPIREAT", "k"]]
)
def test_a_ttl_computed_from_the_wall_clock(cloud: Cloud, words: list[Any]) -> None:
    at = int(time.time()) + 60
    kv(["SET", "k", 1], [*words, at * 1000 if "PXAT" in words else at])(cloud)
    assert "expires_by_wall_clock" in kinds(cloud)


def test_calls_before_a_restored_snapshot_are_ignored(cloud: Cloud) -> None:
    server = cloud.kv_server()
    before = cloud.snapshot()
    httpx.post(server.url, json=["SET", "lock:a", "me", "NX"], headers=server.headers)
    assert len(found(cloud)) == 1
    cloud.restore(before)
    httpx.post(server.url, json=["GET", "lock:b"], headers=server.headers)
    assert found(cloud) == []


test_findings = check("kv_basics", CASES)
