"""Lists as values, compared with a plain Python list."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.kv.values.containers import QuickList
from pytest_fakecloud.kv.values.measures import entry_size
from tests.harness import check_each

ITEMS = st.sampled_from([b"a", b"b", b"c", b"12", b""])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["left", "right", "insert", "replace", "pop", "shift", "remove"]),
        st.integers(0, 30),
        ITEMS,
    ),
    max_size=80,
)


@given(st.lists(ITEMS, max_size=40), STEPS)
def test_it_is_a_list(start: list[bytes], steps: list[tuple[str, int, bytes]]) -> None:
    items, model = QuickList(start), list(start)
    for what, number, item in steps:
        index = number % (len(model) + 1)
        if what == "left":
            items.push_left((item, b"x"))
            model[:0] = [b"x", item]
        elif what == "right":
            items.push_right((item,))
            model.append(item)
        elif what == "insert":
            items.insert(index, item)
            model.insert(index, item)
            stop = min(index + number // 3, len(model))
            assert items.slice(index, stop) == model[index:stop]
        elif what == "remove":
            count = number % 5 - 2
            found = [i for i, each in enumerate(model) if each == item]
            doomed = found[:count] if count > 0 else found[count:] if count else found
            assert items.remove(item, count) == len(doomed)
            model = [each for i, each in enumerate(model) if i not in doomed]
        elif model and what == "replace":
            items.replace(index % len(model), item)
            model[index % len(model)] = item
        elif model and what == "pop":
            assert items.pop_right() == model.pop()
        elif model:
            assert items.pop_left() == model.pop(0)
        assert len(items) == len(model)
    assert list(items) == model
    assert list(reversed(items)) == model[::-1]
    assert [items.at(i) for i in range(len(model))] == model
    assert items.slice(0, len(model)) == model
    assert items._bytes == 7 + sum(map(entry_size, model))


def test_searches_in_both_directions_with_a_limit() -> None:
    items = QuickList([b"a", b"b", b"a", b"c", b"a"])
    assert list(items.matches(b"a")) == [0, 2, 4]
    assert list(items.matches(b"a", reverse=True)) == [4, 2, 0]
    assert list(items.matches(b"a", maxlen=3)) == [0, 2]
    assert list(items.matches(b"c", reverse=True, maxlen=1)) == []


def test_a_copy_is_independent() -> None:
    items = QuickList([b"a", b"b"])
    twin = items.copy()
    twin.push_left([b"z"])
    items.pop_left()
    assert (list(items), list(twin)) == ([b"b"], [b"z", b"a", b"b"])


def test_the_bytes_an_entry_takes() -> None:
    def check(item: bytes, size: int) -> None:
        assert entry_size(item) == size

    check_each(
        check,
        [
            (b"", 2), (b"0", 2), (b"127", 2), (b"128", 3), (b"-4096", 3), (b"4096", 4),
            (b"-32769", 5), (b"8388608", 6), (b"2147483648", 10), (b"01", 4), (b"-0", 4),
            (b"9223372036854775808", 21), (b"x" * 63, 65), (b"x" * 64, 67), (b"x" * 5000, 5007),
            (b"x" * 16376, 16383), (b"x" * 16378, 16386), (b"x" * 2097145, 2097153),
            (b"x" * 2097146, 2097155),
        ],
    )  # fmt: skip


def encodings(items: QuickList, change: Any, limit: int) -> dict[int, str]:
    """Return each length at which the encoding changes, while ``change()`` still does something."""
    config: Any = SimpleNamespace(packs_lists_and_sets=True, number=lambda name: limit)
    found = {len(items): items.encoding(config)}
    while change():
        encoding = items.encoding(config)
        if encoding != [*found.values()][-1]:
            found[len(items)] = encoding
    return found


def test_a_list_is_packed_again_at_half_the_limit() -> None:
    """The lengths are those of Valkey 8, with items of 500 bytes."""

    def check(limit: int, quick_at: int, packed_at: int) -> None:
        items = QuickList()
        growing = encodings(
            items, lambda: items.push_right([b"x" * 500]) or len(items) < 200, limit
        )
        assert growing == {0: "listpack", quick_at: "quicklist"}
        items.replace(0, b"")
        items.replace(0, b"x" * 500)
        shrinking = encodings(items, lambda: items.pop_right() and items, limit)
        assert shrinking == {200: "quicklist", packed_at: "listpack"}

    check_each(check, [(-1, 9, 4), (-2, 17, 8), (-3, 33, 16), (-5, 131, 65), (-9, 131, 65)])


def test_a_limit_on_the_number_of_items_also_limits_the_bytes() -> None:
    def check(limit: int, size: int, quick_at: int) -> None:
        items = QuickList()
        growing = encodings(
            items, lambda: items.push_right([b"x" * size]) or len(items) < 40, limit
        )
        assert growing == {0: "listpack", quick_at: "quicklist"}

    check_each(check, [(0, 1, 2), (1, 1, 2), (5, 1, 6), (100, 500, 17)])


@pytest.mark.parametrize("count", [0, 100, -100])
def test_many_are_removed_at_once(count: int) -> None:
    model = [b"x" if number % 3 else b"%d" % number for number in range(300)]
    quick = QuickList(model)
    assert quick.remove(b"x", count) == (abs(count) or 200)
    model = model[:: -1 if count < 0 else 1]
    for _ in range(abs(count) or 200):
        model.remove(b"x")
    assert list(quick) == model[:: -1 if count < 0 else 1]
