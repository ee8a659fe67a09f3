"""Trimming streams."""

from __future__ import annotations

import pytest

from tests.kv.commands.stream.conftest import fill
from tests.kv.conftest import Run


class TestTrimming:
    @pytest.mark.parametrize(
        ("length", "line", "removed"),
        [
            (1000, "MAXLEN ~ 30", 970), (129, "MAXLEN ~ 30", 0), (130, "MAXLEN ~ 30", 100),
            (120, "MAXLEN ~ 30", 0), (120, "MAXLEN = 30", 90), (120, "MAXLEN 30", 90),
            (99, "MAXLEN ~ 0", 0), (100, "MAXLEN ~ 0", 100), (30, "MAXLEN ~ 50", 0),
            (250, "MINID ~ 101", 100), (250, "MINID ~ 100-2", 100), (250, "MINID ~ 100", 0),
            (250, "MINID = 100", 99), (250, "MINID ~ 9999", 250), (250, "MAXLEN ~ 100 LIMIT 7", 7),
            (250, "MAXLEN ~ 200 LIMIT 7", 0), (250, "MAXLEN ~ 100 LIMIT 0", 150),
        ],
    )  # fmt: skip
    def test_the_vendor_trims_roughly_once_a_hundred_are_too_many(
        self, run: Run, length: int, line: str, removed: int
    ) -> None:
        fill(run, *(f"{n}-1" for n in range(1, length + 1)))
        assert run(f"XTRIM s {line}") == removed
        assert run("XLEN s") == length - removed
        if removed < length:
            assert run("XRANGE s - + COUNT 1")[0][0] == f"{removed + 1}-1".encode()


@pytest.mark.dialect("redis", version="7.2.0")
def test_the_last_id_is_not_set_below_a_deleted_one(run: Run) -> None:
    run("XADD s 5-0 a 1")
    run("XDEL s 5-0")
    error = "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"
    assert run.error("XSETID s 4-0") == error
