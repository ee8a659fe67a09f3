"""The shared test helpers fail when they should."""

from __future__ import annotations

import inspect

import pytest

from .harness import check_each, together


def test_every_row_that_does_not_hold_is_named() -> None:
    def check(word: str, number: int) -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            int(word)
        assert number < 3, f"{number} is too much"

    with pytest.raises(AssertionError) as caught:
        check_each(check, [("a", 1), ("2", 2), ("c", 4)])
    lines = str(caught.value).splitlines()
    assert lines[0] == "2 of 3 rows do not hold:"
    assert lines[1].startswith("('2', 2): Failed: DID NOT RAISE")
    assert lines[2].startswith("('c', 4): AssertionError: 4 is too much")
    check_each(check, [("a", 1), ("b", 2)])


def test_a_table_without_rows_holds_nothing() -> None:
    with pytest.raises(AssertionError, match="no row"):
        check_each(lambda: None, [])


class Table:
    @pytest.mark.slow
    @pytest.mark.parametrize("first", [1, 2])
    @pytest.mark.parametrize(("second", "third"), [("a", "b"), ("c", "d")])
    def test(self, run: list[object], first: int, second: str, third: str) -> None:
        run.append((first, second, third))
        assert (first, second) != (2, "c")


def test_parameters_taken_together_are_all_of_them_and_named() -> None:
    every = together(Table.test)
    run: list[object] = []
    with pytest.raises(AssertionError, match=r"1 of 4 rows .*\n.*'second': 'c'.*'first': 2"):
        every(Table(), run=run)
    assert sorted(run) == [(1, "a", "b"), (1, "c", "d"), (2, "a", "b"), (2, "c", "d")]  # type: ignore[type-var]
    assert list(inspect.signature(every).parameters) == ["self", "run"]
    assert [mark.name for mark in every.pytestmark] == ["slow"]  # type: ignore[attr-defined]
