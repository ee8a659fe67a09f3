"""Payload fields, and what no payload may bring in."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.kv.values.lists import QuickList
from pytest_fakecloud.kv.values.packing import Reader, Writer
from pytest_fakecloud.kv.values.sets import SetValue
from pytest_fakecloud.kv.values.stream import Stream
from pytest_fakecloud.kv.values.zset import SortedSet

KINDS = [QuickList, SetValue, SortedSet, Stream]


@given(st.integers(), st.floats(allow_nan=False), st.binary())
def test_fields_come_back_in_order(number: int, double: float, data: bytes) -> None:
    writer = Writer()
    writer.integer(number)
    writer.double(double)
    writer.blob(data)
    reader = Reader(writer.payload())
    assert (reader.integer(), reader.double(), reader.blob()) == (number, double, data)
    assert reader.at_end()


def test_a_score_is_a_number() -> None:
    writer = Writer()
    writer.integer(1)
    writer.blob(b"a")
    writer.double(math.nan)
    with pytest.raises(ValueError, match="not a number"):
        SortedSet.load(Reader(writer.payload()))


@pytest.mark.parametrize("kind", [QuickList, SetValue, SortedSet])
def test_no_collection_is_empty(kind: type[QuickList | SetValue | SortedSet]) -> None:
    writer = Writer()
    writer.integer(0)
    with pytest.raises(ValueError, match="not within"):
        kind.load(Reader(writer.payload()))


def test_a_member_comes_once() -> None:
    twice = Writer()
    twice.integer(2)
    twice.blob(b"a")
    twice.blob(b"a")
    with pytest.raises(ValueError, match="twice"):
        SetValue.load(Reader(twice.payload()))
    scored = Writer()
    scored.integer(2)
    for score in (1, 2):
        scored.blob(b"a")
        scored.double(score)
    with pytest.raises(ValueError, match="twice"):
        SortedSet.load(Reader(scored.payload()))


@given(st.sampled_from(KINDS), st.binary(max_size=80))
def test_any_bytes_load_or_are_refused(
    kind: type[QuickList | SetValue | SortedSet | Stream], payload: bytes
) -> None:
    with suppress(ValueError):
        assert isinstance(kind.load(Reader(payload)), kind)
