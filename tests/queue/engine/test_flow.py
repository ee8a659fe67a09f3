"""Test flow-control keys: counting, records, pins and snapshots."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_fakecloud.queue.model import SECOND, FlowKey, Outcome
from pytest_fakecloud.queue.wire.records import flow_record

from .bench import Bench


def test_a_start_that_is_given_back_is_one_start() -> None:
    key = FlowKey("k", 0, rate=5)
    for name in ("a", "b", "c"):
        key.start(name)
    key.give_back("b")
    assert (set(key.active), key.started) == ({"a", "c"}, 2)


@pytest.mark.parametrize("next_period", [FlowKey.roll, FlowKey.restart_period])
def test_a_start_of_an_earlier_period_is_not_subtracted_from_the_next(
    next_period: Callable[[FlowKey, int], None],
) -> None:
    key = FlowKey("k", 0, rate=3)
    key.start("early")
    next_period(key, SECOND)
    key.start("late")
    key.give_back("early")
    assert (set(key.active), key.started) == ({"late"}, 1)
    key.give_back("late")
    assert key.started == 0


def test_a_record_counts_in_whole_seconds(bench: Bench) -> None:
    start_us = bench.clock.now_us() - 300_000
    key = FlowKey("k", start_us)
    key.pin(start_us, None, 2, 60 * SECOND)
    record = flow_record(bench.engine, key)
    period = (record["ratePeriod"], record["ratePeriodStart"])
    assert [(number, type(number)) for number in period] == [(60, int), (start_us // SECOND, int)]


def test_a_paused_key_that_has_used_up_its_rate_opens_at_no_instant() -> None:
    key = FlowKey("k", 0, rate=1)
    key.start("a")
    key.waiting.append("b")
    assert key.reopens_us(0) == SECOND
    key.paused = True
    assert key.reopens_us(0) is None


def test_deliveries_in_flight_in_a_snapshot_stay_in_flight(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(200, virtual_us=10 * SECOND)
    first, _ = [
        bench.publish(Flow_Control_Key="k", Flow_Control_Value="parallelism=1") for _ in range(2)
    ]
    bench.clock.advance(0)
    saved = bench.engine.snapshot()
    for _ in range(2):
        bench.clock.advance("1m")
        assert not bench.engine.flow_control.get("k").active
        bench.engine.restore(saved)
        assert set(bench.engine.flow_control.get("k").active) == {first}
