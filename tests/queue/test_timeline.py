"""Test the description of what an unfinished message is waiting for."""

from __future__ import annotations

from pytest_fakecloud.queue.timeline import waiting_text

from .scene import Scene


def test_the_text_for_a_due_message() -> None:
    with Scene() as scene:
        sent = scene.publish({"Upstash-Delay": "90s"})
        record = scene.queue._engine.messages[sent]
        due, reason = record.due_us, record.wait_reason
        assert due is not None
        assert waiting_text(record) == f"due 2026-01-01 00:01:30Z ({reason})"
        assert waiting_text(record, due - 30_000_000) == f"due 00:01:30Z in 30 s ({reason})"
        assert waiting_text(record, due) == (
            "due now, but not delivered yet; call queue.run_until_idle()"
        )
        assert waiting_text(record, due, driven=False) == (
            "due now, but not delivered yet in the background"
        )


def test_the_text_for_a_waiting_message() -> None:
    with Scene() as scene:
        scene.ok("POST", "/v2/queues", json={"queueName": "q"})
        scene.ok("POST", "/v2/queues/q/pause")
        sent = scene.publish(way="/v2/enqueue/q/")
        text = waiting_text(scene.queue._engine.messages[sent])
        assert text == "waits in queue q (behind others, or the queue is paused)"
