"""One line for each kind of call, compared whole; and lines that cannot be told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud import Cloud
from pytest_fakecloud.reporting.bodies import readable, scalar, shortened
from pytest_fakecloud.reporting.rows import rows
from pytest_fakecloud.reporting.section import section


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed="seed", now="2026-03-01T12:00:00Z", delivery="driven") as opened:
        opened.clock.wait_cap = 0.01
        yield opened


def lines(cloud: Cloud) -> list[str]:
    """Each row as what was asked and what came back."""
    return [f"{row.what} <-- {row.answer}" for row in rows(cloud) if row.answer]


# -- key-value server ------------------------------------------------------------------------------

NOSCRIPT = "NOSCRIPT No matching script. Please use EVAL."
COMMANDS: list[tuple[list[Any], str]] = [
    (["set", "k", "v"], "SET k v <-- OK"),
    (["GET", "k"], "GET k <-- null"),
    (["INCR", "n"], "INCR n <-- 1"),
    (["SET", "two words", ""], 'SET "two words" "" <-- OK'),
    (["LRANGE", "l", 0, -1], "LRANGE l 0 -1 <-- []"),
    (["LPUSH", "l"], "LPUSH l <-- 400 ERR wrong number of arguments for 'lpush' command"),
    (["SET", "k", '{"a": 1}'], 'SET k {"a": 1} <-- OK'),
    (["EVALSHA", "f" * 40, 1, "k", "a"], f"EVALSHA ffffffff KEYS k ARGV a <-- 400 {NOSCRIPT}"),
    (["EVAL", "return 1", 0], "EVAL e0e1f9fa <-- 1"),
    (
        ["AUTH", "somebody", "their password"],
        "AUTH *** <-- 400 ERR Command is not available: 'AUTH'",
    ),
    (["EVAL", "return 1", 1, "k"], "EVAL e0e1f9fa KEYS k <-- 1"),
    (["eval", "return ARGV[1]", 0, "a"], "EVAL 098e0f0d ARGV a <-- a"),
    (["EVAL", "return ARGV[1]", 2, "k", "l", "a", "b"], "EVAL 098e0f0d KEYS k l ARGV a b <-- a"),
    (
        ["EVAL", "return 1", "x"],
        'EVAL "return 1" x <-- 400 ERR value is not an integer or out of range',
    ),
    (["SET", "k", "[1, 2"], 'SET k "[1, 2" <-- OK'),
    (["SET", "k", "[1,   2]"], "SET k [1, 2] <-- OK"),
    (["MGET", "a", "b"], "MGET a b <-- [null,null]"),
]


@pytest.mark.parametrize(("command", "line"), COMMANDS, ids=lambda one: str(one)[:20])
def test_commands(cloud: Cloud, command: list[Any], line: str) -> None:
    kv = cloud.kv_server()
    httpx.post(kv.url, json=command, headers=kv.headers)
    assert lines(cloud) == [line]


def test_text_and_number_never_look_alike(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    for command in (["SET", "k", "1"], ["GET", "k"], ["INCR", "k"], ["SET", "k", "null"]):
        httpx.post(kv.url, json=command, headers=kv.headers)
    httpx.post(kv.url, json=["GET", "k"], headers=kv.headers)
    assert [line.rpartition(" <-- ")[2] for line in lines(cloud)] == [
        "OK", '"1"', "2", "OK", '"null"',
    ]  # fmt: skip


def test_of_a_long_pipeline_the_first_and_all_errors_are_told(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    commands = [["SET", f"k{number}", "v"] for number in range(40)] + [["INCR", "k0"]]
    httpx.post(f"{kv.url}/pipeline", json=commands, headers=kv.headers)
    (row,) = rows(cloud)
    assert row.what == "pipeline of 41"
    assert row.answer == "41 answers, 1 of them an error"
    assert len(row.below) == 14
    assert row.below[12] == "INCR k0 <-- ERR value is not an integer or out of range"
    assert row.below[13] == "and 28 more"


def test_a_script_is_shown_once(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    script = "local n = redis.call('INCR', KEYS[1])\nreturn n"
    for key in ("a", "b"):
        httpx.post(kv.url, json=["EVAL", script, 1, key], headers=kv.headers)
    text = section(cloud)
    assert text.count("local n = redis.call('INCR', KEYS[1])") == 1
    assert text.count("EVAL ") == 2


# -- vector index ----------------------------------------------------------------------------------

VECTORS: list[tuple[str, Any, str]] = [
    ("upsert", {"id": "b", "vector": [0, 1]}, "upsert b <-- Success"),
    (
        "upsert",
        [
            {"id": "b", "vector": [0, 1], "metadata": {"n": "1", "m": 1}},
            {"id": 7, "vector": [1, 1]},
        ],
        'upsert 2: b (metadata n="1", m=1), 7 <-- Success',
    ),
    ("query", {"vector": [1, 0], "topK": 1}, "query top 1 <-- 1 hit: a 1"),
    (
        "query/space",
        {"vector": [1, 0], "filter": "n = 1"},
        'query top 10, filter "n = 1" in namespace "space" <-- no hits',
    ),
    (
        "query",
        {"vector": [1, 0], "includeMetadata": True},
        'query top 10 <-- 1 hit: a 1 (n="x")',
    ),
    ("fetch", {"ids": ["a", "z"]}, "fetch a, z <-- 2 found: a, null"),
    ("delete", ["a", "z"], 'delete a, z <-- {"deleted":1}'),
    ("list-namespaces", None, 'list-namespaces <-- [""]'),
    ("reset", None, "reset <-- Success"),
    ("upsert", None, "upsert <-- 400 The request body is empty, JSON was expected"),
    ("upsert", {"id": "", "vector": [0, 1]}, 'upsert "" <-- Success'),
    (
        "upsert",
        {"id": "b", "vector": [0, 1], "data": "two words", "metadata": {"a": None, "b": [1]}},
        'upsert b (metadata a=null, b=[1], data "two words") <-- Success',
    ),
    (
        "update",
        {"id": "a", "metadata": {"n": "y"}},
        'update id "a", metadata n="y" <-- {"updated":1}',
    ),
    ("delete", {"prefix": "a"}, 'delete prefix "a" <-- {"deleted":1}'),
    ("delete", {"filter": "n = 1"}, 'delete filter "n = 1" <-- {"deleted":0}'),
    ("fetch", {"ids": []}, "fetch <-- none found"),
    ("fetch", {"ids": ["z"]}, "fetch z <-- 1 found: null"),
    (
        "fetch",
        {"ids": ["a"], "includeVectors": True, "includeData": False, "includeMetadata": True},
        'fetch a, includeVectors true, includeMetadata true <-- 1 found: a (metadata n="x")',
    ),
    (
        "range",
        {"cursor": "0", "limit": 10},
        'range cursor "0", limit 10 <-- 1 found: a',
    ),
    (
        "query",
        [{"vector": [1, 0], "topK": 1}, {"vector": [1, 0], "filter": "n = 1"}],
        'query top 1; top 10, filter "n = 1" <-- 1 hit: a 1; no hits',
    ),
    ("resumable-query", {"vector": [1, 0], "topK": 1}, "resumable-query top 1 <-- 1 hit: a 1"),
    (
        "query",
        {"vector": [1, 0, 0]},
        "query top 10 <-- 422 Invalid vector dimension: 3, expected: 2",
    ),
    (
        "query",
        {"data": "two words", "queryMode": "DENSE"},
        'query top 10, for "two words", queryMode="DENSE" <-- 422 Embedding data for this index is not '
        "allowed. The index must be created with an embedding model to use it.",
    ),
]


@pytest.mark.parametrize(("path", "body", "line"), VECTORS)
def test_vectors(cloud: Cloud, path: str, body: Any, line: str) -> None:
    index = cloud.vector_index()
    index.load([{"id": "a", "vector": [1, 0], "metadata": {"n": "x"}}])
    httpx.post(f"{index.url}/{path}", json=body, headers=index.headers)
    assert lines(cloud) == [line]


# -- broker ----------------------------------------------------------------------------------------

POSITION = {"topic": "t", "partition": 0, "offset": 1}
BROKER: list[tuple[str, Any, str]] = [
    ("produce/t", {"value": "v", "key": "k"}, 'produce t key k "v" <-- p0@2'),
    ("produce", [{"topic": "t", "value": "1"}], 'produce t "1" <-- p0@2'),
    (
        "produce",
        [{"topic": "t", "value": "x"}, {"topic": "u", "value": "y"}],
        'produce t "x", u "y" <-- t p0@2, u p0@0',
    ),
    ("consume/g/i", {"topic": "t"}, 'consume t as g/i <-- p0@0 bob="one", p0@1 "2"'),
    ("commit/g/i", POSITION, "commit t-0=1 as g/i <-- OK"),
    ("commit/g/i", POSITION | {"offset": 9}, "commit t-0=9 (the log ends at 2) as g/i <-- OK"),
    ("commit/g/i", None, "commit what was delivered as g/i <-- OK"),
    ("fetch", POSITION, 'fetch t-0@1 <-- p0@1 "2"'),
    ("committed/g/i", [{"topic": "t", "partition": 0}], "committed t-0 as g/i <-- t-0@-1"),
    ("committed/g/i", {"topic": "t", "partition": 0}, "committed t-0 as g/i <-- t-0@-1"),
    ("commit/g/i", [], "commit what was delivered as g/i <-- OK"),
    ("commit/g/i", POSITION | {"offset": 2}, "commit t-0=2 as g/i <-- OK"),
    (
        "commit/g/i",
        [POSITION, POSITION | {"offset": 2}],
        "commit t-0=1, t-0=2 as g/i <-- 400 Partition t-0 is given twice with different offsets: "
        "1 and 2",
    ),
    (
        "produce/t",
        None,
        "produce t <-- 400 The request body is empty: expected a message or an array of them",
    ),
    ("produce/t", {"value": "v", "partition": 0}, 'produce t p0 "v" <-- p0@2'),
    (
        "produce/t",
        [{"value": str(number)} for number in range(7)],
        'produce t "0", "1", "2", "3", "4", "5" and 1 more <-- p0@2, p0@3, p0@4, p0@5, p0@6, p0@7 and '
        "1 more",
    ),
    (
        "consume/g/i",
        {"topics": ["t", "u"]},
        'consume t, u as g/i <-- t p0@0 bob="one", t p0@1 "2"',
    ),
    ("fetch", {"topic": "u", "partition": 0, "offset": 0}, "fetch u-0@0 <-- no records"),
    (
        "fetch",
        {"topicPartitionOffsets": [POSITION, {"topic": "u", "partition": 0, "offset": 0}]},
        'fetch t-0@1, u-0@0 <-- t p0@1 "2"',
    ),
    (
        "fetch",
        {**POSITION, "topicPartitionOffsets": [{"topic": "u", "partition": 0, "offset": 0}]},
        'fetch t-0@1, u-0@0 <-- t p0@1 "2"',
    ),
]


@pytest.mark.parametrize(("path", "body", "line"), BROKER)
def test_the_broker(cloud: Cloud, path: str, body: Any, line: str) -> None:
    broker = cloud.broker(topics={"t": 1, "u": 1})
    broker.produce("t", "one", key="bob")
    broker.produce("t", "2")
    auth = (broker.username, broker.password)
    earliest = {"Kafka-Auto-Offset-Reset": "earliest"}
    if path.startswith("commit"):
        consume = f"{broker.url}/consume/g/i/t"
        requests.get(consume, auth=auth, headers=earliest, timeout=5)
    url = f"{broker.url}/{path}"
    requests.post(url, json=body, auth=auth, headers=earliest, timeout=5)
    called = [one for one in rows(cloud) if one.source == "client"]
    assert f"{called[-1].what} <-- {called[-1].answer}" == line


def test_a_value_may_be_long_and_its_topic_have_partitions(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"wide": 2})
    for sent in ({"value": "v" * 61}, {"value": "v", "partition": 1}, {"value": "v", "key": "k"}):
        requests.post(
            f"{broker.url}/produce/wide",
            json=sent,
            auth=(broker.username, broker.password),
            timeout=5,
        )
    found = [row.what for row in rows(cloud)]
    assert found[0].startswith('produce wide no key: "vvv')
    assert len(found[0].partition("key: ")[2]) == 59
    assert found[1:] == ['produce wide p1 "v"', 'produce wide key k "v"']


# -- queue -----------------------------------------------------------------------------------------


def test_the_queue(cloud: Cloud) -> None:
    queue = cloud.queue()
    url = "https://app.example.com/hook"

    def publish(path: str, body: Any, **settings: str) -> None:
        headers = {f"Upstash-{name.replace('_', '-')}": value for name, value in settings.items()}
        httpx.post(f"{queue.url}/v2/{path}", json=body, headers={**queue.headers, **headers})

    publish(f"publish/{url}", {"n": 1}, Delay="2h", Deduplication_Id="o-1", Retries="3")
    cloud.clock.advance("5s")
    publish(f"publish/{url}", {"n": 1}, Deduplication_Id="o-1", Method="PUT")
    publish(f"enqueue/mails/{url}", {"n": 2})
    publish("batch", [{"destination": url, "body": "x", "headers": {"Upstash-Delay": "1m"}}])
    found = rows(cloud)
    first = found[0].answer
    assert [row.what for row in found] == [
        f'publish {url} {{"n":1}} (delay 2h, dedup o-1, retries 3)',
        f'publish PUT {url} {{"n":1}} (dedup o-1)',
        f'enqueue on mails: {url} {{"n":2}}',
        "batch of 1",
    ]
    assert len(first) == 8
    assert found[1].answer == f"202 deduplicated, the same as {first} at 12:00:00"
    assert found[3].below == (f"{url} x delay 1m",)


HOOK = "https://app.example.com/hook"
PUBLISHED: list[tuple[str, dict[str, str], Any, str]] = [
    (
        f"publish/{HOOK}",
        {"Content-Type": "text/html"},
        "<html><body><h1>Oh no</h1></body></html>",
        f"publish {HOOK} Oh no <-- msg_0bf3",
    ),
    (
        f"publish/{HOOK}",
        {"Content-Based-Deduplication": "true", "Forward-X-Tenant": "acme", "Label": "a"},
        "x",
        f"publish {HOOK} x (content-based dedup, Upstash-Forward-X-Tenant: acme, label a) "
        "<-- msg_0bf3",
    ),
    (
        f"publish/{HOOK}",
        {"Retries": "many"},
        "x",
        f"publish {HOOK} x (retries many) <-- 400 invalid retries: 'many' is not an integer of at "
        "least 0",
    ),
    (
        f"schedules/{HOOK}",
        {"Cron": "0 9 * * *", "Schedule-Id": "s"},
        "x",
        f"schedules {HOOK} x (cron 0 9 * * * in UTC: it names no time zone, schedule s) "
        "<-- schedule s",
    ),
    (
        f"schedules/{HOOK}",
        {"Cron": "CRON_TZ=Europe/Berlin 0 9 * * *", "Schedule-Id": "s"},
        "",
        f"schedules {HOOK} (cron CRON_TZ=Europe/Berlin 0 9 * * *, schedule s) <-- schedule s",
    ),
    (
        f"enqueue/mails/{HOOK}",
        {"Method": "GET"},
        "",
        f"enqueue on mails: GET {HOOK} <-- msg_0bf3",
    ),
    ("publish/group", {}, "x", "publish group x <-- msg_0bf3, msg_15c9"),
    ("batch", {}, "[]", "batch of 0 <-- 200 []"),
    (
        "batch",
        {},
        [{"destination": "group", "body": "x"}, {"destination": HOOK}],
        "batch of 2 <-- msg_0bf3, msg_15c9, msg_dbd5",
    ),
    (
        "batch",
        {},
        [{"destination": HOOK, "cron": "* * * * *"}, {"destination": HOOK, "queue": "mails"}],
        "batch of 2 <-- msg_0bf3, msg_15c9",
    ),
]


@pytest.mark.parametrize(("path", "headers", "body", "line"), PUBLISHED)
def test_a_publish_request(
    cloud: Cloud, path: str, headers: dict[str, str], body: Any, line: str
) -> None:
    queue = cloud.queue()
    sent = {n if n == "Content-Type" else f"Upstash-{n}": value for n, value in headers.items()}
    endpoints = {"endpoints": [{"url": HOOK}, {"url": f"{HOOK}/2"}]}
    httpx.post(f"{queue.url}/v2/topics/group/endpoints", json=endpoints, headers=queue.headers)
    content = body if isinstance(body, str) else json.dumps(body)
    httpx.post(f"{queue.url}/v2/{path}", content=content, headers={**queue.headers, **sent})
    assert lines(cloud)[1:] == [line]


@pytest.mark.parametrize(("length", "shown"), [(120, 120), (121, 120)])
def test_a_body_is_shown_up_to_120_characters(cloud: Cloud, length: int, shown: int) -> None:
    queue = cloud.queue()
    url = f"{queue.url}/v2/publish/{HOOK}"
    httpx.post(url, content="x" * length, headers=queue.headers)
    (row,) = rows(cloud)
    assert abs(len(row.what.removeprefix(f"publish {HOOK} ")) - shown) <= 1
    assert ("…" in row.what) is (length > 120)


def test_the_messages_of_a_batch_have_lines_of_their_own(cloud: Cloud) -> None:
    queue = cloud.queue()
    items = [
        {"destination": HOOK, "headers": {"upstash-method": "PUT", "Upstash-Retries": "2"}},
        {"destination": HOOK, "body": "y" * 61},
    ]
    httpx.post(f"{queue.url}/v2/batch", json=items, headers=queue.headers)
    first, second = rows(cloud)[0].below
    assert first == f"PUT {HOOK} retries 2"
    assert "…" in second
    assert len(second) <= len(HOOK) + 61


def test_values_in_base64_are_decoded_where_the_client_asked_for_it(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    commands = [
        ["SET", "a", "x"], ["GET", "a"], ["HSET", "h", "f", "v"], ["HGETALL", "h"],
        ["INCR", "a"], ["LPUSH", "a"], ["EVAL", "return 1", 0],
    ]  # fmt: skip
    for path, body in (("pipeline", commands), ("", ["GET", "a"])):
        headers = {**kv.headers, "Upstash-Encoding": "base64"}
        httpx.post(f"{kv.url}/{path}", json=body, headers=headers)
    httpx.post(kv.url, json=["SET", "b", "b2s="], headers=kv.headers)
    httpx.post(kv.url, json=["GET", "b"], headers=kv.headers)
    assert lines(cloud) == [
        "pipeline of 7 <-- 7 answers, 2 of them errors", "GET a <-- x", "SET b b2s= <-- OK",
        "GET b <-- b2s=",
    ]  # fmt: skip
    row = rows(cloud)[0]
    assert list(row.below) == [
        "SET a x <-- OK", "GET a <-- x", "HSET h f v <-- 1", 'HGETALL h <-- ["f","v"]',
        "INCR a <-- ERR value is not an integer or out of range",
        "LPUSH a <-- ERR wrong number of arguments for 'lpush' command",
        "EVAL e0e1f9fa <-- 1",
    ]  # fmt: skip
    assert row.script == ("e0e1f9fa", "return 1")


# -- texts -----------------------------------------------------------------------------------------


@given(st.text(), st.text(), st.integers(12, 80))
def test_what_is_shortened_stays_different(one: str, other: str, most: int) -> None:
    assert len(shortened(one, most)) <= most
    if shortened(one, most) == shortened(other, most) and len(one) <= most:
        assert one == other


def test_long_keys_that_differ_in_the_middle_stay_different() -> None:
    one, other = ("x" * 60 + digit + "y" * 60 for digit in "12")
    assert shortened(one) != shortened(other)


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b'{ "a" : [1, 2] }', "", '{"a":[1,2]}'),
        (b"<html><script>x()</script><p>No &lt; way</p></html>", "text/html", "No < way"),
        (b"plain\n  text", "text/plain", "plain text"),
        (b"\xff\x00", "", "�\x00"),
        (b"[" * 5000, "", "[" * 5000),
        (b'{"sourceBody":"eyJuIjoxfQ==","body":"aGk="}', "", '{"sourceBody":{"n":1},"body":"hi"}'),
        (b'{"body":"aGk="}', "", '{"body":"aGk="}'),
    ],
)
def test_bodies(body: bytes, kind: str, text: str) -> None:
    assert readable(body, kind) == text


@given(st.text() | st.integers() | st.none() | st.booleans() | st.floats(allow_nan=False))
def test_scalars_of_different_types_differ(value: Any) -> None:
    told = scalar(value)
    others = (None, True, False, 0, 1, "", "0", "null", "true")
    assert all(scalar(one) != told for one in others if type(one) is not type(value))


@pytest.mark.parametrize("body", [b"[1,2", b"{}", b"[[]]", b"7", b'"x"', b"[null]", b"\xff", b""])
def test_no_body_keeps_a_report_from_being_made(cloud: Cloud, body: bytes) -> None:
    kv, index, queue = cloud.kv_server(), cloud.vector_index(), cloud.queue()
    broker = cloud.broker(topics={"t": 1})
    capture = cloud.callback_capture()
    for handle, paths in (
        (kv, ("", "pipeline", "multi-exec")),
        (index, ("upsert", "query", "fetch", "delete", "range")),
        (queue, ("v2/batch", "v2/publish/https://a.b/", "v2/schedules/https://a.b")),
        (broker, ("produce", "produce/t", "fetch", "commit/g/i", "committed/g/i", "consume/g/i")),
        (capture, ("callback", "failure")),
    ):
        for path in paths:
            httpx.post(f"{handle.url}/{path}", content=body, headers=handle.headers)
    text = section(cloud)
    assert "cannot be told" not in text
    assert len(rows(cloud)) >= 19
