"""Hash fields with a TTL: the HEXPIRE family, HGETEX, HSETEX and HGETDEL."""

from __future__ import annotations

import pytest

from pytest_fakecloud.core.timekeeper import Timekeeper
from tests.kv.conftest import NOW_MS, Run

NUMFIELDS = "ERR numfields should be greater than 0 and match the provided number of fields"
NOW_S = NOW_MS // 1000


@pytest.fixture(autouse=True)
def _hash(run: Run) -> None:
    run("HSET h a 1 b 2 c 3")


class TestSetting:
    @pytest.mark.parametrize(
        ("name", "amount", "left_ms"),
        [
            ("HEXPIRE", 10, 10_000),
            ("HPEXPIRE", 10, 10),
            ("HEXPIREAT", NOW_S + 10, 10_000),
            ("HPEXPIREAT", NOW_MS + 10, 10),
        ],
    )
    def test_all_four(
        self, run: Run, clock: Timekeeper, name: str, amount: int, left_ms: int
    ) -> None:
        assert run(f"{name} h {amount} FIELDS 2 a missing") == [1, -2]
        assert run("HPTTL h FIELDS 2 a b") == [left_ms, -1]
        clock.advance(f"{left_ms}ms")
        assert run("HGETALL h") == [b"b", b"2", b"c", b"3"]
        for option, result in (("XX", 0), ("NX", 1), ("GT", 0), ("LT", 0), ("XX", 1)):
            assert run(f"{name} h {amount + 100_000} {option} FIELDS 1 b") == [result]
        assert run(f"{name} h {amount + 200_000} GT FIELDS 1 b") == [1]
        assert run(f"{name} h {amount + 1_000} LT FIELDS 1 b") == [1]


class TestReadingAndChanging:
    def test_hgetex(self, run: Run) -> None:
        for words, left_ms in [
            ("EX 10", 10_000),
            ("PX 10", 10),
            (f"EXAT {NOW_S + 3}", 3_000),
            (f"PXAT {NOW_MS + 3}", 3),
            ("PERSIST", -1),
            ("", -1),
        ]:
            assert run(f"HGETEX h {words} FIELDS 2 a x") == [b"1", None]
            assert run("HPTTL h FIELDS 1 a") == [left_ms]
        assert run("HGETEX h EXAT 1 FIELDS 1 a") == [b"1"]
        assert run("HEXISTS h a") == 0
        assert run("HGETEX h EX 0 FIELDS 1 b") == [b"2"]
        assert run("HEXISTS h b") == 0
        assert run.error("HGETEX h EX 10 PERSIST FIELDS 1 a") == "ERR syntax error"

    def test_hsetex(self, run: Run) -> None:
        for words, left_ms in [
            ("EX 10", 10_000),
            ("PX 10", 10),
            (f"EXAT {NOW_S + 3}", 3_000),
            (f"PXAT {NOW_MS + 3}", 3),
            ("KEEPTTL", 3),
            ("", -1),
        ]:
            assert run(f"HSETEX h {words} FIELDS 1 a 9") == 1
            assert run("HPTTL h FIELDS 1 a") == [left_ms]
