"""Lists, sets and hashes as values, the expiry of elements, and the order of scans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_fakecloud.core.ids import Ids, RandomStream
from pytest_fakecloud.kv.config import Config
from pytest_fakecloud.kv.values.containers import (
    ExpiryTimes,
    HashValue,
    QuickList,
    ScanOrder,
    SetValue,
)
from pytest_fakecloud.kv.values.measures import entry_size
from pytest_fakecloud.kv.values.zset import SortedSet
from tests.budget import cases
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
            items.push((item, b"x"), left=True)
            model[:0] = [b"x", item]
        elif what == "right":
            items.push((item,), left=False)
            model.append(item)
        elif what == "insert":
            items.insert(index, item)
            model.insert(index, item)
            stop = min(index + number // 3, len(model))
            assert items.slice(index, stop) == model[index:stop]
        elif what == "remove":
            count = number % 5 - 2
            positions = [i for i, value in enumerate(model) if value == item]
            doomed = positions[:count] if count > 0 else positions[count:] if count else positions
            assert items.remove(item, count) == len(doomed)
            model = [value for i, value in enumerate(model) if i not in doomed]
        elif model and what == "replace":
            items.replace(index % len(model), item)
            model[index % len(model)] = item
        elif model and what == "pop":
            assert items.pop(left=False) == model.pop()
        elif model:
            assert items.pop(left=True) == model.pop(0)
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


@pytest.mark.parametrize(
    ("value", "change"),
    [
        (QuickList([b"a", b"b"]), lambda items: items.push([b"z"], left=True)),
        (SetValue([b"a"]), lambda members: members.add(b"b")),
        (HashValue({b"a": b"1"}), lambda value: value.remove(b"a")),
        (SortedSet({b"a": 1.0}), lambda members: members.set(b"b", 2.0)),
    ],
)
def test_a_copy_is_independent(value: Any, change: Callable[[Any], object]) -> None:
    twin, before = value.copy(), list(value)
    change(twin)
    assert list(value) == before != list(twin)


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
    by_length = {len(items): items.encoding(config)}
    while change():
        encoding = items.encoding(config)
        if encoding != [*by_length.values()][-1]:
            by_length[len(items)] = encoding
    return by_length


def test_a_list_is_packed_again_at_half_the_limit() -> None:
    """The lengths of items of 500 bytes are those of Valkey 8; a number of items limits both."""

    def check(limit: int, size: int, quick_at: int, packed_at: int | None = None) -> None:
        items = QuickList()
        growing = encodings(
            items, lambda: items.push([b"x" * size], left=False) or len(items) < 200, limit
        )
        assert growing == {0: "listpack", quick_at: "quicklist"}
        if packed_at is not None:
            items.replace(0, b"")
            items.replace(0, b"x" * size)
            shrinking = encodings(items, lambda: items.pop(left=False) and items, limit)
            assert shrinking == {200: "quicklist", packed_at: "listpack"}

    check_each(check, [
        (-1, 500, 9, 4), (-2, 500, 17, 8), (-3, 500, 33, 16), (-5, 500, 131, 65),
        (-9, 500, 131, 65), (0, 1, 2), (1, 1, 2), (5, 1, 6), (100, 500, 17),
    ])  # fmt: skip


@pytest.mark.parametrize("count", [0, 100, -100])
def test_many_are_removed_at_once(count: int) -> None:
    model = [b"x" if number % 3 else b"%d" % number for number in range(300)]
    quick = QuickList(model)
    assert quick.remove(b"x", count) == (abs(count) or 200)
    model = model[:: -1 if count < 0 else 1]
    for _ in range(abs(count) or 200):
        model.remove(b"x")
    assert list(quick) == model[:: -1 if count < 0 else 1]


NAMES = st.integers(0, 30).map(lambda n: b"%d" % n)


@given(
    st.sets(NAMES, min_size=5),
    st.lists(st.tuples(st.booleans(), NAMES), max_size=60),
    st.integers(1, 7),
)
def test_a_scan_returns_every_member_that_stays_once(
    start: set[bytes], changes: list[tuple[bool, bytes]], count: int
) -> None:
    members = SetValue(start)
    stayed, met, cursor, at = set(start), [], 0, 0
    while True:
        cursor, page = members.scan(cursor, count)
        met += page
        if not cursor:
            break
        for adding, name in changes[at : at + 2]:
            if adding:
                members.add(name)
            else:
                members.remove(name)
                stayed.discard(name)
        at += 2
    assert stayed <= set(met)
    assert len(met) == len(set(met))


def test_positions_are_for_random_choice() -> None:
    members = SetValue([b"a", b"b", b"c"])
    assert members.remove(b"a")
    assert not members.remove(b"a")
    assert {members.at(0), members.at(1)} == {b"b", b"c"}


def test_integers_come_in_order() -> None:
    members = SetValue([b"10", b"-3", b"2"])
    assert list(members) == [b"-3", b"2", b"10"]
    members.add(b"x")
    assert list(members)[-1] == b"x"


def test_setting_reports_new_fields_and_drops_expiry() -> None:
    value = HashValue()
    assert value.set(b"a", b"1")
    value.expire_at(b"a", 5)
    assert not value.set(b"a", b"2", keep_ttl=True)
    assert value.expires.get(b"a") == 5
    assert not value.set(b"a", b"3")
    assert value.expires.get(b"a") is None
    assert value.expires == {}


def test_fields_expire_on_time() -> None:
    value = HashValue()
    for field, at_ms in ((b"a", 5), (b"b", 9)):
        value.set(field, b"x")
        value.expire_at(field, at_ms)
    assert value.expires.earliest() == 5
    value.remove_expired(5)
    assert list(value) == [b"b"]
    assert value.persist(b"b")
    assert value.expires.earliest() is None
    assert not value.persist(b"b")


def test_a_copy_has_its_own_ttls_and_the_same_encoding() -> None:
    value = HashValue({b"a": b"x" * 100})
    value.expire_at(b"a", 5)
    twin = value.copy()
    twin.remove(b"a")
    assert (value.expires, twin.expires) == ({b"a": 5}, {})
    assert twin.encoding(Config()) == "hashtable"


KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
TIMES = st.integers(-5, 40)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["put", "remove", "earliest", "expire", "renew"]), KEYS, TIMES),
    max_size=150,
)


@settings(max_examples=cases(50), deadline=None)
@given(st.dictionaries(KEYS, TIMES), CHANGES)
def test_the_due_ones_are_found(
    start: dict[bytes, int], changes: list[tuple[str, bytes, int]]
) -> None:
    times, model = ExpiryTimes(start), dict(start)
    for change, key, at_ms in changes:
        if change == "put":
            times.put(key, at_ms)
            model[key] = at_ms
        elif change == "remove":
            assert times.pop(key, None) == model.pop(key, None)
        elif change == "earliest":
            assert times.earliest() == min(model.values(), default=None)
        elif change == "expire":
            expired = []
            for due in times.due(at_ms):
                expired.append((times.pop(due), due))
            assert expired == sorted((at, due) for due, at in model.items() if at <= at_ms)
            model = {member: at for member, at in model.items() if at > at_ms}
        else:
            for due in times.due(at_ms):
                times.put(due, at_ms + 1)
            model = {member: max(at, at_ms + 1) for member, at in model.items()}
        assert times == model


def test_times_that_are_set_again_and_again_do_not_accumulate() -> None:
    times = ExpiryTimes()
    for at_ms in range(10_000):
        times.put(b"session", at_ms)
        times.earliest()
    assert times._heap is not None
    assert len(times._heap) < 200


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
    assert all(len(set(members)) == count for members in drawn)
    assert evenly(Counter(item for batch in drawn for item in batch), DRAWS // 100 * count)


def test_all_elements_are_drawn_if_more_are_requested(
    order: ScanOrder, random: RandomStream
) -> None:
    assert sorted(order.draw_distinct(random, 11)) == sorted(b"%d" % n for n in range(10))
