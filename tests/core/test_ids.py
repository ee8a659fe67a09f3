"""Seeded randomness: repeatable, independent of order, one stream for each purpose."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.core.ids import BASE58, Ids, RandomStream


def draw(stream: RandomStream) -> list[Any]:
    items = list(range(10))
    stream.shuffle(items)
    return [
        stream.random(),
        stream.randrange(1000),
        stream.randrange(5, 10),
        stream.choice("abcdef"),
        stream.sample(range(100), 5),
        items,
        stream.bytes(5),
        stream.hex(7),
        stream.text(9),
        stream.text(9, BASE58),
        stream.gauss(0.0, 1.0),
    ]


@given(st.one_of(st.integers(), st.text()), st.lists(st.text(), min_size=1, max_size=3))
def test_the_same_seed_and_purpose_give_the_same_values(seed: Any, purpose: list[str]) -> None:
    assert draw(Ids(seed).stream(*purpose)) == draw(Ids(seed).stream(*purpose))


def test_streams_do_not_depend_on_each_other() -> None:
    alone = draw(Ids(7).stream("queue", "ids"))
    ids = Ids(7)
    other = ids.stream("kv", "ids")
    draw(other)
    stream = ids.stream("queue", "ids")
    draw(other)
    assert draw(stream) == alone
    assert draw(ids.stream("queue", "other")) != alone
    assert draw(Ids(8).stream("queue", "ids")) != alone


@pytest.mark.parametrize(
    ("one", "two"),
    [(("a", "b"), ("b", "a")), (("ab",), ("a", "b")), (("a",), ("a", ""))],
)
def test_purposes_are_told_apart(one: tuple[str, ...], two: tuple[str, ...]) -> None:
    assert Ids(1).stream(*one).hex(32) != Ids(1).stream(*two).hex(32)


def test_shapes() -> None:
    stream = Ids(1).stream("shapes")
    for count in range(12):
        assert len(stream.hex(count)) == count
        assert set(stream.hex(count)) <= set(string.hexdigits.lower())
        assert len(stream.text(count)) == count
        assert len(stream.bytes(count)) == count
    assert set(stream.text(2000, BASE58)) == set(BASE58)
    assert all(5 <= stream.randrange(5, 7) < 7 for _ in range(50))
    assert len(set(stream.sample("abcdef", 6))) == 6


def test_the_process_random_state_plays_no_part() -> None:
    import random

    make: Callable[[], str] = lambda: Ids(1).stream("x").hex(32)  # noqa: E731
    random.seed(1)
    first = make()
    random.seed(2)
    assert make() == first


def test_threads_that_ask_a_stream_first_share_its_source() -> None:
    stream = Ids(1).stream("message ids")
    make = RandomStream.__dict__["_random"].func  # what both run where none has been made
    assert make(stream) is make(stream) is stream._random
