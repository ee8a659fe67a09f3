"""List commands, apart from the scenarios of real servers."""

from __future__ import annotations

from pytest_fakecloud.kv.reply import NIL_ARRAY, Blocked
from tests.kv.conftest import Run


class TestWaiting:
    """Blocking commands; on the database port the same commands wait."""

    def test_a_pop_waits_for_a_push(self, run: Run) -> None:
        waiting = run.other(transport="port")
        blocked = waiting("BLPOP a l 5")
        assert isinstance(blocked, Blocked)
        assert (blocked.keys, blocked.timeout_ms) == ([b"a", b"l"], 5000)
        waiter = run.engine.block(waiting.session, blocked)
        assert not waiter.done
        run("RPUSH l x y")
        assert waiter.done
        assert run.engine.unblock(waiter) == [b"l", b"x"]
        assert run("LRANGE l 0 -1") == [b"y"]

    def test_nothing_in_time_is_a_nil_array(self, run: Run) -> None:
        waiting = run.other(transport="port")
        waiter = run.engine.block(waiting.session, waiting("BLMOVE a b LEFT RIGHT 0.001"))
        assert waiter.blocked.timeout_ms == 1
        assert run.engine.unblock(waiter) is NIL_ARRAY
