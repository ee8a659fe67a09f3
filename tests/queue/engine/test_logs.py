"""Test the log: rows are filtered by the status of their attempt."""

from __future__ import annotations

from pytest_fakecloud.queue.model import Outcome
from pytest_fakecloud.queue.wire.filters import Filters

from .bench import Bench


def test_rows_without_an_answer_are_found_by_the_status_that_stands_for_it() -> None:
    bench = Bench(no_answer_status=599)
    bench.answer = lambda delivery: Outcome(503 if bench.sent[1:] else None)
    bench.publish(Retries="0")
    bench.publish(Retries="0")
    bench.clock.run_due()

    def found(status: int) -> list[str]:
        rows, cursor = bench.engine.history.log_page(Filters({"responseStatus": [str(status)]}))
        assert cursor is None
        return [row.state for row in rows]

    assert found(503) == ["FAILED", "ERROR"]
    assert found(599) == ["FAILED", "ERROR"]
    assert found(0) == []
