"""Routes over HTTP that wait, take raw bytes, or depend on what a test does; others are scenarios."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from pytest_fakecloud.broker.fake import Broker
from tests.harness import wait_until

from .conftest import MANUAL, START_MS, Make, Parked, Rest, until_parked


def raw(
    broker: Broker, method: str, target: str, body: bytes = b"", headers: Any = ()
) -> tuple[int, Any]:
    """Send a request with exactly these headers and spellings, without headers of the HTTP client."""
    connection = http.client.HTTPConnection("127.0.0.1", int(broker.url.rpartition(":")[2]))
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        connection.putheader("Authorization", broker.headers["Authorization"])
        for name, value in headers:
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


# -- fetch ---------------------------------------------------------------------------------------


def test_fetch_waits_for_the_first_record(broker: Broker, rest: Rest) -> None:
    broker._timekeeper.wait_cap = 10
    places = [{"topic": "orders", "partition": number, "offset": 0} for number in (1, 2)]
    body = {"topicPartitionOffsets": places, "timeout": 60_000}
    poll = Parked(lambda: rest("POST", "/fetch", body))
    until_parked(broker)
    rest.produce("orders", "elsewhere", partition=0)
    assert poll.waiting
    rest.produce("orders", "here", partition=1)
    assert [r["value"] for r in poll.result()] == ["here"]


def test_fetch_waits_a_second_unless_told(broker: Broker, rest: Rest) -> None:
    broker._timekeeper.wait_cap = 10
    poll = Parked(lambda: rest("POST", "/fetch", {"topic": "orders", "partition": 1, "offset": 0}))
    until_parked(broker)
    broker.clock.advance("999ms")
    assert poll.waiting
    broker.clock.advance("1ms")
    assert poll.result() == []


def test_a_produce_wakes_only_the_fetches_of_its_partition(make_broker: Make) -> None:
    """The engine does not even wake the other fetches."""
    broker = make_broker(topics={"t": 20})
    broker._timekeeper.wait_cap = 10
    rest = Rest(broker)
    polls = [
        Parked(lambda n=n: rest("POST", "/fetch", {"topic": "t", "partition": n, "offset": 0}))
        for n in range(20)
    ]
    until_parked(broker, 20)
    before = {id(signal): signal.version for signal in broker._engine._waits.waiting}
    rest.produce("t", "x", partition=7)
    assert [r["partition"] for r in polls[7].result()] == [7]
    assert {id(s): s.version for s in broker._engine._waits.waiting}.items() <= before.items()
    assert len(broker._engine._waits.waiting) == 19
    broker.clock.advance("1s")
    assert [poll.result() for n, poll in enumerate(polls) if n != 7] == [[]] * 19


# -- consume, commit, metadata -------------------------------------------------------------------


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


def test_other_topics_later_change_the_subscription(make_broker: Make) -> None:
    rest = Rest(make_broker(topics={"a": 1, "b": 1}))
    rest.consume("g", "i", "a")
    rest.consume("g", "i", "b")
    wait_until(lambda: rest.assignments("g") == {"i": {"b": [0]}})


def test_a_late_commit_after_the_session_expired_is_refused(broker: Broker, rest: Rest) -> None:
    """Processing took too long, so another instance has the partition and its records."""
    rest.produce("orders", "slow", partition=0)
    assert rest.values("g", "a", "orders", **MANUAL) == ["slow"]
    rest.consume("g", "b", "orders", **MANUAL)
    broker.group("g").expire("a")
    assert rest.values("g", "b", "orders") == ["slow"]
    assert "session" in rest.commit("g", "a", ("orders", 0, 1), status=409)["error"]
    rest.commit("g", "b", ("orders", 0, 1))
    assert rest.consume("g", "a", "orders") == []
    assert rest.assignments("g") == {"a": {"orders": [0, 1]}, "b": {"orders": [2]}}


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
    replies = [offsets(rest, method, at, 0) for at in (0, 10, 11, 50, 51, 90, 91)]
    assert replies == [[0], [0], [0], [0], [2], [2], [-1]]
    broker.topic("orders").delete_records(before=1, partition=0)
    replies = [offsets(rest, method, at, 0) for at in (0, 10, 11, 90, 91)]
    assert replies == [[1], [1], [2], [2], [-1]]


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


# -- authentication ------------------------------------------------------------------------------


def test_old_credentials_are_refused_after_rotation(broker: Broker, rest: Rest) -> None:
    broker.rotate_token()
    rest("GET", "/topics", status=401)
    assert raw(broker, "GET", "/topics")[0] == 200


# -- refusals ------------------------------------------------------------------------------------


def test_a_string_without_an_end_takes_no_longer(rest: Rest) -> None:
    """If every quote could begin a string, the search would take minutes."""
    rest("POST", "/produce/orders", b'"' + b'\\"' * 200_000, status=400)


POSITION = {"topic": "orders", "partition": 0, "offset": 0}
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
