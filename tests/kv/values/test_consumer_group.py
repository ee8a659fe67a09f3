"""Consumer groups as values: which consumer holds which pending entry."""

from __future__ import annotations

from pytest_fakecloud.kv.values.stream import Consumer, Group, Pending, PendingList


def test_pending_entries_belong_to_one_consumer_at_a_time() -> None:
    group = Group(0)
    alice, bob = Consumer(b"alice", 1), Consumer(b"bob", 1)
    group.consumers = {b"bob": bob, b"alice": alice}
    for entry_id in (3, 1, 2):
        group.deliver(entry_id, alice, 10)
    assert [entry_id for entry_id, _ in group.pending.items()] == [1, 2, 3]
    pending = group.pending.get(2)
    assert pending is not None
    group.give(2, pending, bob)
    group.deliver(3, bob, 20)
    assert (len(alice.pending), len(bob.pending)) == (1, 2)
    assert group.acknowledge(3)
    assert not group.acknowledge(3)
    assert group.remove_consumer(b"bob") == 1
    assert group.remove_consumer(b"bob") is None
    assert group.pending.ends() == (1, 1)
    assert [each.name for each in group.sorted_consumers()] == [b"alice"]


def test_an_interval_of_pending_entries() -> None:
    pending = PendingList()
    consumer = Consumer(b"c", 0)
    for entry_id in (5, 1, 9):
        pending.put(entry_id, Pending(consumer, 0, 1))
    pending.put(5, Pending(consumer, 7, 2))
    assert [(i, each.deliveries) for i, each in pending.items(2, 8)] == [(5, 2)]
    assert 5 in pending
    assert pending.pop(4) is None
