"""Test which metadata matches a filter, rule by rule and against a reference, and explanations."""

from __future__ import annotations

import fnmatch
import operator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.vector.errors import VectorError
from pytest_fakecloud.vector.filter import (
    Expression,
    FieldTest,
    Joined,
    Literal,
    compile_filter,
    glob_matcher,
    why_not,
)
from tests.harness import check_each
from tests.notations import rows

TABLES = Path(__file__).with_name("filters.txt")

CITY: dict[str, Any] = {
    "pop": 15, "geo": {"cont": "Asia", "pos": {"lat": -35.5}}, "tags": ["a", "b"], "cap": False,
    "census": None, "name": "Ankara", "tiny": 1e-10, "rows": [[1, 2], [3, 4]], "zero": 0,
    "people": [{"name": "x"}, {"name": "y"}],
}  # fmt: skip


def test_rules() -> None:
    def check(text: str, passes: str) -> None:
        assert str(compile_filter(text)(CITY)).lower() == passes

    check_each(check, rows(TABLES, "rules"))


def test_a_record_without_metadata_lacks_every_field() -> None:
    assert compile_filter("a != 1")(None) is False
    assert compile_filter("a.b != 1")(None) is False
    assert compile_filter("HAS FIELD a")(None) is False
    assert compile_filter("HAS NOT FIELD a")(None) is True


# -- against a reference -------------------------------------------------------------------------

LITERALS: st.SearchStrategy[Literal] = st.sampled_from(
    [0, 1, -2, 1.5, "a", "b", "it's", True, False]
)
VALUES = st.recursive(
    st.none() | LITERALS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)
METADATA = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)
STEPS = st.sampled_from([".a", ".b", "[0]", "[1]", "[#-1]"])
PATHS = st.tuples(st.sampled_from("abc"), st.lists(STEPS, max_size=2).map("".join)).map("".join)
OPERANDS = {
    **dict.fromkeys(("=", "!=", "CONTAINS"), LITERALS),
    **dict.fromkeys(("<", "<=", ">", ">="), st.sampled_from([0, 1, -2, 1.5])),
    "IN": st.lists(LITERALS, min_size=1, max_size=3).map(tuple),
    "HAS": st.none(),
}
TERMS: st.SearchStrategy[Expression] = st.one_of(
    st.builds(
        FieldTest,
        PATHS,
        st.just(word),
        operands,
        st.booleans() if word.isalpha() else st.just(False),
    )
    for word, operands in OPERANDS.items()
)
TREES: st.SearchStrategy[Expression] = st.recursive(
    TERMS,
    lambda inner: st.builds(
        Joined, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3).map(tuple)
    ),
    max_leaves=6,
)


def written(tree: Expression) -> str:
    if isinstance(tree, Joined):
        return "(" + f" {tree.word} ".join(map(written, tree.terms)) + ")"
    negated = "NOT " if tree.negated else ""
    if tree.operator == "HAS":
        return f"HAS {negated}FIELD {tree.path}"
    several = tree.operator == "IN"
    operand = f"({', '.join(map(literal, tree.operand))})" if several else literal(tree.operand)
    return f"{tree.path} {negated}{tree.operator} {operand}"


def literal(value: Literal) -> str:
    if isinstance(value, str):
        return '"' + value + '"'
    return str(value)


class Lacking(Exception):
    pass


def found(path: str, metadata: Any) -> Any:
    value = metadata
    for step in path.replace("[", ".[").split("."):
        try:
            if step.startswith("[#-"):
                value = value[-int(step[3:-1])] if isinstance(value, list) else {}[step]
            elif step.startswith("["):
                value = value[int(step[1:-1])] if isinstance(value, list) else {}[step]
            else:
                value = value[step] if isinstance(value, dict) else {}[step]
        except (KeyError, IndexError):
            raise Lacking from None
    return value


def passes(tree: Expression, metadata: Any) -> bool:
    """Evaluate a filter directly by the documented rules."""
    if isinstance(tree, Joined):
        join = all if tree.word == "AND" else any
        return join(passes(term, metadata) for term in tree.terms)
    try:
        value = found(tree.path, metadata)
    except Lacking:
        return tree.operator == "HAS" and tree.negated
    if tree.operator == "HAS":
        return not tree.negated
    scalar = isinstance(value, str | int | float)
    if tree.operator == "CONTAINS":
        if not isinstance(value, list):
            return False
        inside = any(isinstance(v, str | int | float) and v == tree.operand for v in value)
        return inside != tree.negated
    if tree.operator == "IN":
        return scalar and (value in tree.operand) != tree.negated
    if tree.operator in ("=", "!="):
        return scalar and (value == tree.operand) == (tree.operator == "=")
    if not isinstance(value, int | float):
        return False
    orderings = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
    return bool(orderings[tree.operator](value, tree.operand))


@given(tree=TREES, metadata=METADATA)
@pytest.mark.slow
def test_filters_agree_with_the_reference(tree: Expression, metadata: dict[str, Any]) -> None:
    assert compile_filter(written(tree))(metadata) is passes(tree, metadata)


# -- GLOB ----------------------------------------------------------------------------------------


GLOBS = [
    ("", "", True), ("", "a", False), ("*", "", True), ("a*b", "ab", True), ("a*a", "a", False),
    ("*ab", "aab", True), ("[abc]x", "bx", True), ("[a-c]x", "dx", False), ("[c-a]x", "bx", True),
    ("[^abc]x", "dx", True), ("[^abc]x", "ax", False), ("[^]]", "]", False), ("[]]", "]", True),
    ("[-a]", "-", True), ("[abc", "[abc", True), ("[", "[", True), ("a.c", "abc", False),
    ("a?c", "a\nc", True), ("*é?", "caféx", True),
]  # fmt: skip


def test_glob() -> None:
    def check(pattern: str, text: str, matches: bool) -> None:
        assert glob_matcher(pattern)(text) is matches

    check_each(check, GLOBS)


@given(pattern=st.text(alphabet="ab*?", max_size=10), text=st.text(alphabet="ab", max_size=12))
def test_glob_agrees_with_the_standard_library(pattern: str, text: str) -> None:
    assert glob_matcher(pattern)(text) is fnmatch.fnmatchcase(text, pattern)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "pattern", ["*a" * 2000 + "b", "*" * 5000 + "b", "a*" * 2000 + "[b]", "*[ab]?" * 800 + "c"]
)
def test_no_glob_is_catastrophic(pattern: str) -> None:
    assert glob_matcher(pattern)("a" * 40_000) is False


# -- explanation ---------------------------------------------------------------------------------

RECORD: dict[str, Any] = {"city": "Bern", "n": 4, "tags": ["a", "b"], "open": True, "none": None}


def test_the_first_condition_that_does_not_hold() -> None:
    def check(text: str, why: str) -> None:
        assert str(why_not(text, RECORD)) == why

    check_each(check, rows(TABLES, "reasons"))


def test_nothing_is_there_where_there_is_no_metadata() -> None:
    assert why_not("zip = 1", None) == "zip is absent (no metadata)"


def test_null_is_told_as_such() -> None:
    assert str(why_not("none = 1", RECORD)).startswith("none is null, compared with")


def test_a_filter_that_is_none_is_refused() -> None:
    with pytest.raises(VectorError):
        why_not("city =", RECORD)
