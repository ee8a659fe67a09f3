"""Stream commands, apart from the scenarios: trimming, and maps in RESP3."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.reply import Map
from tests.kv.conftest import Run


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
    run: Run, length: int, line: str, removed: int
) -> None:
    for number in range(1, length + 1):
        run("XADD", "s", f"{number}-1", "a", number)
    assert run(f"XTRIM s {line}") == removed
    assert run("XLEN s") == length - removed
    if removed < length:
        assert run("XRANGE s - + COUNT 1")[0][0] == f"{removed + 1}-1".encode()


def test_streams_are_a_map_in_resp3(run: Run) -> None:
    run("XADD s 1-1 a 1-1")
    reply = run.other(resp=3)("XREAD STREAMS s 0")
    assert isinstance(reply, Map)
    assert reply == [b"s", [[b"1-1", [b"a", b"1-1"]]]]
