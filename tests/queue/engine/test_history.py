"""Test the log, dead letters, and how long the queue keeps finished messages."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.queue.fake import Queue
from pytest_fakecloud.queue.model import SECOND, Outcome, WorkflowPart
from pytest_fakecloud.queue.wire.records import Filters

from ..scene import CALLBACK, DEST, Scene, attempts_among
from .bench import URL, Bench

APP = "https://app.example.com/flow"


def known(scene: Scene) -> set[str]:
    """Return the ids of all messages that any part of the queue still refers to."""
    engine = scene.queue._engine
    rows = {row["messageId"] for row in scene.get("/v2/events")["events"]}
    assert rows == {
        message.public_id for message in engine.data.messages.values() if not message.in_run
    }
    seen = {message.id for message in scene.queue.messages()}
    assert seen == {attempt.message_id for attempt in scene.queue.attempts()} | {
        message.id for message in scene.queue.pending()
    }
    assert seen == {message.public_id for message in engine.data.messages.values()}
    return seen


def test_finished_messages_are_forgotten_with_everything_about_them() -> None:
    with Scene(history="1h") as scene:
        first = scene.publish()
        scene.queue.deliver_due()
        scene.queue.clock.advance("30m")
        second = scene.publish({"Upstash-Callback": CALLBACK})
        waiting = scene.publish({"Upstash-Delay": "3h"})
        scene.queue.deliver_due()
        assert len(known(scene)) == 4
        scene.queue.clock.advance("29m59s")
        assert len(known(scene)) == 4
        view = scene.queue.message(first)
        scene.queue.clock.advance("1s")
        assert first not in known(scene)
        assert view.is_gone
        assert "history has passed" in repr(view)
        assert scene.request("GET", f"/v2/messages/{first}").status == 404
        assert {second, waiting} < known(scene)
        scene.queue.clock.advance("1h")
        assert known(scene) == {waiting}
        scene.queue.clock.advance("90m")
        scene.queue.run_until_idle()
        assert known(scene) == {waiting}


def test_in_a_test_nothing_is_forgotten() -> None:
    with Scene() as scene:
        message = scene.publish()
        scene.queue.deliver_due()
        scene.queue.clock.advance("3650d")
        assert known(scene) == {message}


def test_a_driving_call_reports_whole() -> None:
    with Scene(history="1h") as scene:
        scene.queue.schedule(DEST, "@hourly")
        assert len(attempts_among(scene.queue.clock.advance("1d"))) == 24
        assert len(scene.queue.attempts()) == 1


def test_a_history_of_no_length() -> None:
    with Scene(history=0) as scene:
        scene.fail()
        scene.publish({"Upstash-Retries": "0", "Upstash-Callback": CALLBACK})
        step(scene, "r", "true")
        step(scene, "r", Delay="1h")
        scene.queue.deliver_due()
        assert len(known(scene)) == 3
        scene.ok("DELETE", "/v2/dlq")
        scene.queue.clock.advance("1h")
        assert known(scene) == set()


def test_a_message_outlives_the_callbacks_about_it() -> None:
    with Scene(history="1h") as scene:
        scene.fail(CALLBACK)
        first = scene.publish(
            {"Upstash-Callback": CALLBACK, "Upstash-Callback-Retry-Delay": "6000000"}
        )
        scene.queue.deliver_due()
        scene.queue.clock.advance("2h")
        assert first in known(scene)


def test_a_task_of_v1_is_forgotten_with_its_message() -> None:
    with Scene(history="1h") as scene:
        for number in range(2):
            topic = {"url": f"{DEST}{number}", "topicName": "news"}
            scene.ok("POST", "/v1/endpoints", json=topic)
        scene.fail(f"{DEST}1")
        retry = {"Upstash-Retry-Delay": "1800000"}
        message = scene.ok("POST", "/v1/publish/news", headers=retry).json()["messageId"]
        tasks = lambda: [task["url"] for task in scene.get(f"/v1/messages/{message}/tasks")]  # noqa: E731
        scene.queue.deliver_due()
        assert tasks() == [f"{DEST}0", f"{DEST}1"]
        scene.answer = lambda request: 200
        scene.queue.clock.advance("30m")
        scene.queue.clock.advance("30m")
        # Each task is forgotten when its own time is over, and the message with its last task.
        scene.queue.messages()
        assert tasks() == [f"{DEST}1"]
        scene.queue.clock.advance("30m")
        scene.queue.messages()
        assert scene.request("GET", f"/v1/messages/{message}/tasks").status == 404
        assert scene.queue._engine.data.groups_of_tasks == {}


def step(scene: Scene, run: str, init: str = "false", **headers: str) -> str:
    named = {f"Upstash-{name.replace('_', '-')}": value for name, value in headers.items()}
    own = {"Upstash-Workflow-RunId": run, "Upstash-Workflow-Init": init}
    return scene.publish(own | named, url=APP)


def test_a_snapshot_brings_back_what_is_forgotten_later() -> None:
    with Scene(history="1h") as scene:
        message = scene.publish()
        scene.queue.deliver_due()
        saved = scene.queue.snapshot()
        scene.queue.clock.advance("1h")
        assert known(scene) == set()
        scene.queue.restore(saved)
        assert scene.queue.messages() == []
        scene.queue.restore(saved)
        assert message in scene.queue._engine.data.messages


@pytest.mark.parametrize(
    ("keep", "history", "days"), [(None, None, None), (10, None, 7), (10, "1d", 1), (None, "1d", 1)]
)
def test_a_server_that_keeps_no_whole_journal_forgets_after_a_week(
    keep: int | None, history: str | None, days: int | None
) -> None:
    context = Context.alone()
    context.journal.keep = keep
    queue = Queue(context, history=history)
    span = queue._engine.data.settings.history_us
    assert span == (None if days is None else days * 86_400_000_000)
    queue.close()


def remembering(seconds: int, **options: Any) -> Bench:
    return Bench(history_us=seconds * SECOND, **options)


def sweep(bench: Bench) -> None:
    """Forget what has expired, as every publish does."""
    bench.engine.history.sweep()


def test_a_message_is_forgotten_exactly_when_its_span_is_over() -> None:
    bench = remembering(10)
    message_id = bench.publish(Delay="5s")
    bench.clock.advance("15s")
    sweep(bench)
    assert message_id not in bench.engine.data.messages
    other = bench.publish()
    bench.clock.advance(0)
    bench.clock.advance("9.999999s")
    sweep(bench)
    assert other in bench.engine.data.messages


def test_a_dead_letter_goes_with_its_message_whether_anybody_looks_or_not() -> None:
    bench = remembering(10, limits={"retention_us": 60 * SECOND})
    bench.answer = lambda delivery: Outcome(500)
    bench.publish(Retries="0")
    bench.clock.advance(0)
    bench.clock.advance("59s")
    sweep(bench)
    assert len(bench.engine.data.messages) == len(bench.engine.dead_letters.by_id) == 1
    bench.clock.advance("20s")
    sweep(bench)
    assert (bench.engine.data.messages, bench.engine.dead_letters.by_id) == ({}, {})


@pytest.mark.parametrize("setting", ["paused", "pinned_parallelism", "pinned_rate", None])
def test_pinned_and_paused_keys_are_not_forgotten(setting: str | None) -> None:
    bench = remembering(10)
    bench.publish(Flow_Control_Key="k", Flow_Control_Value="parallelism=1")
    bench.clock.advance(0)
    if setting is not None:
        setattr(bench.engine.flow_control.by_name["k"], setting, True)
    bench.clock.advance("10s")
    sweep(bench)
    assert bench.engine.data.messages == {}
    assert ("k" in bench.engine.flow_control.by_name) is (setting is not None)


def test_the_log_is_forgotten_with_its_messages() -> None:
    bench = remembering(10)
    for _ in range(30):
        bench.publish()
        bench.clock.advance("1s")
    rows, _ = bench.engine.history.log_page(Filters(), 1000)
    assert {row.message_id for row in rows} == set(bench.engine.data.messages)
    assert [row.state for row in rows[:3]] == ["DELIVERED", "ACTIVE", "CREATED"]


def test_rows_without_an_answer_are_found_by_the_status_that_stands_for_it() -> None:
    bench = Bench(no_answer_status=599)
    bench.answer = lambda delivery: Outcome(503 if bench.sent[1:] else None)
    bench.publish(Retries="0")
    bench.publish(Retries="0")
    bench.clock.advance(0)

    def found(status: int) -> list[str]:
        rows, cursor = bench.engine.history.log_page(
            Filters({"responseStatus": [str(status)]}), 1000
        )
        assert cursor is None
        return [row.state for row in rows]

    assert found(503) == ["FAILED", "ERROR"]
    assert found(599) == ["FAILED", "ERROR"]
    assert found(0) == []


def test_dead_letters_without_an_answer_are_found_by_their_status(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(exception=ConnectionRefusedError("refused"))
    bench.publish(Retries="0")
    bench.clock.advance(0)
    bench.answer = lambda delivery: Outcome(503)
    bench.publish(Retries="0")
    bench.clock.advance(0)
    select = bench.engine.dead_letters.select
    none, unavailable = bench.engine.dead_letters.all()
    assert select(Filters({"responseStatus": ["0"]})) == ([none], None)
    assert select(Filters({"responseStatus": ["503"]})) == ([unavailable], None)


def test_a_failure_callback_hides_no_run_that_comes_after_it(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(500)
    for _ in range(3):
        bench.publish(Retries="0")
    bench.clock.advance(0)
    select = bench.engine.dead_letters.select
    first, report, last = bench.engine.dead_letters.all()
    for row in (first, report, last):
        row.workflow = WorkflowPart("r", URL, "step")
    report.failure_of = first.id
    assert select(Filters({"source": ["workflow"]})) == ([first, last], None)
    # For other filters, the callback is an ordinary dead letter.
    assert select(Filters({"url": [URL]})) == ([first, report, last], None)


def test_a_row_is_deleted_once(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(500)
    bench.publish(Retries="0")
    bench.clock.advance(0)
    (row,) = bench.engine.dead_letters.all()
    assert bench.engine.dead_letters.delete([row, row]) == 1
    assert bench.engine.dead_letters.delete([row]) == 0
