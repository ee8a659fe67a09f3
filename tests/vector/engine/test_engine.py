"""Test the operations of the index without HTTP."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.similarity.dense import Similarity
from pytest_fakecloud.vector.engine import namespace as namespace_module
from pytest_fakecloud.vector.engine.engine import VectorEngine, merge_patch
from pytest_fakecloud.vector.model import Include, VectorRecord
from tests.harness import check_each

from ..building import NOW, ask, engine, floats, put, scored


def all_ids(index: VectorEngine, namespace: str = "") -> list[str]:
    return [record.id for record in index.range(namespace, 0, None).records]


# -- update --------------------------------------------------------------------------------------


RFC_7396: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}), ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}), ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}), ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}), (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]), ({"a": "foo"}, None, None), ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}), ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]  # fmt: skip
"""The test cases of RFC 7396, appendix A."""


def test_merge_patch_is_rfc_7396() -> None:
    def check(target: Any, patch: Any, merged: Any) -> None:
        before = repr((target, patch))
        assert merge_patch(target, patch) == merged
        assert repr((target, patch)) == before

    check_each(check, RFC_7396)


# -- delete and reset ----------------------------------------------------------------------------


def filled() -> VectorEngine:
    index = engine()
    for namespace in ("", "ns"):
        records = [
            VectorRecord(f"{'even' if n % 2 == 0 else 'odd'}-{n}", floats(1, n), None, {"n": n})
            for n in range(6)
        ]
        index.upsert(namespace, records)
    return index


# -- fetch, range, random ------------------------------------------------------------------------


SCAN_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("page"), st.integers(1, 6)),
        st.tuples(st.just("delete"), st.integers(0, 30)),
        st.tuples(st.just("insert"), st.integers(31, 60)),
    ),
    max_size=40,
)


@given(SCAN_STEPS)
def test_a_scan_under_changes_misses_and_repeats_nothing(steps: list[tuple[str, int]]) -> None:
    """Records that exist during the whole scan are returned exactly once."""
    index = engine()
    index.upsert("", [VectorRecord(str(n), floats(1, n)) for n in range(30)])
    old, namespace_module.MINIMUM_HOLES = namespace_module.MINIMUM_HOLES, 2
    try:
        deleted: set[str] = set()
        seen: list[str] = []
        cursor = "0"
        for word, number in [*steps, *[("page", 7)] * 10]:
            if word == "delete":
                index.delete("", [str(number)])
                deleted.add(str(number))
            elif word == "insert":
                index.upsert("", [VectorRecord(str(number), floats(1, number))])
            elif cursor:
                page = index.range("", int(cursor), number)
                seen += [record.id for record in page.records]
                cursor = page.next_cursor
        assert len(seen) == len(set(seen))
        throughout = [str(n) for n in range(30) if str(n) not in deleted]
        assert [id for id in seen if id in throughout] == throughout
    finally:
        namespace_module.MINIMUM_HOLES = old


def test_random_picks_every_record_from_the_seed() -> None:
    picks = []
    for _ in range(2):
        index = filled()
        index.delete("", ["even-2"])
        picks.append([index.random("").id for _ in range(60)])  # type: ignore[union-attr]
    assert picks[0] == picks[1]
    assert set(picks[0]) == {"even-0", "odd-1", "odd-3", "even-4", "odd-5"}


# -- query ---------------------------------------------------------------------------------------


def test_hits_carry_what_was_stored_then() -> None:
    index = engine()
    put(index, a=(1, 0))
    hit = ask(index, 1, 0)[0]
    put(index, a=(0, 1))
    assert hit.record.vector is not None
    assert hit.record.vector.tolist() == [1, 0]
    assert ask(index, 1, 0, include=Include())[0].record.vector is None


# -- the whole against a model -------------------------------------------------------------------

COORDINATES = st.integers(-2, 2)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.integers(0, 7), COORDINATES, COORDINATES),
        st.tuples(st.just("delete"), st.integers(0, 7)),
        st.tuples(st.just("update"), st.integers(0, 7), COORDINATES, COORDINATES),
        st.tuples(st.just("query"), st.integers(1, 9), COORDINATES, COORDINATES),
        st.tuples(st.just("reset")),
        st.tuples(st.just("roundtrip")),
    ),
    max_size=50,
)


@given(OPERATIONS)
def test_any_sequence_of_operations_answers_like_a_dict(operations: list[tuple[Any, ...]]) -> None:
    index = engine(similarity=Similarity.EUCLIDEAN)
    model: dict[str, tuple[int, int]] = {}
    for word, *rest in operations:
        if word == "upsert":
            model[str(rest[0])] = (rest[1], rest[2])
            put(index, **{str(rest[0]): (rest[1], rest[2])})
        elif word == "delete":
            assert index.delete("", [str(rest[0])]) == [id for id in model if id == str(rest[0])]
            model.pop(str(rest[0]), None)
        elif word == "update":
            there = str(rest[0]) in model
            assert index.update("", VectorRecord(str(rest[0]), floats(*rest[1:]))) is there
            if there:
                model[str(rest[0])] = (rest[1], rest[2])
        elif word == "reset":
            index.reset("")
            model.clear()
        elif word == "roundtrip":
            index.restore(index.snapshot())
        else:
            top_k, x, y = rest
            places = {id: place for place, id in enumerate(model)}
            far = {id: (px - x) ** 2 + (py - y) ** 2 for id, (px, py) in model.items()}
            best = sorted(model, key=lambda id: (far[id], places[id]))[:top_k]
            expected = [(id, str(np.float32(1 / (1 + far[id])))) for id in best]
            assert scored(ask(index, x, y, top_k=top_k)) == expected
        assert all_ids(index) == list(model)


# -- threads -------------------------------------------------------------------------------------


def test_threads_may_do_everything_at_once() -> None:
    index = engine(Timekeeper(NOW))
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(60):
                id = f"{number}-{step}"
                put(index, **{id: (1, step)})
                hits = ask(index, 1, step, top_k=5)
                assert hits == sorted(hits, key=lambda hit: -hit.score)
                index.range("", 0, 10)
                if step % 2:
                    assert index.delete("", [id]) == [id]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    assert sorted(all_ids(index)) == sorted(f"{n}-{s}" for n in range(6) for s in range(0, 60, 2))


def test_a_count_is_that_of_a_whole_range() -> None:
    index = engine()
    put(index, a=(0, 1), b=(1, 0), c=(1, 1))
    index.delete("", ["b"])
    index.hold()
    put(index, a=(1, 0), d=(0, 1))
    assert index.count("") == len(all_ids(index)) == 3
    assert index.count("nowhere") == 0
