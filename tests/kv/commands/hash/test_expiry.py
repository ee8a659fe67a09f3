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

    def test_a_past_expiry_removes_the_field(self, run: Run) -> None:
        assert run("HEXPIRE h 0 FIELDS 1 a") == [2]
        assert run("HEXPIREAT h 1 FIELDS 2 b c") == [2, 2]
        assert run("EXISTS h") == 0

    def test_setting_a_field_takes_its_expiry_off(self, run: Run) -> None:
        run("HEXPIRE h 10 FIELDS 2 a b")
        run("HSET h a 2")
        run("HINCRBY h b 1")
        assert run("HTTL h FIELDS 2 a b") == [-1, 10]

    def test_refusals(self, run: Run) -> None:
        assert run.error("HEXPIRE h 10 FIELDS 2 a") == NUMFIELDS
        assert run.error("HEXPIRE h 10 FIELDS 0 a") == NUMFIELDS
        assert run.error("HEXPIRE h 10 FOO 1 a") == NUMFIELDS
        assert run.error("HEXPIRE h 10 FOO FIELDS 1 a") == "ERR Unsupported option FOO"
        text = "ERR NX and XX, GT or LT options at the same time are not compatible"
        assert run.error("HEXPIRE h 10 NX XX FIELDS 1 a") == text
        text = "ERR GT and LT options at the same time are not compatible"
        assert run.error("HEXPIRE h 10 GT LT FIELDS 1 a") == text
        assert run.error("HEXPIRE h -1 FIELDS 1 a") == (
            "ERR invalid expire time in 'hexpire' command"
        )
        assert run("HEXPIRE none 10 FIELDS 2 a b") == [-2, -2]
        for line in ("HGETEX h EX 10 FIELDS", "HSETEX h FNX EX 10 FIELDS"):
            assert run.error(line) == NUMFIELDS


class TestReading:
    def test_all_four(self, run: Run) -> None:
        run("HEXPIRE h 10 FIELDS 1 a")
        assert run("HTTL h FIELDS 3 a b x") == [10, -1, -2]
        assert run("HPTTL h FIELDS 1 a") == [10_000]
        assert run("HEXPIRETIME h FIELDS 1 a") == [NOW_S + 10]
        assert run("HPEXPIRETIME h FIELDS 1 a") == [NOW_MS + 10_000]
        assert run("HTTL none FIELDS 1 a") == [-2]
        assert run.error("HTTL h FIELDS 2 a") == "ERR syntax error"

    def test_the_vendor_rounds_seconds_down(self, run: Run, clock: Timekeeper) -> None:
        clock.advance("750ms")
        run("HEXPIRE h 10 FIELDS 1 a")
        assert run("HEXPIRETIME h FIELDS 1 a") == [NOW_S + 10]
        assert run("HPEXPIRETIME h FIELDS 1 a") == [NOW_MS + 10_750]

    @pytest.mark.dialect("redis", version="7.4.0")
    def test_stock_rounds_to_the_nearest_second(self, run: Run, clock: Timekeeper) -> None:
        clock.advance("750ms")
        run("HEXPIRE h 10 FIELDS 1 a")
        assert run("HEXPIRETIME h FIELDS 1 a") == [NOW_S + 11]

    def test_hpersist(self, run: Run) -> None:
        run("HEXPIRE h 10 FIELDS 1 a")
        assert run("HPERSIST h FIELDS 3 a b x") == [1, -1, -2]
        assert run("HTTL h FIELDS 1 a") == [-1]
        assert run("HPERSIST none FIELDS 1 a") == [-2]
        assert run.error("HPERSIST h FIELDS 2 a") == NUMFIELDS


class TestReadingAndChanging:
    def test_hgetdel(self, run: Run) -> None:
        assert run("HGETDEL h FIELDS 2 a x") == [b"1", None]
        assert run("HGETDEL h FIELDS 2 b c") == [b"2", b"3"]
        assert run("EXISTS h") == 0
        assert run("HGETDEL h FIELDS 1 a") == [None]

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

    def test_hsetex_conditions(self, run: Run) -> None:
        assert run("HSETEX h FNX FIELDS 2 a 5 new 5") == 0
        assert run("HSETEX h FXX FIELDS 2 a 5 new 5") == 0
        assert run("HSETEX h FXX FIELDS 1 a 5") == 1
        assert run("HSETEX h FNX FIELDS 1 new 5") == 1
        assert run("HSETEX h NX FIELDS 1 a 5") == 0
        assert run("HSETEX other XX FIELDS 1 a 5") == 0
        assert run("HSETEX other NX FIELDS 1 a 5") == 1
        assert run("HSETEX h XX FIELDS 1 a 5") == 1
        assert run.error("HSETEX h FNX FXX FIELDS 1 a 5") == "ERR syntax error"
        assert run.error("HSETEX h FIELDS 2 a 5") == NUMFIELDS


class TestTheKey:
    def test_a_hash_without_fields_is_removed(self, run: Run, clock: Timekeeper) -> None:
        run("HEXPIRE h 10 FIELDS 3 a b c")
        clock.advance(10)
        assert run("DBSIZE") == 0
        assert run("TYPE h").text == b"none"
        assert run("KEYS *") == []

    def test_expiries_travel_with_the_key(self, run: Run, clock: Timekeeper) -> None:
        run("HEXPIRE h 10 FIELDS 1 a")
        run("COPY h copy")
        run("RENAME h moved")
        payload = run("DUMP moved")
        run(b"RESTORE", b"restored", b"0", payload)
        clock.advance(10)
        for key in ("copy", "moved", "restored"):
            assert run(f"HKEYS {key}") == [b"b", b"c"]
