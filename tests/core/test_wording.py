"""Formatting in failed assertions of all services."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import pytest

from pytest_fakecloud.core.errors import ContractError, brief, counted, differences, unknown_name
from pytest_fakecloud.core.field_types import discard_awaitable
from pytest_fakecloud.core.settings import optional, whole


def test_long_values_are_cut_and_functions_named() -> None:
    assert brief("x" * 300, 10) == "'xxxxxxxxx…"
    assert brief(len) == "len"
    assert brief([1, 2]) == "[1, 2]"
    assert brief("x" * 8, 10) == "'xxxxxxxx'"
    assert brief("x" * 198) == repr("x" * 198)
    assert brief("x" * 199) == repr("x" * 199)[:200] + "…"
    # A module also has a name, but is not a function.
    assert brief(functools) == repr(functools)
    assert brief(functools.partial(len)) == "functools.partial(<built-in function len>)"


@pytest.mark.parametrize(
    ("noun", "name", "names", "message"),
    [
        ("fault", "dely", ["delay"], "is not a fault; did you mean 'delay'? Known faults: delay"),
        ("action", "A", {"a"}, "is not an action; did you mean 'a'? Known actions: a"),
        ("field of a call", "x", ["at"], "is not a field of a call. Known fields: at"),
        ("group", 5, [], "is not a group. Known groups: none"),
    ],
)
def test_unknown_names(noun: str, name: object, names: Iterable[str], message: str) -> None:
    assert unknown_name(noun, name, names) == f"{name!r} {message}"
    assert unknown_name(noun, name, names, "kind") == f"kind={name!r} {message}"


def test_only_a_part_of_a_long_name_and_of_many_names_is_shown() -> None:
    message = unknown_name("fault", "delay" * 100_000, map(str, range(50)))
    assert message.endswith(" 38, 39 and 10 more")
    assert len(message) < 500


def test_counts_with_nouns() -> None:
    assert [counted(n, "record") for n in (0, 1, 1000)] == [
        "0 records",
        "1 record",
        "1,000 records",
    ]


@pytest.mark.parametrize("times", [-1, 1.0, "2", True, [], "x" * 1000])
def test_what_is_no_count(times: Any) -> None:
    with pytest.raises(ContractError, match="must be a whole number of at least 0") as caught:
        optional(whole(0)).read("times", times)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("times", [None, 0, 1, 10**30])
def test_counts(times: int | None) -> None:
    optional(whole(0)).read("times", times)


@pytest.mark.parametrize(
    ("actual", "wanted", "expected"),
    [
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}, []),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, ["json.a[1].b is 2, not 3"]),
        ({"a": 1}, {"b": 1}, ["json.b is absent, not 1", "json.a is 1, not expected"]),
        ([1], [1, 2], ["json is [1], not [1, 2]"]),
        ({}, None, ["json is {}, not None"]),
        (
            {"a": True, "b": [0]},
            {"a": 1, "b": [False]},
            ["json.a is True, not 1", "json.b[0] is 0, not False"],
        ),
        (5, {"a": 1}, ["json is 5, not {'a': 1}"]),
        ("t" * 100, "u" * 100, [f"json is '{'t' * 100}', not '{'u' * 100}'"]),
        (
            "t" * 101,
            "t" + "u" * 99,
            [f"json from character 1 on is '{'t' * 59}…, not '{'u' * 59}…"],
        ),
        ("t" * 300, "t" * 299, ["json from character 299 on is 't', not ''"]),
    ],
)
def test_differences_are_named_by_their_place(
    actual: Any, wanted: Any, expected: list[str]
) -> None:
    assert list(differences(actual, wanted, "json")) == expected


def test_what_is_to_be_awaited_is_told_and_silenced() -> None:
    async def later() -> None:
        raise AssertionError("never begun")

    assert discard_awaitable(later())
    assert not discard_awaitable(5)
