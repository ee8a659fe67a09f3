"""JSON documents as values."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.kv.values.json import (
    TYPE_WORDS,
    JsonError,
    copy_json,
    depth,
    equal,
    json_size,
    merge,
    parse_json,
    write_json,
)
from tests.harness import check_each

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab"), inner, max_size=4),
    max_leaves=15,
)


@given(VALUES)
def test_what_is_written_is_read(value: Any) -> None:
    text = write_json(value)
    assert json_size(value) == len(text)
    assert json.loads(text) == value
    assert equal(parse_json(text), value)


@given(VALUES)
def test_copies_are_equal_and_apart(value: Any) -> None:
    twin = copy_json(value)
    assert equal(twin, value)
    if isinstance(value, list):
        twin.append(1)
        assert not equal(twin, value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_read_back(number: float) -> None:
    text = write_json(number).decode()
    assert float(text) == number
    assert math.copysign(1, float(text)) == math.copysign(1, number)
    assert "." in text or "e" in text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1.0"), (-0.0, "-0.0"), (1e15, "1000000000000000.0"), (1e16, "1e16"),
        (0.0001, "0.0001"), (0.00001, "0.00001"), (0.000012, "0.000012"), (0.000001, "1e-6"),
        (-1.5e-5, "-0.000015"), (1.5e300, "1.5e300"),
    ],
)  # fmt: skip
def test_floats_as_the_server_prints_them(number: float, text: str) -> None:
    assert write_json(number) == text.encode()


@pytest.mark.parametrize(
    ("left", "right"), [(1, 1.0), (1, True), (0, False), (None, False), ("1", 1), ([1], [1.0])]
)
def test_values_of_different_types_differ(left: Any, right: Any) -> None:
    assert not equal(left, right)
    assert TYPE_WORDS[left.__class__] != TYPE_WORDS[right.__class__] or isinstance(left, list)


def test_merge() -> None:
    def check(target: Any, patch: Any, merged: Any) -> None:
        assert merge(target, patch) == merged

    check_each(
        check,
        [
            # the examples of RFC 7396, appendix A
            ({"a": "b"}, {"a": "c"}, {"a": "c"}), ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
            ({"a": "b"}, {"a": None}, {}), ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
            ({"a": ["b"]}, {"a": "c"}, {"a": "c"}), ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
            ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
            ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}), (["a", "b"], ["c", "d"], ["c", "d"]),
            ({"a": "b"}, ["c"], ["c"]), ({"a": "foo"}, None, None), ({"a": "foo"}, "bar", "bar"),
            ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
            ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
            ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ],
    )  # fmt: skip


def test_depth() -> None:
    values: list[Any] = [1, [], [[]], {"a": [1, {}]}, parse_json(b"[" * 127 + b"]" * 127)]
    assert [depth(value) for value in values] == [0, 1, 2, 3, 127]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"[" * 129, "recursion limit exceeded at line 1 column 128"),
        (b'{"a":' * 129, "recursion limit exceeded at line 1 column 636"),
        (b"", "EOF while parsing a value at line 1 column 1"),
        (b"nul", "expected value at line 1 column 1"),
        (b"[1] 2", "trailing characters at line 1 column 4"),
        (b"1e999", "number out of range"),
        (b'"\\udc00"', "lone leading surrogate"),
        (b'"\xff"', "invalid unicode code point at line 1 column 2"),
    ],
)
def test_complaints_say_where(text: bytes, complaint: str) -> None:
    with pytest.raises(JsonError, match=complaint):
        parse_json(text)


def test_brackets_within_texts_do_not_nest() -> None:
    flat = b'["' + b"[{" * 200 + b'", "\\"[", ' + b"[[]]," * 100 + b"1]"
    assert len(parse_json(flat)) == 103
    with pytest.raises(JsonError, match="recursion limit exceeded at line 1 column 139"):
        parse_json(b'["]]",[],{}' + b"," + b"[" * 200 + b"]" * 200 + b"]")


def test_minus_nothing_is_a_float() -> None:
    assert repr(parse_json(b"-0")) == "-0.0"
