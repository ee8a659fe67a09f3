"""Test publishing: duplicates, destinations, schedules, callbacks and retried dead letters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from pytest_fakecloud.queue.engine.publishing import Published
from pytest_fakecloud.queue.errors import RUN_EXISTS, LoopError, QueueError
from pytest_fakecloud.queue.model import SECOND, Delivery, Message, Outcome, first
from pytest_fakecloud.queue.workflow.model import WorkflowRun

from .bench import CALLBACK, URL, Bench

FAILURE = "https://app.example.com/failure"
OTHER = "https://other.example.com/"


def sent(headers: dict[str, str]) -> list[tuple[str, str]]:
    return [(f"Upstash-{name.replace('_', '-')}", value) for name, value in headers.items()]


def publish(
    bench: Bench, url: str = URL, body: bytes = b"x", api: Any = "v2", **headers: str
) -> Published:
    return bench.engine.publisher.publish(url, sent(headers), body, api=api)


def group(bench: Bench, name: str, *urls: str) -> None:
    bench.engine.url_groups.add_all(name, [(url, None) for url in urls])


def test_many_deduplication_ids_expire_after_ten_minutes(bench: Bench) -> None:
    ids = [f"id-{number}" for number in range(100)]
    # The ids that are published first afterwards have expired, but are not forgotten yet.
    for those in (ids, ids[::-1]):
        assert [
            publish(bench, Deduplication_Id=deduplication_id).duplicate
            for deduplication_id in those
        ] == [False] * 100
        bench.clock.advance("10m")
    # Each publish forgets some of the expired ids.
    for _ in range(3):
        publish(bench)
    assert bench.engine.deduplication.keys == {}


def test_a_message_has_the_fields_of_its_group(bench: Bench) -> None:
    group(bench, "g", URL)
    (endpoint,) = bench.engine.url_groups.get("g").endpoints
    endpoint.name = "first"
    for _ in range(2):
        (accepted,) = publish(bench, "g", Retries="0").accepted
        message = bench.engine.data.messages[accepted.message_id]
        fields = (message.topic_name, message.endpoint_name, message.url)
        assert fields == ("g", "first", URL)
        assert (message.kind, message.api) == ("message", "v2")


class Steps:
    """Lets an engine accept ``most`` steps, and begin a run with each of them."""

    def __init__(self, bench: Bench, most: int = 1) -> None:
        self.bench, self.most = bench, most
        self.workflow = bench.engine.workflow
        self.workflow.accept = self.accept  # type: ignore[method-assign]

    @property
    def accepted(self) -> list[tuple[str, int]]:
        runs = self.workflow.runs.values()
        return [(run.id, run.created_us - self.bench.start_us) for run in runs]

    def accept(self, message: Message, at_us: int) -> None:
        runs = self.workflow.runs
        if len(runs) == self.most:
            raise QueueError(400, "the run has ended")
        runs[message.id] = WorkflowRun(message.id, URL, at_us, message.id, message.settings)


def test_one_refused_step_refuses_all_steps_of_a_request(bench: Bench) -> None:
    steps = Steps(bench)
    group(bench, "g", URL, OTHER)
    with pytest.raises(QueueError, match="the run has ended"):
        publish(bench, "g", Workflow_RunId="r")
    assert (steps.accepted, bench.engine.data.messages) == ([], {})
    steps.most = 2
    bench.clock.advance("3s")
    ids = [message.message_id for message in publish(bench, "g", Workflow_RunId="r").accepted]
    assert steps.accepted == [(message_id, 3 * SECOND) for message_id in ids]


@pytest.mark.parametrize("refuses", [True, False])
def test_a_callback_that_a_workflow_refuses_is_told_in_its_source(
    bench: Bench, refuses: bool
) -> None:
    steps = Steps(bench, most=0 if refuses else 1)
    message_id = bench.publish(Delay="1s", Callback=CALLBACK, Callback_Workflow_RunId="r")
    bench.clock.advance("1s")
    source = bench.engine.data.messages[message_id]
    assert list(source.lost_callbacks) == (["the run has ended"] if refuses else [])
    assert source.open_children == 0
    assert [delivery.url for delivery in bench.sent] == ([URL] if refuses else [URL, CALLBACK])
    assert [at for _, at in steps.accepted] == ([] if refuses else [SECOND])


def test_a_callback_that_starts_a_run_in_progress_is_not_published(bench: Bench) -> None:
    run = {"Workflow_RunId": "r", "Workflow_Init": "true"}
    bench.publish(OTHER, **run)
    again = {f"Callback_{name}": value for name, value in run.items()}
    message_id = bench.publish(**again, Callback=CALLBACK)
    bench.clock.advance(0)
    assert [delivery.url for delivery in bench.sent] == [OTHER, URL]
    source = bench.engine.data.messages[message_id]
    assert (list(source.lost_callbacks), source.open_children) == ([RUN_EXISTS], 0)


def test_settings_of_a_schedule(bench: Bench) -> None:
    headers = [("Upstash-Cron", "@hourly"), ("X-Plain", "p")]
    made = bench.engine.publisher.publish(
        URL, headers, b"body", query=[("upstash-retries", "1")], caller_ip="192.0.2.7", api="v1"
    )
    schedule = bench.engine.schedules.get(str(made.schedule_id))
    assert (schedule.destination, schedule.body) == (URL, b"body")
    assert (schedule.caller_ip, schedule.api) == ("192.0.2.7", "v1")
    assert schedule.sent == [*headers, ("upstash-retries", "1")]
    (message_id,) = bench.engine.schedules.run_now(schedule.id)
    message = bench.engine.data.messages[message_id]
    assert (message.caller_ip, message.api, message.max_retries) == ("192.0.2.7", "v1", 1)


def test_the_messages_of_a_run_of_v1_have_ids_of_their_own(bench: Bench) -> None:
    group(bench, "g", URL, OTHER)
    schedule_id = publish(bench, "g", api="v1", Cron="@hourly").schedule_id
    for message_id in bench.engine.schedules.run_now(str(schedule_id)):
        assert bench.engine.data.messages[message_id].public_id == message_id


def test_a_run_is_checked_against_the_defaults_of_its_group_at_its_instant() -> None:
    bench = Bench(limits={"delay_us": 60 * SECOND})
    group(bench, "g", URL)
    bench.engine.url_groups.get("g").headers = [("Upstash-Delay", "10s")]
    made = bench.engine.publisher.publish("g", sent({"Cron": "@hourly"}), b"x", queue_name="line")
    schedule = bench.engine.schedules.get(str(made.schedule_id))
    (message_id,) = bench.engine.schedules.run_now(schedule.id)
    message = bench.engine.data.messages[message_id]
    assert (message.settings.delay_us, message.queue_name) == (10 * SECOND, "line")
    bench.engine.url_groups.get("g").headers = [("Upstash-Delay", "2m")]
    assert bench.engine.schedules.run_now(schedule.id) == []
    late = "quota maxDelay exceeded, current limit: 60"
    assert schedule.error == late
    for second, error in ((60, None), (61, late)):
        end = bench.clock.now_us() // SECOND + second
        bench.engine.url_groups.get("g").headers = [("Upstash-Not-Before", str(end))]
        bench.engine.schedules.run_now(schedule.id)
        assert schedule.error == error


def test_a_callback_is_a_message_of_the_same_caller(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(200 if delivery.url == CALLBACK else 500)
    bench.engine.publisher.publish(
        URL,
        sent({"Callback": CALLBACK, "Callback_Forward_X_A": "1", "Retries": "0",
              "Failure_Callback": FAILURE, "Failure_Callback_Retries": "7"}),
        b"x",
        caller_ip="192.0.2.7",
    )  # fmt: skip
    bench.clock.advance(0)
    source, callback, failure = bench.engine.data.messages.values()
    assert [message.kind for message in (source, callback, failure)] == [
        "message",
        "callback",
        "failure_callback",
    ]
    assert {message.caller_ip for message in (source, callback, failure)} == {"192.0.2.7"}
    assert {message.source_id for message in (callback, failure)} == {source.id}
    assert (callback.max_retries, failure.max_retries) == (0, 7)
    assert callback.settings.retries == 0
    delivered = next(delivery for delivery in bench.sent if delivery.url == CALLBACK)
    assert first(delivered.headers, "Content-Type") == "application/json"
    assert first(delivered.headers, "X-A") == "1"
    assert source.open_children == 1
    # The failure callback has no settings of its own, so the defaults apply.
    assert failure.settings.method == "POST"


def test_the_queue_of_a_callback_begins_with_it(bench: Bench) -> None:
    publish(bench, Callback=CALLBACK, Callback_Queue_Name="q", Delay="9s")
    bench.clock.advance("9s")
    assert bench.engine.queues.get("q").created_us == bench.start_us + 9 * SECOND
    publish(bench, Queue_Name="r")
    assert bench.engine.queues.get("r").created_us == bench.start_us + 9 * SECOND


def looping(bench: Bench, took_us: int) -> None:
    """Make each callback publish another message with a callback."""

    def answer(delivery: Delivery) -> Outcome:
        if delivery.url == CALLBACK:
            publish(bench, Callback=CALLBACK)
        return Outcome(200, virtual_us=took_us)

    bench.answer = answer
    publish(bench, Callback=CALLBACK)


def test_callbacks_at_one_instant_are_a_loop() -> None:
    bench = Bench(loop_limit=20)
    looping(bench, 0)
    with pytest.raises(LoopError, match="20 deliveries caused each other at the same time"):
        bench.clock.advance(0)
    assert len(bench.sent) == 21


def test_the_cause_of_a_callback_is_certain() -> None:
    bench = Bench(loop_limit=5)
    bench.engine.data.in_background = True
    reports = bench.reports
    looping(bench, SECOND)
    bench.clock.advance("10m")
    assert ["50 deliveries caused each other in one call" in text for text in reports] == [True]


def given_up(bench: Bench, url: str = URL, api: Any = "v2", **headers: str) -> Message:
    bench.answer = lambda delivery: Outcome(500)
    pairs = sent({"Retries": "0"} | headers)
    made = bench.engine.publisher.publish(url, pairs, b"x", api=api, caller_ip="192.0.2.7")
    bench.clock.advance(0)
    return bench.engine.data.messages[made.accepted[0].message_id]


def retried(bench: Bench, messages: Iterable[Message], *pairs: tuple[str, str]) -> list[Message]:
    accepted = bench.engine.publisher.retry_dead_letters(messages, pairs)
    return [bench.engine.data.messages[message.message_id] for message in accepted]


def test_a_dead_letter_is_published_anew_as_what_it_was(bench: Bench) -> None:
    group(bench, "g", URL)
    endpoint = next(iter(bench.engine.url_groups.get("g").endpoints))
    endpoint.name = "first"
    message = given_up(bench, "g", Forward_X_A="1", Label="red")
    message.schedule_id = "s"
    (again,) = retried(bench, [message])
    assert again.id != message.id
    assert again.retry_of == message.id
    for name in (
        "url", "body", "settings", "max_retries", "caller_ip", "kind", "api", "topic_name",
        "endpoint_name", "schedule_id",
    ):  # fmt: skip
        assert getattr(again, name) == getattr(message, name), name


def test_retries_that_were_not_asked_for_stay_what_they_were(bench: Bench) -> None:
    message = given_up(bench)
    message.settings = type(message.settings)()
    message.max_retries = 9
    (again,) = retried(bench, [message])
    assert (again.max_retries, again.settings.retries) == (9, 9)


def test_every_callback_that_was_not_published_is_told() -> None:
    bench = Bench(limits={"queues": 0})
    bench.answer = lambda delivery: Outcome(500)
    in_queues = {"Callback_Queue_Name": "q", "Failure_Callback_Queue_Name": "f"}
    message_id = bench.publish(
        **in_queues, Retries="0", Callback=CALLBACK, Failure_Callback=FAILURE
    )
    bench.clock.advance(0)
    first, second = bench.engine.data.messages[message_id].lost_callbacks
    assert "maxQueues" in first
    assert first == second
    assert [delivery.url for delivery in bench.sent] == [URL]
