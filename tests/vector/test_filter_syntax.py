"""Test what the filter language accepts, and the positions of its errors."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.vector.errors import VectorError
from pytest_fakecloud.vector.filter import KEYWORDS, FieldTest, Joined, parse
from tests.harness import check_each
from tests.notations import rows

TABLES = Path(__file__).with_name("filters.txt")

ACCEPTED = [
    ("a = 1", FieldTest("a", "=", 1)),
    ("a=1", FieldTest("a", "=", 1)),
    ("a != 'x'", FieldTest("a", "!=", "x")),
    ('a = "it\'s"', FieldTest("a", "=", "it's")),
    (r"a = 'it\'s \"b\" \\'", FieldTest("a", "=", 'it\'s "b" \\')),
    ("a = TRUE", FieldTest("a", "=", True)),
    ("a = false", FieldTest("a", "=", False)),
    ("a <= -1.5", FieldTest("a", "<=", -1.5)),
    ("a > 0.0000000001", FieldTest("a", ">", 1e-10)),
    ("a > 1e3", FieldTest("a", ">", 1000.0)),
    ("a.b[0][#-1].c_d-e >= +2", FieldTest("a.b[0][#-1].c_d-e", ">=", 2)),
    ("a IN (1, 'x', true)", FieldTest("a", "IN", (1, "x", True))),
    ("a not in ('x')", FieldTest("a", "IN", ("x",), negated=True)),
    ("a GLOB '*x*'", FieldTest("a", "GLOB", "*x*")),
    ("a NOT GLOB 'x'", FieldTest("a", "GLOB", "x", negated=True)),
    ("a contains 1", FieldTest("a", "CONTAINS", 1)),
    ("a NOT CONTAINS 'x'", FieldTest("a", "CONTAINS", "x", negated=True)),
    ("HAS FIELD a.b", FieldTest("a.b", "HAS")),
    ("has not field a", FieldTest("a", "HAS", negated=True)),
    ("(((a = 1)))", FieldTest("a", "=", 1)),
    ("a = 1 OR b = 2 AND c = 3",
     Joined("OR", (
         FieldTest("a", "=", 1), Joined("AND", (FieldTest("b", "=", 2), FieldTest("c", "=", 3)))
     ))),
    ("(a = 1 OR b = 2) and\n c = 3",
     Joined("AND", (
         Joined("OR", (FieldTest("a", "=", 1), FieldTest("b", "=", 2))), FieldTest("c", "=", 3)
     ))),
    ("industries#-1] = 1", FieldTest("industries#-1]", "=", 1)),
    ("order = 1", FieldTest("order", "=", 1)),
    ("android = 1", FieldTest("android", "=", 1)),
    ("_x = 1", FieldTest("_x", "=", 1)),
    ("a < 'x'", FieldTest("a", "<", "x")),
    ("a >= true", FieldTest("a", ">=", True)),
    ("in in (1)", FieldTest("in", "IN", (1,))),
    ("not NOT IN (1)", FieldTest("not", "IN", (1,), negated=True)),
    ("has = 1 and HAS FIELD has", Joined("AND", (FieldTest("has", "=", 1), FieldTest("has", "HAS")))),
    ("has not contains 1", FieldTest("has", "CONTAINS", 1, negated=True)),
    ("HAS NOT FIELD not", FieldTest("not", "HAS", negated=True)),
    ("glob GLOB 'glob'", FieldTest("glob", "GLOB", "glob")),
    ("a = 1 OR or = 2", Joined("OR", (FieldTest("a", "=", 1), FieldTest("or", "=", 2)))),
]  # fmt: skip


def test_accepted() -> None:
    def check(text: str, tree: object) -> None:
        assert parse(text) == tree

    check_each(check, ACCEPTED)


def test_errors_name_line_and_column() -> None:
    def check(text: str, where: str) -> None:
        with pytest.raises(VectorError) as caught:
            parse(text)
        assert caught.value.status == 400
        assert caught.value.message.startswith(f"Invalid filter. At {where}")

    check_each(check, rows(TABLES, "errors"))


@pytest.mark.parametrize("word", sorted(KEYWORDS))
def test_no_name_is_reserved(word: str) -> None:
    """A field of any name can be used in every kind of condition."""
    for name in (word, word.lower()):
        for operator in ("=", "!=", "<", "<=", ">", ">="):
            assert parse(f"{name} {operator} 1") == FieldTest(name, operator, 1)
        assert parse(f"{name} IN (1)") == FieldTest(name, "IN", (1,))
        assert parse(f"{name} NOT GLOB '*'") == FieldTest(name, "GLOB", "*", negated=True)
        assert parse(f"(x = 1 AND {name} CONTAINS 1)") == Joined(
            "AND", (FieldTest("x", "=", 1), FieldTest(name, "CONTAINS", 1))
        )
        assert parse(f"HAS FIELD {name}") == FieldTest(name, "HAS")
        assert parse(f"HAS NOT FIELD {name}") == FieldTest(name, "HAS", negated=True)


def test_parentheses_nest_a_hundred_deep_and_no_deeper() -> None:
    assert parse("(" * 100 + "a = 1" + ")" * 100) == FieldTest("a", "=", 1)
    for text in ("(" * 101 + "a = 1" + ")" * 101, "(" * 10_000):
        with pytest.raises(VectorError, match="line 1:100 parentheses are nested more than 100"):
            parse(text)


def test_long_chains_are_no_nesting() -> None:
    tree = parse(" OR ".join(["a = 1"] * 5_000))
    assert isinstance(tree, Joined)
    assert len(tree.terms) == 5_000


@given(st.text(alphabet="ab.[]#-01 '\"\\()=!<>,ANDORHSFIELTGBCnotin\n", max_size=40))
def test_any_text_is_a_tree_or_a_service_error(text: str) -> None:
    with suppress(VectorError):
        parse(text)
