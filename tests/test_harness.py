"""What the tests share fails when it should."""

from __future__ import annotations

import pytest

from .harness import check_each


def test_every_row_that_does_not_hold_is_named() -> None:
    def check(word: str, number: int) -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            int(word)
        assert number < 3, f"{number} is too much"

    with pytest.raises(AssertionError) as told:
        check_each(check, [("a", 1), ("2", 2), ("c", 4)])
    lines = str(told.value).splitlines()
    assert lines[0] == "2 of 3 rows do not hold:"
    assert lines[1].startswith("('2', 2): Failed: DID NOT RAISE")
    assert lines[2].startswith("('c', 4): AssertionError: 4 is too much")
    check_each(check, [("a", 1), ("b", 2)])


def test_a_table_without_rows_holds_nothing() -> None:
    with pytest.raises(AssertionError, match="no row"):
        check_each(lambda: None, [])
