"""Test what the filter language accepts, and the positions of its errors."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.vector.errors import VectorError
from pytest_fakecloud.vector.filter.syntax import (
    KEYWORDS,
    And,
    Compare,
    Contains,
    Glob,
    HasField,
    In,
    Or,
    parse,
)
from tests.harness import check_each

ACCEPTED = [
    ("a = 1", Compare("a", "=", 1)),
    ("a=1", Compare("a", "=", 1)),
    ("a != 'x'", Compare("a", "!=", "x")),
    ('a = "it\'s"', Compare("a", "=", "it's")),
    (r"a = 'it\'s \"b\" \\'", Compare("a", "=", 'it\'s "b" \\')),
    ("a = TRUE", Compare("a", "=", True)),
    ("a = false", Compare("a", "=", False)),
    ("a <= -1.5", Compare("a", "<=", -1.5)),
    ("a > 0.0000000001", Compare("a", ">", 1e-10)),
    ("a > 1e3", Compare("a", ">", 1000.0)),
    ("a.b[0][#-1].c_d-e >= +2", Compare("a.b[0][#-1].c_d-e", ">=", 2)),
    ("a IN (1, 'x', true)", In("a", (1, "x", True), False)),
    ("a not in ('x')", In("a", ("x",), True)),
    ("a GLOB '*x*'", Glob("a", "*x*", False)),
    ("a NOT GLOB 'x'", Glob("a", "x", True)),
    ("a contains 1", Contains("a", 1, False)),
    ("a NOT CONTAINS 'x'", Contains("a", "x", True)),
    ("HAS FIELD a.b", HasField("a.b", False)),
    ("has not field a", HasField("a", True)),
    ("(((a = 1)))", Compare("a", "=", 1)),
    ("a = 1 OR b = 2 AND c = 3",
     Or((Compare("a", "=", 1), And((Compare("b", "=", 2), Compare("c", "=", 3)))))),
    ("(a = 1 OR b = 2) and\n c = 3",
     And((Or((Compare("a", "=", 1), Compare("b", "=", 2))), Compare("c", "=", 3)))),
    ("industries#-1] = 1", Compare("industries#-1]", "=", 1)),
    ("order = 1", Compare("order", "=", 1)),
    ("android = 1", Compare("android", "=", 1)),
    ("_x = 1", Compare("_x", "=", 1)),
    ("a < 'x'", Compare("a", "<", "x")),
    ("a >= true", Compare("a", ">=", True)),
    ("in in (1)", In("in", (1,), False)),
    ("not NOT IN (1)", In("not", (1,), True)),
    ("has = 1 and HAS FIELD has", And((Compare("has", "=", 1), HasField("has", False)))),
    ("has not contains 1", Contains("has", 1, True)),
    ("HAS NOT FIELD not", HasField("not", True)),
    ("glob GLOB 'glob'", Glob("glob", "glob", False)),
    ("a = 1 OR or = 2", Or((Compare("a", "=", 1), Compare("or", "=", 2)))),
]  # fmt: skip


def test_accepted() -> None:
    def check(text: str, tree: object) -> None:
        assert parse(text) == tree

    check_each(check, ACCEPTED)


ERRORS = [
    ("industries[] = 'x'", "line 1:10 token recognition error at: '['"),
    ("industries[", "line 1:10 token recognition error at: '['"),
    (".a = 1", "line 1:0 token recognition error at: '.'"),
    ("a = 'x", "line 1:4 token recognition error at: ''x'"),
    ("a ~ 1", "line 1:2 token recognition error at: '~'"),
    ("a = 1\nAND b ! 2", "line 2:6 token recognition error at: '!'"),
    ("a =", "line 1:3 mismatched input <EOF> expecting a string, a number, true or false"),
    ("a == 1", "line 1:3 mismatched input '='"),
    ("a = null", "line 1:4 mismatched input 'null'"),
    ("a < b", "line 1:4 mismatched input 'b' expecting a string, a number, true or false"),
    ("a GLOB 1", "line 1:7 mismatched input '1' expecting a string"),
    ("a IN ()", "line 1:6 mismatched input ')'"),
    ("a IN 1", "line 1:5 mismatched input '1' expecting '('"),
    ("a IN (1", "line 1:7 mismatched input <EOF> expecting ',' or ')'"),
    ("a NOT = 1", "line 1:6 mismatched input '=' expecting IN, GLOB or CONTAINS"),
    ("NOT a = 1", "line 1:0 mismatched input 'NOT'"),
    ("a = 1 b = 2", "line 1:6 mismatched input 'b' expecting AND, OR"),
    ("a = 1 AND", "line 1:9 mismatched input <EOF>"),
    ("(a = 1", "line 1:6 mismatched input <EOF> expecting ')'"),
    ("a = 1)", "line 1:5 mismatched input ')'"),
    ("HAS a", "line 1:4 mismatched input 'a' expecting FIELD or NOT FIELD"),
    ("HAS FIELD 1", "line 1:10 mismatched input '1' expecting a field"),
    ("1 = a", "line 1:0 mismatched input '1'"),
    ("and", "line 1:0 mismatched input 'and' expecting a field"),
    ("and b = 1", "line 1:0 mismatched input 'and' expecting a field"),
    ("in not = 1", "line 1:0 mismatched input 'in' expecting a field"),
    ("a = 1 AND OR b = 2", "line 1:10 mismatched input 'OR' expecting a field"),
    ("a = 1 OR OR", "line 1:9 mismatched input 'OR' expecting a field"),
    ("HAS NOT a", "line 1:8 mismatched input 'a' expecting FIELD"),
    ("HAS NOT", "line 1:7 mismatched input <EOF> expecting FIELD"),
    ("HAS", "line 1:3 mismatched input <EOF> expecting FIELD or NOT FIELD"),
    ("HAS FIELD", "line 1:9 mismatched input <EOF> expecting a field"),
    ("   ", "line 1:3 mismatched input <EOF>"),
]


def test_errors_name_line_and_column() -> None:
    def check(text: str, where: str) -> None:
        with pytest.raises(VectorError) as caught:
            parse(text)
        assert caught.value.status == 400
        assert caught.value.message.startswith(f"Invalid filter. At {where}")

    check_each(check, ERRORS)


@pytest.mark.parametrize("word", sorted(KEYWORDS))
def test_no_name_is_reserved(word: str) -> None:
    """A field of any name can be used in every kind of condition."""
    for name in (word, word.lower()):
        for operator in ("=", "!=", "<", "<=", ">", ">="):
            assert parse(f"{name} {operator} 1") == Compare(name, operator, 1)
        assert parse(f"{name} IN (1)") == In(name, (1,), False)
        assert parse(f"{name} NOT GLOB '*'") == Glob(name, "*", True)
        assert parse(f"(x = 1 AND {name} CONTAINS 1)") == And(
            (Compare("x", "=", 1), Contains(name, 1, False))
        )
        assert parse(f"HAS FIELD {name}") == HasField(name, False)
        assert parse(f"HAS NOT FIELD {name}") == HasField(name, True)


def test_parentheses_nest_a_hundred_deep_and_no_deeper() -> None:
    assert parse("(" * 100 + "a = 1" + ")" * 100) == Compare("a", "=", 1)
    for text in ("(" * 101 + "a = 1" + ")" * 101, "(" * 10_000):
        with pytest.raises(VectorError, match="line 1:100 parentheses are nested more than 100"):
            parse(text)


def test_long_chains_are_no_nesting() -> None:
    tree = parse(" OR ".join(["a = 1"] * 5_000))
    assert isinstance(tree, Or)
    assert len(tree.terms) == 5_000


@given(st.text(alphabet="ab.[]#-01 '\"\\()=!<>,ANDORHSFIELTGBCnotin\n", max_size=40))
def test_any_text_is_a_tree_or_a_service_error(text: str) -> None:
    with suppress(VectorError):
        parse(text)
