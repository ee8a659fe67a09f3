"""Test the log: rows are filtered by the status of their attempt."""

from __future__ import annotations

from pytest_fakecloud.queue.model import Outcome
from pytest_fakecloud.queue.wire.filters import Filters

from .bench import Bench


def test_rows_without_an_answer_are_found_by_the_status_that_stands_for_it(bench: Bench) -> None:
    bench.answer = lambda delivery: Outcome(503 if bench.sent[1:] else None)
    bench.publish(Retries="0")
    bench.publish(Retries="0")
    bench.clock.run_due()

    def found(status: int, stands_for_none: int) -> list[str]:
        rows, cursor = bench.engine.logs.page(
            Filters({"responseStatus": [str(status)]}), bench.engine.messages, stands_for_none
        )
        assert cursor is None
        return [row.state for row in rows]

    assert found(503, 599) == ["FAILED", "ERROR"]
    assert found(599, 599) == ["FAILED", "ERROR"]
    assert found(0, 599) == []
