"""Test the engine's base: seeded ids, timers, and the time of the next attempt."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.core.timers import Lane
from pytest_fakecloud.queue.engine.data import QueueData
from pytest_fakecloud.queue.model import SECOND, FaultDecisions, Message
from pytest_fakecloud.queue.settings import QueueConfig

from .bench import CALLBACK, URL, Bench


def data(seed: int = 1, name: str = "queue") -> QueueData:
    clock = Timekeeper(now="2026-01-01T00:00:00Z")
    return QueueData(clock, Ids(seed), name=name, settings=QueueConfig())


def test_the_forms_of_ids() -> None:
    assert re.fullmatch("msg_[0-9a-f]{32}", data().new_message_id())
    assert re.fullmatch("ept_[1-9A-HJ-NP-Za-km-z]{28}", data().new_id("ept_"))


def test_ids_are_those_of_the_seed_and_of_the_queues_name() -> None:
    def ids(*args: Any) -> list[str]:
        own = data(*args)
        return [own.new_message_id(), own.new_id("scd_")]

    assert ids(1, "a") == ids(1, "a")
    for other in (ids(2, "a"), ids(1, "b")):
        assert not set(ids(1, "a")) & set(other)


def test_groups_and_schedules_leave_the_ids_of_messages_as_they_are() -> None:
    plain, busy = data(), data()
    busy.new_id("scd_")
    assert busy.new_message_id() == plain.new_message_id()


@pytest.mark.parametrize(
    ("in_background", "attempts", "changes"),
    [(False, "driven", "state"), (True, "background", "background")],
)
def test_lanes_of_attempts_and_internal_timers(
    in_background: bool, attempts: Lane, changes: Lane
) -> None:
    bench = Bench(in_background=in_background)
    bench.publish(Delay="1s")
    bench.engine.lifecycle.cancel(bench.publish(Delay="2s"))
    bench.engine.publisher.publish(
        URL, [("Upstash-Cron", "@hourly"), ("Upstash-Schedule-Id", "s")], b""
    )
    count, timers = bench.clock.planned(5)
    assert count == 3
    assert [(timer.label, timer.lane) for timer in timers] == [
        (URL, attempts),
        ("cancel", changes),
        ("schedule s", changes),
    ]
    for number in range(3):
        message_id = bench.publish(Flow_Control_Key="k", Flow_Control_Value="rate=1,period=2h")
        begun = bench.engine.attempts.begin(message_id)
        assert (begun is None) == (number > 0)
    flow = [timer.lane for timer in bench.clock.planned(9)[1] if timer.label == "flow control k"]
    assert flow == [changes]


def test_an_overtaken_message_has_one_timer_when_another_lets_it_go(bench: Bench) -> None:
    class Overtaking(FaultDecisions):
        def overtaken(self, message: Message) -> bool:
            return message.url == URL

    bench.inject(Overtaking())
    bench.publish()
    bench.publish(CALLBACK)
    (first, second) = (timer.callback for timer in bench.clock.planned(5)[1])
    first(bench.clock.now_us())
    # If it were alone, it would be due a second later.
    assert bench.engine.next_due_us() == bench.clock.now_us()
    assert "overtaken" in [timer.label for timer in bench.clock.planned(5)[1]]
    second(bench.clock.now_us())
    assert "overtaken" not in [timer.label for timer in bench.clock.planned(5)[1]]
    bench.clock.advance(0)
    assert [delivery.url for delivery in bench.sent] == [CALLBACK, URL]


def test_plans_of_cancelled_messages_are_forgotten(bench: Bench) -> None:
    last = bench.publish(Delay="5h")
    for _ in range(300):
        bench.engine.lifecycle.cancel(bench.publish())
    assert len(bench.engine.planning._planned) < 100
    # The next attempt is not one of the cancelled messages.
    assert bench.engine.planning.next_planned_us() == bench.start_us + 5 * 3600 * SECOND
    bench.clock.advance("4h59m")
    assert bench.sent == []
    bench.clock.advance("1m")
    assert [delivery.message_id for delivery in bench.sent] == [last]
    assert bench.engine.planning.next_planned_us() is None


def test_many_that_are_planned_in_any_order_come_in_the_order_of_their_instants(
    bench: Bench,
) -> None:
    delays = [(number * 37) % 101 for number in range(101)]
    for delay in delays:
        bench.publish(Delay=f"{delay + 1}s")
        # So many cancelled attempts, which were due first, that the heap is compacted.
        for _ in range(3):
            bench.engine.lifecycle.cancel(bench.publish())
    for second in range(1, 102):
        assert bench.engine.planning.next_planned_us() == bench.start_us + second * SECOND
        bench.clock.advance("1s")
    assert bench.times() == list(range(1, 102))
