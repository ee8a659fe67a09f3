"""Test dead letters: retention, settings of a retry, records and filters."""

from __future__ import annotations

from pytest_fakecloud.queue.model import Outcome, WorkflowPart
from pytest_fakecloud.queue.wire.filters import Filters

from .bench import URL, Bench


def test_dead_letters_without_an_answer_are_found_by_their_status(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(exception=ConnectionRefusedError("refused"))
    bench.publish(Retries="0")
    bench.clock.run_due()
    bench.answer = lambda delivery: Outcome(503)
    bench.publish(Retries="0")
    bench.clock.run_due()
    letters = bench.engine.dead_letters
    none, unavailable = letters.all()
    assert letters.select(Filters({"responseStatus": ["0"]})) == ([none], None)
    assert letters.select(Filters({"responseStatus": ["503"]})) == ([unavailable], None)


def test_a_failure_callback_hides_no_run_that_comes_after_it(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(500)
    for _ in range(3):
        bench.publish(Retries="0")
    bench.clock.run_due()
    letters = bench.engine.dead_letters
    first, report, last = letters.all()
    for row in (first, report, last):
        letters.message(row).workflow = WorkflowPart("r", URL, "step")
    letters.message(report).failure_of = first.message_id
    assert letters.select(Filters({"source": ["workflow"]})) == ([first, last], None)
    # For other filters, the callback is an ordinary dead letter.
    assert letters.select(Filters({"url": [URL]})) == ([first, report, last], None)


def test_a_row_is_deleted_once(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(500)
    bench.publish(Retries="0")
    bench.clock.run_due()
    (row,) = bench.engine.dead_letters.all()
    assert bench.engine.dead_letters.delete([row, row]) == 1
    assert bench.engine.dead_letters.delete([row]) == 0
