"""Test the thirteen routes over HTTP: their input, their output and every rejection."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Callable
from typing import Any

import pytest

from pytest_fakecloud.broker.handle import Broker
from tests.harness import wait_until

from .conftest import EARLIEST, START_MS, Parked, Rest, until_parked

Make = Callable[..., Broker]


def raw(
    broker: Broker,
    method: str,
    target: str,
    body: bytes = b"",
    headers: Any = (),
    auth: bool = True,
) -> tuple[int, Any]:
    """Send a request with exactly these headers and spellings, without headers of the HTTP client."""
    connection = http.client.HTTPConnection("127.0.0.1", int(broker.url.rpartition(":")[2]))
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        if auth:
            connection.putheader("Authorization", broker.headers["Authorization"])
        for name, value in headers:
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


# -- produce -------------------------------------------------------------------------------------


def test_produce_by_path_answers_one_object(rest: Rest) -> None:
    assert rest("GET", "/produce/orders/hello?key=city") == {
        "topic": "orders", "partition": 1, "offset": 0, "timestamp": START_MS,
    }  # fmt: skip
    assert rest("GET", "/produce/orders/hello%2Fw%C3%B6rld%20+1/") == {
        "topic": "orders", "partition": 0, "offset": 0, "timestamp": START_MS,
    }  # fmt: skip
    found = rest.broker.records("orders")
    assert [(r.key, r.value) for r in found] == [(None, "hello/wörld +1"), ("city", "hello")]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("slash", ["", "/"])
def test_produce_to_a_topic(rest: Rest, method: str, slash: str) -> None:
    assert rest(method, f"/produce/orders{slash}", {"value": "one"}) == [
        {"topic": "orders", "partition": 0, "offset": 0, "timestamp": START_MS}
    ]
    items = [
        {"value": "a", "partition": 2},
        {"value": "b", "partition": 1},
        {"value": "c", "partition": 2},
    ]
    places = rest(method, f"/produce/orders{slash}", items)
    assert [(p["partition"], p["offset"]) for p in places] == [(2, 0), (1, 0), (2, 1)]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_produce_to_several_topics(make_broker: Make, method: str) -> None:
    rest = Rest(make_broker(topics={"a": 1, "b": 1}))
    assert [p["topic"] for p in rest(method, "/produce", {"topic": "b", "value": "x"})] == ["b"]
    places = rest(method, "/produce", [{"topic": t, "value": t} for t in ("a", "b", "a")])
    assert [(p["topic"], p["offset"]) for p in places] == [("a", 0), ("b", 1), ("a", 1)]


def test_an_empty_batch_produces_nothing(rest: Rest) -> None:
    assert rest("POST", "/produce", []) == []


def test_a_record_comes_back_as_it_was_produced(rest: Rest) -> None:
    headers = [{"key": "b", "value": "1"}, {"key": "a", "value": ""}, {"key": "b", "value": "1"}]
    message = {
        "value": "wörld \U0001f600", "key": "clé", "partition": 2, "timestamp": 12345,
        "headers": headers,
    }  # fmt: skip
    rest("POST", "/produce/orders", message)
    assert rest("POST", "/fetch", {"topic": "orders", "partition": 2, "offset": 0}) == [
        {"topic": "orders", "offset": 0, **message}
    ]


def test_a_missing_key_reads_as_empty_and_headers_as_none(rest: Rest) -> None:
    rest("POST", "/produce/orders", {"value": "", "partition": 0, "key": None, "headers": None})
    assert rest("POST", "/fetch", {"topic": "orders", "partition": 0, "offset": 0}) == [
        {
            "topic": "orders", "partition": 0, "offset": 0, "timestamp": START_MS,
            "key": "", "value": "", "headers": [],
        }
    ]  # fmt: skip


def test_the_empty_key_is_hashed_and_an_absent_one_is_not(make_broker: Make) -> None:
    rest = Rest(make_broker(topics={"t": 12}))
    assert [
        rest("POST", "/produce/t", {"value": "x", "key": ""})[0]["partition"] for _ in "ab"
    ] == [9, 9]
    assert [rest("POST", "/produce/t", {"value": "x"})[0]["partition"] for _ in "ab"] == [0, 1]


def test_keyless_messages_of_a_request_stay_together(make_broker: Make) -> None:
    """Each request goes to one partition, and the next request to the next partition."""
    rest = Rest(make_broker())
    places = [rest.produce("orders", "a", "b", "c") for _ in range(4)]
    assert [{p["partition"] for p in batch} for batch in places] == [{0}, {1}, {2}, {0}]


def test_lone_surrogates_become_question_marks(rest: Rest) -> None:
    rest("POST", "/produce/orders", b'{"value": "a\\ud800b", "key": "\\udfff", "partition": 0}')
    assert rest.broker.records("orders").only()[4:6] == ("?", "a?b")


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "text/plain", None])
def test_bodies_are_json_whatever_their_type(broker: Broker, content_type: str | None) -> None:
    headers = [("Content-Type", content_type)] if content_type else []
    status, answer = raw(broker, "POST", "/produce/orders", b'{"value": "x"}', headers)
    assert (status, answer[0]["offset"]) == (200, 0)


# -- fetch ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/fetch", "/fetch/"])
def test_fetch_takes_one_position_several_and_both(rest: Rest, method: str, path: str) -> None:
    for partition in range(3):
        rest.produce("orders", f"{partition}a", f"{partition}b", partition=partition)

    def fetched(**body: Any) -> list[str]:
        return [r["value"] for r in rest(method, path, body)]

    def at(partition: int, offset: int) -> dict[str, Any]:
        return {"topic": "orders", "partition": partition, "offset": offset}

    assert fetched(**at(1, 1), timeout=600_000) == ["1b"]
    assert fetched(topicPartitionOffsets=[at(0, 0), at(2, 1)]) == ["0a", "0b", "2b"]
    assert fetched(**at(1, 0), topicPartitionOffsets=[at(0, 1)]) == ["1a", "1b", "0b"]
    assert fetched(topicPartitionOffsets=[at(0, 1), at(0, 1)]) == ["0b"]
    assert fetched(**at(1, 2), timeout=0) == []


def test_fetch_waits_for_the_first_record(broker: Broker, rest: Rest) -> None:
    broker._time.wait_cap = 10
    places = [{"topic": "orders", "partition": number, "offset": 0} for number in (1, 2)]
    body = {"topicPartitionOffsets": places, "timeout": 60_000}
    poll = Parked(lambda: rest("POST", "/fetch", body))
    until_parked(broker)
    rest.produce("orders", "elsewhere", partition=0)
    assert poll.waiting
    rest.produce("orders", "here", partition=1)
    assert [r["value"] for r in poll.result()] == ["here"]


def test_fetch_waits_a_second_unless_told(broker: Broker, rest: Rest) -> None:
    broker._time.wait_cap = 10
    poll = Parked(lambda: rest("POST", "/fetch", {"topic": "orders", "partition": 1, "offset": 0}))
    until_parked(broker)
    broker.clock.advance("999ms")
    assert poll.waiting
    broker.clock.advance("1ms")
    assert poll.result() == []


def test_a_produce_wakes_only_the_fetches_of_its_partition(make_broker: Make) -> None:
    """The engine does not even wake the other fetches."""
    broker = make_broker(topics={"t": 20})
    broker._time.wait_cap = 10
    rest = Rest(broker)
    polls = [
        Parked(lambda n=n: rest("POST", "/fetch", {"topic": "t", "partition": n, "offset": 0}))
        for n in range(20)
    ]
    until_parked(broker, 20)
    before = {id(signal): signal.version for signal in broker._engine.waiting}
    rest.produce("t", "x", partition=7)
    assert [r["partition"] for r in polls[7].result()] == [7]
    assert {id(s): s.version for s in broker._engine.waiting}.items() <= before.items()
    assert len(broker._engine.waiting) == 19
    broker.clock.advance("1s")
    assert [poll.result() for n, poll in enumerate(polls) if n != 7] == [[]] * 19


def test_fetch_single_topic_answers_with_one_topic(make_broker: Make) -> None:
    rest = Rest(make_broker(topics={"a": 1, "b": 1}, fetch_single_topic=True))
    rest("POST", "/produce", [{"topic": t, "value": t} for t in ("a", "b")])
    body = {
        "topicPartitionOffsets": [{"topic": t, "partition": 0, "offset": 0} for t in ("b", "a")]
    }
    assert [r["topic"] for r in rest("POST", "/fetch", body)] == ["b"]


def test_fetch_behind_the_end(rest: Rest) -> None:
    body = {"topic": "orders", "partition": 0, "offset": 1, "timeout": 60_000}
    assert "out of range" in rest("POST", "/fetch", body, status=400)["error"]


# -- consume, commit, metadata -------------------------------------------------------------------


def test_consume_by_path(rest: Rest) -> None:
    rest.produce("orders", "a")
    headers = {"Broker-Auto-Offset-Reset": "latest", **EARLIEST}
    records = rest("GET", "/consume/g/i/orders/?timeout=0", headers=headers)
    assert [r["value"] for r in records] == ["a"]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("prefix", ["Kafka-", "Broker-", "kafka-", "BROKER-"])
def test_consume_takes_both_spellings_of_its_headers(rest: Rest, method: str, prefix: str) -> None:
    rest.produce("orders", "a")
    headers = {f"{prefix}Auto-Offset-Reset": "earliest"}
    assert (
        len(rest(method, "/consume/g/i", {"topic": "orders", "timeout": 0}, headers=headers)) == 1
    )


def test_header_prefixes_are_a_setting(make_broker: Make) -> None:
    rest = Rest(make_broker(header_prefixes=["X-"]))
    rest.produce("orders", "a")
    body = {"topic": "orders", "timeout": 0}
    assert rest("POST", "/consume/g/i", body, headers=EARLIEST) == []
    assert len(rest("POST", "/consume/h/i", body, headers={"X-Auto-Offset-Reset": "earliest"})) == 1


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_commit_takes_an_object_an_array_or_nothing(rest: Rest, method: str) -> None:
    rest.consume("g", "i", "orders")
    success = {"result": "Success", "status": 200}
    one = {"topic": "orders", "partition": 0, "offset": 4}
    place = {"topic": "orders", "partition": 0}
    assert rest(method, "/committed/g/i", place) == [{**place, "offset": -1}]
    assert rest(method, "/commit/g/i", one) == success
    assert (
        rest(method, "/commit/g/i", [{**one, "partition": 1}, {**one, "partition": 2}]) == success
    )
    assert rest(method, "/commit/g/i/") == success
    assert rest.committed("g", "orders", 0, 1, 2) == [4, 4, 4]


def test_commit_stores_all_offsets_or_none(make_broker: Make) -> None:
    rest = Rest(make_broker())
    rest.consume("g", "a", "orders")
    rest.consume("g", "b", "orders")
    wait_until(lambda: all(len(has) for has in rest.assignments("g").values()))
    own, other = (rest.assignments("g")[name]["orders"][0] for name in "ab")
    error = rest.commit("g", "a", ("orders", own, 1), ("orders", other, 1), status=409)
    assert f"orders-{other} is not assigned to instance 'a'" in error["error"]
    rest.commit("g", "a", ("orders", own, 1), ("orders", own, 2), status=400)
    assert rest.committed("g", "orders", 0, 1, 2) == [-1, -1, -1]
    rest.commit("g", "a", ("orders", own, 1), ("orders", own, 1))
    assert rest.committed("g", "orders", own, other) == [1, -1]


def test_commit_during_a_rebalance_is_refused(make_broker: Make) -> None:
    broker = make_broker(join_delay="3s")
    rest = Rest(broker)
    rest.consume("g", "a", "orders")
    broker.clock.advance("3s")
    rest.consume("g", "b", "orders")
    assert "rebalancing" in rest.commit("g", "a", ("orders", 0, 1), status=409)["error"]
    broker.clock.advance("3s")
    rest.commit("g", "a", ("orders", 0, 1))


def test_a_late_commit_after_the_session_expired_is_refused(broker: Broker, rest: Rest) -> None:
    """Processing took too long, so another instance has the partition and its records."""
    rest.produce("orders", "slow", partition=0)
    options = {"Auto_Offset_Reset": "earliest", "Enable_Auto_Commit": "false"}
    assert rest.values("g", "a", "orders", **options) == ["slow"]
    rest.consume("g", "b", "orders", **options)
    broker.group("g").expire("a")
    assert rest.values("g", "b", "orders") == ["slow"]
    assert "session" in rest.commit("g", "a", ("orders", 0, 1), status=409)["error"]
    rest.commit("g", "b", ("orders", 0, 1))
    assert rest.consume("g", "a", "orders") == []
    assert rest.assignments("g") == {"a": {"orders": [0, 1]}, "b": {"orders": [2]}}


def test_topics(make_broker: Make) -> None:
    broker = make_broker(topics={"a": 2, "b.c-d_e": 1})
    assert Rest(broker)("GET", "/topics") == {"a": 2, "b.c-d_e": 1}
    assert Rest(make_broker(topics={}))("GET", "/topics/") == {}


def offsets(rest: Rest, method: str, at: object, *partitions: int) -> list[int]:
    body = [{"topic": "orders", "partition": n} for n in partitions]
    return [tp["offset"] for tp in rest(method, f"/offsets/{at}?timeout=500", body)]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_offsets_of_the_ends(broker: Broker, rest: Rest, method: str) -> None:
    rest.produce("orders", "a", "b", "c", partition=0)
    assert broker.topic("orders").delete_records(before=1, partition=0) == 1
    assert offsets(rest, method, "earliest", 0, 1) == [1, 0]
    assert offsets(rest, method, "latest", 1, 0) == [0, 3]
    assert rest(method, "/offsets/latest", {"topic": "orders", "partition": 0}) == [
        {"topic": "orders", "partition": 0, "offset": 3}
    ]
    assert rest(method, "/offsets/latest", []) == []
    body = {"topic": "orders", "partition": 0, "offset": 0}
    assert "out of range" in rest("POST", "/fetch", body, status=400)["error"]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_offsets_at_a_time(broker: Broker, rest: Rest, method: str) -> None:
    batch = [{"value": "x", "timestamp": t, "partition": 0} for t in (50, 10, 90)]
    rest("POST", "/produce/orders", batch)
    found = [offsets(rest, method, at, 0) for at in (0, 10, 11, 50, 51, 90, 91)]
    assert found == [[0], [0], [0], [0], [2], [2], [-1]]
    broker.topic("orders").delete_records(before=1, partition=0)
    found = [offsets(rest, method, at, 0) for at in (0, 10, 11, 90, 91)]
    assert found == [[1], [1], [2], [2], [-1]]


def test_a_timestamp_in_seconds_is_never_scaled(rest: Rest) -> None:
    """In milliseconds, the number is a time in January 1970, so the result is the earliest offset."""
    rest.produce("orders", "a", "b", partition=0)
    assert rest("POST", f"/offsets/{START_MS // 1000}", {"topic": "orders", "partition": 0}) == [
        {"topic": "orders", "partition": 0, "offset": 0}
    ]


# -- webhook -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_webhook_takes_the_raw_body_and_the_custom_headers(broker: Broker, method: str) -> None:
    headers = [
        ("X-GitHub-Event", "push"), ("event-timestamp", "1"), ("event-timestamp", "2"),
        ("under_score", "kept"), ("Content-Type", "application/x-www-form-urlencoded"),
        ("User-Agent", "hook"), ("X-Forwarded-For", "10.0.0.1"), ("Accept", "*/*"),
    ]  # fmt: skip
    status, answer = raw(broker, method, "/webhook?topic=orders", b"a=1&b=%20\xff", headers)
    assert status == 200
    assert answer == [{"topic": "orders", "partition": 0, "offset": 0, "timestamp": START_MS}]
    record = broker.assert_produced("orders").only()
    assert record.value == "a=1&b=%20\ufffd"
    assert record.headers == tuple(headers[:4])


def test_webhook_takes_credentials_from_its_query(broker: Broker) -> None:
    def hook(user: str, secret: str, path: str = "/webhook") -> int:
        return raw(
            broker, "POST", f"{path}?topic=orders&user={user}&pass={secret}", b"x", auth=False
        )[0]

    assert hook(broker.username, broker.password) == 200
    assert hook(broker.username, broker.password, "/webhook/") == 200
    assert hook(broker.username, "wrong") == 401
    assert hook("wrong", broker.password) == 401
    assert hook(broker.username, broker.password, "/produce/orders/x") == 401


def test_webhook_needs_a_known_topic(rest: Rest) -> None:
    assert "topic" in rest("POST", "/webhook", b"x", status=400)["error"]
    rest("POST", "/webhook?topic=nope", b"x", status=404)


# -- authentication ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/topics", "/produce/orders/x", "/nowhere"])
def test_everything_wants_credentials(broker: Broker, path: str) -> None:
    def status(header: str | None) -> int:
        headers = [] if header is None else [("Authorization", header)]
        answer = raw(broker, "GET", path, headers=headers, auth=False)
        assert set(answer[1]) == {"error", "status"}
        return answer[0]

    wrong = base64.b64encode(f"{broker.username}:nope".encode()).decode()
    assert status(None) == 401
    assert status("Bearer " + broker.token) == 401
    assert status("Basic " + wrong) == 401
    assert status("Basic !!!") == 401


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_credentials_are_compared_in_both_encodings(make_broker: Make, encoding: str) -> None:
    """The JavaScript client encodes each character as one byte."""
    broker = make_broker(username="jürgen", password="pässwörd")
    encoded = base64.b64encode("jürgen:pässwörd".encode(encoding)).decode()
    assert raw(
        broker, "GET", "/topics", headers=[("Authorization", "Basic " + encoded)], auth=False
    ) == (200, {"orders": 3})


def test_old_credentials_are_refused_after_rotation(broker: Broker, rest: Rest) -> None:
    broker.rotate_token()
    rest("GET", "/topics", status=401)
    assert raw(broker, "GET", "/topics")[0] == 200


# -- refusals ------------------------------------------------------------------------------------


def test_a_string_without_an_end_takes_no_longer(rest: Rest) -> None:
    """If every quote could begin a string, the search would take minutes."""
    rest("POST", "/produce/orders", b'"' + b'\\"' * 200_000, status=400)


POSITION = {"topic": "orders", "partition": 0, "offset": 0}
REFUSALS: list[tuple[str, str, Any, int, str]] = [
    ("POST", "/produce/orders", b'[{"value": "a"},]', 400, "trailing comma"),
    ("POST", "/produce/orders", b'{"value": "a",}', 400, "trailing comma"),
    ("POST", "/produce/orders", b'{"value": ",]"', 400, "not valid JSON"),
    ("POST", "/produce/orders", b"", 400, "empty"),
    ("POST", "/produce/orders", b"\xff\xfe\xfd", 400, "not valid JSON"),
    ("POST", "/produce/orders", b"[" * 100_000, 400, "not valid JSON"),
    ("POST", "/produce/orders", b'{"value": "a", "partition": ' + b"9" * 5000 + b"}", 400, "JSON"),
    ("POST", "/produce/orders", "text", 400, "must be a JSON object"),
    ("POST", "/produce/orders", [{"value": "a"}, 7], 400, "[1] must be a JSON object"),
    ("POST", "/produce/orders", [{"value": "a"}, {"key": "b"}], 400, "[1].value is missing"),
    ("POST", "/produce/orders", {"value": None}, 400, "value is missing"),
    ("POST", "/produce/orders", {"value": 1.1}, 400, "value must be a string, got 1.1"),
    ("POST", "/produce/orders", {"value": {"a": 1}}, 400, "value must be a string"),
    ("POST", "/produce/orders", {"value": "a", "key": 5}, 400, "key must be a string"),
    ("POST", "/produce/orders", {"value": "a", "headers": {"a": "b"}}, 400, "headers must be an array"),
    ("POST", "/produce/orders", {"value": "a", "headers": [{"key": "k"}]}, 400, "headers[0].value"),
    ("POST", "/produce/orders", {"value": "a", "headers": [{"key": 1, "value": "v"}]}, 400, "key"),
    ("POST", "/produce/orders", {"value": "a", "partition": 3}, 400, "Invalid partition 3"),
    ("POST", "/produce/orders", {"value": "a", "partition": -1}, 400, "Invalid partition -1"),
    ("POST", "/produce/orders", {"value": "a", "partition": True}, 400, "must be an integer"),
    ("POST", "/produce/orders", {"value": "a", "partition": "0"}, 400, "must be an integer"),
    ("POST", "/produce/orders", {"value": "a", "partition": 2**70}, 400, "64 bits"),
    ("POST", "/produce/orders", {"value": "a", "timestamp": -1}, 400, "Invalid timestamp"),
    ("POST", "/produce/orders", {"value": "a", "timestamp": 2**63}, 400, "64 bits"),
    ("POST", "/produce/orders", b'{"value": "a", "timestamp": NaN}', 400, "must be an integer"),
    ("POST", "/produce", {"value": "a"}, 400, "topic is missing"),
    ("POST", "/produce", {"topic": "nope", "value": "a"}, 404, "Known topics: orders"),
    ("POST", "/produce", {"topic": "a" * 250, "value": "a"}, 400, "250 characters"),
    ("POST", "/produce", {"topic": "no spaces", "value": "a"}, 400, "illegal"),
    ("POST", "/produce", {"topic": "..", "value": "a"}, 400, "illegal"),
    ("POST", "/produce", b'{"topic": "\\ud800", "value": "a"}', 400, "illegal"),
    ("GET", "/produce/" + "a" * 250 + "/x", None, 400, "250 characters"),
    ("GET", "/produce/nope/x", None, 404, "'nope'"),
    ("POST", "/fetch", b"", 400, "Nothing to fetch"),
    ("POST", "/fetch", [], 400, "must be a JSON object"),
    ("POST", "/fetch", {"topic": "orders", "partition": 0}, 400, "offset is missing"),
    ("POST", "/fetch", {"partition": 0, "offset": 0}, 400, "topic is missing"),
    ("POST", "/fetch", {"topicPartitionOffsets": 5}, 400, "must be an array"),
    ("POST", "/fetch", {"topicPartitionOffsets": [5]}, 400, "topicPartitionOffsets[0] must be"),
    ("POST", "/fetch", {**POSITION, "offset": -1}, 400, "at least 0"),
    ("POST", "/fetch", {**POSITION, "offset": 1}, 400, "out of range"),
    ("POST", "/fetch", {**POSITION, "partition": -1}, 400, "Invalid partition -1"),
    ("POST", "/fetch", {**POSITION, "topic": "nope"}, 404, "nope"),
    ("POST", "/fetch", {**POSITION, "timeout": -1}, 400, "at least 0"),
    ("POST", "/fetch", {**POSITION, "timeout": 600_001}, 400, "Invalid timeout 600001"),
    ("POST", "/fetch", {**POSITION, "timeout": "1s"}, 400, "timeout must be an integer"),
    (
        "POST", "/fetch", {"topicPartitionOffsets": [POSITION, {**POSITION, "offset": 1}]},
        400, "twice with different offsets",
    ),
    ("POST", "/consume/g/i", b"", 400, "Nothing to consume"),
    ("POST", "/consume/g/i", {"topics": []}, 400, "Nothing to consume"),
    ("POST", "/consume/g/i", {"topics": "orders"}, 400, "array of strings"),
    ("POST", "/consume/g/i", {"topics": [1]}, 400, "array of strings"),
    ("POST", "/consume/g/i", {"topic": "nope"}, 404, "nope"),
    ("POST", "/consume/g/i", {"topics": ["orders", "nope"]}, 404, "nope"),
    ("POST", "/consume/g/i", {"topic": "orders", "timeout": 10**12}, 400, "Invalid timeout"),
    ("GET", "/consume/g/i/orders?timeout=abc", None, 400, "timeout must be milliseconds"),
    ("GET", "/consume/g/i/orders?timeout=-5", None, 400, "timeout must be milliseconds"),
    ("POST", "/commit/g/i", b"", 404, "'i' of group 'g' does not exist"),
    ("POST", "/commit/g/i", {"topic": "orders"}, 400, "partition is missing"),
    ("POST", "/commit/g/i", {**POSITION, "offset": -1}, 400, "at least 0"),
    ("POST", "/commit/g/i", {**POSITION, "topic": "nope"}, 404, "nope"),
    ("POST", "/commit/g/i", {**POSITION, "partition": 9}, 400, "Invalid partition 9"),
    ("POST", "/delete-consumer/g/i", None, 404, "does not exist"),
    ("POST", "/committed/g/i", b"", 400, "empty"),
    ("POST", "/committed/g/i", {"topic": "orders", "partition": 0}, 404, "Consumer group 'g'"),
    ("POST", "/committed/g/i", {"topic": "orders", "partition": 7}, 400, "Invalid partition 7"),
    ("POST", "/committed/g/i?timeout=1000000000000", [POSITION], 400, "Invalid timeout"),
    ("POST", "/offsets/latest", b"", 400, "empty"),
    ("POST", "/offsets/newest", [POSITION], 400, "milliseconds, earliest or latest"),
    ("POST", "/offsets/-1", [POSITION], 400, "milliseconds, earliest or latest"),
    ("POST", "/offsets/99999999999999999999", [POSITION], 400, "milliseconds"),
    ("POST", "/offsets/latest", [{**POSITION, "topic": "nope"}], 404, "nope"),
    ("POST", "/offsets/latest?timeout=1000000000000", [POSITION], 400, "Invalid timeout"),
    ("POST", "/topics", None, 405, "use GET"),
    ("GET", "/delete-consumer/g/i", None, 405, "use DELETE, POST"),
    ("PUT", "/produce", None, 405, "use GET, POST"),
    ("GET", "/nowhere", None, 404, "Invalid API call: GET /nowhere"),
    ("GET", "/produce/orders/a/b", None, 404, "Invalid API call"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "status", "text"), REFUSALS)
def test_refusals_say_why_and_change_nothing(
    rest: Rest, method: str, path: str, body: Any, status: int, text: str
) -> None:
    error = rest(method, path, body, status=status)
    assert set(error) == {"error", "status"}
    assert error["status"] == status
    assert text in error["error"]
    assert rest.broker.records("orders") == []
    assert rest.broker._engine.groups.names() == []
    assert rest("GET", "/consumers") == []


def test_a_message_above_the_limit_is_refused_whole(rest: Rest) -> None:
    batch = [{"value": "small"}, {"value": "x" * 2_000_000}]
    error = rest("POST", "/produce/orders", batch, status=413)
    assert "1048576" in error["error"]
    assert rest.broker.records("orders") == []
    rest("POST", "/produce/orders", {"value": "x" * 1_000_000, "key": "k"})
    rest("POST", "/produce/orders", {"value": "é" * 600_000}, status=413)
    rest("POST", "/webhook?topic=orders", b"x" * 2_000_000, status=413)


def test_a_refused_batch_does_not_move_the_next_one(rest: Rest) -> None:
    rest("POST", "/produce/orders", [{"value": "a"}, {"value": "b", "partition": 9}], status=400)
    assert rest.broker.records("orders") == []
    assert rest.produce("orders", "c")[0]["partition"] == 0


def test_statuses_and_texts_are_settings(make_broker: Make) -> None:
    rest = Rest(make_broker(errors={"unknown_topic": 400, "unknown_instance": (410, "gone")}))
    assert rest("GET", "/produce/nope/x", status=400)["status"] == 400
    assert rest("POST", "/commit/g/i", status=410) == {"error": "gone", "status": 410}


def test_instances_can_be_counted_by_group(make_broker: Make) -> None:
    rest = Rest(make_broker(instance_limit="group", topics={"a": 1, "b": 1}))
    for name in "123":
        rest.consume(f"g{name}", "i", "a")
    rest.consume("g1", "j", "b")
    rest.consume("g1", "k", "a", status=400)


def test_other_topics_later_change_the_subscription(make_broker: Make) -> None:
    rest = Rest(make_broker(topics={"a": 1, "b": 1}))
    rest.consume("g", "i", "a")
    rest.consume("g", "i", "b")
    wait_until(lambda: rest.assignments("g") == {"i": {"b": [0]}})


# -- faults and the journal ----------------------------------------------------------------------


def test_a_lost_answer_makes_true_duplicates(broker: Broker, rest: Rest) -> None:
    """The record was appended and the answer dropped, so a client that retries repeats it."""
    import httpx

    broker.faults.lose_response(route="produce", times=1)
    with pytest.raises(httpx.TransportError):
        rest.produce("orders", "once")
    rest.produce("orders", "once")
    assert len(broker.assert_produced("orders", "once", times=2)) == 2


def test_faults_match_routes_topics_and_groups(broker: Broker, rest: Rest) -> None:
    broker.create_topic("bills")
    commits = broker.faults.respond(503, route="commit")
    bills = broker.faults.respond(504, topic="bills")
    rest.consume("g", "i", "orders")
    assert rest("POST", "/commit/g/i", status=503)["status"] == 503
    commits.remove()
    rest("POST", "/commit/g/i")
    rest.produce("orders", "x")
    rest("GET", "/produce/bills/x", status=504)
    rest(
        "POST",
        "/produce",
        [{"topic": "orders", "value": "x"}, {"topic": "bills", "value": "y"}],
        status=504,
    )
    rest("POST", "/fetch", {"topicPartitionOffsets": [{**POSITION, "topic": "bills"}]}, status=504)
    rest("POST", "/webhook?topic=bills", b"x", status=504)
    rest("POST", "/consume/g/i", {"topics": ["orders", "bills"]}, status=504)
    bills.remove()
    with broker.faults.respond(500, group="g") as only_g:
        rest("POST", "/commit/g/i", status=500)
        rest("POST", "/commit/h/i", status=404)
    assert only_g.hits == 1


def test_the_journal_knows_topic_group_and_instance(broker: Broker, rest: Rest) -> None:
    rest.consume("g", "i", "orders")
    call = broker.assert_called("consume", topic="orders", group="g").last
    assert call.facts["instance"] == "i"
    rest("POST", "/commit/g/i")
    assert broker.assert_called("commit", times=1, group="g").only().facts["instance"] == "i"
    broker.assert_called("commit", times=0, group="h")
    broker.assert_not_called("produce")
