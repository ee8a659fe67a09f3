"""XINFO, and the lag of consumer groups."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kv.conftest import Run


def lags(run: Run, key: str) -> dict[bytes, Any]:
    groups = [dict(zip(one[::2], one[1::2], strict=True)) for one in run(f"XINFO GROUPS {key}")]
    return {one[b"name"]: one[b"lag"] for one in groups}


@pytest.mark.parametrize(
    # Only later versions stop counting at deleted entries.
    "before",
    [pytest.param(3, marks=pytest.mark.dialect("redis"), id="7.0"), None],
)
def test_the_lag_of_groups_that_begin_anywhere(run: Run, before: int | None) -> None:
    for number in (1, 2, 3, 5):
        run(f"XADD s {number}-0 a b")
    run("XDEL s 1-0")
    for name, begin in (("before", "0-5"), ("first", "2-0"), ("between", "3-0"), ("last", "5-0"),
                        ("beyond", "99-0")):  # fmt: skip
        run(f"XGROUP CREATE s {name} {begin}")
    assert lags(run, "s") == {
        b"before": before, b"between": None, b"beyond": None, b"first": 2, b"last": 0,
    }  # fmt: skip
    run("XADD empty 5-0 a b")
    run("XDEL empty 5-0")
    run("XGROUP CREATE empty old 3-0")
    run("XGROUP CREATE empty new 9-0")
    run("XGROUP CREATE none any 0 MKSTREAM")
    assert lags(run, "empty") == {b"new": None, b"old": 0}
    assert lags(run, "none") == {b"any": 0}
