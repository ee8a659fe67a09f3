"""Test changes that are not visible to queries yet."""

from __future__ import annotations

import pytest

from pytest_fakecloud.core.timekeeper import Timekeeper
from pytest_fakecloud.vector.engine import VectorEngine
from pytest_fakecloud.vector.model import NamespaceInfo, VectorRecord

from ..building import NOW, ask, engine, ids, put


def seen(index: VectorEngine, namespace: str = "") -> list[str]:
    return ids(ask(index, 1, 1, namespace=namespace))


def counts(index: VectorEngine) -> tuple[int, int]:
    info = index.info().namespaces[""]
    return info.vector_count, info.pending_vector_count


def test_held_changes_are_fetched_and_scanned_but_not_queried() -> None:
    index = engine()
    put(index, a=(1, 0))
    index.readiness.hold()
    put(index, b=(1, 1), a=(0, 1))
    assert seen(index) == ["a"]
    assert ask(index, 1, 0)[0].score == 1
    assert [
        r and r.vector is not None and r.vector.tolist() for r in index.fetch("", ["a", "b"])
    ] == [[0, 1], [1, 1]]
    assert [r.id for r in index.range("", 0, None).records] == ["a", "b"]
    assert counts(index) == (1, 2)
    assert sorted((ns, r.id) for ns, r in index.pending()) == [("", "a"), ("", "b")]
    index.readiness.release()
    assert seen(index) == ["b", "a"]
    assert counts(index) == (2, 0)
    put(index, c=(1, 1))
    assert seen(index) == ["b", "c", "a"]


def test_updates_of_pending_records_build_on_them() -> None:
    index = engine()
    index.readiness.hold()
    put(index, a=(1, 1))
    assert index.update("", VectorRecord("a", data="text"))
    assert index.fetch("", ["a"])[0].data == "text"  # type: ignore[union-attr]
    index.readiness.release()
    hit = ask(index, 1, 1)[0]
    assert (hit.score, hit.record.data) == (1, "text")


def test_deletions_and_resets_are_seen_at_once() -> None:
    index = engine()
    put(index, a=(1, 1), b=(1, 1))
    index.readiness.hold()
    put(index, c=(1, 1))
    assert index.delete("", ["a", "c"]) == 2
    assert seen(index) == ["b"]
    assert counts(index) == (1, 0)
    put(index, d=(1, 1))
    index.reset("")
    assert counts(index) == (0, 0)
    index.readiness.release()
    assert seen(index) == []


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


def test_a_replaced_pending_change_waits_for_its_own_time() -> None:
    clock = Timekeeper(NOW)
    index = engine(clock, ready_after_us=5_000_000)
    put(index, a=(1, 1))
    clock.advance(3)
    put(index, a=(1, 1))
    clock.advance(2)
    assert seen(index) == []
    clock.advance(3)
    assert seen(index) == ["a"]


def test_holding_outlasts_a_delay() -> None:
    clock = Timekeeper(NOW)
    index = engine(clock, ready_after_us=1_000_000)
    index.readiness.hold()
    put(index, a=(1, 1))
    clock.advance(60)
    assert seen(index) == []
    index.readiness.release()
    assert seen(index) == ["a"]


def test_reads_make_changes_ready() -> None:
    index = engine(ready_after_reads=2)
    put(index, a=(1, 1))
    assert seen(index) == []
    assert counts(index) == (0, 1)
    assert index.describe().namespaces[""] == NamespaceInfo(0, 1)
    assert seen(index) == ["a"]
    assert counts(index) == (1, 0)


def test_reads_count_nothing_while_held() -> None:
    index = engine(ready_after_reads=1)
    put(index, a=(1, 1))
    index.readiness.hold()
    assert [seen(index) for _ in range(3)] == [[], [], []]
    index.readiness.release()
    assert seen(index) == ["a"]


def test_pending_changes_follow_a_renamed_namespace() -> None:
    clock = Timekeeper(NOW)
    index = engine(clock, ready_after_us=1_000_000)
    put(index, "old", a=(1, 1))
    index.rename_namespace("old", "new")
    clock.advance(1)
    assert seen(index, "new") == ["a"]


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
