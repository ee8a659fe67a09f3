"""Strings as numbers: INCR, INCRBYFLOAT and others."""

from __future__ import annotations

import pytest

from tests.kv.conftest import Run

WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
NOT_INTEGER = "ERR value is not an integer or out of range"


class TestNumbers:
    def test_counting(self, run: Run) -> None:
        assert [run("INCR n"), run("INCRBY n 10"), run("DECR n"), run("DECRBY n 4")] == [
            1,
            11,
            10,
            6,
        ]
        run("SET n 1 EX 10")
        run("INCR n")
        assert run("TTL n") == 10

    @pytest.mark.parametrize("value", ["abc", "1.5", " 1", "01", "+1", "", "9223372036854775808"])
    def test_a_value_must_be_a_canonical_integer(self, run: Run, value: str) -> None:
        run("SET", "n", value)
        assert run.error("INCR n") == NOT_INTEGER

    def test_overflow(self, run: Run) -> None:
        run("SET n 9223372036854775807")
        assert run.error("INCR n") == "ERR increment or decrement would overflow"
        assert run.error("DECRBY n -9223372036854775808") == "ERR decrement would overflow"
        run("SET n -9223372036854775808")
        assert run.error("DECR n") == "ERR increment or decrement would overflow"

    @pytest.mark.parametrize(
        ("value", "amount", "result"),
        [
            ("10.50", "0.1", "10.6"), ("5.0e3", "2.0e2", "5200"), ("3", "-5", "-2"),
            ("0", "1.1", "1.1"), ("0.1", "0.2", "0.3"), ("1", "1e15", "1000000000000001"),
            ("0x10", "1", "17"), ("1e17", "0.5", "100000000000000000.5"),
        ],
    )  # fmt: skip
    def test_floats(self, run: Run, value: str, amount: str, result: str) -> None:
        run("SET", "n", value)
        assert run("INCRBYFLOAT", "n", amount) == result.encode()

    def test_float_refusals(self, run: Run) -> None:
        assert run.error("INCRBYFLOAT n x") == "ERR value is not a valid float"
        assert run.error("INCRBYFLOAT n nan") == "ERR value is not a valid float"
        text = "ERR increment would produce NaN or Infinity"
        assert run.error("INCRBYFLOAT n inf") == text


class TestBeyondADouble:
    """INCRBYFLOAT and HINCRBYFLOAT compute with 80 bits, as far as these reach."""

    @pytest.mark.parametrize("command", ["INCRBYFLOAT k", "HINCRBYFLOAT k f"])
    def test_digits_and_their_end(self, run: Run, command: str) -> None:
        assert run(f"{command} 1e4931") == run(f"{command} 0")
        found = run(f"{command} 1e4931")
        assert (len(found), found[:18]) == (4932, b"200000000000000000")
        text = "ERR increment would produce NaN or Infinity"
        for _ in range(8):
            run(f"{command} 1e4931")
        assert run.error(f"{command} 1e4932") == text
        assert run(f"{command} 0").startswith(b"99999999")
        not_float = "ERR value is not a valid float"
        assert run.error(f"{command} 1e4933") == not_float
        assert run.error(f"{command} -1.2e4932") == not_float
        assert len(run(f"{command} -1e4932")) < 4925
