"""Seeded random values: reproducible, independent of order, one stream per purpose."""

from __future__ import annotations

import string
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.core.ids import BASE58, Ids, RandomStream, new_token

from ..harness import error_of


def draw(stream: RandomStream) -> list[Any]:
    items = list(range(10))
    stream.shuffle(items)
    return [
        stream.random(), stream.randrange(1000), stream.sample(range(100), 5), items, stream.hex(7),
        stream.base58(9),
    ]  # fmt: skip


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
    ("first", "second"), [(("a", "b"), ("b", "a")), (("ab",), ("a", "b")), (("a",), ("a", ""))]
)
def test_purposes_are_told_apart(first: tuple[str, ...], second: tuple[str, ...]) -> None:
    assert Ids(1).stream(*first).hex(32) != Ids(1).stream(*second).hex(32)


def test_the_values_of_a_seed_stay_the_same_from_run_to_run() -> None:
    assert Ids(7).stream("queue", "ids").hex(16) == "986078e207abe6a0"
    assert Ids("seven").stream().hex(16) == "2fc967ce1d301e0d"
    assert Ids("\ud800").stream("\udfff").hex(16) == "ed3a684a115cf354"


@pytest.mark.parametrize("seed", [0, -1, 2**4096 - 1, "", "a seed"])
def test_a_seed_is_a_whole_number_or_a_text(seed: int | str) -> None:
    assert Ids(seed).seed == seed


@pytest.mark.parametrize("seed", [True, None, 1.0, b"seed", [1]])
def test_what_is_no_seed(seed: Any) -> None:
    for refuse in (Ids, Ids(1).reseed):
        assert error_of(refuse, seed) == f"seed={seed!r} is not a seed: pass an integer or a string"


def test_a_seed_that_nobody_can_print_is_none() -> None:
    message = "an integer of 4097 bits is too large for a seed: pass one of at most 4096 bits"
    assert error_of(Ids, 2**4096) == message


def test_another_seed_starts_every_stream_over() -> None:
    ids = Ids(1)
    old, used = ids.stream("old"), ids.stream("used")
    used.hex(5)
    ids.reseed("2")
    assert ids.seed == "2"
    for stream, purpose in [(old, "old"), (used, "used"), (ids.stream("new"), "new")]:
        assert draw(stream) == draw(Ids("2").stream(purpose))


def test_shapes() -> None:
    stream = Ids(1).stream("shapes")
    for count in range(12):
        assert len(stream.hex(count)) == count
        assert set(stream.hex(count)) <= set(string.hexdigits.lower())
        assert len(stream.base58(count)) == count
    assert set(stream.base58(2000)) == set(BASE58)
    assert {stream.randrange(3) for _ in range(50)} == {0, 1, 2}
    assert len(set(stream.sample("abcdef", 6))) == 6


def test_threads_that_ask_a_stream_first_share_its_source() -> None:
    class Slow(RandomStream):
        def _generator(self) -> Random:
            asked.append(self)
            inside.set()
            may_go.wait(30)
            return super()._generator()

    asked: list[object] = []
    inside, may_go = Event(), Event()
    stream = Slow(Ids(1), ("message ids",))
    with ThreadPoolExecutor(2) as threads:
        drawn = [threads.submit(stream.hex, 16)]
        assert inside.wait(30)
        drawn.append(threads.submit(stream.hex, 16))
        may_go.set()
    assert len({future.result() for future in drawn}) == 2
    assert len(asked) == 1


def test_tokens_are_random_and_of_the_asked_length() -> None:
    for length in (1, 7, 48, 64):
        assert len(new_token(length)) == length
    assert new_token() != new_token()
    assert len(new_token()) == 48
    int(new_token(), 16)


def test_any_string_can_be_a_seed() -> None:
    assert Ids("\ud800").stream("a").random() != Ids("x").stream("a").random()
