"""Test the queue's engine without HTTP: retries, order, limits, cancelling and snapshots."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pytest_fakecloud.core.clock import AioClock, Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.core.timers import to_datetime
from pytest_fakecloud.queue.attempt_reports import timeline, waiting_text
from pytest_fakecloud.queue.errors import QueueError
from pytest_fakecloud.queue.model import SECOND, Delivery, FaultDecisions, Message, Outcome

from .bench import CALLBACK, URL, Bench


@pytest.mark.parametrize("status", [100, 199, 200, 204, 299, 300, 302, 404, 489, 500, 599])
def test_only_2xx_is_a_success(bench: Bench, status: int) -> None:
    bench.answer = lambda delivery: Outcome(status, [("Location", URL)])
    message_id = bench.publish()
    bench.clock.advance(0)
    assert bench.state(message_id) == ("DELIVERED" if status // 100 == 2 else "RETRY")
    assert len(bench.sent) == 1


def test_no_answer_is_a_failed_attempt(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(exception=ConnectionRefusedError("refused"))
    message_id = bench.publish(Retries="0", Callback=CALLBACK)
    bench.clock.advance(0)
    assert bench.state(message_id) == "FAILED"
    row = next(e for e in bench.engine.data.messages[message_id].log if e.state == "ERROR")
    assert row.error == "ConnectionRefusedError: refused"


def test_the_plan_caps_timeouts() -> None:
    bench = Bench(limits={"timeout_us": 60 * SECOND})
    bench.publish(Timeout="5m")
    bench.publish(Timeout="5s")
    bench.publish()
    bench.clock.advance(0)
    assert [delivery.timeout_us // SECOND for delivery in bench.sent] == [60, 5, 60]


def test_no_lock_is_held_while_performing(bench: Bench) -> None:
    held: list[bool] = []

    def answer(delivery: Delivery) -> Outcome:
        held.append(bench.engine.lock._is_owned())  # type: ignore[attr-defined]
        if len(bench.sent) == 1:
            bench.publish("https://other.example.com/")
        return Outcome(200)

    bench.answer = answer
    bench.publish()
    bench.clock.advance(0)
    assert held == [False, False]
    assert [delivery.url for delivery in bench.sent] == [URL, "https://other.example.com/"]


def test_a_handler_that_fails_hard_loses_no_message(bench: Bench) -> None:
    def answer(delivery: Delivery) -> Outcome:
        raise KeyboardInterrupt

    bench.answer = answer
    message_id = bench.publish()
    with pytest.raises(KeyboardInterrupt):
        bench.clock.advance(0)
    assert bench.state(message_id) == "RETRY"
    bench.answer = lambda delivery: Outcome(200)
    bench.clock.advance("1m")
    assert bench.state(message_id) == "DELIVERED"


def test_fields_of_a_delivery(bench: Bench) -> None:
    bench.publish(Forward_X_A="1")
    bench.clock.advance(0)
    (only,) = bench.sent
    message_id = next(iter(bench.engine.data.messages))
    assert only.message_id == message_id
    assert (only.method, only.url, only.body) == ("POST", URL, b"x")
    assert bench.signer.signatures == [(URL, b"x", None, 0)]
    assert only.attempt == 0


def enqueue(bench: Bench, name: str, url: str = URL, **headers: str) -> str:
    return bench.publish(url, Queue_Name=name, **headers)


def flowing(bench: Bench, value: str, count: int = 1, url: str = URL) -> list[str]:
    return [
        bench.publish(url, Flow_Control_Key="k", Flow_Control_Value=value) for _ in range(count)
    ]


def test_global_parallelism_and_flow_control_never_hand_messages_to_and_fro() -> None:
    bench = Bench(limits={"parallelism": 2})
    bench.answer = lambda delivery: Outcome(200, virtual_us=int(delivery.url[-1]) * SECOND)
    for took in (1, 2, 0):
        flowing(bench, "parallelism=1", url=f"{URL}/{took}")
    bench.publish(f"{URL}/2")
    for took in (2, 1):
        flowing(bench, "parallelism=1", url=f"{URL}/{took}")
    for fired, timer in enumerate(bench.clock.steps(bench.clock.target_after("1m"))):
        assert fired < 100
        timer.callback(timer.due_us)
    assert bench.times() == [0, 0, 1, 3, 3, 5]


def test_a_callback_that_a_quota_forbids_is_in_the_timeline() -> None:
    bench = Bench(limits={"queues": 0})
    message_id = bench.publish(Callback=CALLBACK, Callback_Queue_Name="q")
    bench.clock.advance(0)
    assert bench.state(message_id) == "DELIVERED"
    text = timeline(bench.engine, bench.engine.data.messages[message_id])
    assert "a callback was not published: quota maxQueues exceeded" in text


def test_a_loop_in_the_background_is_told_and_the_message_waits() -> None:
    bench = Bench(loop_limit=20)
    bench.engine.data.in_background = True
    reports = bench.reports
    bench.publish_on_delivery()
    bench.publish()
    bench.clock.advance(0)
    assert len(reports) == 1
    assert "endless loop: 20 deliveries" in reports[0]
    (left,) = bench.engine.data.pending.values()
    assert waiting_text(bench.engine, left, bench.clock.now_us()) == (
        "waits: stopped in an endless loop; cancel it or publish it again"
    )
    (waiting,) = bench.engine.data.pending.values()
    assert bench.engine.lifecycle.cancel(waiting.id) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_the_awaitable_form(bench: Bench, fails: bool) -> None:
    def answer(delivery: Delivery) -> Outcome:
        if fails:
            raise LookupError("broken")
        return Outcome(200)

    async def whole() -> None:
        await AioClock(bench.clock).advance("1s")

    bench.answer = answer
    message_id = bench.publish()
    if fails:
        with pytest.raises(LookupError):
            asyncio.run(whole())
        assert bench.state(message_id) == "RETRY"
    else:
        asyncio.run(whole())
        assert bench.state(message_id) == "DELIVERED"


def test_cancelling_one_whose_answer_is_lost(bench: Bench) -> None:
    class Crashing(FaultDecisions):
        def before(self, message: Message, delivery: Delivery) -> tuple[str, ...]:
            return ("crash_after_response",)

    bench.inject(Crashing())
    bench.answer = lambda delivery: Outcome(200, virtual_us=10 * SECOND)
    message_id = bench.publish()
    bench.clock.advance(0)
    bench.engine.lifecycle.cancel(message_id)
    bench.clock.advance("1h")
    assert bench.state(message_id) == "CANCELED"
    assert bench.engine.data.messages[message_id].finished_us == bench.start_us + 10 * SECOND
    assert len(bench.sent) == 1


def test_many_messages_at_one_instant_are_no_loop() -> None:
    bench = Bench(loop_limit=5)
    for _ in range(100):
        bench.publish()
    bench.clock.advance(0)
    assert len(bench.sent) == 100


def test_zero_waits_between_retries_are_no_loop() -> None:
    bench = Bench(loop_limit=25)
    bench.answer = lambda delivery: Outcome(500)
    bench.publish(Retries="20", Retry_Delay="0")
    bench.clock.advance(0)
    assert len(bench.sent) == 21


def test_a_copy_can_be_restored_any_number_of_times(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(500, virtual_us=5 * SECOND)
    message_id = bench.publish(Retries="1")
    enqueue(bench, "q")
    enqueue(bench, "q")
    flowing(bench, "parallelism=1", 2)
    bench.engine.publisher.publish(URL, [("Upstash-Cron", "* * * * *")], b"s")
    bench.clock.advance("1s")
    saved = bench.engine.snapshot()
    for _ in range(2):
        bench.engine.restore(saved)
        assert bench.state(message_id) == "ACTIVE"
        assert len(bench.engine.schedules.by_id) == 1
        bench.engine.schedules.delete(next(iter(bench.engine.schedules.by_id)))
        before = len(bench.sent)
        bench.clock.advance("10h")
        assert bench.state(message_id) == "FAILED"
        # One retry of the first message, and four attempts of each of the others less the two made.
        assert len(bench.sent) - before == 1 + 4 * 4 - 2
        assert bench.engine.data.pending == {}


def test_a_copy_of_nothing_empties_the_queue(bench: Bench) -> None:
    empty = bench.engine.snapshot()
    bench.publish()
    enqueue(bench, "q")
    bench.engine.publisher.publish(URL, [("Upstash-Cron", "* * * * *")], b"s")
    bench.engine.restore(empty)
    assert bench.clock.next_due_us() is None
    assert (bench.engine.data.messages, bench.engine.data.pending) == ({}, {})


@pytest.mark.parametrize("takes", [0, 10])
def test_a_reset_during_an_attempt_ends_it_quietly(bench: Bench, takes: int) -> None:
    empty = bench.engine.snapshot()

    def answer(delivery: Delivery) -> Outcome:
        bench.engine.restore(empty)
        return Outcome(500, virtual_us=takes * SECOND)

    bench.answer = answer
    bench.publish(Callback=CALLBACK, Queue_Name="q", Retries="5")
    bench.clock.advance("1d")
    assert len(bench.sent) == 1
    assert bench.engine.data.messages == {}
    assert bench.clock.next_due_us() is None


def test_a_message_that_was_being_sent_is_pending_in_the_copy(bench: Bench) -> None:
    saved: list[Any] = []

    def answer(delivery: Delivery) -> Outcome:
        saved.append(bench.engine.snapshot())
        return Outcome(200)

    bench.answer = answer
    message_id = bench.publish()
    bench.clock.advance(0)
    assert bench.state(message_id) == "DELIVERED"
    bench.engine.restore(saved[0])
    assert bench.state(message_id) == "RETRY"
    bench.clock.advance(0)
    assert bench.state(message_id) == "DELIVERED"
    assert len(bench.sent) == 2


def test_why_a_message_of_a_queue_waits(bench: Bench) -> None:
    bench.engine.queues.upsert("q", parallelism=2, paused=None)
    delayed, next_one = (
        bench.engine.publisher.publish(URL, [("Upstash-Queue-Name", "q"), *headers], b"")
        .accepted[0]
        .message_id
        for headers in ([("Upstash-Delay", "10s")], [])
    )
    waits = {message.id: message.wait_reason for message in bench.engine.data.messages.values()}
    assert waits == {delayed: "delay", next_one: "turn in queue q"}


def test_a_message_to_a_topic_of_v1_is_read_and_cancelled_by_its_one_id(bench: Bench) -> None:
    bench.engine.url_groups.add_all("g", [(URL, None), (CALLBACK, None)])
    publish = bench.engine.publisher.publish
    accepted = publish("g", [("Upstash-Delay", "1h")], b"x", api="v1").accepted
    ids = [message.message_id for message in accepted]
    (shared,) = {bench.engine.data.messages[message_id].public_id for message_id in ids}
    assert shared not in ids
    assert bench.engine.data.message(shared).id == ids[0]
    assert [task.id for task in bench.engine.data.tasks(shared)] == ids
    assert bench.engine.lifecycle.cancel(shared) == 2
    bench.clock.advance("1h")
    for ask in (bench.engine.data.message, bench.engine.lifecycle.cancel):
        bench.clock.advance("1h")
        with pytest.raises(QueueError, match=rf"^message {shared} not found$"):
            ask(shared)


def test_a_message_to_a_topic_of_v1_is_whole_in_a_copy(bench: Bench) -> None:
    bench.engine.url_groups.add_all("g", [(URL, None), (CALLBACK, None)])
    publish = bench.engine.publisher.publish
    accepted = publish("g", [("Upstash-Delay", "1h")], b"x", api="v1").accepted
    ids = [message.message_id for message in accepted]
    shared = bench.engine.data.messages[ids[0]].public_id
    saved = bench.engine.snapshot()
    for _ in range(2):
        bench.engine.data.groups_of_tasks[shared].clear()
        bench.engine.restore(saved)
        assert [task.id for task in bench.engine.data.tasks(shared)] == ids


def test_a_twin_has_the_rules_and_none_of_the_data() -> None:
    bench = Bench(limits={"message_size": 3}, region="EU-CENTRAL-1")
    engine, clock = bench.engine, Timekeeper(now="2026-01-01T00:00:00Z")
    nothing = str(engine.snapshot())
    engine.url_groups.add_all("g", [(URL, None)])
    engine.publisher.publish(URL, [("Upstash-Cron", "* * * * *")], b"")
    bench.publish(Queue_Name="q", Deduplication_Id="d")
    bench.publish(Workflow_RunId="r", Workflow_Init="true")
    bench.answer = lambda delivery: Outcome(500)
    bench.publish(Retries="0")
    bench.clock.advance(0)
    bench.sent.clear()
    held = list(engine.data.messages)
    assert str(engine.snapshot()) != nothing
    twin = engine.twin(clock, Ids(2))
    assert str(twin.snapshot()) == nothing
    with pytest.raises(QueueError, match="maxMessageSize"):
        twin.publisher.publish(URL, [], b"four")
    twin.publisher.publish(URL, [], b"x")
    clock.advance(0)
    (delivery,) = bench.sent
    assert ("Upstash-Region", "EU-CENTRAL-1") in delivery.headers
    # Its deliveries are not intercepted, and only an interceptor signs.
    assert "Upstash-Signature" not in dict(delivery.headers)
    assert list(engine.data.messages) == held
    # A twin shares the signing keys with its engine.
    twin.keys.rotate()
    assert (engine.keys.current, engine.keys.next) == ("next", "new")


def test_a_closed_engine_begins_nothing_any_more(bench: Bench) -> None:
    before = bench.publish()
    bench.engine.publisher.publish(URL, [("Upstash-Cron", "* * * * *")], b"")
    bench.engine.close()
    assert bench.clock.next_due_us() is None
    bench.publish()
    bench.engine.publisher.publish(URL, [("Upstash-Cron", "* * * * *")], b"")
    assert bench.clock.next_due_us() is None
    # A message whose timer had already fired does not start either.
    assert bench.engine.deliveries.run(before, bench.start_us) is None
    assert (bench.sent, bench.state(before)) == ([], "CREATED")


def test_the_next_due_time_ignores_schedules(bench: Bench) -> None:
    assert bench.engine.next_due_us() is None
    bench.engine.publisher.publish(URL, [("Upstash-Cron", "* * * * *")], b"")
    assert bench.engine.next_due_us() is None
    bench.answer = lambda delivery: Outcome(200, virtual_us=7 * SECOND)
    bench.publish(Delay="9s")
    assert bench.engine.next_due_us() == bench.start_us + 9 * SECOND
    for _ in range(2):
        bench.publish(Flow_Control_Key="k", Flow_Control_Value="rate=1,period=5s")
    bench.clock.advance(0)
    # The end of the rate period, the response, and the end of the delay.
    for due in (5, 7, 9):
        assert bench.engine.next_due_us() == bench.start_us + due * SECOND
        bench.clock.move_to(to_datetime(bench.start_us + due * SECOND))


def test_an_overtaken_message_is_due_a_second_later(bench: Bench) -> None:
    class Overtaking(FaultDecisions):
        def overtaken(self, message: Message) -> bool:
            return True

    bench.inject(Overtaking())
    bench.publish()
    bench.clock.advance(0)
    assert bench.engine.next_due_us() == bench.start_us + SECOND
    bench.clock.advance("1s")
    assert bench.times() == [1]
    overtaking = bench.engine.overtaking.delayed
    assert overtaking == []
    bench.publish()
    bench.clock.advance(0)
    bench.engine.restore(bench.engine.snapshot())
    assert overtaking == []
    bench.engine.lifecycle.cancel(next(iter(bench.engine.data.pending)))
    assert bench.engine.next_due_us() is None
    # A message that is overtaken in its queue waits there, without a due time.
    bench.answer = lambda delivery: Outcome(200, virtual_us=7 * SECOND)
    for _ in range(2):
        bench.publish(Queue_Name="q")
    bench.clock.advance(0)
    assert bench.engine.next_due_us() == bench.clock.now_us() + 7 * SECOND
