"""Test ordered queues: limits of the plan, names and snapshots."""

from __future__ import annotations

import pytest

from pytest_fakecloud.queue.errors import QueueError

from .bench import Bench


def test_a_queue_may_be_as_wide_as_the_plan_and_no_wider() -> None:
    engine = Bench(limits={"queue_parallelism": 2}).engine
    engine.upsert_queue("q", parallelism=2)
    with pytest.raises(QueueError, match=r"^quota maxParallelism exceeded, current limit: 2$"):
        engine.upsert_queue("q", parallelism=3)
    assert engine.queue("q").parallelism == 2


def test_an_update_without_parallelism_is_not_checked_against_the_limit() -> None:
    engine = Bench(limits={"queue_parallelism": 0}).engine
    engine.upsert_queue("q", paused=True)
    assert engine.queue("q").paused


def test_a_plan_has_so_many_queues() -> None:
    engine = Bench(limits={"queues": 1}).engine
    engine.upsert_queue("a")
    engine.upsert_queue("a")
    for refused in (lambda: engine.upsert_queue("b"), lambda: engine.check_queues(["a", "b"])):
        with pytest.raises(QueueError, match=r"^quota maxQueues exceeded, current limit: 1$"):
            refused()
    assert list(engine.queues) == ["a"]


def test_a_bad_name_is_called_a_queues(bench: Bench) -> None:
    with pytest.raises(QueueError, match=r"^invalid queue name: ") as caught:
        bench.engine.check_queues(["a b"])
    assert caught.value.status == 400


def test_waiting_messages_of_a_snapshot_stay_when_cancelled_later(bench: Bench) -> None:
    message_id = bench.publish(Queue_Name="q")
    bench.engine.set_queue_paused("q", True)
    bench.clock.advance(0)
    saved = bench.engine.snapshot()
    for _ in range(2):
        bench.engine.cancel(message_id)
        bench.engine.restore(saved)
    bench.engine.set_queue_paused("q", False)
    bench.clock.advance(0)
    assert bench.state(message_id) == "DELIVERED"
