"""Compare rows, slots and holes with a simple list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.vector.engine import namespace as module
from pytest_fakecloud.vector.engine.namespace import VectorNamespace
from pytest_fakecloud.vector.model import NamespaceInfo, VectorRecord

from ..building import floats, sparse


def record(id: str, number: float = 1) -> VectorRecord:
    return VectorRecord(
        id, floats(number, 1), sparse({int(number): 1.0}), {"n": number}, f"text {number}"
    )


@pytest.fixture(autouse=True)
def few_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compact after a handful of deletions instead of 64."""
    monkeypatch.setattr(module, "MINIMUM_HOLES", 2)


def contents(space: VectorNamespace) -> list[tuple[str, float, str | None]]:
    return [
        (r.id, float(r.vector[0]) if r.vector is not None else 0.0, r.data) for _, r in space.scan()
    ]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 9), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("delete"), st.integers(0, 9)),
        st.tuples(st.just("copy")),
    ),
    max_size=60,
)


@given(ACTIONS)
def test_any_sequence_of_changes_leaves_what_a_dict_would(
    actions: list[tuple[object, ...]],
) -> None:
    space = VectorNamespace(2)
    newest: dict[str, VectorRecord] = {}
    visible: dict[str, VectorRecord] = {}
    for action in actions:
        if action[0] == "put":
            _, id, number, ready = action
            assert isinstance(number, int)
            new = record(str(id), number)
            space.put(new, ready=bool(ready))
            newest[str(id)] = new
            if ready:
                visible[str(id)] = new
        elif action[0] == "delete":
            id = str(action[1])
            assert space.delete(id) is (newest.pop(id, None) is not None)
            visible.pop(id, None)
        else:
            space = space.copy()
        assert contents(space) == [
            (r.id, float(r.vector[0]), r.data) for r in newest.values() if r.vector is not None
        ]
        assert space.info() == NamespaceInfo(len(visible), len(space.staged))
        rows = set(range(len(space.stored))) - set(space.hidden.tolist())
        assert {space.record(row).id: space.record(row).data for row in rows} == {
            id: r.data for id, r in visible.items()
        }
        matches, _ = space.sparse_index.scores(
            sparse(dict.fromkeys(range(6), 1.0)), len(space.stored), None
        )
        assert set(matches.tolist()) == rows
        slots = [slot for slot, _ in space.scan()]
        assert slots == sorted(set(slots))
        assert len(space.stored) <= max(2 * len(newest), len(newest) + 2) + 1


@pytest.mark.parametrize("dimension", [2, None])
def test_holes_of_one_kind_of_vectors_are_closed(dimension: int | None) -> None:
    space = VectorNamespace(dimension)
    for number in range(8):
        vector = None if dimension is None else floats(number, 1)
        weights = sparse({number: 1.0}) if dimension is None else None
        space.put(VectorRecord(str(number), vector, weights, None, None), ready=True)
    for number in range(6):
        assert space.delete(str(number))
    assert len(space.stored) < 8
    left = [stored_vector for _, stored_vector in space.scan()]
    assert [vector.id for vector in left] == ["6", "7"]
    assert [vector.sparse is None for vector in left] == [dimension is not None] * 2


def test_slots_are_never_used_again() -> None:
    space = VectorNamespace(2)
    for number in range(20):
        space.put(record(str(number)))
    for number in range(15):
        space.delete(str(number))
    space.put(record("0"))
    assert [(slot, r.id) for slot, r in space.scan(16)] == [
        (16, "16"), (17, "17"), (18, "18"), (19, "19"), (20, "0"),
    ]  # fmt: skip
    assert [r.id for _, r in space.scan(prefix="1")] == ["15", "16", "17", "18", "19"]
    assert space.nth(0).id == "15"
    assert space.nth(5).id == "0"


def test_release_leaves_newer_changes_staged() -> None:
    space = VectorNamespace(2)
    first, second = record("a", 1), record("a", 2)
    space.put(first, ready=False)
    space.put(second, ready=False)
    space.release([first, record("gone")])
    assert space.info() == NamespaceInfo(0, 1)
    space.release([second])
    assert space.info() == NamespaceInfo(1, 0)
    assert space.record(0).data == "text 2"


def test_size_counts_vectors() -> None:
    space = VectorNamespace(2)
    assert space.size() == 0
    space.put(record("a"))
    assert space.size() == 4 * 2 + 16 + 8
