"""Test the explanation of why a filter excludes a record."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_fakecloud.vector.errors import VectorError
from pytest_fakecloud.vector.filter.explain import why_not
from tests.harness import check_each

RECORD: dict[str, Any] = {"city": "Bern", "n": 4, "tags": ["a", "b"], "open": True, "none": None}


def test_the_first_condition_that_does_not_hold() -> None:
    def check(text: str, why: str | None) -> None:
        assert why_not(text, RECORD) == why

    check_each(
        check,
        [
            ("city = 'Bern'", None),
            ("city = 'Bern' AND n > 3", None),
            ("city = 'Basel' OR n = 4", None),
            ("city = 'Basel'", 'city is the string "Bern", compared with the string "Basel"'),
            ("n >= 5", "n is the number 4, compared by >= with the number 5"),
            (
                "city = 'Bern' AND n < 2 AND open = false",
                "n is the number 4, compared by < with the number 2",
            ),
            (
                "city = 'Basel' OR n = 5",
                'city is the string "Bern", compared with the string "Basel", and n is the number 4, '
                "compared with the number 5",
            ),
            ("zip = 3000", "zip is absent (its metadata has only city, n, none, open, tags)"),
            ("HAS FIELD zip", "zip is absent"),
            ("HAS NOT FIELD city", "city is present"),
            (
                "city IN ('Basel', 'Chur')",
                'city is the string "Bern", not one of the string "Basel", the string "Chur"',
            ),
            ("n NOT IN (4, 5)", "n is the number 4, excluded by the number 4, the number 5"),
            ("city GLOB 'Z*'", 'city is the string "Bern", compared with the pattern "Z*"'),
            ("tags CONTAINS 'c'", 'tags is the array ["a", "b"], searched for the string "c"'),
            ("open = false", "open is the boolean true, compared with the boolean false"),
        ],
    )


def test_nothing_is_there_where_there_is_no_metadata() -> None:
    assert why_not("zip = 1", None) == "zip is absent (no metadata)"


def test_null_is_told_as_such() -> None:
    assert str(why_not("none = 1", RECORD)).startswith("none is null, compared with")


def test_a_filter_that_is_none_is_refused() -> None:
    with pytest.raises(VectorError):
        why_not("city =", RECORD)
