"""Streams as values: entries, compared with a dictionary; nodes; groups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.kv.values.stream import (
    ID_MAX,
    Consumer,
    Group,
    Pending,
    PendingList,
    StreamValue,
    format_id,
    make_id,
)

STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "add", "delete", "length", "id"]), st.integers(0, 90)),
    max_size=100,
)


@given(STEPS)
def test_it_is_an_ordered_dictionary(steps: list[tuple[str, int]]) -> None:
    stream = StreamValue()
    model: dict[int, list[bytes]] = {}
    added = 0
    for what, number in steps:
        if what == "add":
            entry_id = stream.last_id + 1 + number
            stream.append(entry_id, [b"n", b"%d" % number], max_entries=7)
            model[entry_id] = [b"n", b"%d" % number]
            added += 1
        elif what == "delete" and model:
            entry_id = list(model)[number % len(model)]
            assert stream.delete(entry_id)
            assert not stream.delete(entry_id)
            del model[entry_id]
            assert stream.max_deleted_id >= entry_id
        elif what == "length":
            assert stream.surplus(max_length=number) == max(len(model) - number, 0)
            removed = stream.trim(max_length=number)
            assert removed == list(model)[: max(len(model) - number, 0)]
            model = {entry_id: model[entry_id] for entry_id in model if entry_id not in removed}
        else:
            limit = stream.last_id - number * 10
            surplus = stream.surplus(min_id=max(limit, 0))
            removed = stream.trim(min_id=max(limit, 0))
            assert len(removed) == surplus
            model = {entry_id: model[entry_id] for entry_id in model if entry_id >= limit}
        assert stream.length == len(model)
        assert stream.entries_added == added
    ids = list(model)
    assert stream.range() == list(model.items())
    assert stream.range(reverse=True) == list(model.items())[::-1]
    assert stream.first_id == (ids[0] if ids else 0)
    assert stream.highest_id == (ids[-1] if ids else 0)
    for start, end in [(0, 50), (30, 200), (100, ID_MAX), (5, 4)]:
        inside = [entry for entry in model.items() if start <= entry[0] <= end]
        assert stream.range(start, end) == inside
        assert stream.range(start, end, 3) == inside[:3]
        assert stream.range(start, end, 2, reverse=True) == inside[::-1][:2]


def test_trimming_whole_nodes_and_no_more_than_a_limit() -> None:
    stream = StreamValue()
    for n in range(1, 26):
        stream.append(n, [b"a", b"b"], max_entries=10)
    assert len(stream.nodes) == 3
    twin = stream.copy()
    assert stream.trim(max_length=12, whole_nodes=True) == list(range(1, 11))
    assert stream.trim(max_length=0, whole_nodes=True, limit=3) == []
    assert twin.trim(min_id=18, limit=4) == [1, 2, 3, 4]
    assert twin.length == 21
    assert stream.length == 15


TRIMMED_WITH_GROUPS = st.tuples(
    st.sets(st.integers(1, 40)),
    st.lists(st.tuples(st.integers(0, 40), st.sets(st.integers(1, 40))), max_size=3),
    st.integers(0, 45),
    st.booleans(),
    st.integers(0, 12),
)


@given(TRIMMED_WITH_GROUPS)
def test_trimming_keeps_unacknowledged_entries(
    case: tuple[set[int], list[tuple[int, set[int]]], int, bool, int],
) -> None:
    ids, groups, threshold, by_length, limit = case
    stream = StreamValue()
    for n in sorted(ids):
        stream.append(n, [b"a", b"b"], max_entries=5)
    for at, (last_id, pending) in enumerate(groups):
        group = stream.groups[b"%d" % at] = Group(last_id)
        consumer = group.consumers[b"c"] = Consumer(b"c", 0)
        for n in pending:
            if n <= last_id:
                group.deliver(n, consumer, 0)
    free = [
        n for n in sorted(ids)
        if all(n <= last_id and n not in pending for last_id, pending in groups)
    ]  # fmt: skip
    bound = {"max_length": threshold} if by_length else {"min_id": threshold}
    surplus = free[: max(len(ids) - threshold, 0)]
    expected = (surplus if by_length else [n for n in free if n < threshold])[: limit or None]
    assert stream.trim(only_acknowledged=True, limit=limit, **bound) == expected
    left = sorted(ids - set(expected))
    assert [n for n, _ in stream.range()] == left
    assert stream.length == len(left)
    assert stream.max_deleted_id == 0


def test_whole_nodes_stay_for_one_awaited_entry() -> None:
    stream = StreamValue()
    for n in range(1, 31):
        stream.append(n, [b"a", b"b"], max_entries=10)
    group = stream.groups[b"g"] = Group(30)
    consumer = group.consumers[b"c"] = Consumer(b"c", 0)
    group.deliver(5, consumer, 0)
    removed = stream.trim(only_acknowledged=True, max_length=15, whole_nodes=True)
    assert removed == list(range(11, 21))
    assert stream.trim(only_acknowledged=True, max_length=11, whole_nodes=True) == []


def test_ids_run_out_at_the_highest() -> None:
    stream = StreamValue()
    assert stream.next_id(5) == make_id(5, 0)
    stream.last_id = make_id(9, 3)
    assert stream.next_id(5) == make_id(9, 4)
    stream.last_id = ID_MAX
    assert stream.next_id(5) is None
    assert format_id(ID_MAX) == b"18446744073709551615-18446744073709551615"


@pytest.mark.parametrize(("count", "nodes"), [(0, 1), (1, 2), (2, 4)])
def test_nodes_are_full_at_their_bytes_and_in_a_radix_tree(count: int, nodes: int) -> None:
    stream = StreamValue()
    for n in range(1, count + 1):
        stream.append(n, [b"a", b"x" * 3000])
    assert (len(stream.nodes), stream.radix_tree_nodes) == (count, nodes)


def test_pending_entries_belong_to_one_consumer_at_a_time() -> None:
    group = Group(0)
    alice, bob = Consumer(b"alice", 1), Consumer(b"bob", 1)
    group.consumers = {b"bob": bob, b"alice": alice}
    for entry_id in (3, 1, 2):
        group.deliver(entry_id, alice, 10)
    assert [entry_id for entry_id, _ in group.pending.between()] == [1, 2, 3]
    pending = group.pending.get(2)
    assert pending is not None
    group.give(2, pending, bob)
    group.deliver(3, bob, 20)
    assert (len(alice.pending), len(bob.pending)) == (1, 2)
    assert group.acknowledge(3)
    assert not group.acknowledge(3)
    assert group.pending.ends() == (1, 2)
    assert [consumer.name for consumer in group.sorted_consumers()] == [b"alice", b"bob"]


def test_an_interval_of_pending_entries() -> None:
    pending = PendingList()
    consumer = Consumer(b"c", 0)
    for entry_id in (5, 1, 9):
        pending.put(entry_id, Pending(consumer, 0, 1))
    pending.put(5, Pending(consumer, 7, 2))
    assert [(i, entry.deliveries) for i, entry in pending.between(2, 8)] == [(5, 2)]
    assert 5 in pending
    assert pending.take(4) is None
