"""Each fact says what happened where it did, and nothing where it did not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import httpx
import pytest
import requests

from pytest_fakecloud import Cloud
from pytest_fakecloud.reporting.facts import MOST, facts, vector
from pytest_fakecloud.reporting.rows import scene_of
from pytest_fakecloud.reporting.section import section

HOOK = "https://app.example.com/hook"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed="seed", now="2026-03-01T12:00:00Z", delivery="driven") as opened:
        opened.clock.wait_cap = 0.01
        yield opened


def told(cloud: Cloud, idle_s: float | None = None) -> list[str]:
    """The facts, without those about fakes that nobody called."""
    found = facts(cloud, scene_of(cloud, list(cloud.journal.entries)), idle_s)
    return [one.text for one in found if not one.text.endswith("nobody called it")]


Scene = Callable[[Cloud], object]


def kv(*commands: list[Any], **settings: Any) -> Scene:
    """A key-value server that gets some commands."""

    def run(cloud: Cloud) -> None:
        server = cloud.kv_server(**settings)
        for command in commands:
            httpx.post(server.url, json=command, headers=server.headers)

    return run


def timed(*steps: list[Any] | str) -> Scene:
    """A key-value server that gets commands, and spans of time that pass between them."""

    def run(cloud: Cloud) -> None:
        server = cloud.kv_server()
        for step in steps:
            if isinstance(step, str):
                cloud.clock.advance(step)
            else:
                httpx.post(server.url, json=step, headers=server.headers)

    return run


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


def two_clients(*steps: str) -> Scene:
    """A wallet of 10 that gets commands of several clients, each with its own connection."""

    def run(cloud: Cloud) -> None:
        server = cloud.kv_server()
        server.load({"w": "10"})
        with ExitStack() as stack:
            clients: dict[str, httpx.Client] = {}
            for step in steps:
                name, *command = step.split()
                if name not in clients:
                    clients[name] = stack.enter_context(httpx.Client(headers=server.headers))
                clients[name].post(server.url, json=command)

    return run


def counts(step: str, times: int) -> Scene:
    """A counter that gets a minute to live with each count."""
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
    """A group that reads at once what was written with those keys."""

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


def read_only(command: list[str]) -> Scene:
    def run(cloud: Cloud) -> None:
        server = cloud.kv_server()
        headers = {"Authorization": f"Bearer {server.read_only_token}"}
        httpx.post(server.url, json=command, headers=headers)

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


def query(filter: str, metadata: dict[str, Any] | None = None, **more: Any) -> Scene:
    def run(cloud: Cloud) -> None:
        index = cloud.vector_index()
        index.load([{"id": "a", "vector": [1, 0], "metadata": metadata or {"n": 1}}])
        body = {"vector": [1, 0], "filter": filter, "includeMetadata": True, **more}
        httpx.post(f"{index.url}/query", json=body, headers=index.headers)

    return run


def query_in(namespace: str) -> Scene:
    def run(cloud: Cloud) -> None:
        index = cloud.vector_index()
        index.load([{"id": "a", "vector": [1, 0]}], namespace="full")
        path = f"{index.url}/query/{namespace}"
        httpx.post(path, json={"vector": [1, 0]}, headers=index.headers)

    return run


def broker(cloud: Cloud) -> tuple[Any, Callable[..., Any]]:
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
        made, ask = broker(cloud)
        made.produce("t", "v")
        ask("consume/g/i", {"topic": "t"}, auto_offset_reset="earliest")
        ask("commit/g/i", {"topic": "t", "partition": 0, "offset": offset})

    return run


def consumes(reset: str, auto: str, *, leaves: bool = False, produced_first: bool = True) -> Scene:
    def run(cloud: Cloud) -> None:
        made, ask = broker(cloud)
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


SAID: list[tuple[str, Scene, str]] = [
    (
        "lock by SET",
        kv(["SET", "lock:a", "me", "NX"]),
        "kv_server: lock:a was taken with NX and never expires (no EX or PX came with it)",
    ),
    (
        "idempotency by SETNX",
        kv(["SETNX", "idempotency:order:7", "1"]),
        "kv_server: idempotency:order:7 was taken with NX and never expires "
        "(no EX or PX came with it)",
    ),
    (
        "another name",
        kv(["HSET", "cart:ada", "tea", 1], ["HGETALL", "carts:ada"]),
        "kv_server: carts:ada was read and nobody wrote it; cart:ada was written and nobody read it",
    ),
    (
        "read-only",
        read_only(["SET", "k", "v"]),
        "kv_server: SET came with the read-only token and was refused",
    ),
    (
        "a subscription without a stream",
        subscribes({}),
        "kv_server: subscribe streams to a request with the header Accept: text/event-stream "
        "(it has */*)",
    ),
    (
        "filter",
        query('n = "1"'),
        'vector_index: the filter refused a: n is the number 1, compared with text "1"',
    ),
    (
        "filter on what is absent",
        query("m = 1"),
        "vector_index: the filter refused a: m is absent (there are: n)",
    ),
    (
        "no metadata",
        query("", includeMetadata=False),
        "vector_index: the query did not ask for metadata (includeMetadata), so its hits have none",
    ),
    (
        "namespace",
        query_in("empty"),
        'vector_index: namespace "empty" has no vectors; namespace "full" has 1',
    ),
    (
        "commit",
        commits(4),
        "broker: group g committed 4 in t-0, whose end is 1; the last it got is 0, so 1 is next",
    ),
    (
        "twice",
        consumes("earliest", "false", leaves=True),
        "broker: group g got 1 record in 2 deliveries and committed nothing (its automatic "
        "commits are off)",
    ),
    (
        "at the end",
        consumes("latest", "true"),
        "broker: group g began at the end of t-0 (auto.offset.reset is latest): 1 earlier record "
        "never came to it",
    ),
    (
        "no commit",
        consumes("earliest", "false"),
        "broker: group g got 1 record and committed nothing (its automatic commits are off)",
    ),
    (
        "redirect",
        answered(302),
        "queue: msg_0bf3 was answered 302; the queue follows no redirect and takes only 200 to "
        "299 for delivered",
    ),
    (
        "callbacks",
        answered(500, 200, callback=True),
        "queue: 2 callbacks were sent about msg_0bf3: one for each attempt, not only for the last",
    ),
    (
        "deduplicated",
        publishes("a", "a"),
        "queue: this publish made no message: it was deduplicated, the same as msg_0bf3",
    ),
    (
        "expiry taken",
        timed(["SET", "s", "a", "EX", 60], "30s", ["SET", "s", "b"]),
        "kv_server: this SET took the expiry from s (no EX, PX or KEEPTTL came with it), and that "
        "key never expires",
    ),
    (
        "expiry of a span taken",
        timed(["SETEX", "s", 60, "a"], ["SET", "s", "b", "XX"]),
        "kv_server: this SET took the expiry from s (no EX, PX or KEEPTTL came with it), and "
        "that key never expires",
    ),
    (
        "renewed",
        counts("30s", 3),
        "kv_server: hits was to expire after 60 s, and its expiry was set again 2 times before the "
        "key expired",
    ),
    (
        "replaced",
        upserts(("a", {"n": 1}), ("a", {"n": 2})),
        "vector_index: this upsert replaced 1 record that had other metadata: a",
    ),
    (
        "order",
        reads([None] * 4, 2),
        "broker: t was written without keys to 2 partitions; order holds within each of them only",
    ),
    (
        "404",
        unknown_message(goes_on=True),
        "queue: GET /v2/messages/msg_none was answered 404 message msg_none not found, and 1 call "
        "came after it",
    ),
]
SAID += [
    (
        "none in a key",
        kv(["SET", "once:None", 1, "EX", 9]),
        "kv_server: once:None holds the text None, which Python writes for no value",
    ),
    (
        "NX on a key",
        timed(["SETEX", "s", 9, 1], ["SET", "s", 2, "NX"]),
        "kv_server: this SET changed nothing: s was there already (NX)",
    ),
    ("XX", kv(["SET", "s", 2, "XX"]), "kv_server: this SET changed nothing: s was not there (XX)"),
    (
        "NX on a field",
        kv(["HSETNX", "h", "f", 1], ["HSETNX", "h", "f", 2]),
        "kv_server: this HSETNX changed nothing: h had the field f already",
    ),
    (
        "NX on members",
        kv(["ZADD", "z", 1, "a", 1, "b"], ["ZADD", "z", "CH", "nx", 2, "a", 3, "b"]),
        "kv_server: this ZADD changed nothing: z had a, b already (NX only adds)",
    ),
    (
        "another counter",
        kv(["SET", "open", 2], ["DECR", "left"]),
        "kv_server: left was counted down and no call had set it; open was set to 2 and no call "
        "used it",
    ),
    (
        "none in an id",
        upserts(("doc-None", {})),
        "vector_index: the id doc-None holds the text None, which Python writes for no value",
    ),
    (
        "published again",
        publishes_after_loss({}),
        "queue: this publish came again, without a deduplication id, after the answer that named "
        "msg_0bf3 was lost: both are sent",
    ),
    (
        "a lost update",
        two_clients("shop GET w", "phone GET w", "phone SET w 7", "shop SET w 6"),
        'kv_server: this SET wrote "6" over "7", which another connection had written after this '
        "one's GET of "
        '"10"',
    ),
]
SILENT: list[tuple[str, Scene]] = [
    ("a name with None in it", kv(["SET", "NoneSuch", 1], ["SET", "a:none", 1])),
    ("a lock that is held", kv(*[["SET", "lock:a", "me", "NX", "EX", 9]] * 2)),
    ("an NX that answers the value", kv(["SET", "s", 1, "NX", "GET"])),
    ("a score that was raised", kv(["ZADD", "z", 1, "a"], ["ZADD", "z", "GT", 2, "a"])),
    ("a counter that was set", kv(["SET", "left", 2], ["SET", "open", 2], ["DECR", "left"])),
    ("a number that was used", kv(["SET", "open", 2], ["INCR", "open"], ["DECR", "left"])),
    ("updates one by one", two_clients("a GET w", "a SET w 7", "b GET w", "b SET w 6")),
    ("an update of its own", two_clients("a GET w", "a SET w 7", "a SET w 6")),
    ("writes without a read", two_clients("a SET w 7", "b SET w 6")),
    ("a lock that expires", kv(["SET", "lock:a", "me", "NX", "EX", 30])),
    ("a lock that gets its expiry later", kv(["SETNX", "lock:a", "1"], ["EXPIRE", "lock:a", 30])),
    ("a lock that is let go", kv(["SET", "lock:a", "me", "NX"], ["DEL", "lock:a"])),
    ("a key that is no lock", kv(["SET", "block:a", "me", "NX"])),
    ("a value without NX", kv(["SET", "lock:a", "me"])),
    ("two things of a kind", kv(["SET", "user:1", "a"], ["GET", "user:2"])),
    ("a key that is read and written", kv(["SET", "a:key", "1"], ["GET", "a:key"])),
    ("a key nobody wrote", kv(["GET", "cart:ada"])),
    ("a reader with the read-only token", read_only(["GET", "k"])),
    ("a subscription", subscribes({"Accept": "text/event-stream"})),
    ("a lock of one owner", deleted(["one"], "1s")),
    ("an expiry that is kept", timed(["SET", "s", "a", "EX", 60], ["SET", "s", "b", "KEEPTTL"])),
    ("an expiry that is given anew", timed(["SET", "s", 1, "EX", 60], ["SET", "s", 2, "PX", 9])),
    ("an expiry that came", timed(["SET", "s", "a", "EX", 60], "61s", ["SET", "s", "b"])),
    ("an expiry that follows", timed(["SETEX", "s", 9, 1], ["SET", "s", 2], ["EXPIRE", "s", 9])),
    ("a counter that ended between", counts("61s", 4)),
    ("a counter within its span", counts("10s", 4)),
    ("a record as it was", upserts(("a", {"n": 1}), ("a", {"n": 1}))),
    ("a record that was deleted", upserts(("a", {"n": 1}), ("a", {"n": 2}), forgets=True)),
    (
        "a lock that was let go and written",
        timed(
            ["SET", "lock:a", 1, "NX"],
            ["DEL", "lock:a"],
            ["SET", "lock:a", 2],
        ),
    ),
    ("a key that was deleted", kv(["SET", "carts:a", 1], ["DEL", "cart:a"], ["GET", "cart:a"])),
    ("records of keys", reads(["a", "b", "c", "d"], 2)),
    ("records of one partition", reads([None] * 4, 1)),
    ("a filter that takes it", query("n = 1")),
    ("a namespace that is full", query_in("full")),
    ("a commit at the end", commits(1)),
    ("a group that began at the start", consumes("earliest", "true")),
    ("a group that began before the records", consumes("latest", "true", produced_first=False)),
    ("a delivery", answered(200)),
    ("a delivery with its callback", answered(200, callback=True)),
    ("two publishings", publishes("a", "b")),
    ("a 404 at the end", unknown_message(goes_on=False)),
]


def test_the_facts_of_queries_know_every_write(cloud: Cloud) -> None:
    index = cloud.vector_index(dimension=2)
    httpx.post(index.url + "/info", headers=index.headers)
    app: Any = index._app
    assert app.writes == {*vector._WRITES, *vector._FORGETS}


def test_what_a_query_met_is_not_told_of_what_came_later(cloud: Cloud) -> None:
    index = cloud.vector_index()

    def ask(path: str, body: Any) -> None:
        httpx.post(f"{index.url}/{path}", json=body, headers=index.headers)

    ask("upsert", {"id": "a", "vector": [1, 0], "metadata": {"n": "1"}})
    ask("query", {"vector": [1, 0], "topK": 1, "filter": "n = 1"})
    assert "the filter refused a" in told(cloud)[0]
    ask("update", {"id": "a", "metadata": {"n": "2"}})
    assert told(cloud) == []
    ask("upsert/other", {"id": "b", "vector": [1, 0]})
    ask("query/none", {"vector": [1, 0], "topK": 1})
    assert 'namespace "none" has no vectors' in told(cloud)[0]
    ask("delete/other", ["c"])
    assert told(cloud) == []


@pytest.mark.parametrize(
    ("scene", "text"), [each[1:] for each in SAID], ids=[each[0] for each in SAID]
)
def test_what_happened_is_said(cloud: Cloud, scene: Scene, text: str) -> None:
    scene(cloud)
    assert told(cloud) == [text]
    assert "cannot be told" not in section(cloud)


@pytest.mark.parametrize("scene", [each[1] for each in SAID], ids=[each[0] for each in SAID])
def test_a_fact_of_what_came_is_about_an_entry(cloud: Cloud, scene: Scene) -> None:
    scene(cloud)
    found = facts(cloud, scene_of(cloud, list(cloud.journal.entries)))
    assert {one.number for one in found} <= {one.number for one in cloud.journal.entries}


@pytest.mark.parametrize("scene", [each[1] for each in SILENT], ids=[each[0] for each in SILENT])
def test_what_did_not_happen_is_not(cloud: Cloud, scene: Scene) -> None:
    scene(cloud)
    assert told(cloud) == []


def test_an_id_keeps_what_came_again_from_being_two(cloud: Cloud) -> None:
    publishes_after_loss({"Upstash-Deduplication-Id": "a"})(cloud)
    assert [fact.partition(" was dedup")[0] for fact in told(cloud)] == [
        "queue: this publish made no message: it"
    ]


@pytest.mark.parametrize(("raised", "count"), [(None, 0), (AssertionError(), 1), (KeyError(), 0)])
def test_a_refusal_that_ended_nothing_is_said(
    cloud: Cloud, raised: BaseException | None, count: int
) -> None:
    query("n = ")(cloud)
    found = facts(cloud, scene_of(cloud, list(cloud.journal.entries)), raised=raised)
    text = "vector_index: this query was answered 400, and no exception of it reached the test"
    assert [one.text for one in found] == [text] * count


@pytest.mark.parametrize(
    ("then", "count"),
    [([], 1), (["SCRIPT", "LOAD", "return 1"], 0), (["EVAL", "return 1", "0"], 0), (["PING"], 1)],
    ids=["nothing", "load", "eval", "other"],
)
def test_a_script_that_is_sent_when_its_hash_is_not_known_is_no_refusal(
    cloud: Cloud, then: list[str], count: int
) -> None:
    kv(["EVALSHA", "0" * 40, "0"])(cloud)
    server = cloud.handles.only()
    if then:
        httpx.post(server.url, json=then, headers=server.headers)
    found = facts(cloud, scene_of(cloud, list(cloud.journal.entries)), raised=AssertionError())
    assert len([one for one in found if "was answered 400" in one.text]) == count


def test_a_lock_of_another_is_said_to_be_deleted(cloud: Cloud) -> None:
    server = cloud.kv_server()

    def ask(*command: Any) -> None:
        httpx.post(server.url, json=command, headers=server.headers)

    ask("SET", "lock:a", "one", "NX", "EX", 30)
    cloud.clock.advance("31s")
    ask("SET", "lock:a", "two", "NX", "EX", 30)
    ask("DEL", "lock:a")
    assert told(cloud) == [
        'kv_server: lock:a was deleted while it held "two"; "one" had held it before and expired'
    ]


def test_a_clock_that_stood_still(cloud: Cloud) -> None:
    kv(["GET", "k"])(cloud)
    assert told(cloud, idle_s=0.2) == []
    assert "2.5 s of real time passed idle while the frozen clock" in told(cloud, idle_s=2.5)[0]
    cloud.clock.advance("1s")
    kv(["GET", "k"], name="second")(cloud)
    assert told(cloud, idle_s=2.5) == []


def test_time_that_passes_inside_a_fake_is_no_sleep(cloud: Cloud) -> None:
    kv(["BLPOP", "k", 1])(cloud)
    assert told(cloud, idle_s=2.5) == []


def test_a_fake_nobody_called_is_named_where_others_were(cloud: Cloud) -> None:
    cloud.queue()
    assert facts(cloud, scene_of(cloud, [])) == []
    kv(["GET", "k"])(cloud)
    found = facts(cloud, scene_of(cloud, []))
    assert [one.text for one in found] == ["queue: nobody called it"]


def test_the_nearest_to_the_failure_stands_first_and_ten_are_enough(cloud: Cloud) -> None:
    kv(*(["SET", f"lock:{number}", "me", "NX"] for number in range(15)))(cloud)
    found = told(cloud)
    assert len(found) == MOST
    assert found[0].startswith("kv_server: lock:14 ")


def test_a_fact_that_raises_costs_a_line(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    kv(["SET", "lock:a", "me", "NX"], ["SET", "b", "1"])(cloud)
    server = cloud.handles[0]

    def broken(key: str) -> int:
        raise RuntimeError("no ttl")

    monkeypatch.setattr(server, "ttl", broken)
    text = section(cloud)
    assert "a fact (never_expires) cannot be told: RuntimeError: no ttl" in text
    assert "SET b 1 <-- OK" in text


def test_the_row_a_fact_is_about_has_its_mark(cloud: Cloud) -> None:
    kv(["SET", "other", "1"], ["SET", "lock:a", "me", "NX"], ["GET", "other"])(cloud)
    lines = section(cloud).splitlines()
    assert "12:00:00.000 --> kv_server SET lock:a me NX [1] <-- OK" in lines
    assert any(line.startswith("worth a look: [1] kv_server: lock:a was taken") for line in lines)


def test_what_came_before_a_snapshot_was_put_back_says_nothing(cloud: Cloud) -> None:
    server = cloud.kv_server()
    before = cloud.snapshot()
    httpx.post(server.url, json=["SET", "lock:a", "me", "NX"], headers=server.headers)
    assert len(told(cloud)) == 1
    cloud.restore(before)
    httpx.post(server.url, json=["GET", "lock:b"], headers=server.headers)
    assert told(cloud) == []


def test_a_fault_that_missed_what_came_is_told_with_it(cloud: Cloud) -> None:
    server = cloud.kv_server()
    server.faults.answer(503, command="SET")
    for command in (["HSET", "h", "f", 1], ["HGET", "h", "f"], ["HGET", "h", "g"]):
        httpx.post(server.url, json=command, headers=server.headers)
    assert told(cloud) == ["kv_server: a fault never fired; what came was HSET, HGET"]
    server.faults.clear()
    assert told(cloud) == []
