"""Test ordered queues: limits of the plan, names and snapshots."""

from __future__ import annotations

import pytest

from pytest_fakecloud.queue.engine.ordered_queues import Queues
from pytest_fakecloud.queue.errors import QueueError

from .bench import Bench


def test_a_queue_may_be_as_wide_as_the_plan_and_no_wider() -> None:
    queues = Queues()
    assert queues.upsert("q", 0, parallelism=2, most_parallelism=2).parallelism == 2
    with pytest.raises(QueueError, match=r"^quota maxParallelism exceeded, current limit: 2$"):
        queues.upsert("q", 0, parallelism=3, most_parallelism=2)
    # An update without parallelism is not checked against the limit.
    assert queues.upsert("q", 0, paused=True, most_parallelism=0).parallelism == 2


def test_a_plan_has_so_many_queues() -> None:
    queues = Queues()
    queues.upsert("a", 0, most=1)
    queues.upsert("a", 0, most=1)
    for refused in (lambda: queues.upsert("b", 0, most=1), lambda: queues.check(["a", "b"], 1)):
        with pytest.raises(QueueError, match=r"^quota maxQueues exceeded, current limit: 1$"):
            refused()
    assert list(queues.by_name) == ["a"]


def test_a_bad_name_is_called_a_queues() -> None:
    with pytest.raises(QueueError, match=r"^invalid queue name: ") as caught:
        Queues().check(["a b"], None)
    assert caught.value.status == 400


def test_waiting_messages_of_a_snapshot_stay_when_cancelled_later(bench: Bench) -> None:
    message_id = bench.publish(Queue_Name="q")
    bench.engine.queue_admission.pause("q")
    bench.clock.run_due()
    saved = bench.engine.snapshot()
    for _ in range(2):
        bench.engine.cancel(message_id)
        bench.engine.restore(saved)
    bench.engine.queue_admission.resume("q")
    bench.clock.run_due()
    assert bench.state(message_id) == "DELIVERED"
