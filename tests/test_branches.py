"""The sums of the coverage report."""

from __future__ import annotations

from typing import Any

import pytest

from .branches import by_folder, missing, table, too_few


def told(branches: int, covered: int, missing: list[tuple[int, int]] | None = None) -> Any:
    summary = {"num_branches": branches, "covered_branches": covered, "num_statements": 10,
               "covered_lines": 9, "percent_covered": 12.5}  # fmt: skip
    return {"summary": summary, "missing_branches": missing or []}


FILES = {
    "/any/pytest_fakecloud/core/clock.py": told(4, 3, [(7, 9), (12, -1)]),
    "pytest_fakecloud\\core\\ids.py": told(0, 0),
    "pytest_fakecloud/plugin.py": told(6, 6),
}


def test_each_folder_has_its_sum_and_all_have_theirs() -> None:
    lines = table(by_folder(FILES)).splitlines()
    assert [line.split() for line in sorted(lines[1:])] == [
        ["all", "10", "90.00%", "30", "90.00%", "90.00%"],
        ["pytest_fakecloud", "6", "100.00%", "10", "90.00%", "93.75%"],
        ["pytest_fakecloud/core", "4", "75.00%", "20", "90.00%", "87.50%"],
    ]


def test_branches_that_no_test_took_are_named() -> None:
    assert list(missing(FILES)) == ["/any/pytest_fakecloud/core/clock.py: 7->9, 12->exit"]


@pytest.mark.parametrize(
    ("covered", "lines", "complaints"),
    [
        (97, 97, []),
        (96, 99, ["96.00% of branches are covered, fewer than 97%"]),
        (97, 90, ["93.50% of branches and lines together are covered, fewer than 97%"]),
        (90, 90, ["90.00% of branches are ", "90.00% of branches and lines together are "]),
    ],
)
def test_branches_count_alone_and_with_the_lines(
    covered: int, lines: int, complaints: list[str]
) -> None:
    counts = {"num_branches": 100, "covered_branches": covered}
    counts |= {"num_statements": 100, "covered_lines": lines}
    messages = list(too_few(counts, 97))
    assert len(messages) == len(complaints)
    assert all(message.startswith(text) for message, text in zip(messages, complaints, strict=True))
