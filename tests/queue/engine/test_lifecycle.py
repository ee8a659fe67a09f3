"""Test the lifecycle of messages: logs, causes, cancelling, and waiting for callbacks."""

from __future__ import annotations

from contextvars import copy_context
from typing import Any

import pytest

from pytest_fakecloud.queue.engine.causes import causing
from pytest_fakecloud.queue.errors import LoopError
from pytest_fakecloud.queue.model import SECOND, Delivery, Outcome

from .bench import CALLBACK, Bench


def rows(bench: Bench, message_id: str) -> list[tuple[Any, ...]]:
    """Return a message's log: state, time and next time in seconds, error, status."""
    return [
        (
            row.state,
            (row.time_us - bench.start_us) / SECOND,
            None if row.next_us is None else (row.next_us - bench.start_us) / SECOND,
            row.error,
            None if row.outcome is None else row.outcome.status,
        )
        for row in bench.engine.data.messages[message_id].log
    ]


def test_the_log_of_a_message_that_comes_at_last(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(503 if delivery.attempt == 0 else 200)
    message_id = bench.publish(Delay="10s", Retry_Delay="5000")
    bench.clock.advance("1m")
    failed = "destination answered 503"
    assert rows(bench, message_id) == [
        ("CREATED", 0, 10, None, None),
        ("ACTIVE", 10, None, None, None),
        ("ERROR", 10, None, failed, 503),
        ("RETRY", 10, 15, failed, None),
        ("ACTIVE", 15, None, None, None),
        ("DELIVERED", 15, None, None, 200),
    ]
    assert bench.engine.data.messages[message_id].finished_us == bench.start_us + 15 * SECOND


def test_the_log_of_a_message_that_is_given_up(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(500)
    message_id = bench.publish(Retries="0")
    bench.clock.advance(0)
    failed = "destination answered 500"
    assert rows(bench, message_id)[-2:] == [
        ("ERROR", 0, None, failed, 500),
        ("FAILED", 0, None, failed, 500),
    ]
    message = bench.engine.data.messages[message_id]
    assert (message.due_us, message.finished_us) == (None, bench.start_us)


def test_the_log_of_a_message_that_is_cancelled(bench: Bench) -> None:
    message_id = bench.publish(Delay="10s")
    bench.clock.advance("4s")
    bench.engine.lifecycle.cancel(message_id)
    bench.clock.advance("1m")
    assert rows(bench, message_id) == [
        ("CREATED", 0, 10, None, None),
        ("CANCEL_REQUESTED", 4, None, None, None),
        ("CANCELED", 10, None, None, None),
    ]


@pytest.mark.parametrize(
    ("headers", "waited", "why"),
    [
        ({}, 0, "at once"),
        ({"Delay": "10s"}, 10, "delay"),
        ({"Not_Before": str(1_767_225_600 + 7)}, 7, "delay"),
        ({"Not_Before": str(1_767_225_600 - 7)}, 0, "at once"),
    ],
)
def test_why_a_first_attempt_is_when_it_is(
    bench: Bench, headers: dict[str, str], waited: int, why: str
) -> None:
    message_id = bench.publish(**headers)
    assert bench.engine.data.messages[message_id].wait_reason == why
    bench.clock.advance("1m")
    (attempt,) = bench.engine.data.attempts
    assert (attempt.waited_us, attempt.wait_reason) == (waited * SECOND, why)


def test_a_chain_within_one_driving_call_may_be_ten_times_as_long() -> None:
    bench = Bench(loop_limit=5)
    bench.publish_on_delivery(Delay="1s")
    bench.publish()
    with pytest.raises(LoopError, match="loop: 50 deliveries caused each other in one call"):
        bench.clock.advance("1h")
    assert bench.times() == list(range(52))
    # The pending message is due immediately and starts a chain of its own.
    (left,) = bench.engine.data.pending.values()
    assert left.due_us == bench.clock.now_us()
    bench.answer = lambda delivery: Outcome(200)
    bench.clock.advance(0)
    assert bench.engine.data.pending == {}


def test_a_chain_of_several_driving_calls_is_no_loop() -> None:
    bench = Bench(loop_limit=5)
    bench.publish_on_delivery(Delay="1s")
    bench.publish()
    for _ in range(4):
        bench.clock.advance("40s")
    # Each driving call may have a chain of fifty.
    assert len(bench.sent) == 161


def _publishes(bench: Bench, targets: dict[str, list[str]], **headers: str) -> None:
    """Let the handler of each URL publish to others."""
    publish = bench.publish

    def answer(delivery: Delivery) -> Outcome:
        for target in targets.get(delivery.url, []):
            publish(target, **headers)
        return Outcome(200)

    bench.answer = answer


A, B = "https://app.example.com/a", "https://app.example.com/b"


@pytest.mark.parametrize(
    ("roots", "length", "headers", "allowed", "span"),
    [(1, 2, {}, 25, "at the same time"), (4, 1, {"Delay": "1s"}, 50, "in one call")],
)
def test_short_chains_that_return_are_stopped(
    roots: int, length: int, headers: dict[str, str], allowed: int, span: str
) -> None:
    """With two messages each, there are a thousand of them after ten rounds."""
    bench = Bench(loop_limit=5)
    _publishes(bench, {A: [B] * length, B: [A] * length}, **headers)
    for _ in range(roots):
        bench.publish(A)
    with pytest.raises(LoopError, match=f"{allowed} deliveries {span} because") as error:
        bench.clock.advance("1h")
    text = str(error.value)
    assert any(f"handlers of {x} and {y} publish each other" in text for x, y in ((A, B), (B, A)))
    # Besides those that return: the messages from before the call, and the first A and B of each.
    assert len(bench.sent) == allowed + roots * (1 + length + length**2)


def test_a_handler_that_publishes_two_messages_to_itself_is_stopped() -> None:
    bench = Bench(loop_limit=5)
    _publishes(bench, {A: [A, A]})
    bench.publish(A)
    with pytest.raises(LoopError, match=f"because handlers of {A} publish each other"):
        bench.clock.advance(0)


def test_a_tree_of_other_urls_may_have_any_size() -> None:
    """Only deliveries that return to a URL can be part of an endless loop."""
    bench = Bench(loop_limit=5)
    leaves = [f"https://app.example.com/leaf/{number}" for number in range(30)]
    _publishes(bench, {A: [B] * 30, B: leaves})
    bench.publish(A)
    bench.clock.advance(0)
    assert len(bench.sent) == 1 + 30 + 900


def _publish_from_another_process(bench: Bench) -> None:
    """Let the handler publish with a delay, without the queue knowing which delivery does."""
    publish = bench.publish

    def answer(delivery: Delivery) -> Outcome:
        token = causing.set(None)
        publish(Delay="1s")
        causing.reset(token)
        return Outcome(200)

    bench.answer = answer


def test_a_client_that_publishes_for_hours_in_the_background_makes_no_chain() -> None:
    bench = Bench(loop_limit=5)
    bench.engine.data.in_background = True
    _publish_from_another_process(bench)
    bench.publish()
    for _ in range(4):
        bench.clock.advance("40s")
    assert bench.reports == []
    assert len(bench.sent) == 161


@pytest.mark.parametrize("is_certain", [False, True])
def test_a_chain_within_one_call_has_the_same_limit_in_the_background(is_certain: bool) -> None:
    bench = Bench(loop_limit=5)
    bench.engine.data.in_background = True
    if is_certain:
        bench.publish_on_delivery(Delay="1s")
    else:
        _publish_from_another_process(bench)
    bench.publish()
    bench.clock.advance("1h")
    (report,) = bench.reports
    assert "50 deliveries caused each other in one call" in report
    assert bench.times() == list(range(52))


@pytest.mark.parametrize("in_background", [False, True])
def test_the_cause_of_a_request_from_another_process(bench: Bench, in_background: bool) -> None:
    bench.engine.data.in_background = in_background
    ids = [bench.publish() for _ in range(3)]
    messages = [bench.engine.data.messages[message_id] for message_id in ids]
    for message, chain, depth in zip(messages, (7, 2, 2), (1, 4, 3), strict=True):
        message.chain, message.depth = chain, depth
        message.span = bench.engine.causes.span
    begun = [bench.engine.attempts.begin(message_id) for message_id in ids]
    for message, chain, depth in zip(messages, (7, 2, 2), (1, 4, 3), strict=True):
        message.chain, message.depth = chain, depth

    def caused(source: Any) -> tuple[int, int]:
        def publish() -> tuple[int, int]:
            causing.set(source)
            made = bench.engine.data.messages[bench.publish()]
            return made.chain, made.depth

        return copy_context().run(publish)

    assert caused(None) == ((0 if in_background else 3), 4)
    # For a handler in this process, the cause is certain.
    assert caused(messages[0]) == (8, 2)
    # A finished delivery is no cause, even if its handler still runs.
    for attempt in begun:
        assert attempt is not None
        bench.engine.deliveries.finish(attempt, Outcome(200))
    assert caused(messages[0]) == (0, 0)


def test_a_callback_is_caused_only_by_the_message_it_reports_on(bench: Bench) -> None:
    ids = [bench.publish(Callback=CALLBACK), bench.publish()]
    begun = [bench.engine.attempts.begin(message_id) for message_id in ids]
    assert begun[0] is not None
    assert begun[1] is not None
    begun[1].message.depth = begun[1].message.chain = 7
    bench.engine.deliveries.finish(begun[0], Outcome(200))
    callback = list(bench.engine.data.messages.values())[-1]
    assert callback.source_id == ids[0]
    assert (callback.depth, callback.chain) == (1, 1)


def test_cancelling_counts_those_that_it_ends(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(500, virtual_us=10 * SECOND)
    under_way = bench.publish()
    bench.clock.advance(0)
    delivered, first, second = (bench.publish(Delay="1h") for _ in range(3))
    messages = [
        bench.engine.data.messages[message_id]
        for message_id in (delivered, under_way, first, first, second)
    ]
    bench.engine.lifecycle.cancel(delivered)
    assert bench.engine.lifecycle.cancel_all(messages) == 3
    assert bench.engine.data.pending == {}
    bench.clock.advance("2h")
    assert {bench.state(message.id) for message in messages} == {"CANCELED"}
    assert bench.times() == [0]


def test_cancelling_a_due_message_leaves_no_timer(bench: Bench) -> None:
    message_id = bench.publish()
    bench.engine.lifecycle.cancel(message_id)
    assert bench.state(message_id) == "CANCELED"
    assert bench.clock.next_due_us() is None


def test_closing_removes_the_timers_of_cancelled_messages(bench: Bench) -> None:
    for _ in range(2):
        bench.engine.lifecycle.cancel(bench.publish(Delay="1h"))
    assert [timer.label for timer in bench.clock.planned(5)[1]] == ["cancel", "cancel"]
    bench.engine.close()
    assert bench.clock.next_due_us() is None


@pytest.mark.parametrize(("virtual_us", "state"), [(0, "DELIVERED"), (5 * SECOND, "ACTIVE")])
def test_an_attempt_that_outlives_its_queue_starts_no_timer(
    bench: Bench, virtual_us: int, state: str
) -> None:
    def close(delivery: Delivery) -> Outcome:
        bench.engine.close()
        return Outcome(200, virtual_us=virtual_us)

    flow = {"Flow_Control_Key": "k", "Flow_Control_Value": "rate=1"}
    messages = [bench.publish(**flow) for _ in range(3)]
    bench.clock.advance(0)
    bench.answer = close
    bench.clock.advance("1s")
    assert bench.clock.next_due_us() is None
    assert [bench.state(message) for message in messages] == ["DELIVERED", state, "CREATED"]


def test_finished_messages_have_no_timer(bench: Bench) -> None:
    bench.publish()
    bench.engine.lifecycle.cancel(bench.publish(Delay="1h"))
    bench.clock.advance("2h")
    assert bench.engine.planning.timers == {}
