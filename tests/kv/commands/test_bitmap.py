"""Bitmap commands."""

from __future__ import annotations

from tests.kv.conftest import Run


class TestHugeValues:
    """Values longer than a block that is processed at once."""

    def test_a_value_grows_bit_by_bit(self, run: Run) -> None:
        for offset in range(0, 4000, 7):
            assert run(f"SETBIT k {offset} 1") == 0
        assert run("BITCOUNT k") == 572


def test_bits_within_one_byte_are_counted(run: Run) -> None:
    run("SET k foobar")
    assert run("BITCOUNT k 1 3 BIT") == 2
    assert run.error("BITPOS k 1 0 -1 BIT more") == "ERR syntax error"
