"""Test changes that are not visible to queries yet."""

from __future__ import annotations

import pytest

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.vector.engine.engine import VectorEngine

from ..building import NOW, ask, engine, ids, put


def seen(index: VectorEngine, namespace: str = "") -> list[str]:
    return ids(ask(index, 1, 1, namespace=namespace))


def test_a_delay_passes_on_the_clock() -> None:
    clock = Timekeeper(NOW)
    index = engine(clock, ready_after_us=5_000_000)
    put(index, a=(1, 1))
    clock.advance(3)
    put(index, b=(1, 1))
    assert seen(index) == []
    assert clock.next_due_us() is not None
    fired = clock.advance(2)
    assert [f.label for f in fired] == ["vector index: apply 1 pending change"]
    assert seen(index) == ["a"]
    clock.advance(10)
    assert seen(index) == ["a", "b"]
    assert clock.next_due_us() is None


@pytest.mark.parametrize("namespace", ["", "gone"])
def test_a_snapshot_keeps_what_is_pending_and_when(namespace: str) -> None:
    clock = Timekeeper(NOW)
    index = engine(clock, ready_after_us=10_000_000)
    put(index, namespace, a=(1, 1))
    clock.advance(4)
    snapshot = index.snapshot()
    clock.advance(6)
    assert seen(index, namespace) == ["a"]
    put(index, namespace, b=(1, 1))
    index.restore(snapshot)
    assert clock.next_due_us() is not None
    assert seen(index, namespace) == []
    assert [r.id for _, r in index.pending()] == ["a"]
    clock.settle()
    assert seen(index, namespace) == ["a"]
    clock.advance(60)
    assert seen(index, namespace) == ["a"]
