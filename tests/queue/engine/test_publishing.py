"""Test publishing: duplicates, destinations, schedules, callbacks and retried dead letters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from pytest_fakecloud.queue.engine.publishing import Accepted, Published
from pytest_fakecloud.queue.errors import LoopError, QueueError
from pytest_fakecloud.queue.model import SECOND, Delivery, Message, Outcome, first
from pytest_fakecloud.queue.workflow.model import WorkflowRun
from pytest_fakecloud.queue.workflow.runs import WorkflowRuns

from .bench import CALLBACK, URL, Bench

FAILURE = "https://app.example.com/failure"
OTHER = "https://other.example.com/"


def sent(headers: dict[str, str]) -> list[tuple[str, str]]:
    return [(f"Upstash-{name.replace('_', '-')}", value) for name, value in headers.items()]


def publish(
    bench: Bench, url: str = URL, body: bytes = b"x", api: Any = "v2", **headers: str
) -> Published:
    return bench.engine.publish(url, sent(headers), body, api=api)


def group(bench: Bench, name: str, *urls: str) -> None:
    bench.engine.url_groups.add_all(name, [(url, None) for url in urls], 0)


@pytest.mark.parametrize(
    "headers", [{"Deduplication_Id": "once"}, {"Content_Based_Deduplication": "true"}]
)
def test_a_duplicate_is_answered_with_the_first_and_not_stored(
    bench: Bench, headers: dict[str, str]
) -> None:
    first_one = publish(bench, **headers)
    assert not first_one.duplicate
    again = publish(bench, **headers)
    assert again.accepted == [Accepted(first_one.accepted[0].message_id, URL, True)]
    assert again.duplicate
    assert len(bench.engine.messages) == 1


def test_a_duplicate_is_known_for_ten_minutes_from_the_first(bench: Bench) -> None:
    for second, duplicate in ((0, False), (300, True), (599, True), (600, False), (1199, True)):
        bench.clock.advance(second - bench_seconds(bench))
        assert publish(bench, Deduplication_Id="once").duplicate is duplicate


def bench_seconds(bench: Bench) -> int:
    return (bench.clock.now_us() - bench.start_us) // SECOND


def test_many_deduplication_ids_expire_after_ten_minutes(bench: Bench) -> None:
    ids = [f"id-{number}" for number in range(100)]
    for _ in range(2):
        assert [publish(bench, Deduplication_Id=one).duplicate for one in ids] == [False] * 100
        bench.clock.advance("10m")
    # Each publish forgets some of the expired ids.
    for _ in range(3):
        publish(bench)
    assert bench.engine.deduplication.seen == {}


@pytest.mark.parametrize(
    "other",
    [
        {"url": OTHER},
        {"body": b"y"},
        {"Content_Type": "text/plain"},
        {"Forward_X_A": "1"},
        {"Forward_X_A": "1", "Forward_X_B": "3"},
    ],
)
def test_contents_are_alike_when_all_parts_are(bench: Bench, other: dict[str, Any]) -> None:
    def duplicate(url: str = URL, body: bytes = b"x", **headers: str) -> bool:
        pairs = sent({"Content_Based_Deduplication": "true"} | headers)
        pairs = [(name.replace("Upstash-Content-Type", "Content-Type"), v) for name, v in pairs]
        return bench.engine.publish(url, pairs, body).duplicate

    plain = {"Forward_X_A": "1", "Forward_X_B": "2"}
    assert duplicate(**plain) is False
    # Headers are compared without regard to order and case.
    assert duplicate(Forward_X_B="2", Forward_x_a="1") is True
    assert duplicate(**({} if "Forward_X_A" in other else plain) | other) is False
    assert duplicate(**plain) is True


def test_parts_of_contents_do_not_run_into_each_other(bench: Bench) -> None:
    found = [
        bench.engine.publish(
            url, [("Upstash-Content-Based-Deduplication", "true"), ("Content-Type", kind)], b"x"
        ).duplicate
        for url, kind in ((f"{URL}/a", "b"), (f"{URL}/", "ab"), (f"{URL}/a", "b"))
    ]
    assert found == [False, False, True]


def test_contents_may_have_half_a_character(bench: Bench) -> None:
    headers = {"Content_Based_Deduplication": "true", "Forward_X_A": "\ud83d"}
    assert [publish(bench, **headers).duplicate for _ in range(2)] == [False, True]


def test_each_endpoint_of_a_group_is_a_duplicate_by_itself(bench: Bench) -> None:
    group(bench, "g", URL, OTHER)
    found = publish(bench, "g", Deduplication_Id="once").accepted
    assert [one.deduplicated for one in found] == [False, False]
    group(bench, "g", FAILURE)
    again = publish(bench, "g", Deduplication_Id="once")
    assert [(one.url, one.deduplicated) for one in again.accepted] == [
        (URL, True),
        (OTHER, True),
        (FAILURE, False),
    ]
    assert not again.duplicate
    # A message sent directly to the URL is not a duplicate of one sent to the group.
    assert not publish(bench, Deduplication_Id="once").duplicate


def test_contents_for_two_groups_are_two_contents(bench: Bench) -> None:
    for name in ("g", "h"):
        group(bench, name, URL)
        assert not publish(bench, name, Content_Based_Deduplication="true").duplicate
    assert not publish(bench, Content_Based_Deduplication="true").duplicate


def test_a_duplicate_takes_no_room_of_the_day() -> None:
    bench = Bench(limits={"daily_messages": 2})
    publish(bench, Deduplication_Id="once")
    publish(bench)
    assert publish(bench, Deduplication_Id="once").duplicate
    with pytest.raises(QueueError, match="daily"):
        publish(bench, Deduplication_Id="twice")


def test_schedules_are_duplicates_by_destination_and_content(bench: Bench) -> None:
    def made(url: str = URL, body: bytes = b"x", **headers: str) -> tuple[str | None, bool]:
        found = publish(bench, url, body, Cron="@hourly", **headers)
        return found.schedule_id, found.duplicate

    content = {"Content_Based_Deduplication": "true"}
    one, repeated = made(**content)
    assert not repeated
    assert made(**content) == (one, True)
    assert made(OTHER, **content)[1] is False
    assert made(body=b"y", **content)[1] is False
    # A deduplication id applies regardless of the schedule's destination.
    once = {"Deduplication_Id": "once"}
    by_id, _ = made(**once)
    assert made(OTHER, b"y", **once) == (by_id, True)


def test_a_duplicate_is_not_known_any_more_even_where_it_was_not_forgotten(bench: Bench) -> None:
    ids = [f"id-{number}" for number in range(200)]
    for one in ids:
        publish(bench, Deduplication_Id=one)
    bench.clock.advance("10m")
    assert not publish(bench, Deduplication_Id=ids[-1]).duplicate


def test_a_message_has_the_fields_of_its_group(bench: Bench) -> None:
    group(bench, "g", URL)
    (endpoint,) = bench.engine.url_groups.get("g").endpoints
    endpoint.name = "first"
    for _ in range(2):
        (accepted,) = publish(bench, "g", Retries="0").accepted
        message = bench.engine.messages[accepted.message_id]
        known = (message.topic_name, message.endpoint_name, message.url)
        assert known == ("g", "first", URL)
        assert (message.kind, message.api) == ("message", "v2")


def test_default_headers_of_a_group_are_read_as_if_they_had_been_sent(bench: Bench) -> None:
    group(bench, "g", URL)
    defaults = [("Upstash-Retries", "1"), ("Upstash-Delay", "9s")]
    bench.engine.url_groups.get("g").headers = defaults
    message = bench.engine.messages[publish(bench, "g", Delay="5s").accepted[0].message_id]
    assert (message.max_retries, message.settings.delay_us) == (1, 5 * SECOND)
    # Default headers apply to messages to the group, not to its URLs.
    message = bench.engine.messages[publish(bench).accepted[0].message_id]
    assert (message.max_retries, message.settings.delay_us) == (3, 0)


class Steps(WorkflowRuns):
    """Workflow runs that accept ``most`` steps, and begin a run with each of them."""

    def __init__(self, bench: Bench, most: int = 1) -> None:
        super().__init__(bench.engine)
        self.bench, self.most = bench, most

    @property
    def accepted(self) -> list[tuple[str, int]]:
        return [(run.id, run.created_us - self.bench.start_us) for run in self.runs.values()]

    def accept(self, message: Message, at_us: int) -> None:
        if len(self.runs) == self.most:
            raise QueueError(400, "the run has ended")
        self.runs[message.id] = WorkflowRun(message.id, URL, at_us, message.id, message.settings)


def test_one_refused_step_refuses_all_steps_of_a_request(bench: Bench) -> None:
    steps = Steps(bench)
    bench.engine.workflow = steps
    group(bench, "g", URL, OTHER)
    with pytest.raises(QueueError, match="the run has ended"):
        publish(bench, "g", Workflow_RunId="r")
    assert (steps.accepted, bench.engine.messages) == ([], {})
    steps.most = 2
    bench.clock.advance("3s")
    ids = [one.message_id for one in publish(bench, "g", Workflow_RunId="r").accepted]
    assert steps.accepted == [(one, 3 * SECOND) for one in ids]


@pytest.mark.parametrize("refuses", [True, False])
def test_a_callback_that_a_workflow_refuses_is_told_in_its_source(
    bench: Bench, refuses: bool
) -> None:
    steps = Steps(bench, most=0 if refuses else 1)
    bench.engine.workflow = steps
    message_id = bench.publish(Delay="1s", Callback=CALLBACK, Callback_Workflow_RunId="r")
    bench.clock.advance("1s")
    source = bench.engine.messages[message_id]
    assert list(source.lost_callbacks) == (["the run has ended"] if refuses else [])
    assert source.open_children == 0
    assert [one.url for one in bench.sent] == ([URL] if refuses else [URL, CALLBACK])
    assert [at for _, at in steps.accepted] == ([] if refuses else [SECOND])


def test_a_callback_that_repeats_a_message_is_not_published(bench: Bench) -> None:
    run = {"Workflow_RunId": "r", "Workflow_Init": "true"}
    bench.publish(OTHER, **run)
    again = {f"Callback_{name}": value for name, value in run.items()}
    message_id = bench.publish(**again, Callback=CALLBACK)
    bench.clock.advance(0)
    assert [one.url for one in bench.sent] == [OTHER, URL]
    source = bench.engine.messages[message_id]
    assert (list(source.lost_callbacks), source.open_children) == ([], 0)


def test_settings_of_a_schedule(bench: Bench) -> None:
    headers = [("Upstash-Cron", "@hourly"), ("X-Plain", "p")]
    made = bench.engine.publish(
        URL, headers, b"body", query=[("upstash-retries", "1")], caller_ip="192.0.2.7", api="v1"
    )
    schedule = bench.engine.schedules.get(str(made.schedule_id))
    assert (schedule.destination, schedule.body) == (URL, b"body")
    assert (schedule.caller_ip, schedule.api) == ("192.0.2.7", "v1")
    assert schedule.sent == [*headers, ("upstash-retries", "1")]
    (message_id,) = bench.engine.schedules.run_now(schedule.id)
    message = bench.engine.messages[message_id]
    assert (message.caller_ip, message.api, message.max_retries) == ("192.0.2.7", "v1", 1)


def test_the_messages_of_a_run_of_v1_have_ids_of_their_own(bench: Bench) -> None:
    group(bench, "g", URL, OTHER)
    schedule_id = publish(bench, "g", api="v1", Cron="@hourly").schedule_id
    for message_id in bench.engine.schedules.run_now(str(schedule_id)):
        assert bench.engine.messages[message_id].public_id == message_id


def test_a_run_is_checked_against_the_defaults_of_its_group_at_its_instant() -> None:
    bench = Bench(limits={"delay_us": 60 * SECOND})
    group(bench, "g", URL)
    bench.engine.url_groups.get("g").headers = [("Upstash-Delay", "10s")]
    made = bench.engine.publish("g", sent({"Cron": "@hourly"}), b"x", queue_name="line")
    schedule = bench.engine.schedules.get(str(made.schedule_id))
    (message_id,) = bench.engine.schedules.run_now(schedule.id)
    message = bench.engine.messages[message_id]
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
    bench.engine.publish(
        URL,
        sent({"Callback": CALLBACK, "Callback_Forward_X_A": "1", "Retries": "0",
              "Failure_Callback": FAILURE, "Failure_Callback_Retries": "7"}),
        b"x",
        caller_ip="192.0.2.7",
    )  # fmt: skip
    bench.clock.advance(0)
    source, callback, failure = bench.engine.messages.values()
    assert [one.kind for one in (source, callback, failure)] == [
        "message",
        "callback",
        "failure_callback",
    ]
    assert {one.caller_ip for one in (source, callback, failure)} == {"192.0.2.7"}
    assert {one.source_id for one in (callback, failure)} == {source.id}
    assert (callback.max_retries, failure.max_retries) == (0, 7)
    assert callback.settings.retries == 0
    delivered = next(one for one in bench.sent if one.url == CALLBACK)
    assert first(delivered.headers, "Content-Type") == "application/json"
    assert first(delivered.headers, "X-A") == "1"
    assert source.open_children == 1
    # The failure callback has no settings of its own, so the defaults apply.
    assert failure.settings.method == "POST"


def test_both_callbacks_about_a_message_are_waited_for(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(500)
    publish(bench, Callback=CALLBACK, Failure_Callback=FAILURE, Retries="0", Callback_Retries="1",
            Failure_Callback_Retries="1")  # fmt: skip
    bench.clock.advance(0)
    source = next(iter(bench.engine.messages.values()))
    assert source.open_children == 2
    bench.clock.advance("1m")
    assert source.open_children == 0


def test_the_queue_of_a_callback_begins_with_it(bench: Bench) -> None:
    publish(bench, Callback=CALLBACK, Callback_Queue_Name="q", Delay="9s")
    bench.clock.advance("9s")
    assert bench.engine.queue("q").created_us == bench.start_us + 9 * SECOND
    publish(bench, Queue_Name="r")
    assert bench.engine.queue("r").created_us == bench.start_us + 9 * SECOND


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
    bench.engine.lane = "background"
    told = bench.reports
    looping(bench, SECOND)
    bench.clock.advance("10m")
    assert ["50 deliveries caused each other in one call" in one for one in told] == [True]


def given_up(bench: Bench, url: str = URL, api: Any = "v2", **headers: str) -> Message:
    bench.answer = lambda delivery: Outcome(500)
    pairs = sent({"Retries": "0"} | headers)
    made = bench.engine.publish(url, pairs, b"x", api=api, caller_ip="192.0.2.7")
    bench.clock.advance(0)
    return bench.engine.messages[made.accepted[0].message_id]


def retried(bench: Bench, messages: Iterable[Message], *pairs: tuple[str, str]) -> list[Message]:
    accepted = bench.engine.retry_dead_letters(messages, pairs)
    return [bench.engine.messages[one.message_id] for one in accepted]


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


@pytest.mark.parametrize(
    "once",
    [
        {"Delay": "10s"},
        {"Not_Before": "1767225700"},
        {"Deduplication_Id": "once"},
        {"Content_Based_Deduplication": "true"},
    ],
)
def test_delays_and_duplicates_are_those_of_the_first_time(
    bench: Bench, once: dict[str, str]
) -> None:
    message = given_up(bench, **once)
    bench.clock.advance("200s")
    assert bench.state(message.id) == "FAILED"
    first_one, second = (retried(bench, [message])[0] for _ in range(2))
    assert first_one.id != second.id
    assert first_one.due_us == second.due_us == bench.clock.now_us()
    settings = first_one.settings
    assert (settings.delay_us, settings.not_before_us) == (0, None)
    assert (settings.deduplication_id, settings.content_based_deduplication) == (None, False)


def test_retries_that_were_not_asked_for_stay_what_they_were(bench: Bench) -> None:
    message = given_up(bench)
    message.settings = type(message.settings)()
    message.max_retries = 9
    (again,) = retried(bench, [message])
    assert (again.max_retries, again.settings.retries) == (9, 9)


def test_headers_of_a_retry_are_laid_over_the_first_ones(bench: Bench) -> None:
    message = given_up(
        bench, Forward_X_A="1", Forward_X_B="2", Callback=CALLBACK, Callback_Retries="1",
        Callback_Method="PUT", Failure_Callback=FAILURE, Failure_Callback_Retries="2",
        Failure_Callback_Method="PUT",
    )  # fmt: skip
    pairs = sent(
        {
            "Forward_X_B": "3",
            "Callback_Retries": "5",
            "Failure_Callback_Retries": "6",
            "Label": "new",
        }
    )
    (again,) = retried(bench, [message], *pairs, ("Content-Type", "text/plain"))
    settings = again.settings
    assert sorted(settings.forward) == [("X-A", "1"), ("X-B", "3")]
    assert sorted(settings.callback_headers) == sorted(sent({"Method": "PUT", "Retries": "5"}))
    assert sorted(settings.failure_callback_headers) == sorted(
        sent({"Method": "PUT", "Retries": "6"})
    )
    assert (settings.labels, settings.callback) == (("new",), CALLBACK)
    # The content type of the retry request is not that of the message.
    assert settings.content_type is None


def test_the_delay_of_a_retry_counts_from_now() -> None:
    bench = Bench(limits={"delay_us": 60 * SECOND})
    message = given_up(bench)
    bench.clock.advance("1h")
    end = bench.clock.now_us() // SECOND
    (again,) = retried(bench, [message], ("Upstash-Not-Before", str(end + 60)))
    assert again.due_us == (end + 60) * SECOND
    with pytest.raises(QueueError, match="maxDelay"):
        retried(bench, [message], ("Upstash-Not-Before", str(end + 61)))


def test_a_message_of_v1_stays_one(bench: Bench) -> None:
    message = given_up(bench, api="v1", Failure_Callback=FAILURE)
    retried(bench, [message])
    bench.clock.advance(0)
    assert [one.url for one in bench.sent] == [URL, URL]
    assert {one.api for one in bench.engine.messages.values()} == {"v1"}


def test_every_callback_that_was_not_published_is_told() -> None:
    bench = Bench(limits={"queues": 0})
    bench.answer = lambda delivery: Outcome(500)
    in_queues = {"Callback_Queue_Name": "q", "Failure_Callback_Queue_Name": "f"}
    message_id = bench.publish(
        **in_queues, Retries="0", Callback=CALLBACK, Failure_Callback=FAILURE
    )
    bench.clock.advance(0)
    first, second = bench.engine.messages[message_id].lost_callbacks
    assert "maxQueues" in first
    assert first == second
    assert [one.url for one in bench.sent] == [URL]
