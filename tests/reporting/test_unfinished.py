"""Unfinished work has a line with its reason, both in reports and in failed assertions."""

from __future__ import annotations

import httpx
import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.fake import core_of
from pytest_fakecloud.queue.model import Message
from pytest_fakecloud.reporting.findings import MOST_UNFINISHED, unfinished
from pytest_fakecloud.reporting.lookups import lookups_of
from pytest_fakecloud.reporting.render.text import section
from pytest_fakecloud.reporting.render.wording import sentence

from .shown import deliver

URL = "https://app.example.com/hook"


def waiting(cloud: Cloud) -> list[str]:
    errors: list[str] = []
    lookups = lookups_of(cloud, [], errors)
    sentences = [sentence(item, lookups) for item in unfinished(cloud, lookups, errors)]
    assert errors == []
    return sentences


def told(cloud: Cloud) -> list[str]:
    """Return the lines, without the IDs of messages and dead letters."""
    return [line.partition(" ")[2] for line in waiting(cloud)]


def test_nothing_waits(cloud: Cloud) -> None:
    queue, index = cloud.queue(), cloud.vector_index()
    cloud.broker(topics={"t": 1})
    cloud.kv_server()
    index.load([{"id": "a", "vector": [1]}])
    queue.destinations.accept(URL)
    deliver(queue, URL)
    assert told(cloud) == []
    assert "Unfinished" not in section(cloud)


def test_a_delay_a_retry_and_one_that_nobody_drove(cloud: Cloud) -> None:
    queue = cloud.queue()
    queue.destinations.respond(URL, 500)
    queue.publish(URL, retries=3)
    queue.deliver_due()
    queue.publish(URL, delay="13h")
    queue.publish(URL)
    assert told(cloud) == [
        f"POST {URL} (tried 1 of 4): due 12:00:12.182Z in 12.182 s (backoff e^2.5)",
        f"POST {URL}: due 2026-03-02 01:00:00Z in 13 h (delay)",
        f"POST {URL}: due now, but not delivered yet; call queue.run_until_idle()",
    ]


def test_slots_of_a_queue_that_change_meanwhile(cloud: Cloud) -> None:
    queue = cloud.queue()
    engine = core_of(queue).engine
    two_slots = {"queueName": "mails", "parallelism": 2}
    httpx.post(f"{queue.url}/v2/queues", json=two_slots, headers=queue.headers).raise_for_status()
    for _ in range(3):
        httpx.post(f"{queue.url}/v2/enqueue/mails/{URL}", headers=queue.headers).raise_for_status()
    [mails] = engine.queues.by_name.values()

    class Messages(dict[str, Message]):
        def __getitem__(self, message_id: str) -> Message:
            mails.active["another"] = None
            del mails.active["another"]
            return super().__getitem__(message_id)

    engine.data.messages = Messages(engine.data.messages)
    assert [line for line in told(cloud) if "waits in queue mails behind" in line]


def test_a_schedule_waits_for_its_first_run_only(cloud: Cloud) -> None:
    queue = cloud.queue()
    queue.destinations.accept(URL)
    headers = {**queue.headers, "Upstash-Cron": "0 13 * * *"}
    httpx.post(f"{queue.url}/v2/schedules/{URL}", headers=headers).raise_for_status()
    [waits] = told(cloud)
    assert waits.endswith(f"of {URL}: next 13:00:00Z in 1 h (0 13 * * *)")
    queue.clock.advance("2h")
    assert told(cloud) == []


def test_a_paused_queue(cloud: Cloud) -> None:
    queue = cloud.queue()
    mails = {"queueName": "mails", "parallelism": 1}
    for path, body in (
        ("queues", mails),
        ("queues/mails/pause", None),
        (f"enqueue/mails/{URL}", None),
    ):
        httpx.post(f"{queue.url}/v2/{path}", json=body, headers=queue.headers)
    assert told(cloud) == [f"POST {URL}: waits: queue mails is paused"]


def test_failed_assertions_have_the_same_line(cloud: Cloud) -> None:
    queue = cloud.queue()
    queue.publish(URL, delay="1h")
    line = told(cloud)[0].partition(": ")[2]
    assert line == "due 13:00:00Z in 1 h (delay)"
    capture = cloud.callback_capture()
    for fails in (
        queue.assert_idle,
        lambda: queue.assert_delivered(URL),
        capture.callbacks().only,
        capture.callbacks().where(status=200).only,
        lambda: capture.callbacks().last,
    ):
        with pytest.raises(AssertionError) as failed:
            fails()
        assert line in str(failed.value)


@pytest.mark.parametrize("wait", ["wait_for_callback", "wait_for_failure"])
def test_a_wait_in_vain_has_the_same_line(cloud: Cloud, wait: str) -> None:
    queue, capture = cloud.queue(), cloud.callback_capture()
    queue.publish(URL, delay="60d", callback=capture.callback_url)
    line = told(cloud)[0].partition(": ")[2]
    assert line == "due 2026-04-30 12:00:00Z in 60 d (delay)"
    for fails in (getattr(capture, wait), capture.assert_callback):
        with pytest.raises(AssertionError) as failed:
            fails()
        assert line in str(failed.value)


def test_only_says_what_was_given_up_and_counts_the_rest(cloud: Cloud) -> None:
    queue, capture = cloud.queue(), cloud.callback_capture()
    queue.destinations.respond(URL, 404)
    deliver(queue, URL, retries=0)
    with pytest.raises(AssertionError, match="failed after 1 attempt, last status 404; dead le"):
        capture.callbacks().only()
    for number in range(9):
        queue.publish(f"{URL}/{number}")
    with pytest.raises(AssertionError, match=r"  and 5 more$"):
        capture.callbacks().only()


@pytest.mark.parametrize(("count", "rest"), [(4, None), (5, "and 1 more"), (20, "and 16 more")])
def test_four_are_named(cloud: Cloud, count: int, rest: str | None) -> None:
    queue = cloud.queue()
    for number in range(count):
        queue.publish(f"{URL}/{number}")
    lines = waiting(cloud)
    assert len(lines) == MOST_UNFINISHED + (rest is not None)
    assert lines[MOST_UNFINISHED:] == ([rest] if rest else [])
    before, _, after = section(cloud).partition("\n12:")
    after = after.partition("Further findings:\n")[2].partition("\nclock")[0]
    shown = f"{before}\n{after}".removeprefix("Unfinished: ").split("\n- ")
    assert [" ".join(line.removeprefix("- ").split()) for line in shown] == lines


@pytest.mark.parametrize(
    ("commits", "later", "expected"),
    [
        ("true", 0, []),
        ("true", 1, ["group g is 3 records behind in t-0 (nothing committed)"]),
        ("false", 0, ["group g is 2 records behind in t-0 (nothing committed)"]),
    ],
    ids=["it commits by itself", "more came", "it commits nothing"],
)
def test_a_reader_that_has_all_and_commits_by_itself_is_not_behind(
    cloud: Cloud, commits: str, later: int, expected: list[str]
) -> None:
    broker = cloud.broker(topics={"t": 1})
    headers = {"Kafka-Auto-Offset-Reset": "earliest", "Kafka-Enable-Auto-Commit": commits}
    for _ in range(2):
        broker.produce("t", "v")
    broker.client().get("/consume/g/i/t", headers=headers)
    for _ in range(later):
        broker.produce("t", "v")
    assert told(cloud) == expected


def test_messages_alike_share_a_line(cloud: Cloud) -> None:
    queue = cloud.queue()
    queue.destinations.respond(URL, 404)
    for _ in range(5):
        queue.publish(URL, retries=0)
    ids = [message.id[:8] for message in queue.messages()]
    named = f"{ids[0]}, {ids[1]}, {ids[2]} and 2 more"
    due = f"POST {URL}: due now, but not delivered yet; call queue.run_until_idle()"
    assert waiting(cloud) == [f"{named} {due}"]
    assert queue.run_until_idle().waiting == "nothing"
    letters = [letter.id for letter in queue.dead_letters()]
    assert waiting(cloud) == [
        f"{named} failed after 1 attempt, last status 404; dead letters {letters[0]}, "
        f"{letters[1]}, {letters[2]} and 2 more"
    ]


def test_partitions_of_a_group_share_a_line(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"t": 2})
    for partition in (0, 1, 1):
        broker.produce("t", "v", partition=partition)
    broker.commit("g", "t", 0, 0)
    broker.commit("g", "t", 1, 0)
    assert told(cloud) == [
        "group g is 1 record behind in t-0 (committed 0), 2 records behind in t-1 (committed 0)"
    ]


def test_an_instance_that_is_gone_and_keeps_partitions_is_named(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"t": 2}, idle_close="5m", session_timeout="1h")
    broker.join("g", "old", ["t"])
    broker.join("g", "new", ["t"])
    cloud.clock.advance("6m")
    broker.join("g", "new", ["t"])
    for partition in (0, 1):
        broker.produce("t", "v", partition=partition)
    assert told(cloud) == [
        "group g is 1 record behind in t-0 (nothing committed)",
        "group g is 1 record behind in t-1 (nothing committed), which old keeps, although it is gone",
    ]


def test_vectors_that_are_not_indexed(cloud: Cloud) -> None:
    index = cloud.vector_index(ready_after="5s")
    httpx.post(f"{index.url}/upsert", json={"id": "a", "vector": [1]}, headers=index.headers)
    assert told(cloud) == [
        "1 vector of the default namespace pending: queries return vectors only when they are indexed"
    ]
    cloud.clock.advance("5s")
    assert told(cloud) == []


def test_a_fake_that_cannot_be_asked_costs_a_line(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = cloud.queue()
    cloud.broker(topics={"t": 1}).commit("g", "t", 0, 0)

    def broken() -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(queue._engine.dead_letters, "all", broken)
    assert "queue: what waits cannot be shown: RuntimeError: no" in section(cloud)


def test_a_report_about_a_broker_that_was_only_read(cloud: Cloud) -> None:
    cloud.broker(topics={"t": 1}).client().get("/topics")
    assert "cannot be shown" not in section(cloud)
