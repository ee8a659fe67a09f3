"""Keys with a TTL: the EXPIRE family, TTL and PERSIST."""

from __future__ import annotations

import pytest

from pytest_fakecloud.core.timekeeper import Timekeeper
from tests.kv.conftest import NOW_MS, Run

NOW_S = NOW_MS // 1000
FORMS = [
    ("EXPIRE", 10, 10_000),
    ("PEXPIRE", 10, 10),
    ("EXPIREAT", NOW_S + 10, 10_000),
    ("PEXPIREAT", NOW_MS + 10, 10),
]


@pytest.mark.parametrize(("name", "amount", "left_ms"), FORMS)
class TestEachForm:
    def test_the_key_expires_on_time(
        self, run: Run, clock: Timekeeper, name: str, amount: int, left_ms: int
    ) -> None:
        run("SET k v")
        assert run(f"{name} k {amount}") == 1
        assert run("PTTL k") == left_ms
        assert run("TTL k") == (left_ms + 500) // 1000
        assert run("PEXPIRETIME k") == NOW_MS + left_ms
        assert run("EXPIRETIME k") == (NOW_MS + left_ms + 500) // 1000
        clock.advance(f"{left_ms}ms")
        assert run("TTL k") == -2
        assert run(f"{name} k {amount}") == 0

    def test_conditions(self, run: Run, name: str, amount: int, left_ms: int) -> None:
        run("SET k v")
        for words, result in [("XX", 0), ("GT", 0), ("LT", 1), ("NX", 0), ("GT", 0), ("XX", 1)]:
            assert run(f"{name} k {amount} {words}") == result
        assert run(f"{name} k {amount + 5} LT") == 0
        assert run(f"{name} k {amount + 5} GT XX") == 1
        run("PERSIST k")
        assert run(f"{name} k {amount} NX") == 1

    def test_a_past_expiry_removes_the_key(
        self, run: Run, name: str, amount: int, left_ms: int
    ) -> None:
        run("SET k v")
        assert run(f"{name} k -1") == 1
        assert run("EXISTS k") == 0

    def test_refusals(self, run: Run, name: str, amount: int, left_ms: int) -> None:
        run("SET k v")
        assert run.error(f"{name} k x") == "ERR value is not an integer or out of range"
        assert run.error(f"{name} k 1 junk") == "ERR Unsupported option junk"
        text = "ERR NX and XX, GT or LT options at the same time are not compatible"
        assert run.error(f"{name} k 1 NX GT") == text
        text = "ERR GT and LT options at the same time are not compatible"
        assert run.error(f"{name} k 1 GT LT") == text
        if name != "PEXPIREAT":
            text = f"ERR invalid expire time in '{name.lower()}' command"
            assert run.error(f"{name} k 9223372036854775807") == (
                text if name != "PEXPIREAT" else ""
            )


class TestNoExpiry:
    def test_states(self, run: Run) -> None:
        run("SET k v")
        for name in ("TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"):
            assert run(f"{name} k") == -1
            assert run(f"{name} missing") == -2

    def test_persist(self, run: Run) -> None:
        run("SET k v EX 10")
        assert run("PERSIST k") == 1
        assert run("PERSIST k") == 0
        assert run("PERSIST missing") == 0


class TestEveryReader:
    def test_an_expired_key_is_gone_for_all(self, run: Run, clock: Timekeeper) -> None:
        run("SET k v EX 10")
        run("RPUSH l x")
        run("EXPIRE l 10")
        clock.advance(10)
        assert run("DBSIZE") == 0
        assert run("KEYS *") == []
        assert run("SCAN 0") == [b"0", []]
        assert run("RANDOMKEY") is None
        assert run("SET k v XX") is None
        assert run("RPUSH l y") == 1
        assert run("TTL l") == -1
