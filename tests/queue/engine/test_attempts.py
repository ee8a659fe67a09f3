"""Test attempts: what is sent, what is recorded, and how responses are judged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pytest_fakecloud.core.clock import AioClock
from pytest_fakecloud.queue.engine.causes import causing
from pytest_fakecloud.queue.errors import LoopError
from pytest_fakecloud.queue.model import (
    SECOND,
    Delivery,
    FaultDecisions,
    Message,
    MessageKind,
    Outcome,
    WorkflowPart,
    first,
)
from pytest_fakecloud.queue.workflow.runs import WorkflowRuns

from .bench import CALLBACK, URL, Bench

FAILURE = "https://app.example.com/failure"


class Faults(FaultDecisions):
    """Inject the same faults into the first attempt of every message."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.seen: list[tuple[Message, Delivery]] = []

    def before(self, message: Message, delivery: Delivery) -> tuple[str, ...]:
        self.seen.append((message, delivery))
        return self.names if message.retried == 0 and len(message.attempts) == 1 else ()


def faulty(bench: Bench, *names: str) -> Faults:
    faults = Faults(*names)
    bench.inject(faults)
    return faults


def drive(bench: Bench, how: str) -> None:
    """Deliver what is due, synchronously or in an event loop."""
    if how == "plain":
        bench.clock.advance(0)
        return

    async def whole() -> None:
        await AioClock(bench.clock).advance("0s")

    asyncio.run(whole())


both_ways = pytest.mark.parametrize("how", ["plain", "on a loop"])


def test_fields_of_attempts(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(
        (500, 200)[delivery.attempt], [("X-A", "1")], b"body", virtual_us=SECOND, where="here"
    )
    message_id = bench.publish("https://app.example.com/h\xc3\xb6k", Delay="3s", Retry_Delay="5000")
    bench.clock.advance("1m")
    fields = [
        (
            attempt.number, (attempt.at_us - bench.start_us) / SECOND, attempt.waited_us / SECOND,
            attempt.wait_reason, attempt.state, attempt.status, attempt.is_final,
            ((attempt.ended_us or 0) - bench.start_us) / SECOND,
        )
        for attempt in bench.engine.data.attempts
    ]  # fmt: skip
    assert fields == [
        (1, 3, 3, "delay", "failed", 500, False, 4),
        (2, 9, 5, "retry delay 5000", "delivered", 200, True, 10),
    ]
    for attempt in bench.engine.data.attempts:
        assert (attempt.message_id, attempt.kind) == (message_id, "message")
        assert attempt.url == "https://app.example.com/hök"
        assert (attempt.headers, attempt.body, attempt.where) == ({"x-a": "1"}, b"body", "here")
    assert bench.engine.planning.timers == {}
    message = bench.engine.data.messages[message_id]
    assert message.last_outcome is not None
    assert message.last_outcome.status == 200


def test_kinds_of_attempts_are_those_of_their_messages(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(500 if delivery.url == URL else 200)
    bench.publish(Retries="0", Callback=CALLBACK, Failure_Callback=FAILURE)
    bench.clock.advance(0)
    kinds: list[MessageKind] = ["message", "callback", "failure_callback"]
    assert [attempt.kind for attempt in bench.engine.data.attempts] == kinds


def test_an_answer_is_waited_for_as_a_timer_of_its_name(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(200, virtual_us=1)
    for _ in range(2):
        bench.publish()
    bench.clock.advance(0)
    assert [timer.label for timer in bench.clock.planned(5)[1]] == ["answer", "answer"]
    bench.engine.close()
    assert bench.clock.next_due_us() is None


def test_every_header_of_a_delivery() -> None:
    bench = Bench(header_prefix="Service", region="EU-CENTRAL-1")
    bench.engine.url_groups.add_all("g", [(URL, None)])
    headers = [
        ("Content-Type", "text/plain"),
        ("Upstash-Forward-X-A", "1"),
        ("Upstash-Forward-User-Agent", "mine"),
        ("Upstash-Forward-service-signature", "older"),
        ("Upstash-Forward-SERVICE-Retried", "7"),
        ("Upstash-Cron", "@hourly"),
        ("Upstash-Schedule-Id", "s"),
    ]
    bench.engine.publisher.publish("g", headers, b"x", caller_ip="192.0.2.7")
    (message_id,) = bench.engine.schedules.run_now("s")
    bench.clock.advance(0)
    (delivery,) = bench.sent
    assert delivery.headers == [
        ("X-A", "1"),
        ("User-Agent", "mine"),
        ("Content-Type", "text/plain"),
        ("Service-Message-Id", message_id),
        ("Service-Retried", "0"),
        ("Service-Retries", "0"),
        ("Service-Max-Retries", "3"),
        ("Service-Caller-Ip", "192.0.2.7"),
        ("Service-Region", "EU-CENTRAL-1"),
        ("Service-Topic-Name", "g"),
        ("Service-Schedule-Id", "s"),
        ("Upstash-Signature", "token"),
    ]


def test_a_message_of_a_run_is_sent_as_its_workflow_says(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def accept(self: WorkflowRuns, message: Message, at_us: int) -> None:
        """Accept steps of an unknown run."""

    def delivery_body(self: WorkflowRuns, message: Message, at_us: int) -> bytes:
        return f"{message.id} at {at_us - bench.start_us}".encode()

    monkeypatch.setattr(WorkflowRuns, "accept", accept)
    monkeypatch.setattr(WorkflowRuns, "delivery_body", delivery_body)
    step = bench.publish(Delay="1s", Workflow_RunId="r")
    bench.engine.data.messages[step].workflow = WorkflowPart("r", URL, "step")
    bench.clock.advance("1s")
    assert [delivery.body for delivery in bench.sent] == [f"{step} at {SECOND}".encode()]
    assert first(bench.sent[0].headers, "Upstash-Workflow-RunId") == "r"


@both_ways
def test_a_handler_knows_which_message_it_answers_to(bench: Bench, how: str) -> None:
    causes: list[Message | None] = []

    def answer(delivery: Delivery) -> Outcome:
        causes.append(causing.get())
        return Outcome(200)

    bench.answer = answer
    ids = [bench.publish() for _ in range(2)]
    drive(bench, how)
    assert causes == [bench.engine.data.messages[message_id] for message_id in ids]
    assert causing.get() is None


@both_ways
@pytest.mark.parametrize(
    ("names", "headers", "body", "keys"),
    [
        ((), True, b"x", [(None, 0)]),
        (("unsigned",), False, b"x", []),
        (("unsigned", "tamper"), False, b"xtampered", []),
        (("wrong_key",), True, b"x", [("new", 0)]),
        (("next_key",), True, b"x", [("next", 0)]),
        (("wrong_key", "next_key"), True, b"x", [("new", 0)]),
        (("expired",), True, b"x", [(None, 3600)]),
        (("tamper",), True, b"xtampered", [(None, 0)]),
    ],
)
def test_a_signature_is_spoiled_as_a_fault_says(
    bench: Bench, names: tuple[str, ...], headers: bool, body: bytes, keys: Any, how: str
) -> None:
    faults = faulty(bench, *names)
    message_id = bench.publish()
    drive(bench, how)
    (delivery,) = bench.sent
    assert (first(delivery.headers, "Upstash-Signature") is not None) is headers
    assert delivery.body == body
    # The signature covers the published body.
    assert bench.signer.signatures == [(URL, b"x", *key) for key in keys]
    message = bench.engine.data.messages[message_id]
    assert faults.seen == [(message, faults.seen[0][1])]
    assert faults.seen[0][1].message_id == message_id
    assert message.attempts[0].faults == names


@both_ways
def test_the_second_answer_to_a_duplicate_counts(bench: Bench, how: str) -> None:
    faulty(bench, "duplicate")
    bench.answer = lambda delivery: Outcome(500 if len(bench.sent) == 1 else 200)
    message_id = bench.publish()
    drive(bench, how)
    assert len(bench.sent) == 2
    assert bench.sent[0] is bench.sent[1]
    assert bench.state(message_id) == "DELIVERED"
    assert len(bench.engine.data.attempts) == 1


def test_an_answer_that_got_lost_is_asked_for_again(bench: Bench) -> None:
    faulty(bench, "crash_after_response")
    bench.answer = lambda delivery: Outcome(200, virtual_us=2 * SECOND)
    message_id = bench.publish()
    bench.clock.advance("2s")
    lost, again = bench.engine.data.attempts
    assert (lost.state, lost.status, lost.is_final) == ("lost", 200, False)
    assert (lost.ended_us, again.at_us) == (bench.start_us + 2 * SECOND,) * 2
    assert (again.waited_us, again.state) == (0, "in flight")
    assert again.wait_reason == "the queue crashed before it stored the answer"
    assert bench.state(message_id) == "ACTIVE"
    bench.clock.advance("2s")
    assert bench.state(message_id) == "DELIVERED"
    assert [row.state for row in bench.engine.data.messages[message_id].log] == [
        "CREATED", "ACTIVE", "ACTIVE", "DELIVERED",
    ]  # fmt: skip
    # A repetition after a lost response does not count as a retry.
    assert bench.engine.data.messages[message_id].retried == 0


def test_a_message_with_a_lost_answer_waits_for_its_turn(bench: Bench) -> None:
    faulty(bench, "crash_after_response")
    message_id = bench.publish(Queue_Name="q")

    def answer(delivery: Delivery) -> Outcome:
        bench.engine.queues.set_paused("q", True)
        return Outcome(200)

    bench.answer = answer
    bench.clock.advance(0)
    assert bench.state(message_id) == "RETRY"
    assert bench.engine.deliveries.run(message_id, bench.start_us) is None
    bench.engine.queues.set_paused("q", False)
    bench.clock.advance(0)
    assert bench.state(message_id) == "DELIVERED"


def test_messages_that_cannot_start(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(200, virtual_us=SECOND)
    delivered, cancelled = bench.publish(), bench.publish()
    bench.engine.lifecycle.cancel(cancelled)
    bench.clock.advance(0)
    run = bench.engine.deliveries.run
    for message_id in ("nobody", cancelled, delivered):
        # ``delivered`` is in flight.
        assert run(message_id, bench.start_us) is None
    bench.clock.advance("1s")
    assert run(delivered, bench.start_us) is None
    assert len(bench.sent) == 1


def test_more_attempts_at_one_instant_than_the_limit_are_a_loop() -> None:
    bench = Bench(loop_limit=5)
    bench.answer = lambda delivery: Outcome(500)
    message_id = bench.publish(Retries="20", Retry_Delay="0")
    message = bench.engine.data.messages[message_id]
    with pytest.raises(LoopError) as caught:
        bench.clock.advance(0)
    assert str(caught.value) == (
        f"endless loop: 5 deliveries caused each other at the same time, the next one would be"
        f" {message_id} to {URL}. Let the handlers stop publishing at some point,"
        " publish with a delay and advance the clock step by step, or raise the setting loop_limit."
        " The message stays pending"
    )
    assert len(bench.sent) == 6
    assert (message.state, message.wait_reason) == ("RETRY", "retry delay 0")
    # The next driving call starts a new chain.
    with pytest.raises(LoopError):
        bench.clock.advance(0)
    assert len(bench.sent) == 11


def test_messages_published_at_an_earlier_time_are_not_in_the_chain() -> None:
    bench = Bench(loop_limit=3)

    def answer(delivery: Delivery) -> Outcome:
        # Publish three messages for the same time, then one for a second later.
        bench.publish(Delay="0s" if len(bench.sent) % 4 else "1s")
        return Outcome(200)

    bench.answer = answer
    bench.publish()
    for _ in range(5):
        bench.clock.advance("1s")
    assert bench.times() == [second for second in range(6) for _ in range(4)]
    assert (
        max(message.depth for message in bench.engine.data.messages.values() if message.attempts)
        == 3
    )


@pytest.mark.parametrize(
    ("error", "driving", "leaves"),
    [
        (KeyboardInterrupt, True, True),
        (KeyboardInterrupt, False, False),
        (LookupError, True, False),
    ],
)
def test_fatal_exceptions_in_the_background_reach_the_driving_call(
    bench: Bench, error: type[BaseException], driving: bool, leaves: bool
) -> None:
    bench.engine.data.in_background = True

    def answer(delivery: Delivery) -> Outcome:
        raise error

    bench.answer = answer
    message_id = bench.publish()

    def run() -> None:
        if driving:
            bench.clock.advance(0)
        else:
            attempt = bench.engine.deliveries.run(message_id, bench.start_us)
            assert attempt is bench.engine.data.attempts[0]

    if leaves:
        with pytest.raises(error):
            run()
    else:
        run()
    assert isinstance(bench.engine.data.attempts[0].exception, error)
    assert bench.state(message_id) == "RETRY"


def test_exceptions_of_handlers_on_a_loop_are_kept(bench: Bench) -> None:
    def answer(delivery: Delivery) -> Outcome:
        raise LookupError("broken")

    bench.answer = answer
    bench.publish()
    with pytest.raises(LookupError):
        drive(bench, "on a loop")
    assert isinstance(bench.engine.data.attempts[0].exception, LookupError)
    assert causing.get() is None


@pytest.mark.parametrize(("took", "delivered"), [(10, True), (10.000001, False)])
def test_an_answer_at_the_end_of_the_timeout_is_one(
    bench: Bench, took: float, delivered: bool
) -> None:
    bench.answer = lambda delivery: Outcome(200, virtual_us=round(took * SECOND), where="wsgi")
    message_id = bench.publish(Timeout="10s", Retries="0")
    bench.clock.advance("9s")
    assert bench.state(message_id) == "ACTIVE"
    bench.clock.advance("1s")
    (attempt,) = bench.engine.data.attempts
    assert (attempt.where, attempt.ended_us) == ("wsgi", bench.start_us + 10 * SECOND)
    if delivered:
        assert bench.state(message_id) == "DELIVERED"
    else:
        assert isinstance(attempt.exception, TimeoutError)
        assert str(attempt.exception) == "no answer within the timeout of 10 s"
        assert (bench.state(message_id), attempt.status) == ("FAILED", None)


@pytest.mark.parametrize(
    ("kind", "lost", "comes"),
    [(CALLBACK, "callback", FAILURE), (FAILURE, "failure_callback", CALLBACK)],
)
def test_a_fault_loses_one_kind_of_callback(bench: Bench, kind: str, lost: str, comes: str) -> None:
    asked: list[tuple[Message, str, str]] = []

    class Losing(FaultDecisions):
        def callback(self, message: Message, kind: MessageKind, url: str) -> bool:
            asked.append((message, kind, url))
            return kind == lost

    bench.inject(Losing())
    bench.answer = lambda delivery: Outcome(500 if delivery.url == URL else 200)
    message_id = bench.publish(Retries="0", Callback=CALLBACK, Failure_Callback=FAILURE)
    bench.clock.advance(0)
    message = bench.engine.data.messages[message_id]
    assert asked == [(message, "callback", CALLBACK), (message, "failure_callback", FAILURE)]
    assert [delivery.url for delivery in bench.sent] == [URL, comes]


@pytest.mark.parametrize(
    ("status", "headers", "final"),
    [
        (489, [("Upstash-NonRetryable-Error", "true")], True),
        (489, [("Service-NonRetryable-Error", " TRUE ")], True),
        (489, [("Upstash-NonRetryable-Error", "false")], False),
        (489, [("Upstash-NonRetryable-Error", "false"), ("Service-NonRetryable-Error", "true")],
         True),
        (489, [], False),
        (488, [("Upstash-NonRetryable-Error", "true")], False),
        (500, [("Upstash-NonRetryable-Error", "true")], False),
    ],
)  # fmt: skip
def test_responses_that_are_not_retried(
    bench: Bench, status: int, headers: list[tuple[str, str]], final: bool
) -> None:
    bench.answer = lambda delivery: Outcome(status, headers)
    message_id = bench.publish(Failure_Callback=CALLBACK)
    bench.clock.advance(0)
    assert bench.state(message_id) == ("FAILED" if final else "RETRY")
    assert bench.engine.data.attempts[0].is_final is final
    assert [delivery.url for delivery in bench.sent] == [URL, CALLBACK][: 1 + final]


def test_the_last_attempt_of_a_cancelled_message_is_final(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(500, virtual_us=SECOND)
    message_id = bench.publish(Callback=CALLBACK, Failure_Callback=FAILURE)
    bench.clock.advance(0)
    bench.engine.lifecycle.cancel(message_id)
    bench.answer = lambda delivery: Outcome(200)
    bench.clock.advance("1m")
    (attempt,) = bench.engine.data.messages[message_id].attempts
    assert (attempt.is_final, attempt.state) == (True, "failed")
    message = bench.engine.data.messages[message_id]
    assert (message.state, message.finished_us) == ("CANCELED", bench.start_us + SECOND)
    assert (message.dlq_id, message.last_error_us) == (None, bench.start_us + SECOND)
    # The callback reports the attempt; a cancelled message has no failure callback.
    assert [delivery.url for delivery in bench.sent] == [URL, CALLBACK]


def test_attempts_begun_elsewhere_are_made_once(bench: Bench) -> None:
    faults = faulty(bench, "tamper")
    message_id = bench.publish()
    make = bench.engine.deliveries.start(message_id, bench.start_us)
    assert make is not None
    # Faults are chosen when an attempt starts, so that their order is deterministic.
    assert len(faults.seen) == 1
    assert bench.engine.deliveries.start(message_id, bench.start_us) is None
    make()
    assert len(faults.seen) == 1
    assert [delivery.body for delivery in bench.sent] == [b"xtampered"]
    assert bench.state(message_id) == "DELIVERED"


@pytest.mark.parametrize("driven", [True, False])
def test_a_fault_that_breaks_ends_an_attempt_before_it_is_made(bench: Bench, driven: bool) -> None:
    class Broken(FaultDecisions):
        def before(self, message: Message, delivery: Delivery) -> tuple[str, ...]:
            raise LookupError("broken")

    bench.inject(Broken())
    message_id = bench.publish()
    if driven:
        with pytest.raises(LookupError):
            bench.clock.advance(0)
    else:
        bench.engine.data.in_background = True
        assert bench.engine.deliveries.start(message_id, bench.start_us) is None
    assert isinstance(bench.engine.data.attempts[0].exception, LookupError)
    assert (bench.state(message_id), bench.sent) == ("RETRY", [])


def test_a_loop_is_named_by_the_limit_that_it_is_beyond() -> None:
    bench = Bench(loop_limit=5)
    message = bench.engine.data.messages[bench.publish()]
    message.depth, message.chain, message.span = 5, 51, bench.clock.moving_calls + 1
    with pytest.raises(LoopError, match="loop: 50 deliveries caused each other in one call"):
        bench.clock.advance(0)
    assert (message.depth, message.chain) == (0, 0)
