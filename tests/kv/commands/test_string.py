"""The longest common subsequence."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.core.budget import Budgeted
from pytest_fakecloud.kv.commands.string import common_length, common_matches


def by_cells(first: bytes, second: bytes) -> int:
    row = [0] * (len(second) + 1)
    for byte in first:
        before, row = row, [0]
        for at, other in enumerate(second):
            best = before[at] + 1 if byte == other else max(before[at + 1], row[at])
            row.append(best)
    return row[-1]


@given(st.text("abc", max_size=20), st.text("abcd", max_size=20))
def test_agrees_with_the_plain_table(left: str, right: str) -> None:
    first, second = left.encode(), right.encode()
    length = common_length(first, second)
    assert length == by_cells(first, second)
    matches = common_matches(first, second)
    assert sum(size for _, _, size in matches) == length
    for i, j, size in matches:
        assert first[i : i + size] == second[j : j + size]
    assert matches == sorted(matches, reverse=True)


def test_long_strings_fit_the_budget_of_a_command() -> None:
    with Budgeted():
        assert common_length(b"ab" * 5000, b"ba" * 5000) == 9999
