"""Bitmap commands."""

from __future__ import annotations

from tests.kv.conftest import Run


class TestHugeValues:
    """Values longer than a block that is processed at once."""

    def test_a_value_grows_bit_by_bit(self, run: Run) -> None:
        for offset in range(0, 4000, 7):
            assert run(f"SETBIT k {offset} 1") == 0
        assert run("BITCOUNT k") == 572
