"""Claims of pending entries."""

from __future__ import annotations

import pytest

from tests.kv.conftest import Run


@pytest.mark.dialect("redis")
@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("XCLAIM s g c 0 9-9", 0), ("XCLAIM s g c 0 9-9 LASTID 1-1", 0),
        ("XCLAIM s g c 0 9-9 LASTID 9-9", 1), ("XCLAIM s g c 0 1-1", 1), ("XCLAIM s g c 0 2-1", 1),
        ("XAUTOCLAIM s g c 0 3-1", 0), ("XAUTOCLAIM s g c 0 2-1", 1),
    ],
)  # fmt: skip
def test_what_counts_as_a_change_of_the_group(run: Run, line: str, changes: int) -> None:
    for filling in ("XADD s 1-1 a 1", "XADD s 2-1 a 1", "XGROUP CREATE s g 0"):
        run(filling)
    run("XREADGROUP GROUP g c STREAMS s >")
    run("XDEL s 1-1")
    before = run.engine.databases[0].changes
    run(line)
    assert run.engine.databases[0].changes == before + changes
