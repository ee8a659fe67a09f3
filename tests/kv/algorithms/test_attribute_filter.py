"""The filter expressions of VSIM, on one object of attributes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.kv.algorithms.attribute_filter import AttributeFilter, FilterError

ATTRIBUTES = (
    b'{"n": 5, "x": -2.5, "yes": true, "no": false, "s": "a\\"b", "empty": "", '
    b'"tags": ["a", 5, true], "null": null, "object": {"n": 1}, "huge": 1e308, "first_name": "Ann"}'
)
MATCHING = """
.n == 5|.n==5 and .x < 0|.n >= 5 && .n <= 5|.n != 4|.yes|!.no|not .no|.yes == 1|.no == 0|.s == "a\\"b"
.empty == ""|not .empty|.first_name == "Ann"|.n + 1 * 2 == 7|(.n + 1) * 2 == 12|.n % 3 == 2|.n / 2 == 2.5
2 ** 3 ** 2 == 512|-2 ** 2 == -4|2 ** -1 == .5|.x - -2.5 == 0|- - .n == 5|1e1 == 10|.no or .yes
1 || .none
.no and .none or .yes|not .no and .yes|not .n == 4|not not .yes|"a" in .tags|.n in .tags|.yes in [1, -2]
.x in [1, -2.5]|.first_name == 'Ann'
'a' in .tags|"b" in ["a", "b"]|(1 > 0) > 0|.tags|-5 % 3 == -2|.n in [5] and .s != "x"
"""
NOT_MATCHING = """
.n == 4|.none|.none == 1|not .none|.null|.object|.object == 1|.none or .yes|.n == "5"|.n != "5"|.s > "a"
.s + 1 == 2|.n / 0 == 1|.n % 0|.huge * 10 > 1|(0 - 8) ** .5 == 1|.n in .s|.n in 5|"c" in .tags|"a" in []
.tags == 5|.tags in [5]|.tags + 1|.empty|0|not .yes|10 ** 400|-"a" == 1
"""
INVALID = """
|   |.|.n ==|== 5|(.n|.n)|.n 5|[1|[1,]x|[.n]|5 in [.n]|"a|.n = 5|.n & 1|n == 5|.n === 5|true|in [1]
.n not in [1]|[1 2]|.n @ 1|1..2
"""


def rows(text: str) -> list[str]:
    return text.strip("\n").replace("\n", "|").replace("||", "\0").split("|")


@pytest.mark.parametrize("row", rows(MATCHING))
def test_matching(row: str) -> None:
    assert AttributeFilter(row.replace("\0", "||")).matches(ATTRIBUTES)


@pytest.mark.parametrize("row", rows(NOT_MATCHING))
def test_not_matching(row: str) -> None:
    assert not AttributeFilter(row).matches(ATTRIBUTES)


@pytest.mark.parametrize("row", [*rows(INVALID), "(" * 101 + "1" + ")" * 101, "1" + " ** 1" * 101])
def test_invalid(row: str) -> None:
    with pytest.raises(FilterError):
        AttributeFilter(row)


def test_long_expressions_are_not_nested() -> None:
    assert AttributeFilter("not " * 10_000 + ".yes").matches(ATTRIBUTES)
    assert AttributeFilter(" and ".join([".yes"] * 300)).matches(ATTRIBUTES)


@pytest.mark.parametrize("attributes", [None, b"[1]", b"7", b"{}"])
def test_elements_without_the_attribute(attributes: bytes | None) -> None:
    assert not AttributeFilter(".n").matches(attributes)
    assert AttributeFilter("1").matches(attributes) is (attributes == b"{}")


@given(st.text(alphabet='.n1"[]()+-*/%<>=!&| ainordt,', max_size=30))
def test_any_text_is_an_expression_or_an_error(text: str) -> None:
    with suppress(FilterError):
        AttributeFilter(text).matches(ATTRIBUTES)
