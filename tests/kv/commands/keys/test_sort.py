"""SORT and SORT_RO."""

from __future__ import annotations

import pytest

from tests.kv.conftest import Run

NOT_DOUBLE = "ERR One or more scores can't be converted into double"


@pytest.mark.parametrize("name", ["SORT", "SORT_RO"])
class TestBoth:
    def test_numbers(self, run: Run, name: str) -> None:
        run("RPUSH l 3 1 10 2 -1.5")
        assert run(f"{name} l") == [b"-1.5", b"1", b"2", b"3", b"10"]
        assert run(f"{name} l DESC LIMIT 1 2") == [b"3", b"2"]
        assert run(f"{name} l ASC LIMIT 3 100") == [b"3", b"10"]
        assert run(f"{name} missing") == []

    def test_texts(self, run: Run, name: str) -> None:
        run("SADD s pear apple fig")
        assert run(f"{name} s ALPHA") == [b"apple", b"fig", b"pear"]
        assert run.error(f"{name} s") == NOT_DOUBLE

    def test_by_and_get(self, run: Run, name: str) -> None:
        run("RPUSH l 1 2 3")
        run("MSET w1 30 w2 10 w3 20 d1 one d3 three")
        run("HSET h1 f x")
        assert run(f"{name} l BY w*") == [b"2", b"3", b"1"]
        assert run(f"{name} l BY w* GET d* GET #") == [None, b"2", b"three", b"3", b"one", b"1"]
        assert run(f"{name} l GET h*->f") == [b"x", None, None]
        assert run(f"{name} l BY nosort DESC") == [b"1", b"2", b"3"]
        assert run(f"{name} l BY none*") == [b"1", b"2", b"3"]
        assert run(f"{name} l BY nosort BY w*") == [b"1", b"2", b"3"]

    def test_sorted_sets_keep_their_order(self, run: Run, name: str) -> None:
        run("ZADD z 3 a 1 b 2 c")
        assert run(f"{name} z BY nosort") == [b"b", b"c", b"a"]
        assert run(f"{name} z BY nosort DESC LIMIT 0 2") == [b"a", b"c"]

    def test_refusals(self, run: Run, name: str) -> None:
        run("SET s 1")
        assert run.error(f"{name} s").startswith("WRONGTYPE")
        run("RPUSH l 1")
        assert run.error(f"{name} l LIMIT 1") == "ERR syntax error"
        assert run.error(f"{name} l LIMIT x 1") == "ERR value is not an integer or out of range"


class TestStore:
    def test_the_result_becomes_a_list(self, run: Run) -> None:
        run("RPUSH l 2 1")
        run("SET dest x EX 100")
        assert run("SORT l STORE dest") == 2
        assert run("LRANGE dest 0 -1") == [b"1", b"2"]
        assert run("TTL dest") == -1
        assert run("SORT missing STORE dest") == 0
        assert run("EXISTS dest") == 0

    def test_missing_references_become_empty(self, run: Run) -> None:
        run("RPUSH l 1")
        run("SORT l GET d* STORE dest")
        assert run("LRANGE dest 0 -1") == [b""]

    def test_sort_ro_does_not_store(self, run: Run) -> None:
        assert run.error("SORT_RO l STORE dest") == "ERR syntax error"


def test_a_missing_weight_sorts_first_among_words(run: Run) -> None:
    run("SADD k 1 2 3 4")
    run("MSET w1 b w3 a")
    assert run("SORT k BY w* ALPHA") == [b"2", b"4", b"3", b"1"]
    assert run("SORT k BY w* ALPHA DESC")[:2] == [b"1", b"3"]


def test_a_set_that_is_not_sorted_is_sorted_where_it_is_stored_or_scripted(run: Run) -> None:
    run("SADD k c a b")
    assert run("SORT k BY nosort STORE out") == 3
    assert run("LRANGE out 0 -1") == [b"a", b"b", b"c"]
    script = "return redis.call('SORT', KEYS[1], 'BY', 'nosort')"
    assert run("EVAL", script, 1, "k") == [b"a", b"b", b"c"]
