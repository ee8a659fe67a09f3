"""Expiry times: the due ones, compared with those of a plain dictionary after random changes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_fakecloud.kv.values.containers import Deadlines
from tests.budget import cases

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
TIMES = st.integers(-5, 40)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, TIMES),
        st.tuples(st.just("remove"), KEYS, st.just(0)),
        st.tuples(st.just("earliest"), KEYS, st.just(0)),
        st.tuples(st.just("expire"), KEYS, TIMES),
        st.tuples(st.just("renew"), KEYS, TIMES),
    ),
    max_size=150,
)


@settings(max_examples=cases(50), deadline=None)
@given(st.dictionaries(KEYS, TIMES), CHANGES)
def test_the_due_ones_are_found(
    start: dict[bytes, int], changes: list[tuple[str, bytes, int]]
) -> None:
    times, model = Deadlines(start), dict(start)
    for change, key, at_ms in changes:
        if change == "put":
            times.put(key, at_ms)
            model[key] = at_ms
        elif change == "remove":
            assert times.pop(key, None) == model.pop(key, None)
        elif change == "earliest":
            assert times.earliest() == min(model.values(), default=None)
        elif change == "expire":
            found = []
            for due in times.due(at_ms):
                found.append((times.pop(due), due))
            assert found == sorted((at, due) for due, at in model.items() if at <= at_ms)
            model = {each: at for each, at in model.items() if at > at_ms}
        else:
            for due in times.due(at_ms):
                times.put(due, at_ms + 1)
            model = {each: max(at, at_ms + 1) for each, at in model.items()}
        assert times == model


def test_times_that_are_set_again_and_again_do_not_accumulate() -> None:
    times = Deadlines()
    for at_ms in range(10_000):
        times.put(b"session", at_ms)
        times.earliest()
    assert times._heap is not None
    assert len(times._heap) < 200
