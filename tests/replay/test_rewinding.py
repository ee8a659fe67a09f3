"""What is known of data when a part of the journal cannot be replayed."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from redis import Redis

from pytest_fakecloud import Cloud
from pytest_fakecloud.replay.rewinding import Rewinder, Unknown


def test_what_cannot_be_replayed_is_unknown_up_to_the_next_copy_only(cloud: Cloud) -> None:
    rewinder = Rewinder(cloud)
    kv = cloud.kv_server()
    with kv.client() as client:
        client.set("a", "1")
        client.set("a", "2")
        inexact = cloud.journal.calls().last
        inexact.response_body = b"other"
        client.set("a", "3")
        last = cloud.journal.calls().last.number
        with pytest.raises(Unknown, match=f"call {inexact.number} received a different answer"):
            rewinder.changes(last)
        client.set("a", "4")
        client.set("a", "5")
    fourth, fifth = [call.number for call in cloud.journal.calls()][-2:]
    (change,) = rewinder.changes(fifth)
    assert change.before is not None
    assert change.after is not None
    assert (change.before["value"], change.after["value"]) == ("4", "5")
    values = [
        (version.number, version.fields["value"])
        for version in rewinder.versions(kv, "keys", "a")
        if version.fields is not None
    ]
    assert values == [(inexact.number - 1, "1"), (0, "3"), (fourth, "4"), (fifth, "5")]
    rewinder.close()


def test_bytes_that_are_not_text_are_replayed(cloud: Cloud) -> None:
    rewinder = Rewinder(cloud)
    kv = cloud.kv_server()
    with Redis.from_url(kv.database_url) as client:
        client.set(b"key\xfe", b"\x80\x04pickled\xff")
        assert client.get(b"key\xfe") == b"\x80\x04pickled\xff"
        client.hset("hash", b"\xff", b"\xfe")
        client.hgetall("hash")
    (written,) = cloud.journal.calls(command="SET")
    (change,) = rewinder.changes(written.number)
    assert change.item == repr(b"key\xfe")
    assert change.after is not None
    assert change.after["value"] == "\\x80\x04pickled\\xff"
    assert rewinder.changes(cloud.journal.calls().last.number) == []
    rewinder.close()


@pytest.mark.parametrize("keep", [100, 8])
@pytest.mark.parametrize("protocol", [2, 3])
def test_connections_that_are_older_than_the_copied_data_go_on(
    cloud: Cloud, protocol: int, keep: int
) -> None:
    rewinder = Rewinder(cloud)
    kv = cloud.kv_server(dialect="redis")
    cloud.journal.keep = keep
    with Redis.from_url(kv.env["REDIS_URL"], db=1, protocol=protocol) as client:
        client.zadd("scores", {"ada": 1.5})
        for _ in range(12):
            client.ping()
        rewinder.note_change()
        assert client.get("missing") is None
        assert client.zscore("scores", "ada") == 1.5
        client.set("a", "1")
    written = cloud.journal.calls().last.number
    (change,) = rewinder.changes(written)
    assert (change.section, change.item) == ("keys of database 1", "a")
    rewinder.close()


def test_a_retry_is_due_by_the_time_that_its_delivery_read(cloud: Cloud) -> None:
    """Threads of a running clock are recorded in another order than that of the times they read."""
    rewinder = Rewinder(cloud)
    queue = cloud.queue()
    queue.destinations.respond("https://a.example.com/", 500)
    message = queue.publish("https://a.example.com/", retries=1)
    httpx.get(f"{queue.url}/v2/queues", headers=queue.headers)
    cloud.journal.calls().last.at_us += 2_000
    queue.deliver_due()
    cloud.clock.advance("1h")
    queue.deliver_due()
    first, second = cloud.journal.events("attempt")
    for attempt in (first, second):
        assert message.id in {change.item for change in rewinder.changes(attempt.number)}
    rewinder.close()


def test_data_is_not_copied_during_a_delivery_whose_outcome_the_copy_would_lack(
    cloud: Cloud,
) -> None:
    rewinder = Rewinder(cloud)
    queue, kv = cloud.queue(), cloud.kv_server()

    def handle(environ: Any, start_response: Any) -> list[bytes]:
        rewinder.note_change()
        with kv.client() as client:
            client.set("handled", "1")
        start_response("200 OK", [])
        return []

    queue.destinations.wsgi("https://app.example", handle)
    client = queue.client()
    first = client.message.publish(url="https://app.example/a").message_id
    cloud.clock.advance("1s")
    client.message.publish(url="https://app.example/b", delay="1h")
    last = cloud.journal.calls().last.number
    messages = rewinder.before(last, queue).state["messages"]
    assert messages[first]["state"] == "delivered"
    rewinder.close()
