"""Random choice from a collection that changes: equally likely, and repeatable with a seed."""

from __future__ import annotations

from collections import Counter

import pytest

from pytest_fakecloud.core.ids import Ids, RandomStream
from pytest_fakecloud.kv.values.containers import ScanOrder

DRAWS = 20_000


@pytest.fixture
def random() -> RandomStream:
    return Ids(1).stream("kv", "random")


@pytest.fixture
def order() -> ScanOrder:
    """Ten elements, after thirty others were removed and one of the ten was added again."""
    live = {b"%d" % n: None for n in range(40)}
    order = ScanOrder(live)  # type: ignore[arg-type]
    for n in range(10, 40):
        del live[b"%d" % n]
    del live[b"3"]
    live[b"3"] = None
    order.add(b"3")
    return order


def evenly(counts: Counter[bytes], expected: int) -> bool:
    # The standard deviation is below the square root of the expected number: 4 of them are 1 in 16,000.
    return len(counts) == 10 and all(
        abs(count - expected) < 4 * expected**0.5 for count in counts.values()
    )


def test_all_elements_are_equally_likely(order: ScanOrder, random: RandomStream) -> None:
    assert evenly(Counter(order.draw(random) for _ in range(DRAWS)), DRAWS // 10)


@pytest.mark.parametrize("count", [1, 3, 7, 9])
def test_different_elements_are_equally_likely(
    order: ScanOrder, random: RandomStream, count: int
) -> None:
    drawn = [order.draw_distinct(random, count) for _ in range(DRAWS // 10)]
    assert all(len(set(each)) == count for each in drawn)
    assert evenly(Counter(one for each in drawn for one in each), DRAWS // 100 * count)


def test_all_elements_are_drawn_if_more_are_requested(
    order: ScanOrder, random: RandomStream
) -> None:
    assert sorted(order.draw_distinct(random, 11)) == sorted(b"%d" % n for n in range(10))
