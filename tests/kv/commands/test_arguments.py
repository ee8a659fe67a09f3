"""Scans while keys, fields and members come and go."""

from __future__ import annotations

import pytest

from tests.kv.conftest import Run


@pytest.mark.parametrize(
    ("scan", "fill", "changes", "width"),
    [
        ("SCAN {} COUNT 7", "SET m{0} 1", ("DEL m{1} n{2}", "SET n{0} 1"), 1),
        ("SSCAN k {} COUNT 7", "SADD k m{0}", ("SREM k m{1} n{2}", "SADD k n{0}"), 1),
        ("HSCAN k {} COUNT 7", "HSET k m{0} 1", ("HDEL k m{1} n{2}", "HSET k n{0} 1"), 2),
        ("ZSCAN k {} COUNT 7", "ZADD k {0} m{0}", ("ZREM k m{1}", "ZADD k -{0} n{0} 5000 m{0}"), 2),
    ],
)
def test_every_item_that_stays_is_met(
    run: Run, scan: str, fill: str, changes: tuple[str, ...], width: int
) -> None:
    for number in range(600):
        run(fill.format(number))
    cursor, seen, steps = b"0", [], 0
    while steps == 0 or cursor != b"0":
        cursor, page = run(scan.format(cursor.decode()))
        seen += page[::width]
        for line in changes:
            run(line.format(steps, 599 - steps, steps - 3))
        steps += 1
    assert steps > 50
    assert {b"m%d" % number for number in range(600 - steps)} <= set(seen)
    if scan.startswith(("SCAN", "HSCAN")):
        assert len(seen) == len(set(seen))
