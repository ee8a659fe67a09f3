"""Test the ``Queue`` object: settings, publishing, listings, assertions and driving."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from datetime import timedelta
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.queue.actions import FlowControl, MessageOptions, NotIdleError
from pytest_fakecloud.queue.delivery.routes import DeliveredRequest, Response
from pytest_fakecloud.queue.errors import QueueError
from pytest_fakecloud.queue.fake import DEV_KEYS, DEV_TOKEN, Queue
from pytest_fakecloud.queue.views import PublishedMessage

from .scene import CALLBACK, DEST, FAILURE, NOW, Scene, after, attempts_among


def test_credentials_are_random_unless_asked_for() -> None:
    with Queue(Context.alone(seed=1)) as first, Queue(Context.alone(seed=1)) as second:
        assert first.token != second.token
        assert first.current_signing_key != second.current_signing_key
        assert first.next_signing_key not in (first.current_signing_key, second.next_signing_key)
    with Queue(Context.alone(), dev_credentials=True) as dev:
        assert dev.token == DEV_TOKEN
        assert (dev.current_signing_key, dev.next_signing_key) == DEV_KEYS
        assert dev.env["QSTASH_TOKEN"] == DEV_TOKEN


def test_tokens_name_a_user_as_the_services_own_do(queue: Queue) -> None:
    tokens = [queue.token, queue.read_only_token, queue.rotate_token(), queue.read_only_token]
    contents = [json.loads(base64.b64decode(token, validate=True)) for token in tokens]
    assert all(list(content) == ["UserID", "Password"] for content in contents)
    assert (
        len(
            {content["UserID"] for content in contents}
            | {content["Password"] for content in contents}
        )
        == 8
    )
    # A token can be used in a query without quoting.
    assert all(token.isalnum() for token in tokens)


def test_ids_come_from_the_seed() -> None:
    ids = []
    for _ in range(2):
        with Queue(Context.alone(now=NOW, seed=5)) as first:
            ids.append(first.publish(DEST).id)
    assert ids[0] == ids[1]
    context = Context.alone(now=NOW, seed=5)
    with Queue(context) as first, Queue(context) as second:
        assert first.publish(DEST).id != second.publish(DEST).id


def test_the_environment_of_the_clients(queue: Queue) -> None:
    assert queue.env == {
        "QSTASH_URL": queue.url,
        "QSTASH_TOKEN": queue.token,
        "QSTASH_CURRENT_SIGNING_KEY": queue.current_signing_key,
        "QSTASH_NEXT_SIGNING_KEY": queue.next_signing_key,
        # Values from the developer's environment would point the JavaScript client elsewhere.
        "QSTASH_REGION": "",
        "QSTASH_DEV": "",
    }
    with Queue(Context.alone(), dev_credentials=True) as development:
        assert development.env["QSTASH_DEV_PORT"] == development.url.rpartition(":")[2]
        assert "QSTASH_DEV" not in development.env


@pytest.mark.parametrize("name", ["delivery", "signature_clock", "destinations"])
def test_settings_cannot_change_after_the_start(queue: Queue, name: str) -> None:
    with pytest.raises(AttributeError, match=f"'{name}'"):
        setattr(queue, name, getattr(queue, name))


def test_windows_and_retentions_can_be_set() -> None:
    with Scene(dedup_window="1h", dlq_retention="1d", message_grace="5m", retries=1) as scene:
        sent = {"Upstash-Deduplication-Id": "a"}
        first = scene.publish(sent)
        scene.queue.clock.advance("59m")
        assert scene.publish(sent) == first
        scene.fail()
        message_id = scene.publish()
        scene.queue.run_until_idle()
        assert len(scene.queue.attempts(message_id)) == 2
        scene.queue.clock.advance("5m")
        assert scene.request("GET", f"/v2/messages/{message_id}").status == 200
        scene.queue.clock.advance("1d")
        assert scene.request("GET", f"/v2/messages/{message_id}").status == 404
        assert scene.queue.dead_letters() == []


def test_publishing_without_http(queue: Queue) -> None:
    message = queue.publish(
        DEST,
        json={"a": [1, "ä"]},
        headers={"X-A": "1"},
        delay="1m",
        retries=1,
        callback=CALLBACK,
        failure_callback=FAILURE,
        settings={"Upstash-Retry-Delay": "1000", "Upstash-Queue-Name": "orders"},
        method="PUT",
        label="red",
        timeout=timedelta(seconds=9),
    )
    assert (message.url, message.state, message.kind) == (DEST, "pending", "message")
    assert (message.json(), message.method) == ({"a": [1, "ä"]}, "PUT")
    assert message.headers == {"X-A": "1", "Content-Type": "application/json"}
    assert (message.queue, message.label, message.labels) == ("orders", "red", ("red",))
    assert (message.retried, message.max_retries) == (0, 1)
    assert (message.created, message.due) == (NOW, after(60))
    assert (message.topic, message.schedule_id, message.dlq_id) == (None, None, None)
    assert message.attempts == []
    assert queue.journal.calls() == []
    assert repr(message) == f"<Message {message.id} PUT {DEST} pending>"


def test_arguments_in_other_forms(queue: Queue) -> None:
    message = queue.publish(DEST, body=bytearray(b"x"), label=["a", "b"])
    assert (message.body, message.labels) == (b"x", ("a", "b"))
    assert queue.publish(DEST, deduplication_id="a") == queue.publish(DEST, deduplication_id="a")
    assert queue.publish(DEST, json=None).body == b"null"
    assert queue.publish(DEST, settings={"Content-Type": "text/x", "service-delay": "5s"}).due


def test_flow_control_as_a_keyword(queue: Queue) -> None:
    queue.destinations.accept(DEST)
    limited = FlowControl(key="k", parallelism=2, rate=1, period="1m")
    for flow_control in (limited, limited, FlowControl(key="k")):
        queue.publish(DEST, flow_control=flow_control)
    first, *later = queue.run_until_idle()
    assert [(attempt.at - first.at).total_seconds() for attempt in later] == [60, 120]


def test_publishing_by_hand_skips_faults(queue: Queue) -> None:
    queue.faults.respond(503, times=1)
    queue.publish(DEST)
    assert queue.faults.unused()
    queue.faults.clear()


def test_loading(queue: Queue) -> None:
    queue.load(
        {
            "url_groups": {"news": [DEST, {"url": CALLBACK, "name": "second"}]},
            "queues": {"orders": {"parallelism": 2}, "plain": None},
            "schedules": [{"url": "news", "cron": "@daily", "id": "daily", "body": "x"}],
            "messages": [{"url": DEST, "json": {"n": 1}, "queue": "orders"}],
        }
    )
    assert queue.schedules().only().id == "daily"
    assert queue.messages().only().json() == {"n": 1}
    queue.destinations.accept()
    queue.clock.advance("1d")
    assert [attempt.url for attempt in queue.attempts()] == [DEST, DEST, CALLBACK]


def test_reset_returns_to_the_baseline(queue: Queue) -> None:
    queue.load({"queues": {"orders": {}}})
    queue.set_baseline()
    message = queue.publish(DEST)
    queue.schedule(DEST, "* * * * *")
    queue.reset()
    assert (queue.messages(), queue.schedules()) == ([], [])
    assert [own.name for own in queue.client().queue.list()] == ["orders"]
    assert queue.clock.advance("1h") == []
    with pytest.raises(ContractError, match="is gone: the queue was reset"):
        _ = message.state


def test_a_snapshot_knows_how_far_the_destinations_are(queue: Queue) -> None:
    route = queue.destinations.respond(DEST, 500, 503, 200)
    message = queue.publish(DEST)
    queue.deliver_due()
    saved = queue.snapshot()
    for _ in range(2):
        queue.destinations.accept(CALLBACK)
        queue.run_until_idle()
        assert [attempt.status for attempt in message.attempts] == [500, 503, 200]
        assert len(route.deliveries) == 3
        queue.restore(saved)
        assert [attempt.status for attempt in message.attempts] == [500]
        assert len(route.deliveries) == 1
        assert queue.destinations.routes() == [route]
    queue.reset()
    assert queue.destinations.routes() == []


@pytest.mark.parametrize("delivery", ["driven", "background"])
def test_a_closed_queue_delivers_nothing(delivery: Any) -> None:
    with Cloud(now=NOW) as cloud:
        queue = cloud.queue(delivery=delivery)
        route = queue.destinations.accept(DEST)
        message = queue.publish(DEST, delay="1h")
        queue.schedule(DEST, "* * * * *")
        queue.close()
        assert cloud.clock.next_due() is None
        cloud.clock.advance("2h")
        assert (route.deliveries, message.state) == ([], "pending")
        for use in (
            lambda: queue.publish(DEST),
            lambda: queue.schedule(DEST, "* * * * *"),
            queue.deliver_due,
            queue.run_until_idle,
            lambda: asyncio.run(queue.aio.run_until_idle()),
        ):
            with pytest.raises(ContractError, match="queue is closed: create another"):
                use()


def test_a_queue_closed_by_a_handler_takes_its_answer_and_ends(queue: Queue) -> None:
    queue.destinations.call(DEST, lambda request: queue.close() or 500)
    message = queue.publish(DEST)
    queue.publish(DEST)
    assert len(queue.deliver_due()) == 1
    assert message.attempts.only().status == 500
    assert queue.clock.next_due() is None


def test_messages_by_state_url_and_label(queue: Queue) -> None:
    queue.destinations.respond(DEST, 200)
    queue.destinations.respond(FAILURE, 500)
    ok = queue.publish(DEST, label="red")
    bad = queue.publish(FAILURE, retries=0, label="blue")
    later = queue.publish(DEST, delay="1h")
    gone = queue.publish(DEST, delay="1h")
    gone.cancel()
    queue.deliver_due()
    assert queue.messages(state="delivered") == [ok]
    assert queue.messages(state="dead_lettered") == queue.messages(state="FAILED") == [bad]
    assert queue.messages(state="pending") == queue.pending() == [later]
    assert queue.messages(state="cancelled") == [gone]
    assert queue.messages(url=FAILURE) == queue.messages(url="*failure") == [bad]
    assert queue.messages(url=re.compile("hook$")) == [ok, later, gone]
    assert queue.messages(label="red") == [ok]
    assert queue.messages(label=lambda text: text.startswith("b")) == [bad]


def test_callbacks_are_messages_about_another(queue: Queue) -> None:
    queue.destinations.accept()
    message = queue.publish(DEST, callback=CALLBACK)
    queue.run_until_idle()
    callback = message.callbacks.only()
    assert (callback.kind, callback.source) == ("callback", message)
    assert queue.messages(kind="message") == [message]
    assert queue.messages(kind="callback") == [callback]


def test_attempts(queue: Queue) -> None:
    queue.destinations.respond(DEST, 500, ConnectionResetError("gone"), 200)
    message = queue.publish(DEST)
    queue.run_until_idle()
    first, second, third = queue.attempts(message)
    assert [first.number, second.number, third.number] == [1, 2, 3]
    assert (first.at, first.waited, first.status, first.is_final) == (NOW, timedelta(0), 500, False)
    assert abs(second.waited - timedelta(seconds=12.182)) < timedelta(milliseconds=1)
    assert isinstance(second.exception, ConnectionResetError)
    assert (third.status, third.is_final, third.exception) == (200, True, None)
    assert queue.attempts(url="https://app.*") == queue.attempts() == message.attempts
    assert queue.attempts(url="https://elsewhere/") == []
    # The repr of an attempt includes the reason for its wait.
    assert repr(first) == f"<Attempt 1 {DEST} at 2026-01-01T00:00:00+00:00 -> 500>"
    assert "+00:00 after 0:00:12.182494 (backoff e^2.5) -> 500>" in repr(second)


def test_dead_letters(queue: Queue) -> None:
    queue.destinations.respond(DEST, (418, b"teapot"), 200)
    message = queue.publish(DEST, json={"n": 1}, retries=0)
    queue.deliver_due()
    letter = queue.dead_letters().only()
    assert (letter.url, letter.status, letter.response_body) == (DEST, 418, b"teapot")
    assert (letter.json(), letter.message, letter.at) == ({"n": 1}, message, NOW)
    assert letter.id == message.dlq_id
    assert queue.dead_letters(url=CALLBACK) == []
    again = letter.retry()
    assert again != message
    assert queue.dead_letters() == []
    queue.deliver_due()
    assert again.state == "delivered"


def test_schedules(queue: Queue) -> None:
    queue.destinations.accept()
    daily = queue.schedule(DEST, "CRON_TZ=Europe/Berlin 0 9 * * *", id="daily", body="x")
    assert [run.isoformat() for run in daily.next_runs(2)] == [
        "2026-01-01T08:00:00+00:00",
        "2026-01-02T08:00:00+00:00",
    ]
    assert (daily.cron, daily.url) == ("CRON_TZ=Europe/Berlin 0 9 * * *", DEST)
    assert (daily.paused, daily.last_run) == (False, None)
    fired = daily.fire().only()
    assert (fired.schedule_id, fired.body) == ("daily", b"x")
    assert daily.last_run == NOW
    queue.deliver_due()
    assert fired.state == "delivered"
    assert attempts_among(queue.clock.advance("8h")).only().at == after(8 * 3600)
    daily.delete()
    assert queue.schedules() == []
    assert queue.clock.advance("24h") == []
    for use in (daily.delete, daily.fire, daily.next_runs, lambda: daily.paused):
        with pytest.raises(ContractError, match=f"schedule {daily.id} is gone: deleted, or the"):
            use()


AS_PUBLISHED: dict[str, Any] = {
    "json": {"n": 1},
    "body": b"x",
    "headers": {"X-Tenant": "7"},
    "delay": "90s",
    "retries": 7,
    "callback": CALLBACK,
    "failure_callback": FAILURE,
    "queue": "line",
    "method": "PUT",
    "label": ["a", "b"],
    "timeout": "30s",
    "flow_control": {"key": "k", "parallelism": 2},
    "settings": {"Upstash-Retry-Delay": "1000"},
}


def test_every_shared_argument_of_messages_and_schedules_is_compared() -> None:
    assert set(AS_PUBLISHED) == set(MessageOptions.__annotations__)


@pytest.mark.parametrize("arguments", [(DEST,), (DEST, "* * * * *")])
def test_an_unknown_argument_is_rejected(queue: Queue, arguments: tuple[str, ...]) -> None:
    method: Any = queue.publish if len(arguments) == 1 else queue.schedule
    with pytest.raises(TypeError, match="unexpected keyword argument 'dealy'"):
        method(*arguments, dealy="5s")
    assert not queue.messages()
    assert not queue.schedules()


@pytest.mark.parametrize("name", AS_PUBLISHED)
def test_a_run_publishes_what_publish_publishes(queue: Queue, name: str) -> None:
    def aspects(message: PublishedMessage) -> object:
        record = message._record
        return record.settings, record.body, record.queue_name, record.not_before_us

    argument = {name: AS_PUBLISHED[name]}
    expected = aspects(queue.publish(DEST, **argument))
    assert aspects(queue.schedule(DEST, "0 9 * * *", **argument).fire().only()) == expected
    assert aspects(queue.publish(DEST)) != expected


def test_schedules_show_the_runs_that_became_due_without_a_delivering_call(queue: Queue) -> None:
    queue.schedule(DEST, "* * * * *")
    queue._timekeeper.spend_until(queue._timekeeper.now_us() + 60_000_000)
    assert queue.schedules().only().last_run == after(60)


def test_a_run_that_fails_leaves_its_reason_and_goes_on(queue: Queue) -> None:
    queue.load({"url_groups": {"news": [DEST]}})
    schedule = queue.schedule("news", "0 * * * *")
    queue.destinations.accept()
    queue.client().url_group.delete("news")
    queue.clock.advance("1h")
    assert schedule.error == "topic news not found"
    queue.load({"url_groups": {"news": [DEST]}})
    assert len(attempts_among(queue.clock.advance("1h"))) == 1
    assert schedule.error is None


def test_the_timeline_says_when_what_and_why(queue: Queue) -> None:
    queue.destinations.respond(DEST, 500, (429, b"", {"Retry-After": "90"}), Response.refuse(), 500)
    message = queue.publish(DEST, delay="1m", retries=3, settings={"Upstash-Retry-Delay": "5000"})
    assert message.timeline.splitlines()[-1] == "  due 00:01:00Z in 1 m (delay)"
    queue.run_until_idle()
    lines = [" ".join(line.split()) for line in message.timeline.splitlines()]
    assert lines[0] == f"{message.id} POST {DEST}"
    assert lines[1] == "2026-01-01 00:00:00.000 +0 s CREATED, delayed for 1 m"
    assert lines[2].endswith("+1 m ACTIVE attempt 1 after 1 m (delay) -> status 500 from respond")
    assert lines[3].endswith("RETRY in 5 s (retry delay 5000)")
    assert "attempt 2 after 5 s (retry delay 5000) -> status 429" in lines[4]
    assert lines[5].endswith("RETRY in 1 m 30 s (Retry-After: 90)")
    assert "-> failed: ConnectionRefusedError" in lines[6]
    assert lines[-1].endswith(f"FAILED destination answered 500 (dead letter {message.dlq_id})")


def test_attempts_are_in_the_journal(queue: Queue) -> None:
    queue.destinations.accept()
    message = queue.publish(DEST)
    queue.deliver_due()
    event = queue.journal.events("attempt", message_id=message.id).only()
    assert (event.data["url"], event.data["status"], event.at) == (DEST, 200, NOW)


def test_the_exception_of_a_handler_is_told_with_its_place(queue: Queue) -> None:
    def broken(request: DeliveredRequest) -> None:
        raise KeyError("customer")

    queue.destinations.call(DEST, broken)
    message = queue.publish(DEST, retries=0)
    queue.deliver_due()
    data = queue.journal.events("attempt").only().data
    assert re.fullmatch(
        r"the handler raised KeyError: 'customer' \(test_fake.py:\d+ in broken\)", data["note"]
    )
    assert 'raise KeyError("customer")' in data["traceback"]
    assert "status 500 from call, the handler raised KeyError: 'customer'" in message.timeline


def test_an_attempt_in_the_journal_says_why_no_answer_came_and_what_was_done(queue: Queue) -> None:
    queue.destinations.refuse(DEST)
    queue.faults.duplicate()
    queue.faults.unsigned()
    queue.publish(DEST, retries=0)
    queue.deliver_due()
    data = queue.journal.events("attempt").only().data
    assert data["note"].startswith("ConnectionRefusedError: https://")
    assert data["fault"] == "duplicate, unsigned"
    queue.destinations.accept(DEST)
    queue.faults.clear()
    queue.publish(DEST)
    queue.deliver_due()
    plain = queue.journal.events("attempt").last.data
    assert (plain["note"], plain["fault"], plain["traceback"]) == (None, None, None)


def test_assertions_return_what_matched(queue: Queue) -> None:
    queue.destinations.accept()
    message = queue.publish(DEST, json={"n": 1}, headers={"X-A": "b"}, label="l", callback=CALLBACK)
    assert queue.assert_published(DEST, json={"n": 1}, headers={"x-a": "b"}, times=1) == [message]
    assert queue.assert_published(label="l", method="POST", body=b'{"n": 1}') == [message]
    queue.assert_published(json=lambda value: value["n"] == 1)
    queue.assert_delivered(times=0)
    queue.run_until_idle()
    assert queue.assert_delivered(DEST, json={"n": 1}, times=1) == [message]
    assert queue.assert_delivered(CALLBACK).only().kind == "callback"
    queue.assert_dead_lettered(times=0)
    # Callbacks are published by the queue, not by the application.
    queue.assert_published(times=1)
    queue.assert_not_published(CALLBACK)
    queue.assert_idle()


def test_a_failed_assertion_shows_the_nearest_and_why(queue: Queue) -> None:
    queue.destinations.respond(DEST, 500)
    queue.publish(DEST, json={"user": {"name": "ada", "tags": [1, 2]}, "n": 1})
    queue.publish("https://far.example.com/", json={"other": True})
    queue.deliver_due()
    with pytest.raises(AssertionError) as caught:
        queue.assert_published(DEST, json={"user": {"name": "bob", "tags": [1, 3]}, "n": 1})
    text = str(caught.value)
    first = text.index(": json.user.name is 'ada', not 'bob'")
    assert "json.user.tags[1] is 2, not 3" in text
    assert first < text.index("url is 'https://far.example.com/'")
    assert "ACTIVE  attempt 1" in text
    with pytest.raises(AssertionError, match="state is 'pending', not 'delivered'"):
        queue.assert_delivered(DEST)
    with pytest.raises(AssertionError, match=r"to be published url=.* never, found 1"):
        queue.assert_published(DEST, times=0)
    with pytest.raises(AssertionError, match=r"2 times, found 1"):
        queue.assert_published(DEST, times=2)
    with pytest.raises(AssertionError, match="the queue is not idle: 2 undelivered"):
        queue.assert_idle()


def test_assertions_never_drive(queue: Queue) -> None:
    queue.destinations.accept()
    queue.publish(DEST)
    with pytest.raises(AssertionError, match="due now, but not delivered yet"):
        queue.assert_delivered(DEST)
    assert queue.attempts() == []


def test_an_assertion_without_any_message(queue: Queue) -> None:
    with pytest.raises(AssertionError, match="the queue has no messages"):
        queue.assert_published()
    queue.schedule(DEST, "0 6 * * *")
    queue.run_until_idle()
    with pytest.raises(AssertionError, match="its next schedule runs at 2026-01-01T06:00:00"):
        queue.assert_delivered()


def test_driving_returns_the_attempts_and_what_is_left(queue: Queue) -> None:
    queue.destinations.respond(DEST, 500, 200)
    message = queue.publish(DEST)
    assert queue.deliver_due().only().status == 500
    first = queue.run_until_idle()
    assert (first.only().at - NOW).total_seconds() == pytest.approx(12.182, abs=0.001)
    assert first.waiting == "nothing"
    queue.publish(DEST, delay="1d")
    left = queue.deliver_due()
    assert left == []
    assert left.waiting.startswith("1 undelivered message:")
    assert "(delay)" in left.waiting
    assert message.state == "delivered"


def test_waiting_describes_the_first_of_many_messages(queue: Queue) -> None:
    """Every delivering call builds this text, so its cost must not grow with the number of messages."""
    for number in range(450):
        if number == 5:
            assert len(queue.deliver_due().waiting.splitlines()) == 6
        queue.publish("https://app.example.com", delay=3600 + number)
    lines = queue.deliver_due().waiting.splitlines()
    assert lines[0] == "450 undelivered messages:"
    assert lines[6:] == ["  and 45 more", "  of the first 50; 400 are behind them"]
    assert len(lines) == 8


def test_running_until_idle_moves_no_further_than_needed(queue: Queue) -> None:
    queue.destinations.accept()
    queue.publish(DEST, delay="1d")
    queue.schedule(DEST, "0 0 * * *")
    attempts = queue.run_until_idle()
    # The schedule runs on the way, and does not prevent the queue from being idle.
    assert len(attempts) == 2
    assert queue.clock.now() == after(86_400)


def test_running_until_idle_on_a_running_clock() -> None:
    with Queue(Context.alone(now=NOW, clock="running")) as queue:
        queue.destinations.respond(DEST, *[500] * 12, 200)
        for expression in ("0", "retried", "1000 * retried"):
            queue.publish(DEST, retries=20, settings={"Upstash-Retry-Delay": expression})
        attempts = queue.run_until_idle()
        assert len(attempts) == 15
        assert attempts.waiting == "nothing"
        with pytest.raises(ContractError, match="time cannot go back"):
            queue.clock.move_to("2025-01-01T00:00:00Z")


def test_running_until_idle_has_an_end(queue: Queue) -> None:
    queue.publish(DEST, delay="40d")
    with pytest.raises(NotIdleError, match=r"after '30d': the next message is due at 2026-02-10T"):
        queue.run_until_idle()
    assert queue.clock.now() == NOW
    queue.destinations.accept()
    assert len(queue.run_until_idle(within="41d")) == 1


def test_running_until_idle_does_not_count_the_time_of_deliveries() -> None:
    with Cloud(delivery="driven") as cloud:
        queue = cloud.queue()
        queue.destinations.accept()

        def answer(request: object) -> None:
            queue.publish(DEST, delay="30d")

        queue.destinations.call("https://app.example.com/first", answer)
        queue.publish("https://app.example.com/first")
        assert len(queue.run_until_idle()) == 2


def test_another_queue_of_the_cloud_does_not_keep_it_from_ending() -> None:
    with Cloud(now=NOW, delivery="driven") as cloud:
        queue, other = cloud.queue(), cloud.queue()
        queue.load({"queues": {"paused": {"paused": True}}})
        held = queue.publish(DEST, queue="paused")
        far = other.publish(DEST, delay="60d")
        other.destinations.accept()
        assert "paused" in queue.run_until_idle().waiting
        assert cloud.clock.now() == NOW
        assert (held.state, far.state) == ("pending", "pending")
        held.cancel()
        # Other queues' messages are delivered on the way but are not in the result.
        other.publish(DEST, delay="1m")
        queue.destinations.accept()
        later = queue.publish(DEST, delay="2m")
        assert [attempt.message_id for attempt in queue.run_until_idle()] == [later.id]
        assert len(other.attempts()) == 1


def test_waiting_describes_a_paused_queue(queue: Queue) -> None:
    queue.load({"queues": {"orders": {"paused": True}}})
    queue.publish(DEST, queue="orders")
    left = queue.run_until_idle()
    assert left == []
    assert "waits: queue orders is paused" in left.waiting


@pytest.mark.parametrize("kind", [LookupError, StopIteration])
def test_a_handler_may_raise_out_of_the_driving_call(kind: type[Exception]) -> None:
    with Queue(Context.alone(now=NOW), raise_exceptions=True) as queue:

        def handler(request: object) -> int:
            raise kind("broken")

        queue.destinations.call(DEST, handler)
        message = queue.publish(DEST)
        with pytest.raises(kind, match="broken"):
            queue.deliver_due()
        assert message.attempts.only().status == 500
        assert message.state == "pending"


def test_a_failure_in_a_background_handler_fails_the_test_and_deliveries_go_on() -> None:
    with Cloud(clock="frozen") as cloud:
        queue, capture = cloud.queue(), cloud.callback_capture()
        queue.destinations.call(DEST, lambda request: pytest.fail("not expected"))
        # A failure on a background thread cannot reach the test directly, so it becomes a violation.
        failed = queue.publish(DEST, retries=0, callback=capture.callback_url)
        capture.wait_for_callback()
        assert failed.attempts.only().state == "failed"
        violation = cloud.violations().only()
        assert violation.kind == "assertion"
        assert violation.text.startswith(
            f"queue: {DEST}: a callback of the test raised Failed: not expected ("
        )
        assert isinstance(violation.exception, pytest.fail.Exception)
        # In a driving call, the failure is raised.
        queue.publish(DEST, delay="1m", retries=0)
        with pytest.raises(pytest.fail.Exception):
            queue.clock.advance("1m")
        queue.destinations.accept(CALLBACK)
        queue.publish(CALLBACK, callback=capture.callback_url)
        capture.wait_for_callback()


@pytest.mark.parametrize("delivery", ["driven", "background"])
def test_an_invalid_answer_is_not_a_failed_delivery(delivery: Any) -> None:
    with Cloud(now=NOW) as cloud:
        queue = cloud.queue(delivery=delivery)
        queue.destinations.call(DEST, lambda request: 1.5)
        message = queue.publish(DEST, delay="1m")
        if delivery == "driven":
            with pytest.raises(ContractError, match=r"1\.5 is not a response"):
                queue.clock.advance("1m")
            assert cloud.violations() == []
        else:
            queue.clock.advance("1m")
            assert "ContractError: 1.5 is not a response" in cloud.violations().only().text
        assert isinstance(message.attempts.only().exception, ContractError)


def test_a_clock_moved_by_a_background_handler_is_told() -> None:
    with Cloud(clock="frozen") as cloud:
        queue, capture = cloud.queue(), cloud.callback_capture()
        queue.destinations.call(DEST, lambda request: queue.clock.advance("1h"))
        queue.publish(DEST, retries=0, callback=capture.callback_url)
        assert capture.wait_for_callback().status == 500
        assert "the clock is already being advanced" in cloud.violations().only().text


def test_the_clock_drives_as_well(queue: Queue) -> None:
    queue.destinations.accept()
    message = queue.publish(DEST, delay="1h")
    queue.clock.advance("1h")
    assert message.state == "delivered"
    queue.publish(DEST, delay="1h")
    moved = attempts_among(queue.clock.move_to("2026-01-01T02:00:00Z"))
    assert moved.only().at == after(7200)


def test_awaitable_forms() -> None:
    async def whole() -> list[int | None]:
        with Queue(Context.alone(now=NOW)) as queue:
            seen: list[object] = []

            async def handler(request: object) -> int:
                seen.append(asyncio.get_running_loop())
                await asyncio.sleep(0)
                return 500 if len(seen) < 3 else 200

            queue.destinations.call(DEST, handler)
            queue.publish(DEST)
            statuses = [attempt.status for attempt in await queue.aio.deliver_due()]
            fired = await queue.clock.aio.advance("13s")
            statuses += [attempt.status for attempt in attempts_among(fired)]
            statuses += [attempt.status for attempt in await queue.aio.run_until_idle()]
            queue.publish(DEST, delay="1h")
            fired = await queue.clock.aio.move_to("2026-01-02T00:00:00Z")
            statuses += [attempt.status for attempt in attempts_among(fired)]
            assert set(seen) == {asyncio.get_running_loop()}
            return statuses

    assert asyncio.run(whole()) == [500, 500, 200, 200]


def test_the_queue_stands_still_without_driving() -> None:
    with Queue(Context.alone(now=NOW, clock="running")) as queue:
        queue.destinations.accept()
        message = queue.publish(DEST)
        assert message.state == "pending"
        assert queue.messages(state="pending") == [message]


def test_cancelling_by_hand(queue: Queue) -> None:
    message = queue.publish(DEST)
    assert queue.message(message.id).cancel() == 1
    assert message.state == "cancelled"
    assert message.cancel() == 0
    delivered = queue.publish(DEST)
    queue.destinations.accept(DEST)
    queue.run_until_idle()
    assert delivered.cancel() == 0
    queue.reset()
    with pytest.raises(
        ContractError, match=f"message {delivered._id} is gone: the queue was reset"
    ):
        delivered.cancel()


def test_rotating_keys(queue: Queue) -> None:
    following = queue.next_signing_key
    current, new = queue.rotate_keys()
    assert current == queue.current_signing_key == following
    assert new == queue.next_signing_key != following


def test_loading_into_a_closed_queue(queue: Queue) -> None:
    queue.close()
    for data in ({"url_groups": {"g": [DEST]}}, {"queues": {"q": {}}}):
        with pytest.raises(ContractError, match="queue is closed"):
            queue.load(data)


@pytest.mark.parametrize("cap", [float("inf"), 1e10, 10**400])
def test_a_cap_that_nobody_can_wait_for(cap: Any) -> None:
    async def handler(request: DeliveredRequest) -> int:
        await asyncio.sleep(0)
        return 200

    with Cloud(now=NOW, delivery="driven") as cloud:
        queue, destination = cloud.queue(attempt_cap=cap), cloud.destination()
        destination.server.expect_request("/hook").respond_with_data("")
        queue.destinations.call(DEST, handler)
        for url in (DEST, f"{destination.url}/hook"):
            queue.publish(url)
        assert [attempt.status for attempt in queue.run_until_idle()] == [200, 200]


def test_the_dead_letter_of_a_message(queue: Queue) -> None:
    queue.destinations.respond(DEST, 500, 200)
    message = queue.publish(DEST, retries=0)
    queue.run_until_idle()
    again = queue.dead_letters(message=message).only().retry()
    assert queue.dead_letters() == []
    queue.run_until_idle()
    assert again.state == "delivered"


@pytest.mark.parametrize("end", ["retry", "delete", "reset", "expire"])
def test_a_dead_letter_is_retried_or_deleted_once(queue: Queue, end: str) -> None:
    queue.destinations.respond(DEST, 500)
    message = queue.publish(DEST, retries=0)
    queue.deliver_due()
    letter = queue.dead_letters().only()
    if end == "reset":
        queue.reset()
    elif end == "expire":
        queue.clock.advance("8d")
    else:
        getattr(letter, end)()
        assert message.state == "dead_lettered"
    assert queue.dead_letters() == []
    for again in (letter.retry, letter.delete):
        with pytest.raises(ContractError, match=f"dead letter {letter.id} is gone: it was retried"):
            again()


def test_an_error_of_the_service_at_a_retry_is_what_a_client_would_receive() -> None:
    limits = {"daily_messages": 1}
    with Queue(Context.alone(now=NOW), limits=limits) as queue:
        queue.destinations.respond(DEST, 500)
        queue.publish(DEST, retries=0)
        queue.deliver_due()
        letter = queue.dead_letters().only()
        with pytest.raises(QueueError, match="Exceeded daily rate limit"):
            letter.retry()
        assert queue.dead_letters().only().id == letter.id
