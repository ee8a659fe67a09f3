"""List commands, apart from the scenarios of real servers."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.reply import NIL_ARRAY, Blocked
from tests.kv.conftest import Run


class TestEncoding:
    def test_encoding_changes_at_8_kb_and_back_at_half(self, run: Run) -> None:
        run("RPUSH", "l", *["x" * 100] * 79)
        assert run("OBJECT ENCODING l") == b"listpack"
        run("RPUSH", "l", *["x" * 100] * 2)
        assert run("OBJECT ENCODING l") == b"quicklist"
        run("LPOP l 20")
        assert run("OBJECT ENCODING l") == b"quicklist"
        run("LPOP l 25")
        assert run("OBJECT ENCODING l") == b"listpack"

    def test_the_limit_may_be_a_number_of_elements(self, run: Run) -> None:
        run("CONFIG SET list-max-listpack-size 3")
        run("RPUSH l a b c")
        assert run("OBJECT ENCODING l") == b"listpack"
        run("RPUSH l d")
        assert run("OBJECT ENCODING l") == b"quicklist"


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

    @pytest.mark.parametrize(
        ("timeout", "text"),
        [
            ("-1", "ERR timeout is negative"),
            ("-inf", "ERR timeout is negative"),
            ("inf", "ERR timeout is out of range"),
            ("9223372036854775", "ERR timeout is out of range"),
            ("nan", "ERR timeout is not a float or out of range"),
        ],
    )
    def test_invalid_timeouts(self, run: Run, timeout: str, text: str) -> None:
        assert run.other(transport="port").error(f"BLPOP l {timeout}") == text

    def test_a_key_of_another_type_does_not_end_the_wait(self, run: Run) -> None:
        waiting = run.other(transport="port")
        waiter = run.engine.block(waiting.session, waiting("BLMPOP 0 1 l LEFT COUNT 2"))
        run("SADD l x")
        assert not waiter.done
        run("DEL l")
        run("RPUSH l 1 2 3")
        assert run.engine.unblock(waiter) == [b"l", [b"1", b"2"]]

    def test_a_chain_of_moves_is_served_in_one_go(self, run: Run) -> None:
        first, second = run.other(transport="port"), run.other(transport="port")
        last = run.engine.block(second.session, second("BRPOP b 0"))
        middle = run.engine.block(first.session, first("BRPOPLPUSH a b 0"))
        run("LPUSH a x")
        assert run.engine.unblock(middle) == b"x"
        assert run.engine.unblock(last) == [b"b", b"x"]
        assert run("EXISTS a b") == 0


def test_blocking_commands_are_rejected_over_rest(run: Run) -> None:
    rest = run.other(transport="rest")
    for line in (
        "BLPOP l 0",
        "BRPOP l 0",
        "BRPOPLPUSH a b 0",
        "BLMOVE a b LEFT LEFT 0",
        "BLMPOP 0 1 l LEFT",
        "BZPOPMIN z 0",
        "BZPOPMAX z 0",
        "BZMPOP 0 1 z MIN",
    ):
        assert "not available" in rest.error(line)


def test_emptying_a_list_takes_its_expiry_along(run: Run) -> None:
    run("RPUSH l a")
    run("EXPIRE l 100")
    run("LPOP l")
    run("RPUSH l b")
    assert run("TTL l") == -1


def test_the_least_count_removes_all(run: Run) -> None:
    run("RPUSH l a b a")
    assert run("LREM l -9223372036854775808 a") == 2
    assert run("LRANGE l 0 -1") == [b"b"]
